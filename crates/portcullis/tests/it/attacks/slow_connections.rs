//! Slowloris: hundreds of slow connections. The full run is `abuse slow` of the test kit.

use crate::support::{BINARY, request};
use portcullis_bench::abuse::{AbuseReport, SlowConnectionPlan, SlowFigures, slow_connections};
use portcullis_testkit::process::{TestHome, UNHURRIED};
use portcullis_testkit::raw_http::{RawHttpConnection, RawHttpRequest};
use serde_json::json;
use std::time::Duration;

/// Enough to be felt; few enough for any machine.
const SHORT: SlowConnectionPlan =
    SlowConnectionPlan { headers: 100, bodies: 100, closed_within: Duration::from_secs(6) };

async fn run(secs: u64, slow: SlowConnectionPlan) -> SlowFigures {
    let home = TestHome::bare(BINARY);
    home.configure(&format!("{UNHURRIED}[limits]\nheaders_secs = {secs}\nbody_secs = {secs}\n"));
    home.write("a.md", "text");
    let hub = home.serve().await;
    let figures = slow_connections(hub.address, &hub.token, slow).await;
    eprintln!("{figures}");
    figures
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn are_closed_and_nobody_notices() {
    let figures = run(2, SHORT).await;
    assert_eq!(figures.faults(), Vec::<String>::new());
    // Not before their time either.
    assert!(figures.longest >= Duration::from_secs(2), "{figures}");
}

/// The test can fail: a hub that waits for ten minutes keeps all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn are_kept_by_a_hub_without_the_limit() {
    let figures = run(600, SlowConnectionPlan { closed_within: Duration::from_secs(3), ..SHORT }).await;
    assert_eq!(figures.still_open, figures.slow, "{figures}");
    assert!(!figures.faults().is_empty());
}

/// To be idle is not to be slow: the time for headers counts from their first byte, and only for who is known.
#[tokio::test]
async fn are_told_from_idle_ones() {
    let home = TestHome::bare(BINARY);
    home.configure(&format!("{UNHURRIED}[limits]\nheaders_secs = 1\nkeep_alive_secs = 600\n"));
    let hub = home.serve().await;
    let ping = RawHttpRequest::post("/mcp", request(1, "ping", json!({})).to_string()).token(&hub.token);
    let mut idle = RawHttpConnection::open(hub.address).await;
    assert_eq!(idle.exchange(&ping).await.status(), 200);
    // Twice as long as headers may take, as the hub itself measures it.
    for _ in 0..2 {
        RawHttpConnection::open(hub.address).await.closes().await;
    }
    assert_eq!(idle.exchange(&ping).await.status(), 200, "still open");
    idle.send(b"POST /mcp HTTP/1.1\r\n").await.unwrap();
    idle.closes().await;
    // Who shows no good token may not stay.
    let mut stranger = RawHttpConnection::open(hub.address).await;
    assert_eq!(stranger.exchange(&RawHttpRequest::get("/mcp")).await.status(), 401);
    stranger.closes().await;
    // A connection that is gone is not counted any more.
    let page = RawHttpRequest::get("/metrics").token(&hub.token).send(hub.address).await.text();
    assert!(page.contains("\nportcullis_connections 1\n"), "{page}");
}
