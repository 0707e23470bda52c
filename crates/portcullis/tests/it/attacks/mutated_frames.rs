//! Thousands of messages with mistakes: no crash, no silence, no answer twice.

use super::{Victim, corpus};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// How many frames are sent between two pings.
const BETWEEN_PINGS: usize = 100;
/// How long an answer may take before it counts as a hang.
const HANG: Duration = Duration::from_secs(1);

/// What a frame must get, judged apart from the server's own parser.
#[derive(Debug, PartialEq)]
enum ExpectedReply {
    /// One answer, to this id; `null` where no id can be found.
    Answer(Value),
    Nothing,
    /// Nothing, and the request with this id may stay without an answer too.
    Cancels(Value),
}

fn due(frame: &[u8]) -> ExpectedReply {
    let lost = ExpectedReply::Answer(Value::Null);
    let Ok(text) = std::str::from_utf8(frame) else { return lost };
    if text.trim_matches([' ', '\t', '\r', '\n']).is_empty() {
        return ExpectedReply::Nothing;
    }
    // Only the envelope is read: a value that means nothing does not make the message unreadable.
    let Ok(message) = serde_json::from_str::<HashMap<String, Box<RawValue>>>(text) else { return lost };
    // Of two equal keys neither can be believed.
    if repeats(text, &["jsonrpc", "id", "method", "params", "result", "error"]) {
        return lost;
    }
    let raw = |key: &str| message.get(key).map(|value| value.get());
    let id = raw("id").and_then(id);
    let answer = ExpectedReply::Answer(id.clone().unwrap_or_default());
    if raw("jsonrpc") != Some("\"2.0\"") {
        return answer;
    }
    let Some(method) = raw("method") else {
        let is_response = message.contains_key("result") != message.contains_key("error");
        return if id.is_some() && is_response { ExpectedReply::Nothing } else { answer };
    };
    let method: Option<String> = serde_json::from_str(method).ok();
    let Some(method) = method.filter(|m| !m.is_empty() && m.len() <= 128) else { return answer };
    if raw("params").is_some_and(|params| !params.starts_with('{')) || message.contains_key("id") {
        return answer;
    }
    let params: Option<Value> = raw("params").and_then(|params| serde_json::from_str(params).ok());
    match params.and_then(|params| params.get("requestId").cloned()) {
        Some(id) if method == "notifications/cancelled" => ExpectedReply::Cancels(id),
        _ => ExpectedReply::Nothing,
    }
}

/// Whole numbers of any length, and strings that are not too long.
fn id(raw: &str) -> Option<Value> {
    let digits = raw.strip_prefix('-').unwrap_or(raw);
    let fits = raw.starts_with('"') || digits.bytes().all(|byte| byte.is_ascii_digit());
    serde_json::from_str(raw).ok().filter(|_| fits && raw.len() <= 256)
}

/// Returns whether one of the keys stands twice at the top of an object.
fn repeats(text: &str, keys: &[&str]) -> bool {
    struct Keys(Vec<String>);
    impl<'de> serde::de::Visitor<'de> for Keys {
        type Value = Vec<String>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: serde::de::MapAccess<'de>>(mut self, mut map: A) -> Result<Self::Value, A::Error> {
            while let Some(key) = map.next_key::<String>()? {
                map.next_value::<serde::de::IgnoredAny>()?;
                self.0.push(key);
            }
            Ok(self.0)
        }
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let found = serde::Deserializer::deserialize_map(&mut reader, Keys(Vec::new())).unwrap_or_default();
    keys.iter().any(|key| found.iter().filter(|own| own == key).count() > 1)
}

/// The other checking function: what took too long, in parts of the run.
fn hangs(times: &[Duration]) -> Vec<String> {
    let long = times.iter().enumerate().filter(|(_, time)| **time > HANG);
    long.map(|(n, time)| format!("part {n} took {time:?}")).collect()
}

/// The checking function: for every id as many answers as were due.
fn violations(frames: &[Vec<u8>], answers: &[Value]) -> Vec<String> {
    let (mut wanted, mut may_miss, mut got) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for frame in frames {
        match due(frame) {
            ExpectedReply::Answer(id) => *wanted.entry(id.to_string()).or_insert(0) += 1,
            ExpectedReply::Cancels(id) => *may_miss.entry(id.to_string()).or_insert(0) += 1,
            ExpectedReply::Nothing => {}
        }
    }
    for answer in answers {
        *got.entry(answer["id"].to_string()).or_insert(0) += 1;
    }
    let mut violations = Vec::new();
    for id in wanted.keys().chain(got.keys()) {
        let count = |of: &BTreeMap<String, usize>| of.get(id).copied().unwrap_or(0);
        let (wanted, got) = (count(&wanted), count(&got));
        if got > wanted || got + count(&may_miss) < wanted {
            violations.push(format!("id {id}: {got} answers, {wanted} due"));
        }
    }
    violations
}

