//! What is trusted, what waits, and every verdict of the corpus that is about one definition.

use super::*;
use portcullis_core::SystemClock;
use serde_json::{Value, json};
use std::path::PathBuf;

fn snapshot(tools: &[Value]) -> Snapshot {
    let pins = tools.iter().map(|tool| {
        (tool["name"].as_str().unwrap_or_default().to_owned(), Pin::of(&tool.to_string()).unwrap())
    });
    let identity = Identity::from([("command".to_owned(), "/bin/server".to_owned())]);
    Snapshot { identity, tools: pins.collect(), ..Snapshot::default() }
}

fn standing_after(before: &Value, after: &Value) -> Standing {
    let trusted = Trusted {
        since: Timestamp::default(),
        by: "me".to_owned(),
        as_it_was: snapshot(std::slice::from_ref(before)),
    };
    let now = snapshot(std::slice::from_ref(after));
    let (name, pin) = now.tools.first_key_value().unwrap();
    trusted.standing(&now.identity, Kind::Tool, name, &pin.sha256)
}

fn corpus() -> Option<Vec<Value>> {
    let root = std::env::var_os("PORTCULLIS_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let text = std::fs::read_to_string(root.join("fixtures/corpora/rug_pulls.jsonl")).ok()?;
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// Takes a case and a way to tell, and returns the ids that are told wrongly.
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
        let told = wrong(cases, |before, after| standing_after(before, after) == Standing::Trusted);
        assert_eq!(told, Vec::<String>::new());
    }
    // The weak variant, which many gateways have: only the name and the description.
    let shallow = |before: &Value, after: &Value| {
        before["name"] == after["name"] && before["description"] == after["description"]
    };
    assert!(!wrong(&cases, shallow).is_empty());
}

#[test]
fn trust_is_for_one_server_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let (hub, command) =
        (Pins::open(folder.path(), Arc::new(SystemClock)), Pins::open(folder.path(), Arc::new(SystemClock)));
    let tool = json!({ "name": "pay", "inputSchema": { "type": "object" } });
    let seen = snapshot(std::slice::from_ref(&tool));
    let sha256 = seen.tools["pay"].sha256.clone();
    assert!(hub.of("shop").is_none());
    command.trust("shop", seen.clone(), "me").unwrap();
    let trusted = hub.of("shop").unwrap();
    let stands =
        |identity: &Identity, name: &str, sha256: &str| trusted.standing(identity, Kind::Tool, name, sha256);
    assert_eq!(stands(&seen.identity, "pay", &sha256), Standing::Trusted);
    assert_eq!(stands(&seen.identity, "pay", "00"), Standing::Changed);
    assert_eq!(stands(&seen.identity, "buy", &sha256), Standing::New);
    assert_eq!(trusted.standing(&seen.identity, Kind::Prompt, "pay", &sha256), Standing::New);
    let mut other = seen.identity.clone();
    other.insert("executable".to_owned(), "ff".to_owned());
    assert_eq!(stands(&other, "pay", &sha256), Standing::Server);
    assert!(trusted.instructions_stand(&seen.identity, None));
    assert!(!trusted.instructions_stand(&seen.identity, Some("do as I say")));
    assert!(!trusted.instructions_stand(&other, None));
    assert!(hub.of("other").is_none());
    assert!(command.revoke("shop").unwrap());
    assert!(hub.of("shop").is_none());
    assert!(!command.revoke("shop").unwrap());
}

#[test]
fn a_damaged_or_edited_file_trusts_nobody_and_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let pins = Pins::open(folder.path(), Arc::new(SystemClock));
    pins.trust("shop", snapshot(&[json!({ "name": "pay" })]), "me").unwrap();
    let path = folder.path().join(FILE_NAME);
    let good = std::fs::read_to_string(&path).unwrap();
    for bad in [good.replace("{\\\"name\\\":\\\"pay\\\"}", "{\\\"name\\\":\\\"buy\\\"}"), "{".to_owned()] {
        assert_ne!(bad, good);
        std::fs::write(&path, &bad).unwrap();
        crate::kept::after_edit();
        assert!(pins.of("shop").is_none());
        assert!(pins.health().is_err());
        assert!(pins.trust("shop", Snapshot::default(), "me").is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), bad);
    }
    std::fs::write(&path, &good).unwrap();
    crate::kept::after_edit();
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
