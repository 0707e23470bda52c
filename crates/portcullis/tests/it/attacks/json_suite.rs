//! Files that test JSON parsers: what must be accepted is not called broken, and what is broken is.

use super::{Victim, corpus};
use serde_json::Value;

/// The checking function: the code of each answer against what a parser must do. No answer is `None`.
fn violations(results: &[(&str, &str, Option<i64>)]) -> Vec<String> {
    let wrong = results.iter().filter(|(_, expect, code)| match *expect {
        "accept" => *code == Some(-32700),
        "reject" => !matches!(code, Some(-32700 | -32600)),
        _ => false,
    });
    wrong.map(|(name, expect, code)| format!("{name}: {expect}, got {code:?}")).collect()
}

async fn run(mut victim: Victim, on_a_line: bool) {
    let files = corpus::json_files();
    let mut results = Vec::new();
    for (name, expect, bytes) in &files {
        // A line with nothing on it is no message, and one with an end in it is several.
        let blank = bytes.iter().all(u8::is_ascii_whitespace);
        if on_a_line && (blank || bytes.contains(&b'\n')) {
            continue;
        }
        victim.client.send_bytes(bytes).await;
        let answer = victim.client.wait(name, |_| true).await;
        results.push((name.as_str(), expect.as_str(), answer["error"]["code"].as_i64()));
        assert_eq!(
            victim.client.result("ping", serde_json::json!({})).await,
            serde_json::json!({}),
            "{name}"
        );
        assert_eq!(victim.client.unasked(), Vec::<Value>::new(), "{name}");
    }
    eprintln!("{} of {} files", results.len(), files.len());
    assert_eq!(violations(&results), Vec::<String>::new());
    victim.assert_small("the JSON files");
}

#[tokio::test]
async fn on_stdio() {
    run(Victim::on_stdio().await, true).await;
}

#[tokio::test]
async fn over_http() {
    run(Victim::over_http().await, false).await;
}

/// The test can fail: a parser that reads what it can and stops there takes broken files for good.
#[test]
fn a_weak_parser_is_found_out() {
    let files = corpus::json_files();
    let naive = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let first = serde_json::Deserializer::from_str(&text).into_iter::<Value>().next();
        if matches!(first, Some(Ok(_))) { None } else { Some(-32700) }
    };
    let results: Vec<_> =
        files.iter().map(|(name, expect, bytes)| (name.as_str(), expect.as_str(), naive(bytes))).collect();
    let found = violations(&results).len();
    eprintln!("a parser that stops after the first value: {found} violations");
    assert!(found > 0);
}
