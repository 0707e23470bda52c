//! Rate limits.

use crate::support::{BINARY, http, stdio};
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::process::TestHome;
use serde_json::{Value, json};

const SLOW: &str = "[rate_limit]\nrequests_per_second = 1\nburst = 3\nwait_ms = 0\n";
/// More than the burst and what a slow machine lets trickle in.
const TRIES: usize = 50;

fn slow_home() -> TestHome {
    let home = TestHome::bare(BINARY);
    home.configure(SLOW);
    home.write("a.md", "text");
    home
}

/// Asks until it was too often, and returns how many answers came before and what the refusal says.
async fn ask_too_often(client: &mut McpClient, method: &str, params: &Value) -> (usize, Value) {
    for n in 0..TRIES {
        let answer = client.request(method, params.clone()).await;
        if let Some(error) = answer.get("error") {
            return (n, error.clone());
        }
    }
    panic!("{TRIES} requests were let through");
}

fn check_refusal((before, error): (usize, Value)) {
    // The burst is 3, and `initialize` draws from it too.
    assert!(before >= 2, "the burst is let through, {before}");
    assert_eq!(error["code"], -32000);
    assert_eq!(error["message"], "Rate limit exceeded. Please try again later.");
    let wait = error["data"]["retry_after_ms"].as_u64().unwrap();
    assert!(wait <= 1_000, "{wait}");
}

#[tokio::test]
async fn too_many_requests_are_told_when_to_come_back() {
    let read = json!({ "name": "workspace_read", "arguments": { "path": "a.md" } });
    let unknown = json!({ "name": "no_such", "arguments": {} });
    for revision in ["2025-11-25", "2026-07-28"] {
        let home = slow_home();
        let hub = home.serve().await;
        let mut client = http(&hub, revision).await;
        check_refusal(ask_too_often(&mut client, "tools/call", &read).await);
        // Another client has a bucket of its own, and a list draws from it like a call.
        let token = home.add_client("other", &[]).await;
        let mut other = McpClient::http(hub.address, &token, "2026-07-28").await;
        check_refusal(ask_too_often(&mut other, "tools/list", &json!({})).await);
        // Unknown names are not free.
        let token = home.add_client("prober", &[]).await;
        let mut prober = McpClient::http(hub.address, &token, "2026-07-28").await;
        let mut codes = Vec::new();
        for _ in 0..8 {
            codes.push(prober.refused("tools/call", unknown.clone()).await);
        }
        // The first request, of the handshake, draws from the burst too.
        assert!(codes[..2].iter().all(|code| *code == -32602) && codes.contains(&-32000), "{codes:?}");
    }
}

#[tokio::test]
async fn the_command_line_says_when_to_come_back() {
    let home = TestHome::bare(BINARY);
    home.configure("[rate_limit]\nrequests_per_second = 1\nburst = 1\nwait_ms = 0\n");
    let _hub = home.serve().await;
    let call = ["tools", "call", "workspace_list", "{}"];
    // A slow machine earns a token between two commands.
    let refused = async |args: &[&str]| {
        for _ in 0..TRIES {
            let ran = home.run(args).await;
            if ran.code != 0 {
                return ran;
            }
        }
        panic!("{TRIES} commands were let through");
    };
    let ran = refused(&call).await;
    assert!(
        ran.stderr.contains("error: Rate limit exceeded. Please try again later.\ncode -32000, retry after "),
        "{ran:?}"
    );
    let ran = refused(&[&call[..], &["--json"]].concat()).await;
    let said: Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!(said["code"], -32000, "{said}");
    assert!(said["retry_after_ms"].as_u64().unwrap() <= 1_000, "{said}");
}

#[tokio::test]
async fn stdio_has_the_same_limit() {
    let home = slow_home();
    let mut client = stdio(&home, "2025-06-18");
    client.initialize(json!({})).await;
    let read = json!({ "name": "workspace_read", "arguments": { "path": "a.md" } });
    check_refusal(ask_too_often(&mut client, "tools/call", &read).await);
    // It is refused, not cut off.
    assert_eq!(client.result("ping", json!({})).await, json!({}));
}
