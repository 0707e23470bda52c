//! Calls that a person decides about from the API.

use super::{Admin, problem};
use crate::support::{home, http, text};
use portcullis_testkit::process::{TestHome, UNHURRIED};
use portcullis_testkit::wait::until;
use serde_json::{Value, json};

fn asking(wait_secs: u64) -> TestHome {
    let home = home();
    home.configure(&format!(
        "{UNHURRIED}[approvals]\nwait_secs = {wait_secs}\n# mine\n[[policy]]\ntools = [\"workspace_write\"]\ndecision = \"ask\"\n"
    ));
    home
}

fn note(content: &str) -> Value {
    json!({ "path": "note.md", "content": content })
}

async fn waiting(admin: &Admin) -> Value {
    until("something waits", async || {
        let list = admin.sees("/approvals").await["approvals"].clone();
        list.as_array().unwrap().first().cloned()
    })
    .await
}

fn path(approval: &Value) -> String {
    format!("/approvals/{}", approval["id"].as_str().unwrap())
}

#[tokio::test]
async fn a_call_that_waits_goes_on_when_somebody_approves_it() {
    let home = asking(25);
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let mut client = http(&hub, "2025-06-18").await;
    let deciding = async {
        let shown = waiting(&ann).await;
        assert_eq!((&shown["client"], &shown["target"]), (&json!("default"), &json!("workspace_write")));
        let whole = ann.sees(&path(&shown)).await;
        assert_eq!((&whole["is_as_asked"], &whole["last_time"]), (&json!(true), &Value::Null), "{whole}");
        assert!(whole["why"].as_str().unwrap().contains("Rule 0"), "{whole}");
        let yes = json!({ "decision": "once", "digest": shown["digest"] });
        ann.does("POST", &path(&shown), yes).await
    };
    let (result, decided) = tokio::join!(client.call("workspace_write", note("one")), deciding);
    assert_eq!(decided["approval"]["decided"]["by"], "admin ann");
    assert_eq!(result["isError"], false, "{result}");
    assert_eq!(std::fs::read_to_string(home.files().join("note.md")).unwrap(), "one");

    // The next time it is shown what is different.
    let deciding = async {
        let shown = waiting(&ann).await;
        let whole = ann.sees(&path(&shown)).await;
        ann.does("POST", &path(&shown), json!({ "decision": "reject", "digest": shown["digest"] })).await;
        whole
    };
    let (_, whole) = tokio::join!(client.call("workspace_write", note("two")), deciding);
    let lines = whole["last_time"]["arguments"]["lines"].as_array().unwrap();
    let told: Vec<&str> =
        lines.iter().filter(|l| l["how"] != "same").map(|l| l["text"].as_str().unwrap().trim()).collect();
    assert!(told.len() == 2 && told[0].contains("one") && told[1].contains("two"), "{told:?}");
}

#[tokio::test]
async fn of_two_who_decide_at_once_the_second_learns_of_the_first() {
    let home = asking(0);
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let link = home.run(&["admin", "link", "--json"]).await.json();
    let link = link["link"].as_str().unwrap().split_once('#').unwrap().1.to_owned();
    let bob = Admin::welcome(hub.address, &link, "bob").await;
    let mut client = http(&hub, "2025-06-18").await;
    for round in 0..5 {
        client.call("workspace_write", note(&format!("round {round}"))).await;
        let shown = waiting(&ann).await;
        let (path, digest) = (path(&shown), shown["digest"].clone());
        let yes = ann.send("POST", &path, json!({ "decision": "once", "digest": digest }));
        let no = bob.send("POST", &path, json!({ "decision": "reject", "reason": "no", "digest": digest }));
        let (yes, no) = tokio::join!(yes, no);
        let (first, second, name) = if yes.status() == 200 { (yes, no, "ann") } else { (no, yes, "bob") };
        assert_eq!((first.status(), second.status()), (200, 409), "{} {}", first.text(), second.text());
        let told = second.json();
        assert!(told["message"].as_str().unwrap().ends_with(&format!("already, by admin {name}")), "{told}");
        assert_eq!(problem(&second), "conflict");
    }
}

