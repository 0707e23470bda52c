//! Scripts from the API: decided as they were seen, told as they change.

use super::live::watch;
use super::{Admin, problem};
use crate::support::{home, http, text};
use portcullis_testkit::process::TestHome;
use portcullis_testkit::raw_http::{RawHttpResponse, RawSseReader};
use portcullis_testkit::wait::{until, within};
use serde_json::{Value, json};

const TEXT: &str = "# @tools: workspace_list\ndef main():\n    return 6 * 7\n";

fn write(home: &TestHome, name: &str, source: impl AsRef<[u8]>) {
    let folder = home.path().join("scripts");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(name), source).unwrap();
}

async fn look(admin: &Admin, name: &str) -> Value {
    admin.sees(&format!("/scripts/{name}")).await
}

/// What a decision about a script, as it was seen, says of it.
fn about(seen: &Value, more: Value) -> Value {
    let mut body = json!({ "sha256": seen["sha256"], "seen": seen["seen"] });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn approval(seen: &Value) -> Value {
    about(seen, json!({ "grant": seen["wanted"] }))
}

fn refused(reply: &RawHttpResponse, status: u16, code: &str) -> String {
    assert_eq!((reply.status(), problem(reply)), (status, code.to_owned()), "{}", reply.text());
    reply.json()["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_yes_names_what_was_seen_and_can_be_taken_back() {
    let home = home();
    write(&home, "x.star", TEXT);
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let mut client = http(&hub, "2025-06-18").await;
    let run = async |client: &mut portcullis_testkit::mcp_client::McpClient| {
        client.call("script_run", json!({ "name": "x" })).await
    };
    let seen = look(&ann, "x.star").await;
    assert_eq!((&seen["state"], &seen["seen"]), (&json!("pending"), &json!(0)), "{seen}");
    assert_eq!(ann.sees("/overview").await["scripts_waiting"], 1);

    // Who does not say what was seen decides nothing.
    for (what, without) in
        [("approve", "seen"), ("approve", "sha256"), ("reject", "seen"), ("restore", "seen")]
    {
        let mut body = if what == "approve" { approval(&seen) } else { about(&seen, json!({})) };
        body.as_object_mut().unwrap().remove(without);
        let reply = ann.send("POST", &format!("/scripts/x.star/{what}"), body).await;
        let message = refused(&reply, 400, "invalid");
        assert!(message.contains(&format!("missing field `{without}`")), "{what}: {message}");
    }
    assert_eq!(look(&ann, "x.star").await["state"], "pending", "nothing half done");
    let more = about(&seen, json!({ "grant": { "hosts": ["example.com"] } }));
    refused(&ann.send("POST", "/scripts/x.star/approve", more).await, 400, "invalid");

    let approved = ann.does("POST", "/scripts/x.star/approve", approval(&seen)).await;
    assert_eq!(
        (&approved["state"], &approved["granted"]),
        (&json!("approved"), &seen["wanted"]),
        "{approved}"
    );
    assert_eq!(ann.sees("/overview").await["scripts_waiting"], 0);
    assert_eq!(run(&mut client).await["structuredContent"]["value"], 42);
    let whole = look(&ann, "x.star").await;
    assert_eq!(
        (&whole["runs"][0]["outcome"], &whole["runs"][0]["client"]),
        (&json!("ok"), &json!("default"))
    );

    let no = about(&approved, json!({ "reason": "not any more" }));
    let rejected = ann.does("POST", "/scripts/x.star/reject", no).await;
    assert_eq!(rejected["state"], "rejected");
    let told = run(&mut client).await;
    assert!(text(&told).contains("was rejected by an administrator: not any more"), "{told}");

    // Back, but only over what was seen.
    let back =
        |seen: &Value| json!({ "sha256": approved["sha256"], "was": seen["sha256"], "seen": seen["seen"] });
    write(&home, "x.star", "somebody's work");
    let late = ann.send("POST", "/scripts/x.star/restore", back(&rejected)).await;
    assert!(refused(&late, 409, "changed").contains("was replaced by"));
    assert_eq!(std::fs::read_to_string(home.path().join("scripts/x.star")).unwrap(), "somebody's work");
    let now = look(&ann, "x.star").await;
    assert_eq!(ann.does("POST", "/scripts/x.star/restore", back(&now)).await["state"], "approved");
    assert_eq!(run(&mut client).await["structuredContent"]["value"], 42);
}

#[tokio::test]
async fn what_changed_meanwhile_is_not_decided_and_the_second_of_two_learns_of_the_first() {
    let home = home();
    write(&home, "x.star", TEXT);
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let link = home.run(&["admin", "link", "--json"]).await.json();
    let link = link["link"].as_str().unwrap().split_once('#').unwrap().1.to_owned();
    let bob = Admin::welcome(hub.address, &link, "bob").await;
    let before = look(&ann, "x.star").await;
    // Other bytes, which want something else as well: of both, it counts that they are others.
    write(&home, "x.star", TEXT.replace("workspace_list", "workspace_read"));
    for (what, body) in [("approve", approval(&before)), ("reject", about(&before, json!({})))] {
        let reply = ann.send("POST", &format!("/scripts/x.star/{what}"), body).await;
        assert!(refused(&reply, 409, "changed").contains("was replaced by"), "{what}");
    }
    for round in 0..5 {
        let seen = look(&ann, "x.star").await;
        let yes = ann.send("POST", "/scripts/x.star/approve", approval(&seen));
        let no = bob.send("POST", "/scripts/x.star/reject", about(&seen, json!({ "reason": "no" })));
        let (yes, no) = tokio::join!(yes, no);
        let (first, second, name) = if yes.status() == 200 { (&yes, &no, "ann") } else { (&no, &yes, "bob") };
        assert_eq!(first.status(), 200, "{round}: {} {}", yes.text(), no.text());
        let message = refused(second, 409, "conflict");
        assert!(
            message.contains(&format!("by admin {name} at")) && message.ends_with("review it again"),
            "{message}"
        );
        let state = look(&bob, "x.star").await["state"].clone();
        assert_eq!(state, if name == "ann" { "approved" } else { "rejected" });
    }
}

/// Reads events until a script stands so.
async fn told(events: &mut RawSseReader, name: &str, state: &str) {
    within(&format!("{name} is {state}"), async {
        loop {
            let event = events.next().await.expect("the stream goes on");
            let data: Value = serde_json::from_str(&event.data).unwrap();
            if data["event"] == "script" && data["name"] == name {
                assert_eq!(data["state"], state, "{data}");
                return;
            }
        }
    })
    .await;
}

/// Whoever changes it: a person with an editor, an agent, another process, the page.
#[tokio::test]
async fn every_change_of_a_script_is_told() {
    let home = home();
    write(&home, "x.star", TEXT);
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    until("the hub has looked", async || (ann.sees("/overview").await["scripts_waiting"] == 1).then_some(()))
        .await;
    let mut events = watch(&ann).await;
    ann.does("POST", "/scripts/x.star/approve", approval(&look(&ann, "x.star").await)).await;
    told(&mut events, "x.star", "approved").await;
    write(&home, "x.star", TEXT.replace('6', "5"));
    told(&mut events, "x.star", "changed").await;
    let hash = look(&ann, "x.star").await["sha256"].as_str().unwrap().to_owned();
    assert_eq!(home.run(&["scripts", "reject", "x", "--hash", &hash]).await.code, 0);
    told(&mut events, "x.star", "rejected").await;
    let mut client = http(&hub, "2025-06-18").await;
    let proposed = client.call("script_propose", json!({ "name": "new", "code": "1" })).await;
    assert_eq!(proposed["isError"], false, "{proposed}");
    told(&mut events, "new.star", "pending").await;
    std::fs::rename(home.path().join("scripts/x.star"), home.path().join("elsewhere")).unwrap();
    told(&mut events, "x.star", "gone").await;
    ann.does("DELETE", "/scripts/new.star", json!({})).await;
    told(&mut events, "new.star", "gone").await;
}

#[tokio::test]
async fn bad_scripts_get_a_clear_message_and_nothing_is_half_done() {
    let home = home();
    write(&home, "latin.star", b"# caf\xe9\n1\n");
    write(&home, "huge.star", vec![b'#'; 10 * 1024 * 1024]);
    write(&home, "deep.star", format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000)));
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let listed = ann.sees("/scripts").await["scripts"].as_array().unwrap().clone();
    assert_eq!(listed.len(), 3, "what cannot be used is shown too: {listed:?}");
    let why = |name: &str| {
        let one = listed.iter().find(|one| one["name"] == name).unwrap();
        one["reason"].as_str().unwrap_or_default().to_owned()
    };
    assert!(why("latin.star").contains("is not UTF-8"), "{}", why("latin.star"));
    assert!(why("huge.star").contains("at most 262144 are allowed"), "{}", why("huge.star"));
    for name in ["latin.star", "huge.star"] {
        let reply = ann.get(&format!("/scripts/{name}")).await;
        refused(&reply, 409, "conflict");
    }
    let deep = look(&ann, "deep.star").await;
    assert!(deep["problem"]["message"].is_string(), "it cannot run, and that is said");
    for (name, body, code) in [
        ("..%2fx.star", json!({ "text": "1" }), "invalid"),
        ("x%00.star", json!({ "text": "1" }), "invalid"),
        ("deep.star", json!({ "text": "1" }), "conflict"),
        ("deep.star", json!({ "text": "1", "was": "0".repeat(64) }), "changed"),
        ("long.star", json!({ "text": "x".repeat(300_000) }), "too_large"),
    ] {
        let reply = ann.send("PUT", &format!("/scripts/{name}"), body).await;
        assert_eq!(problem(&reply), code, "{name}: {}", reply.text());
    }
    let mut names: Vec<String> = std::fs::read_dir(home.path().join("scripts"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["deep.star", "huge.star", "latin.star"]);
    assert!(!home.path().join("x.star").exists());
}
