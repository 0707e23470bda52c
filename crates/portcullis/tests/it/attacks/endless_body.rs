//! Bodies and headers that never end, quickly or slowly.

use super::Victim;
use portcullis_testkit::raw_http::RawHttpConnection;
use portcullis_testkit::wait::within;

/// More than the hub takes, in pieces.
const PIECE: usize = 64 * 1024;

async fn begin(victim: &Victim, headers: &str) -> RawHttpConnection {
    let hub = victim.hub.as_ref().unwrap();
    let mut connection = RawHttpConnection::open(hub.address).await;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n{headers}",
        hub.address, hub.token
    );
    connection.send(head.as_bytes()).await.unwrap();
    connection
}

#[tokio::test]
async fn in_chunks_is_cut_off() {
    let mut victim = Victim::over_http().await;
    let mut connection = begin(&victim, "Transfer-Encoding: chunked\r\n\r\n").await;
    let chunk = format!("{PIECE:x}\r\n{}\r\n", "x".repeat(PIECE)).into_bytes();
    let mut sent = 0;
    // Until nobody listens any more.
    while connection.send(&chunk).await.is_ok() {
        sent += PIECE;
        assert!(sent < 1 << 30, "a gigabyte was taken");
    }
    // The answer may be lost with the connection; if it came, it says why.
    if let Some(reply) = connection.reply().await {
        assert_eq!(reply.status(), 413);
        assert!(reply.text().contains("larger than 4194304 bytes"), "{}", reply.text());
    }
    victim.lives().await;
    victim.assert_small("a body without end");
}

/// The first answer to too large a body is not lost when the sender stops to read it.
#[tokio::test]
async fn is_told_how_large_it_may_be() {
    let mut victim = Victim::over_http().await;
    let mut connection = begin(&victim, "Transfer-Encoding: chunked\r\n\r\n").await;
    let size = 4 * 1024 * 1024 + 1;
    connection.send(format!("{size:x}\r\n{}\r\n", "x".repeat(size)).as_bytes()).await.unwrap();
    let reply = connection.reply().await.unwrap();
    assert_eq!(reply.status(), 413);
    let error = &reply.json()["error"];
    assert_eq!(
        (&error["code"], error["message"].as_str().unwrap().contains("larger than 4194304 bytes")),
        (&(-32600).into(), true)
    );
    connection.closes().await;
    victim.lives().await;
}

/// Who does not go on is sent away, and meanwhile nobody else notices.
#[tokio::test]
async fn that_stands_still_is_sent_away() {
    let mut victim = Victim::over_http().await;
    let stalled = [
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", Some(408)),
        ("Content-Length: 1000\r\n\r\n{\"jsonrpc\":", Some(408)),
        // Headers without an end are closed without a word or with 408, as the library has it.
        ("X-Slow: ", None),
    ];
    let mut connections = Vec::new();
    for (start, status) in stalled {
        connections.push((begin(&victim, start).await, status));
    }
    victim.lives().await;
    for (connection, status) in &mut connections {
        let reply = within("the slow one is sent away", connection.reply()).await;
        match (reply, *status) {
            (Some(reply), Some(status)) => assert_eq!(reply.status(), status),
            (None, Some(status)) => panic!("closed without {status}"),
            (reply, None) => assert!(reply.is_none_or(|reply| reply.status() == 408)),
        }
        connection.closes().await;
    }
    // The good one has been silent for as long.
    victim.client.reconnect().await;
    victim.lives().await;
    victim.assert_small("slow bodies");
}
