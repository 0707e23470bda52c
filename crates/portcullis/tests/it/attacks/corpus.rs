//! Where hostile inputs come from: the shared corpora where they are there, a small generator where they are not.

use crate::support::{corpus, shared};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Returns the lines of a shared file as JSON.
pub(super) fn lines(name: &str) -> Option<Vec<Value>> {
    corpus(name)
}

/// Paths that lead out: all of the list made for this hub, and every `nth` of the public one.
pub(super) fn paths(nth: usize) -> Vec<String> {
    let Some(own) = lines("traversal_hub.jsonl") else { return few_paths() };
    let mut paths: Vec<String> = own.iter().map(|line| line["path"].as_str().unwrap().to_owned()).collect();
    if let Some(public) = shared("traversal_public.txt") {
        let public = std::fs::read(public).unwrap();
        // A tool's argument is text, so bytes that are not come as replacement characters.
        let text = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
        paths.extend(public.split(|byte| *byte == b'\n').step_by(nth).map(text));
    }
    paths
}

fn few_paths() -> Vec<String> {
    let ups =
        ["../", "..//", "./../", "%2e%2e/", "....//", "notes/../../", "link_dot/../", "link_dir/", "/", "//"];
    let targets =
        ["secure/CANARY", "ai-data-evil/CANARY", "etc/passwd", "link_abs", "link_rel", "CANARY", ""];
    let one = |up: &str, times| targets.map(|target| format!("{}{target}", up.repeat(times)));
    ups.iter().flat_map(|up| [1, 2, 5].map(|times| one(up, times))).flatten().collect()
}

pub(super) fn decoded(base64: &str) -> Vec<u8> {
    STANDARD.decode(base64.trim()).unwrap()
}

/// Messages with small mistakes, thousands of them.
pub(super) fn frames() -> Vec<Vec<u8>> {
    let mut frames = match lines("jsonrpc_seeds.jsonl") {
        Some(seeds) => seeds.iter().map(|line| decoded(line["b64"].as_str().unwrap())).collect(),
        None => seeds(),
    };
    match shared("jsonrpc_frames_10k.b64.gz").and_then(unpacked) {
        Some(text) => frames.extend(text.lines().map(decoded)),
        None => frames.extend(mutated(&seeds(), 5_000)),
    }
    frames
}

/// Unpacks with the system's `gzip`: a library for one file of test data is not worth a dependency.
fn unpacked(path: PathBuf) -> Option<String> {
    let child = Command::new("gzip").arg("-dc").arg(path).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = child else {
        eprintln!("skipped: there is no `gzip`; a small generator takes the corpus's place");
        return None;
    };
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success());
    Some(text)
}

fn seeds() -> Vec<Vec<u8>> {
    [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"workspace_read","arguments":{"path":"../secure/CANARY"}}}"#,
        r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"workspace_read","arguments":{"path":"a"},"arguments":{"path":"b"}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
        r#"{"jsonrpc":"2.0","id":4,"method":"resources/read","params":{"uri":"workspace:///../x"}}"#,
        r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},1]"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

/// Changes messages at random, the same way every time.
fn mutated(seeds: &[Vec<u8>], count: usize) -> Vec<Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let mut one = |seed: &[u8]| {
        let mut frame = seed.to_vec();
        for _ in 0..=random(3) {
            let (at, len) = (random(frame.len()), frame.len());
            match random(5) {
                0 => frame[at] = random(256) as u8,
                1 => frame.truncate(at.max(1)),
                2 => frame.insert(at, b"{}[]\",:0-\\"[random(10)]),
                3 => drop(frame.drain(at..(at + 1 + random(8)).min(len - 1).max(at))),
                _ => frame.extend_from_within(at..(at + random(40)).min(len)),
            }
        }
        frame.retain(|byte| *byte != b'\n');
        frame
    };
    (0..count).map(|n| one(&seeds[n % seeds.len()])).collect()
}

/// Files that test a parser: name, what a parser must do, and the bytes.
pub(super) fn json_files() -> Vec<(String, String, Vec<u8>)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    if let Some(lines) = lines("json_test_suite.jsonl") {
        let file = |line: &Value| {
            (text(&line["name"]), text(&line["expect"]), decoded(line["b64"].as_str().unwrap()))
        };
        return lines.iter().map(file).collect();
    }
    let accept =
        ["[]", "{}", "[1.5e-3]", r#"["\u00e9"]"#, r#"{"a":"b","a":"c"}"#, " [] ", "null", "[[[[]]]]"];
    let reject = [
        "",
        "[1,]",
        "{a:1}",
        "[01]",
        "['a']",
        "[1 2]",
        "[NaN]",
        "[] x",
        "{\"a\":}",
        "[\"\\x00\"]",
        "\u{feff}[]",
        "[",
        "nul",
    ];
    let files = |expect: &'static str, texts: &[&str]| -> Vec<_> {
        texts.iter().map(|t| (format!("{expect} {t}"), expect.to_owned(), t.as_bytes().to_vec())).collect()
    };
    [files("accept", &accept), files("reject", &reject)].concat()
}
