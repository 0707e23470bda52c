//! Effects of upstream tools: proposed from annotations, chosen with trust, and what calls get by them.

use crate::changing_server::{Shop, done, tool};
use crate::support::{home, http, names, text};
use portcullis_store::pins::DefinitionPin;
use portcullis_testkit::process::{TestHome, UNHURRIED};
use portcullis_testkit::wait::until;
use serde_json::{Value, json};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};

fn annotated(name: &str, annotations: Value) -> Value {
    let mut tool = tool(name, "Does something");
    tool["annotations"] = annotations;
    tool
}

fn offer() -> Value {
    json!({ "tools": [
        annotated("see", json!({ "readOnlyHint": true })),
        annotated("note", json!({ "destructiveHint": false })),
        tool("pay", "Pay an invoice"),
    ] })
}

/// A shop behind a hub that tells a call at once that it needs approval.
fn impatient(offer: &Value, more: &str) -> (TestHome, Shop) {
    let (home, shop) = (home(), Shop::new(offer));
    home.configure(&format!("{UNHURRIED}[approvals]\nwait_secs = 0\n{}", shop.section("shop", more)));
    (home, shop)
}

/// Returns effect and decision of each tool, by `policy test`.
async fn decided(home: &TestHome) -> Vec<String> {
    let mut all = Vec::new();
    for name in ["see", "note", "pay"] {
        let told = home.run(&["policy", "test", "local", &format!("shop_{name}"), "--json"]).await.json();
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        all.push(format!("{} {}", word(&told["tool"]["effect"]), word(&told["decision"])));
    }
    all
}

#[tokio::test]
async fn a_call_that_changes_things_asks_and_a_read_does_not_right_after_trust() {
    let (home, shop) = impatient(&offer(), "");
    let shown = done(&home, &["mcp", "trust", "shop", "--yes"]).await;
    for row in [
        "TOOL  EFFECT   CALLS  ADVERTISED",
        "note  write    ask    not destructive",
        "pay   destroy  ask    nothing",
        "see   read     allow  read-only",
        "Policy `ask-changes`: ask before changes.",
    ] {
        assert!(shown.contains(row), "{row}: {shown}");
    }
    assert_eq!(decided(&home).await, ["read allow", "write ask", "destroy ask"]);
    let hub = home.serve().await;
    let mut client = http(&hub, "2025-11-25").await;
    until("the tools are there", async || {
        let list = client.result("tools/list", json!({})).await;
        names(&list["tools"]).contains(&"shop_pay").then_some(())
    })
    .await;
    assert_eq!(text(&client.call("shop_see", json!({})).await), "called see");
    let asked = client.call("shop_pay", json!({})).await;
    assert_eq!(asked["structuredContent"]["code"], "needs_approval", "{asked}");
    assert_eq!(shop.calls(), ["see"]);
    // A client that may only read sees what reads.
    done(&home, &["clients", "add", "reader", "--effects", "read", "--allow", "shop_*"]).await;
    let told = home.run(&["policy", "test", "reader", "shop_see"]).await;
    let hidden = home.run(&["policy", "test", "reader", "shop_note"]).await;
    assert_eq!((told.code, hidden.code), (0, 4), "{told:?} {hidden:?}");
}