/// What the command line can do: a no becomes a yes, and a yes that is not used up is taken back. Only by who saw it.
#[tokio::test]
async fn a_decision_can_be_changed_by_who_has_seen_it() {
    let home = asking(0);
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let mut client = http(&hub, "2025-06-18").await;
    client.call("workspace_write", note("one")).await;
    let shown = waiting(&ann).await;
    let path = path(&shown);
    let decide = |decision: &str, seen: &Value| json!({ "decision": decision, "digest": shown["digest"], "seen": seen });
    let early = ann.send("POST", &path, decide("session", &json!("2026-01-01T00:00:00Z"))).await;
    assert_eq!((early.status(), problem(&early)), (409, "changed".to_owned()), "{}", early.text());
    let decided = ann.does("POST", &path, decide("session", &Value::Null)).await;
    let yes = decided["approval"].clone();
    assert_eq!((&yes["may_approve"], &yes["may_reject"]), (&json!(false), &json!(true)), "{yes}");

    // Who did not see the yes, or saw another one, does not take it back.
    for seen in [Value::Null, json!("2026-01-01T00:00:00Z")] {
        let reply = ann.send("POST", &path, decide("reject", &seen)).await;
        assert_eq!((reply.status(), problem(&reply)), (409, "conflict".to_owned()), "{seen}");
    }
    let no = ann.does("POST", &path, decide("reject", &yes["decided"]["at"])).await["approval"].clone();
    assert_eq!((&no["state"], &no["may_approve"]), (&json!("rejected"), &json!(true)));
    let refused = client.call("workspace_write", note("one")).await;
    assert!(refused["isError"] == true && text(&refused).contains("was not approved"), "{refused}");

    // And the other way round; then it is used up, and nothing can be taken back.
    let yes = ann.does("POST", &path, decide("once", &no["decided"]["at"])).await["approval"].clone();
    assert_eq!(client.call("workspace_write", note("one")).await["isError"], false);
    let late = ann.send("POST", &path, decide("reject", &yes["decided"]["at"])).await;
    assert_eq!((late.status(), problem(&late)), (409, "conflict".to_owned()), "{}", late.text());
    assert!(late.text().contains("is used already"), "{}", late.text());
}

#[tokio::test]
async fn what_is_not_as_it_was_shown_is_not_approved() {
    let home = asking(0);
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let mut client = http(&hub, "2025-06-18").await;
    client.call("workspace_write", note("one")).await;
    let shown = waiting(&ann).await;
    let other = "0".repeat(64);
    // Without a word of what was seen nothing is decided.
    let reply = ann.send("POST", &path(&shown), json!({ "decision": "once" })).await;
    assert_eq!((reply.status(), problem(&reply)), (400, "invalid".to_owned()));
    assert!(reply.text().contains("missing field `digest`"), "{}", reply.text());
    let reply = ann.send("POST", &path(&shown), json!({ "decision": "once", "digest": other })).await;
    assert_eq!((reply.status(), problem(&reply)), (409, "changed".to_owned()));
    // As if the tool had been something else when it was asked about.
    let edit = "UPDATE approvals SET record = json_set(record, '$.call.definition', printf('%064d', 0))";
    home.edit_rows("approvals", edit).await;
    let decision = json!({ "decision": "once", "digest": shown["digest"] });
    let reply = ann.send("POST", &path(&shown), decision.clone()).await;
    assert_eq!((reply.status(), problem(&reply)), (409, "changed".to_owned()), "{}", reply.text());
    assert_eq!(waiting(&ann).await["state"], "pending", "nothing half done");
    let reply = ann.send("POST", "/approvals/nothing", decision).await;
    assert_eq!((reply.status(), problem(&reply)), (404, "not_found".to_owned()));
}

#[tokio::test]
async fn a_yes_for_good_is_a_rule_and_a_no_has_a_reason() {
    let home = asking(0);
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let mut client = http(&hub, "2025-06-18").await;
    client.call("workspace_write", note("one")).await;
    let shown = waiting(&ann).await;
    let no = json!({ "decision": "reject", "reason": "not today", "digest": shown["digest"] });
    ann.does("POST", &path(&shown), no).await;
    let told = client.call("workspace_write", note("one")).await;
    assert!(text(&told).contains("not today"), "{told}");
    client.call("workspace_write", note("two")).await;
    let shown = waiting(&ann).await;
    let decided =
        ann.does("POST", &path(&shown), json!({ "decision": "always", "digest": shown["digest"] })).await;
    assert!(decided["rule_written_to"].is_string(), "{decided}");
    assert!(
        std::fs::read_to_string(home.path().join("portcullis.toml")).unwrap().contains("# mine\n[[policy]]")
    );
    until("the rule is in force", async || {
        let result = client.call("workspace_write", note("three")).await;
        (result["isError"] == false).then_some(())
    })
    .await;

    // It is taken back where it is kept: as a rule.
    let policy = ann.sees("/policy").await;
    assert_eq!(policy["rules"][0]["decision"], "allow", "{policy}");
    ann.does("POST", "/policy/rules/remove", json!({ "at": 0, "version": policy["version"] })).await;
    until("the rule is gone", async || {
        let result = client.call("workspace_write", note("four")).await;
        (result["isError"] == true).then_some(())
    })
    .await;
}
