//! Request smuggling: wrong or duplicate `Content-Length`.

use super::Victim;
use portcullis_testkit::raw_http::RawHttpConnection;

const MESSAGE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

/// Sends raw headers and a body, and returns the statuses of all answers until the connection is closed.
async fn statuses(victim: &Victim, headers: &str, body: &str) -> Vec<u16> {
    let hub = victim.hub.as_ref().unwrap();
    let mut connection = RawHttpConnection::open(hub.address).await;
    let bytes = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n{headers}\r\n{body}",
        hub.address, hub.token
    );
    connection.send(bytes.as_bytes()).await.unwrap();
    let mut statuses = Vec::new();
    while let Some(reply) = connection.reply().await {
        statuses.push(reply.status());
    }
    statuses
}

#[tokio::test]
async fn end_the_connection() {
    let mut victim = Victim::over_http().await;
    let smuggled = format!("{MESSAGE}GET /metrics HTTP/1.1\r\nHost: evil.test\r\n\r\n");
    let chunked = format!("{:x}\r\n{MESSAGE}\r\n0\r\n\r\nGET /metrics HTTP/1.1\r\n", MESSAGE.len());
    let long = MESSAGE.len();
    let cases = [
        // Two lengths: whoever reads the other one sees another request.
        (format!("Content-Length: {long}\r\nContent-Length: 5\r\n"), MESSAGE, vec![400]),
        (format!("Content-Length: {long}, 5\r\n"), MESSAGE, vec![400]),
        ("Content-Length: -1\r\n".to_owned(), MESSAGE, vec![400]),
        ("Content-Length: +40\r\n".to_owned(), MESSAGE, vec![400]),
        ("Content-Length: 0x28\r\n".to_owned(), MESSAGE, vec![400]),
        ("Content-Length: 99999999999999999999999\r\n".to_owned(), MESSAGE, vec![400]),
        ("Transfer-Encoding: gzip\r\n".to_owned(), MESSAGE, vec![400]),
        ("Transfer-Encoding: chunked, gzip\r\n".to_owned(), MESSAGE, vec![400]),
        // Shorter than it says: the rest is no request.
        ("Content-Length: 10\r\n".to_owned(), MESSAGE, vec![400, 400]),
        // What follows is a request of its own, and is checked like one.
        (format!("Content-Length: {long}\r\nConnection: close\r\n"), smuggled.as_str(), vec![200]),
        // Both kinds of length at once, the classic of smuggling: the chunks count, and the connection ends with them.
        (format!("Content-Length: {long}\r\nTransfer-Encoding: chunked\r\n"), chunked.as_str(), vec![200]),
    ];
    for (headers, body, expected) in cases {
        assert_eq!(statuses(&victim, &headers, body).await, expected, "{headers}");
        victim.lives().await;
    }
    victim.assert_small("lengths that lie");
}

/// A gigabyte that is only announced is refused at once, before any of it has come.
#[tokio::test]
async fn an_announced_gigabyte_is_refused_unread() {
    let mut victim = Victim::over_http().await;
    for length in [5_000_000_u64, 1 << 30, 1 << 60] {
        let headers = format!("Content-Length: {length}\r\n");
        assert_eq!(statuses(&victim, &headers, "{").await, [413], "{length}");
    }
    victim.lives().await;
    victim.assert_small("an announced gigabyte");
}
