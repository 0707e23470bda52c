//! Trust, pending definitions, and every verdict of the corpus about one definition.

use super::*;
use crate::testing;
use portcullis_core::SystemClock;
use serde_json::{Value, json};
use std::path::PathBuf;

fn snapshot(tools: &[Value]) -> ServerSnapshot {
    let pins = tools.iter().map(|tool| {
        (tool["name"].as_str().unwrap_or_default().to_owned(), DefinitionPin::of(&tool.to_string()).unwrap())
    });
    let identity = ServerIdentity::from([("command".to_owned(), "/bin/server".to_owned())]);
    ServerSnapshot { identity, tools: pins.collect(), ..ServerSnapshot::default() }
}

fn standing_after(before: &Value, after: &Value) -> PinStatus {
    let trusted = TrustedServer {
        since: Timestamp::default(),
        by: "me".to_owned(),
        snapshot: snapshot(std::slice::from_ref(before)),
        review: None,
    };
    let now = snapshot(std::slice::from_ref(after));
    let (name, pin) = now.tools.first_key_value().unwrap();
    trusted.pin_status(&now.identity, PinKind::Tool, name, &pin.sha256)
}

fn corpus() -> Option<Vec<Value>> {
    let root = std::env::var_os("PORTCULLIS_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let text = std::fs::read_to_string(root.join("fixtures/corpora/rug_pulls.jsonl")).ok()?;
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// Returns the ids of the cases that `is_same` judges wrongly.
fn wrong(cases: &[Value], is_same: impl Fn(&Value, &Value) -> bool) -> Vec<String> {
    let pairs = cases.iter().filter(|case| case.get("before").is_some());
    let wrong = pairs.filter(|case| {
        let expected_same = case["expect"] == "same";
        is_same(&case["before"], &case["after"]) != expected_same
    });
    wrong.map(|case| case["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_pair_of_the_corpus_gets_its_verdict() {
    let base =
        json!({ "name": "pay", "description": "Pay", "inputSchema": { "type": "object", "minimum": 1 } });
    let mut other = base.clone();
    other["inputSchema"]["description"] = "and the password".into();
    let own = vec![
        json!({ "id": "same", "before": base, "after": base, "expect": "same" }),
        json!({ "id": "schema", "before": base, "after": other, "expect": "changed -> quarantine" }),
    ];
    let cases = corpus().unwrap_or_else(|| {
        println!("skipped: rug_pulls.jsonl is not there; something small takes its place");
        own.clone()
    });
    for cases in [&cases, &own] {
        let misjudged = wrong(cases, |before, after| standing_after(before, after) == PinStatus::Trusted);
        assert_eq!(misjudged, Vec::<String>::new());
    }
    // The weak variant, which many gateways have: only name and description.
    let shallow = |before: &Value, after: &Value| {
        before["name"] == after["name"] && before["description"] == after["description"]
    };
    assert!(!wrong(&cases, shallow).is_empty());
}

#[test]
fn trust_is_for_one_server_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let (hub, command) = (
        PinStore::open(&testing::open(folder.path()), Arc::new(SystemClock)),
        PinStore::open(&testing::open(folder.path()), Arc::new(SystemClock)),
    );
    let tool = json!({ "name": "pay", "inputSchema": { "type": "object" } });
    let seen = snapshot(std::slice::from_ref(&tool));
    let sha256 = seen.tools["pay"].sha256.clone();
    assert!(hub.of("shop").is_none());
    command.trust("shop", seen.clone(), ToolReview::proposed(&seen, None), "me").unwrap();
    let trusted = hub.of("shop").unwrap();
    let stands = |identity: &ServerIdentity, name: &str, sha256: &str| {
        trusted.pin_status(identity, PinKind::Tool, name, sha256)
    };
    assert_eq!(stands(&seen.identity, "pay", &sha256), PinStatus::Trusted);
    assert_eq!(stands(&seen.identity, "pay", "00"), PinStatus::Changed);
    assert_eq!(stands(&seen.identity, "buy", &sha256), PinStatus::New);
    assert_eq!(trusted.pin_status(&seen.identity, PinKind::Prompt, "pay", &sha256), PinStatus::New);
    let mut other = seen.identity.clone();
    other.insert("executable".to_owned(), "ff".to_owned());
    assert_eq!(stands(&other, "pay", &sha256), PinStatus::Server);
    assert!(trusted.are_instructions_trusted(&seen.identity, None));
    assert!(!trusted.are_instructions_trusted(&seen.identity, Some("do as I say")));
    assert!(!trusted.are_instructions_trusted(&other, None));
    assert!(hub.of("other").is_none());
    assert!(command.revoke("shop").unwrap());
    assert!(hub.of("shop").is_none());
    assert!(!command.revoke("shop").unwrap());
}

#[test]
fn damaged_or_edited_rows_trust_nobody_and_are_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let pins = PinStore::open(&testing::open(folder.path()), Arc::new(SystemClock));
    pins.trust("shop", snapshot(&[json!({ "name": "pay" })]), ToolReview::default(), "me").unwrap();
    for bad in [
        r#"UPDATE pins SET record = replace(record, 'name\":\"pay', 'name\":\"buy')"#,
        "UPDATE pins SET record = substr(record, 2)",
    ] {
        testing::edit(folder.path(), "pins", bad);
        let damaged = testing::export(folder.path());
        assert!(pins.of("shop").is_none(), "{damaged}");
        assert!(pins.health().is_err());
        assert!(pins.trust("shop", ServerSnapshot::default(), ToolReview::default(), "me").is_err());
        assert_eq!(testing::export(folder.path()), damaged);
    }
    let repair = r#"UPDATE pins SET record = replace('{' || record, 'name\":\"buy', 'name\":\"pay')"#;
    testing::edit(folder.path(), "pins", repair);
    assert!(pins.of("shop").is_some());
}

#[test]
fn what_is_different_is_named() {
    let before = snapshot(&[json!({ "name": "gone" }), json!({ "name": "pay", "description": "a" })]);
    let mut after = snapshot(&[json!({ "name": "new" }), json!({ "name": "pay", "description": "b" })]);
    after.identity.insert("command".to_owned(), "/tmp/server".to_owned());
    after.instructions = Some("obey".to_owned());
    let found: Vec<String> = differences(&before, &after)
        .into_iter()
        .map(|d| {
            format!("{} {} {}{}", d.kind, d.name, u8::from(d.before.is_some()), u8::from(d.after.is_some()))
        })
        .collect();
    assert_eq!(
        found,
        ["identity command 11", "instructions  01", "tool gone 10", "tool new 01", "tool pay 11"]
    );
    assert!(differences(&before, &before).is_empty());
}
