//! A program on this machine that takes another address of 127.0.0.0/8 for every guess and every connection.

use crate::support::{BINARY, request};
use portcullis_testkit::process::{HubProcess, TestHome, UNHURRIED};
use portcullis_testkit::raw_http::{RawHttpConnection, RawHttpRequest};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr};

const ADDRESSES: u8 = 100;
/// How many of as many guesses may be looked at.
const LOOKED_AT_MAX: usize = 10;

async fn serve(limits: &str) -> (TestHome, HubProcess) {
    let home = TestHome::bare(BINARY);
    home.configure(&format!("{UNHURRIED}[limits]\n{limits}"));
    let hub = home.serve().await;
    (home, hub)
}

fn address(n: u8) -> IpAddr {
    Ipv4Addr::new(127, n, 1, 1).into()
}

/// Guesses once from each address. Returns how many guesses were looked at.
async fn looked_at(hub: &HubProcess) -> usize {
    let mut looked_at = 0;
    for n in 0..ADDRESSES {
        let guess = RawHttpRequest::post("/mcp", request(1, "ping", json!({})).to_string())
            .token(&format!("pcl_{n:0>43}"));
        let reply = RawHttpConnection::open_from(address(n), hub.address).await.exchange(&guess).await;
        looked_at += usize::from(reply.status() == 401);
    }
    looked_at
}

/// Holds a connection from each address. Returns how many the hub has open, this one included.
async fn open(hub: &HubProcess) -> usize {
    let mut held = Vec::new();
    for n in 0..ADDRESSES {
        held.push(RawHttpConnection::open_from(address(n), hub.address).await);
    }
    let page = RawHttpRequest::get("/metrics").token(&hub.token).send(hub.address).await.text();
    let open = page.lines().find_map(|line| line.strip_prefix("portcullis_connections "));
    open.unwrap().parse().unwrap()
}

#[tokio::test]
async fn gets_no_more_guesses() {
    let (_home, hub) = serve("").await;
    let looked_at = looked_at(&hub).await;
    assert!(looked_at <= LOOKED_AT_MAX, "{looked_at}");
    // The check can fail: a hub that allows many mistakes looks at all of them.
    let (_home, weak) = serve("token_failures_max = 1000\n").await;
    assert_eq!(self::looked_at(&weak).await, usize::from(ADDRESSES));
}

#[tokio::test]
async fn gets_no_more_connections() {
    let (_home, hub) =
        serve("connections_max = 200\nconnections_per_source_max = 20\nheaders_secs = 600\n").await;
    assert_eq!(open(&hub).await, 20);
    // The check can fail: where one source may have as many, it has.
    let (_home, weak) =
        serve("connections_max = 200\nconnections_per_source_max = 200\nheaders_secs = 600\n").await;
    assert_eq!(open(&weak).await, usize::from(ADDRESSES) + 1);
}
