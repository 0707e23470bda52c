//! Connection flood from this machine, until connections or file descriptors run out.

use crate::support::{BINARY, request, text};
use portcullis_testkit::process::{HubProcess, TestHome, UNHURRIED};
use portcullis_testkit::raw_http::{RawHttpConnection, RawHttpRequest};
use serde_json::json;
use std::process::Stdio;
use tokio::process::Command;

/// How many good clients come, each by a connection of its own.
const GOOD: usize = 33;
const LIMITS: &str = "[limits]\nconnections_max = 40\nconnections_per_source_max = 32\nheaders_secs = 600\nkeep_alive_secs = 600\n";

fn home(limits: &str) -> TestHome {
    let home = TestHome::bare(BINARY);
    home.configure(&format!("{UNHURRIED}{limits}"));
    home
}

fn ping(hub: &HubProcess) -> RawHttpRequest {
    RawHttpRequest::post("/mcp", request(1, "ping", json!({})).to_string()).token(&hub.token)
}

/// Opens connections that say nothing, or the beginning of something.
async fn flood(hub: &HubProcess, count: usize) -> Vec<RawHttpConnection> {
    let mut flood = Vec::new();
    for n in 0..count {
        let mut connection = RawHttpConnection::open(hub.address).await;
        if n % 2 == 0 {
            // An error means that it had to make room already.
            let _ = connection.send(b"POST /mcp HTTP/1.1\r\nX: ").await;
        }
        flood.push(connection);
    }
    flood
}

/// Returns how many good clients get no answer.
async fn failed(hub: &HubProcess) -> usize {
    let mut failed = 0;
    for _ in 0..GOOD {
        let mut connection = RawHttpConnection::open(hub.address).await;
        let sent = connection.send(&ping(hub).bytes(hub.address)).await;
        let answered = sent.is_ok() && connection.reply().await.is_some_and(|reply| reply.status() == 200);
        failed += usize::from(!answered);
    }
    failed
}

#[tokio::test]
async fn of_strangers_makes_room_for_good_clients() {
    let home = home(LIMITS);
    let hub = home.serve().await;
    let mut known = RawHttpConnection::open(hub.address).await;
    assert_eq!(known.exchange(&ping(&hub)).await.status(), 200);
    let _flood = flood(&hub, 100).await;
    assert_eq!(failed(&hub).await, 0);
    assert_eq!(known.exchange(&ping(&hub)).await.status(), 200, "who is known is not sent away");
}

/// The check can fail: connections that are not evicted, because a good token was shown on each, keep others out.
#[tokio::test]
async fn that_nobody_evicts_keeps_good_clients_out() {
    let home = home(LIMITS);
    let hub = home.serve().await;
    let mut flood = Vec::new();
    for _ in 0..32 {
        let mut connection = RawHttpConnection::open(hub.address).await;
        assert_eq!(connection.exchange(&ping(&hub)).await.status(), 200);
        flood.push(connection);
    }
    assert_eq!(failed(&hub).await, GOOD);
}

/// With 256 files, connections take half of them, and what the hub writes has the rest.
#[tokio::test]
async fn leaves_files_to_write_to() {
    let home = home("[limits]\nheaders_secs = 600\n");
    let serve = home.command(&["serve", "--json"]);
    let serve = serve.as_std();
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -n 256 && exec \"$0\" \"$@\""])
        .arg(serve.get_program())
        .args(serve.get_args());
    limited.env_clear().envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let hub = HubProcess::start(limited).await;
    let _flood = flood(&hub, 300).await;
    let write = json!({ "name": "workspace_write", "arguments": { "path": "a.md", "content": "kept" } });
    let write = RawHttpRequest::post("/mcp", request(1, "tools/call", write).to_string()).token(&hub.token);
    let reply = write.send(hub.address).await.json();
    assert_eq!(reply["result"]["isError"], json!(false), "{}", text(&reply["result"]));
    assert_eq!(std::fs::read_to_string(home.files().join("a.md")).unwrap(), "kept");
    assert_eq!(failed(&hub).await, 0);
}
