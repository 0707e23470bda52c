//! A secret in everything that the API shows: none of it comes out.

use super::Admin;
use crate::support::{home, http};
use data_encoding::HEXLOWER;
use portcullis_testkit::process::UNHURRIED;
use serde_json::json;

const SECRET: &str = "hunter2-hunter2-hunter2";

/// The checking function: whether a text holds the secret, plainly or in one of the usual ways.
fn leaks(text: &str) -> bool {
    let hex = HEXLOWER.encode(SECRET.as_bytes());
    text.contains(SECRET) || text.contains(&hex) || text.contains("aHVudGVyMi1odW50ZXIyLWh1bnRlcj")
}

#[test]
fn a_leak_is_found() {
    assert!(leaks(&format!("{{\"a\":\"{SECRET}\"}}")) && !leaks("[secret]"));
}

#[tokio::test]
async fn no_answer_holds_a_secret() {
    let home = home();
    home.configure(&format!(
        "{UNHURRIED}[approvals]\nwait_secs = 0\n[[policy]]\ntools = [\"memory_write\"]\ndecision = \"ask\"\n\
         [[policy]]\ntools = [\"{SECRET}\"]\ndecision = \"deny\"\n[mcp.leaky]\ncommand = \"/bin/false\"\nargs = [\"--token\", \"{SECRET}\"]\n\
         env = {{ A_TOKEN = \"{SECRET}-2\" }}\n"
    ));
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let mut leak = json!({ "value": SECRET, "grants": ["example.com"] });
    let refused = ann.send("PUT", "/secrets/LEAK", leak.clone()).await;
    assert!(refused.status() == 400 && refused.text().contains("bits of entropy"), "{}", refused.text());
    leak["weak"] = json!(true);
    let set = ann.send("PUT", "/secrets/LEAK", leak).await;
    assert_eq!(set.status(), 200, "{}", set.text());
    let mut client = http(&hub, "2025-06-18").await;
    client.call("workspace_write", json!({ "path": "s.md", "content": SECRET })).await;
    client.call("memory_write", json!({ "file": "MEMORY.md", "content": SECRET })).await;
    client.request("tools/call", json!({ "name": SECRET, "arguments": {} })).await;
    let mut texts = vec![set.text()];
    for path in [
        "/overview",
        "/calls",
        "/approvals",
        "/approvals?all=true",
        "/clients",
        "/secrets",
        "/servers",
        "/servers/leaky",
        "/tools",
        "/policy",
        "/audit",
        "/settings",
        "/sessions",
        "/session",
        "/openapi.json",
        "/audit?text=hunter2-hunter2-hunter2",
        "/audit?since=hunter2-hunter2-hunter2",
        "/tools/hunter2-hunter2-hunter2",
    ] {
        texts.push(format!("{path} {}", ann.get(path).await.text().trim()));
    }
    let waiting = ann.sees("/approvals").await["approvals"][0]["id"].as_str().unwrap().to_owned();
    texts.push(ann.get(&format!("/approvals/{waiting}")).await.text());
    for (method, path, body) in [
        ("POST", "/tools/workspace_read/try", json!({ "arguments": { "path": "s.md" } })),
        ("POST", "/tools/workspace_read/try", json!({ "arguments": { "path": SECRET } })),
        ("POST", "/policy/test", json!({ "client": SECRET, "tool": SECRET })),
        ("POST", "/clients", json!({ "name": SECRET, "allow": [SECRET] })),
        ("POST", "/servers", json!({ "name": "x", "command": SECRET, "url": SECRET })),
        ("PUT", "/secrets/LEAK/grants", json!({ "grants": [SECRET] })),
        ("POST", "/servers/importable", json!({ "text": SECRET })),
    ] {
        texts.push(format!("{path} {}", ann.send(method, path, body).await.text()));
    }
    // The query of the caller itself is not the hub's to hide, and no answer repeats it.
    let leaking: Vec<&String> = texts
        .iter()
        .filter(|text| {
            let answer = text.split_once('{').map_or("", |(_, rest)| rest);
            leaks(answer)
        })
        .collect();
    assert_eq!(leaking, Vec::<&String>::new());
    assert!(texts.len() > 25);
}