#[tokio::test]
async fn on_stdio_each_get_one_answer() {
    let mut victim = Victim::on_stdio().await;
    let frames: Vec<_> = corpus::frames().into_iter().filter(|frame| !frame.contains(&b'\n')).collect();
    let (mut answers, mut times) = (Vec::new(), Vec::new());
    for part in frames.chunks(BETWEEN_PINGS) {
        let started = Instant::now();
        // All in one go: nothing waits for an answer before the next one is sent.
        victim.client.write_part(&[part.join(&b'\n'), b"\n".to_vec()].concat()).await;
        assert_eq!(victim.client.result("ping", json!({})).await, json!({}));
        times.push(started.elapsed());
        answers.extend(victim.client.unasked());
    }
    assert_eq!(hangs(&times), Vec::<String>::new());
    // What is still under way, ends before the process does.
    victim.client.hang_up();
    answers.extend(rest(&mut victim).await);
    assert_eq!(victim.client.process().end().await, 0);
    answers.retain(|message| message.get("method").is_none());
    eprintln!("{} frames, {} answers", frames.len(), answers.len());
    assert_eq!(violations(&frames, &answers), Vec::<String>::new());
    eprintln!("figure:\tof {} frames on stdio, answered wrongly\t0\t0\tok", frames.len());
}

async fn rest(victim: &mut Victim) -> Vec<Value> {
    victim.assert_small("mutated frames on stdio");
    victim.client.until_end().await
}

#[tokio::test]
async fn over_http_each_get_one_answer() {
    let mut victim = Victim::over_http().await;
    let frames = corpus::frames();
    let (mut wrong, mut times) = (Vec::new(), Vec::new());
    for (n, frame) in frames.iter().enumerate() {
        let started = Instant::now();
        // Returns when the answer is there.
        victim.client.send_bytes(frame).await;
        times.push(started.elapsed());
        let answers = victim.client.unasked();
        // Over HTTP an empty body is a message that is missing.
        let blank = frame.iter().all(u8::is_ascii_whitespace);
        let frames = if blank { vec![b"-".to_vec()] } else { vec![frame.clone()] };
        wrong.extend(violations(&frames, &answers));
        assert!(victim.client.status < 500, "{}", String::from_utf8_lossy(frame));
        if n % BETWEEN_PINGS == 0 {
            assert_eq!(victim.client.result("ping", json!({})).await, json!({}));
        }
    }
    let longest = times.iter().max().copied().unwrap_or_default();
    eprintln!("{} frames on one connection, the slowest answer after {longest:?}", frames.len());
    assert_eq!(hangs(&times), Vec::<String>::new());
    assert_eq!(wrong, Vec::<String>::new());
    victim.lives().await;
    victim.assert_small("mutated frames over HTTP");
    eprintln!("figure:\tof {} frames over HTTP, answered wrongly\t0\t0\tok", frames.len());
}

/// The test can fail: a server that trusts the last of two equal keys, and is silent about what it cannot read.
#[test]
fn a_weak_server_is_found_out() {
    let frames = corpus::frames();
    let last_key_wins = |frame: &Vec<u8>| match serde_json::from_slice::<Value>(frame) {
        Ok(message) if message.get("id").is_some() => Some(json!({ "id": message["id"], "result": {} })),
        Ok(_) => None,
        Err(_) => Some(json!({ "id": null, "error": { "code": -32700 } })),
    };
    let silent = |frame: &Vec<u8>| {
        let message = serde_json::from_slice::<Value>(frame).ok()?;
        Some(json!({ "id": message.get("id")?, "result": {} }))
    };
    let found = |answers: Vec<Value>| violations(&frames, &answers).len();
    let counts = [
        found(frames.iter().filter_map(last_key_wins).collect()),
        found(frames.iter().filter_map(silent).collect()),
    ];
    assert_eq!(hangs(&[HANG / 2, HANG * 2]).len(), 1, "a server that hangs once");
    eprintln!("weak servers: {counts:?} ids with too many or too few answers");
    assert!(counts.iter().all(|count| *count > 0));
}
