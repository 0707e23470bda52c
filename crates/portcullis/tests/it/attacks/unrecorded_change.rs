//! A change of who may do what, or a subscription, that leaves no trace in the audit log.

use crate::admin::{Admin, PASSWORD};
use crate::support::{home, http};
use portcullis_testkit::process::{TestHome, run};
use portcullis_testkit::wait::until;
use serde_json::{Value, json};

/// What is looked for: who, what, to what, and how it ended.
type Expected = (&'static str, &'static str, &'static str, &'static str);

fn log(home: &TestHome) -> Vec<Value> {
    let path = home.path().join("workspace/secure/audit/audit.jsonl");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Returns which of them the log does not tell, begin and end.
fn missing(log: &[Value], expected: &[Expected]) -> Vec<Expected> {
    let is_told = |(actor, action, details, outcome): &Expected| {
        let is_it = |line: &&Value| line["client"] == *actor && line["target"] == *action;
        log.iter().filter(is_it).any(|begin| {
            begin["args"].as_str().is_some_and(|args| args.contains(details))
                && log.iter().filter(is_it).any(|end| {
                    end["begin"] == begin["seq"] && end["outcome"] == *outcome && end["kind"] == begin["kind"]
                })
        })
    };
    expected.iter().filter(|expected| !is_told(expected)).copied().collect()
}

/// Waits until all of it is told. The hub takes over what commands did a moment later.
async fn told(home: &TestHome, expected: &[Expected]) {
    until("everything is on the record", async || {
        home.run(&["audit", "verify"]).await;
        missing(&log(home), expected).is_empty().then_some(())
    })
    .await;
}

fn user() -> &'static str {
    format!("user:{}", rustix::process::getuid().as_raw()).leak()
}

async fn secret(home: &TestHome, name: &str) {
    let set =
        run(home.command(&["secrets", "set", name, "--grant", "api.example.com"]), "a-value-of-it-8d1f2b7c")
            .await;
    assert_eq!(set.code, 0, "{}", set.stderr);
}

async fn does(home: &TestHome, args: &[&str]) {
    let ran = home.run(args).await;
    assert_eq!(ran.code, 0, "{args:?}: {}", ran.stderr);
}

#[tokio::test]
async fn by_a_command_is_recorded_while_a_hub_runs_and_before() {
    let home = home();
    // Nobody is there to record this yet.
    does(&home, &["clients", "add", "early"]).await;
    secret(&home, "KEY").await;
    let hub = home.serve().await;
    does(&home, &["clients", "revoke", "early"]).await;
    does(&home, &["secrets", "grant", "KEY", "files.example.com"]).await;
    does(&home, &["secrets", "remove", "KEY"]).await;
    does(&home, &["mcp", "add", "far", "--no-test", "--", "/bin/true"]).await;
    does(&home, &["mcp", "disable", "far"]).await;
    does(&home, &["mcp", "remove", "far"]).await;
    does(&home, &["admin", "link"]).await;
    does(&home, &["admin", "sign-out", "--all"]).await;
    does(&home, &["init", "--force"]).await;
    assert_ne!(home.run(&["clients", "revoke", "nobody"]).await.code, 0);
    // A value where the name should be is no part of the record.
    assert_ne!(home.run(&["secrets", "set", "not/a/name"]).await.code, 0);
    let user = user();
    let expected = [
        (user, "clients.add", "\"early\"", "ok"),
        (user, "secrets.set", "api.example.com", "ok"),
        (user, "clients.revoke", "\"early\"", "ok"),
        (user, "secrets.grant", "files.example.com", "ok"),
        (user, "secrets.remove", "\"KEY\"", "ok"),
        (user, "mcp.add", "\"far\"", "ok"),
        (user, "mcp.disable", "\"far\"", "ok"),
        (user, "mcp.remove", "\"far\"", "ok"),
        (user, "admin.link", "{}", "ok"),
        (user, "admin.sign_out", "\"all\":true", "ok"),
        (user, "init", "\"force\":true", "ok"),
        (user, "clients.revoke", "\"nobody\"", "not_found"),
    ];
    told(&home, &expected).await;
    let log = log(&home);
    assert!(log.iter().all(|line| !line.to_string().contains("not/a/name")));
    assert!(log.iter().all(|line| !line.to_string().contains("a-value-of-it-8d1f2b7c")));
    // The check can fail: a log without what people did, or without how it ended, lacks all of it.
    let without = |key: &str, value: &str| -> Vec<Value> {
        log.iter().filter(|line| line[key] != value).cloned().collect()
    };
    assert_eq!(missing(&without("kind", "change"), &expected), expected);
    assert_eq!(missing(&without("phase", "end"), &expected), expected);
    drop(hub);
}