#[tokio::test]
async fn a_person_chooses_and_the_choice_stays_with_the_definition() {
    let (home, shop) = impatient(&offer(), "");
    let trust = ["mcp", "trust", "shop", "--yes"];
    let choose = |more: &[&'static str]| [&trust[..], more].concat();
    done(&home, &choose(&["--policy", "allow", "--effect", "*e*=create", "--effect", "see=destroy"])).await;
    assert_eq!(decided(&home).await, ["destroy allow", "create allow", "destroy allow"]);
    // The same again changes nothing, and one choice leaves the others.
    done(&home, &trust).await;
    assert_eq!(decided(&home).await, ["destroy allow", "create allow", "destroy allow"]);
    done(&home, &choose(&["--policy", "ask", "--effect", "pay=write"])).await;
    assert_eq!(decided(&home).await, ["destroy ask", "create ask", "write ask"]);
    let listed = done(&home, &["policy", "list"]).await;
    assert!(listed.contains("server:ask") && listed.contains("ask always, chosen in its review"), "{listed}");
    // A changed annotation is a changed definition. It is not proposed below what a person chose for its name.
    let mut changed = offer();
    changed["tools"][1]["annotations"] = json!({ "readOnlyHint": true });
    shop.offers(&changed);
    let seen = home.run(&["mcp", "trust", "shop", "--diff", "--json"]).await.json();
    let named = |value: &Value| [value["kind"].clone(), value["name"].clone(), value["change"].clone()];
    assert_eq!(named(&seen["differences"][0]), [json!("tool"), json!("note"), json!("changed")], "{seen}");
    assert_eq!(seen["effects"], json!({ "note": "create", "pay": "write", "see": "destroy" }));
    assert_eq!((&seen["policy"], &seen["trusted"]), (&json!("ask"), &json!(false)));
    for (option, value, says) in [
        ("--effect", "gone=read", "no tool of the server matches `gone`"),
        ("--effect", "pay=reed", "`reed` is not an effect"),
        ("--effect", "pay", "expects GLOB=EFFECT"),
        ("--policy", "never", "expected ask-changes, allow or ask"),
    ] {
        let refused = home.run(&choose(&[option, value])).await;
        assert!(refused.code == 2 && refused.stderr.contains(says), "{refused:?}");
    }
}

#[tokio::test]
async fn what_is_configured_wins_over_what_was_chosen() {
    let (home, _shop) =
        impatient(&offer(), "decision = \"deny\"\neffects = { \"p*\" = \"create\", \"see\" = \"write\" }");
    done(&home, &["mcp", "trust", "shop", "--yes", "--policy", "allow", "--effect", "pay=read"]).await;
    assert_eq!(decided(&home).await, ["write deny", "write deny", "create deny"]);
}

#[tokio::test]
async fn a_server_that_was_trusted_by_an_earlier_version_goes_on_as_before_until_it_is_reviewed() {
    let (home, _shop) = impatient(&offer(), "");
    let tools = offer()["tools"].as_array().unwrap().clone();
    let pins = tools.iter().map(|tool| {
        let pin = DefinitionPin::of(&tool.to_string()).unwrap();
        (
            tool["name"].as_str().unwrap().to_owned(),
            json!({ "sha256": pin.sha256, "definition": pin.definition }),
        )
    });
    let pins: serde_json::Map<String, Value> = pins.collect();
    let seen = json!({ "identity": {}, "instructions": null, "tools": pins, "prompts": {} });
    let trusted = json!({ "since": "2026-01-01T00:00:00Z", "by": "me", "as_it_was": seen });
    let file = json!({ "version": 1, "servers": { "shop": trusted } });
    let folder = home.path().join("workspace/secure");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).unwrap();
    let mut options = std::fs::OpenOptions::new();
    let mut written =
        options.write(true).create_new(true).mode(0o600).open(folder.join("pins.json")).unwrap();
    std::io::Write::write_all(&mut written, file.to_string().as_bytes()).unwrap();
    done(&home, &["mcp", "list"]).await;
    assert_eq!(decided(&home).await, ["destroy allow", "destroy allow", "destroy allow"]);
    let doctor = home.run(&["doctor"]).await;
    assert!(doctor.stdout.contains("`shop` was trusted before effects were chosen"), "{doctor:?}");
    for words in [["policy", "list"], ["mcp", "status"]] {
        let listed = done(&home, &words).await;
        assert!(listed.contains("run `portcullis mcp trust shop`"), "{listed}");
    }
    done(&home, &["mcp", "trust", "shop", "--yes"]).await;
    assert_eq!(decided(&home).await, ["read allow", "write ask", "destroy ask"]);
    let doctor = home.run(&["doctor"]).await;
    assert!(!doctor.stdout.contains("before effects were chosen"), "{doctor:?}");
}
