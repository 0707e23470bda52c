//! The attack: hidden or reordered text in an audit record, for a person who reads the raw log.

use super::record::{write_object, write_text};
use super::*;
use crate::testing::{StoppedClock, call, gate};
use portcullis_core::hidden_chars::is_unseen;
use serde_json::Value;

/// Direction overrides, tags that spell "rm", a joiner, a line separator, a byte order mark and a control sequence.
const NAMES: [&str; 6] = [
    "read\u{202e}etirw",
    "a\u{e0072}\u{e006d}b",
    "a\u{200d}b",
    "a\u{2028}b",
    "\u{feff}a",
    "a\u{9b}31m\u{7f}",
];

/// Returns the hidden characters of a line.
fn hidden(line: &str) -> Vec<char> {
    line.chars().filter(|c| is_unseen(*c)).collect()
}

fn written(text: &str, write: fn(&str, &mut Vec<u8>)) -> String {
    let mut line = Vec::new();
    write(text, &mut line);
    String::from_utf8(line).unwrap()
}

#[tokio::test]
async fn stands_in_the_log_as_escapes_and_is_the_same_to_a_parser() {
    let dir = tempfile::tempdir().unwrap();
    let settings = AuditSettings::in_folder(dir.path());
    let handle = AuditHandle::open(settings.clone(), Arc::new(StoppedClock)).unwrap();
    let redactor = Redactor::new(&[]).ok().unwrap();
    let layer = AuditLayer::new(handle.clone(), Arc::new(StoppedClock), redactor, LiveCalls::default());
    let (gate, _) = gate(vec![Box::new(layer)]);
    for name in NAMES {
        let _ = gate.call(call(&format!("resource stub://{name}"))).await;
    }
    handle.flush().await.unwrap();
    let log = std::fs::read_to_string(settings.dir.join("audit.jsonl")).unwrap();
    assert_eq!(hidden(&log), []);
    let targets: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["phase"] == "begin")
        .map(|line| line["target"].clone())
        .collect();
    assert_eq!(targets, NAMES.map(|name| Value::from(format!("stub://{name}"))));
    verify(&settings).unwrap();
    for name in NAMES {
        let query = AuditQuery { text: Some(name.to_owned()), ..AuditQuery::default() };
        assert_eq!(
            search(&settings, &query, 10).unwrap().lines.len(),
            2,
            "{name:?} is found as it is written"
        );
    }
}

/// Control: JSON alone leaves all of them in.
#[test]
fn is_noticed_where_a_weak_writer_leaves_it_in() {
    for name in NAMES {
        assert_ne!(hidden(&written(name, write_object)), [], "{name:?}");
        let ours = written(name, write_text);
        assert_eq!(hidden(&ours), [], "{name:?}");
        assert_eq!(serde_json::from_str::<String>(&ours).unwrap(), name);
    }
    for plain in ["", "a \"quoted\" \\ text\n", "日本語 é 😀"] {
        assert_eq!(written(plain, write_text), serde_json::to_string(plain).unwrap());
    }
}
