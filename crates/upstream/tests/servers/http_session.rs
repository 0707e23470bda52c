//! Sessions that are lost without a proper 404, and sessions that are not.

use crate::support::{UpstreamFixture, spec};
use parking_lot::Mutex;
use portcullis_testkit::misbehaving_server::{
    MisbehavingReply, MisbehavingServer, RecordedRequest, answer, events,
};
use portcullis_testkit::wait::{until, within};
use portcullis_upstream::StatusKind;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::broadcast;

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// A good server in the session of this number; it answers `ping`.
fn good(seen: &RecordedRequest, session: usize) -> MisbehavingReply {
    match seen.asks() {
        "initialize" => {
            let result = json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} } });
            let message = json!({ "jsonrpc": "2.0", "id": seen.body["id"], "result": result });
            let session = format!("s-{session}");
            let headers = [JSON, ("Mcp-Session-Id", session.as_str())];
            MisbehavingReply::Answer(answer(200, &headers, &message.to_string()))
        }
        "ping" => seen.result(json!({})),
        _ => seen.usual(),
    }
}

#[tokio::test]
async fn a_server_hears_that_the_hub_ends() {
    let server = MisbehavingServer::open(|seen| good(seen, 1)).await.unwrap();
    let spec = spec(&server.url());
    let shutdown = spec.shutdown.clone();
    let _world = UpstreamFixture::connected(spec).await;
    within("all has ended", shutdown.run()).await;
    let ended = server.seen().into_iter().find(|seen| seen.method == "DELETE").unwrap();
    assert_eq!(ended.header("mcp-session-id"), Some("s-1"));
}

#[tokio::test]
async fn a_session_that_is_over_is_found_out_whatever_words_say_so() {
    for (status, body) in [
        (400, r#"{"error":"invalid_session"}"#),
        (400, r#"{"error":{"code":-32000,"message":"Bad Request"}}"#),
        (404, r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"unknown session"}}"#),
        (404, r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"nothing of the kind"}}"#),
        (404, "<html>not found</html>"),
        (400, ""),
    ] {
        let session = Arc::new(AtomicUsize::new(1));
        let now = session.clone();
        let server = MisbehavingServer::open(move |seen| {
            let now = now.load(Ordering::Relaxed);
            match seen.header("mcp-session-id") {
                Some(named) if named != format!("s-{now}") => {
                    MisbehavingReply::Answer(answer(status, &[JSON], body))
                }
                _ => good(seen, now),
            }
        });
        let server = server.await.unwrap();
        // Even a destructive tool is not in doubt: the server has not acted.
        let world = UpstreamFixture::connected(spec(&server.url())).await;
        assert_eq!(world.call("up_echo").await, "echoed");
        session.store(2, Ordering::Relaxed);
        assert_eq!(within("the call", world.call("up_echo")).await, "echoed", "{status} {body}");
        let seen = server.seen();
        assert_eq!(seen.iter().filter(|seen| seen.asks() == "initialize").count(), 2, "{status} {body}");
        assert!(seen.iter().filter(|seen| seen.asks() == "ping").count() <= 1, "{status} {body}");
    }
}

#[tokio::test]
async fn a_request_that_is_refused_says_why_and_costs_no_session() {
    for (status, body, expected) in [
        (400, r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no such city"}}"#, "no such city"),
        (
            400,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no session `x` to log"}}"#,
            "to log",
        ),
        (400, r#"{"error":"the city is closed"}"#, "the city is closed"),
        (404, r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"no such page"}}"#, "no such page"),
    ] {
        // A server that answers `ping`, and one that knows only the session.
        for knows_ping in [true, false] {
            let server = MisbehavingServer::open(move |seen| match seen.asks() {
                "tools/call" => MisbehavingReply::Answer(answer(status, &[JSON], body)),
                "ping" if !knows_ping => {
                    let error = json!({ "code": -32601, "message": "Method not found" });
                    let message = json!({ "jsonrpc": "2.0", "id": seen.body["id"], "error": error });
                    MisbehavingReply::Answer(answer(404, &[JSON], &message.to_string()))
                }
                _ => good(seen, 1),
            });
            let server = server.await.unwrap();
            let world = UpstreamFixture::connected(spec(&server.url())).await;
            let mut client = world.client().await;
            for _ in 0..3 {
                let call = client.request("tools/call", json!({ "name": "up_echo", "arguments": {} }));
                let said = within("the call", call).await.to_string();
                assert!(said.contains(expected), "{status} {body}: {said}");
            }
            let seen = server.seen();
            let count = |asks: &str| seen.iter().filter(|seen| seen.asks() == asks).count();
            assert_eq!((count("initialize"), count("tools/call")), (1, 3), "{status} {body}");
            assert!((1..=3).contains(&count("ping")), "{status} {body}");
        }
    }
}

/// A server of HTTP+SSE, which sends everything on its stream.
fn older(seen: &RecordedRequest, stream: &broadcast::Sender<Vec<u8>>) -> MisbehavingReply {
    match (seen.method.as_str(), seen.path.as_str()) {
        ("GET", _) => MisbehavingReply::Tells {
            head: events(&[], "event: endpoint\ndata: /messages\n\n"),
            says: stream.clone(),
        },
        ("POST", "/messages") => {
            if let MisbehavingReply::Answer(whole) = seen.usual()
                && let Some((_, body)) = String::from_utf8_lossy(&whole).split_once("\r\n\r\n")
                && body.starts_with('{')
            {
                let _ = stream.send(format!("event: message\ndata: {body}\n\n").into_bytes());
            }
            MisbehavingReply::Answer(answer(202, &[], ""))
        }
        _ => MisbehavingReply::Answer(answer(404, &[], "")),
    }
}

#[tokio::test]
async fn a_server_that_leaves_the_older_way_is_found_on_the_newer() {
    let stream = Arc::new(Mutex::new(Some(broadcast::Sender::new(64))));
    let now = stream.clone();
    let server = MisbehavingServer::open(move |seen| match (&*now.lock(), seen.method.as_str()) {
        (Some(stream), _) => older(seen, stream),
        // Many have a page there.
        (None, "GET") => {
            MisbehavingReply::Answer(answer(200, &[("Content-Type", "text/html")], "<p>Welcome!"))
        }
        (None, _) => seen.usual(),
    });
    let server = server.await.unwrap();
    let world = UpstreamFixture::connected(spec(&server.url())).await;
    assert_eq!(world.call("up_echo").await, "echoed");
    let calls =
        || server.seen().iter().filter(|seen| seen.asks() == "tools/call").cloned().collect::<Vec<_>>();
    assert_eq!(calls()[0].path, "/messages");
    *stream.lock() = None;
    until("the server is connected again", async || {
        let is_newer = |seen: &RecordedRequest| seen.path == "/mcp" && seen.asks() == "tools/list";
        server.seen().iter().any(is_newer).then_some(())
    })
    .await;
    world.status(StatusKind::Connected).await;
    assert_eq!(world.call("up_echo").await, "echoed");
    assert_eq!(calls()[1].path, "/mcp");
}