#[tokio::test]
async fn by_an_administrator_is_recorded() {
    let home = home();
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    ann.does("POST", "/clients", json!({ "name": "ci", "effects": ["read"] })).await;
    ann.does("PUT", "/clients/ci", json!({ "allow": ["memory_*"], "effects": ["read"] })).await;
    ann.does(
        "PUT",
        "/secrets/KEY",
        json!({ "value": "a-value-of-it-8d1f2b7c", "grants": ["api.example.com"] }),
    )
    .await;
    ann.does("DELETE", "/secrets/KEY", json!({})).await;
    ann.does("DELETE", "/clients/ci", json!({})).await;
    ann.does("POST", "/servers", json!({ "name": "far", "command": "/bin/true" })).await;
    until("the hub has loaded it", async || {
        (ann.send("DELETE", "/servers/far", json!({})).await.status() == 200).then_some(())
    })
    .await;
    let new = "another correct horse battery staple";
    ann.does("POST", "/password", json!({ "old": PASSWORD, "new": new })).await;
    assert_eq!(ann.send("DELETE", "/sessions/nobody", json!({})).await.status(), 404);
    assert_eq!(ann.send("DELETE", "/clients/ci", json!({})).await.status(), 404);
    let expected = [
        ("admin:ann", "clients.add", "\"ci\"", "ok"),
        ("admin:ann", "clients.change", "memory_*", "ok"),
        ("admin:ann", "secrets.set", "api.example.com", "ok"),
        ("admin:ann", "secrets.remove", "\"KEY\"", "ok"),
        ("admin:ann", "clients.revoke", "\"ci\"", "ok"),
        ("admin:ann", "clients.revoke", "\"ci\"", "not_found"),
        ("admin:ann", "mcp.add", "\"far\"", "ok"),
        ("admin:ann", "mcp.remove", "\"far\"", "ok"),
        ("admin:ann", "admin.password", "\"ann\"", "ok"),
        ("admin:ann", "admin.sign_out", "\"nobody\"", "not_found"),
    ];
    told(&home, &expected).await;
    assert!(log(&home).iter().all(|line| !line.to_string().contains("a-value-of-it-8d1f2b7c")));
    // And is found where administrators look.
    let page = ann.sees("/audit?tool=clients.*").await;
    assert_eq!(page["records"].as_array().unwrap().len(), 8, "{page}");
    ann.does("POST", "/sign-out-everywhere", json!({})).await;
    told(&home, &[("admin:ann", "admin.sign_out", "\"all\":true", "ok")]).await;
}

#[tokio::test]
async fn a_subscription_is_recorded_and_so_is_one_that_was_refused() {
    let home = home();
    home.write("watched.txt", "before");
    let hub = home.serve().await;
    let uri = "workspace:///watched.txt";
    let mut session = http(&hub, "2025-11-25").await;
    session.result("resources/subscribe", json!({ "uri": uri })).await;
    session.refused("resources/subscribe", json!({ "uri": "other://place" })).await;
    let mut newest = http(&hub, "2026-07-28").await;
    newest.listen(json!({ "resourceSubscriptions": [uri] })).await;
    let expected = [
        ("default", uri, "{}", "ok"),
        ("default", "other://place", "{}", "unknown"),
        ("default", "subscriptions/listen", uri, "ok"),
    ];
    told(&home, &expected).await;
    let kinds: Vec<Value> = log(&home)
        .iter()
        .filter(|line| line["phase"] == "begin" && line["kind"] != "tool")
        .map(|line| line["kind"].clone())
        .collect();
    assert_eq!(kinds, ["subscribe", "subscribe", "listen"]);
}

/// Without a record there is no change.
#[tokio::test]
async fn is_not_made_where_it_cannot_be_recorded() {
    let home = home();
    let audit = home.path().join("workspace/secure/audit");
    does(&home, &["clients", "add", "early"]).await;
    std::fs::remove_dir_all(&audit).unwrap();
    std::fs::write(&audit, "in the way").unwrap();
    for args in [&["clients", "add", "late"][..], &["clients", "revoke", "early"]] {
        let refused = home.run(args).await;
        assert_eq!(refused.code, 1);
        assert!(
            refused.stderr.contains("the change was not made, because it cannot be recorded"),
            "{}",
            refused.stderr
        );
    }
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let refused = ann.send("POST", "/clients", json!({ "name": "late" })).await;
    assert_eq!(refused.status(), 503, "{}", refused.text());
    let clients = home.run(&["clients", "list"]).await.stdout;
    assert!(clients.contains("early") && !clients.contains("late"), "{clients}");
    // The check can fail: with the log in its place, the same order is carried out.
    std::fs::remove_file(&audit).unwrap();
    until("the log can be written again", async || {
        (ann.send("POST", "/clients", json!({ "name": "late" })).await.status() == 200).then_some(())
    })
    .await;
    assert!(home.run(&["clients", "list"]).await.stdout.contains("late"));
}
