//! The checks of the transport can fail: each runs against the real client, and against one with the mistake that it
//! is for.

use crate::support::{UpstreamFixture, spec};
use portcullis_testkit::misbehaving_server::{MisbehavingReply, MisbehavingServer, RecordedRequest, answer};
use portcullis_testkit::raw_http::{RawHttpConnection, RawHttpRequest};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A mistake of a careless client.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mistake {
    /// Follows every redirect.
    FollowsAnywhere,
    /// Retries a call that may have been carried out.
    AsksTwice,
    /// Does not send its session id.
    ForgetsSession,
    /// Does not open a new session.
    GivesUp,
}

/// The client under test.
#[derive(Debug, Clone, Copy)]
enum ClientUnderTest {
    Real,
    Weak(Mistake),
}

impl ClientUnderTest {
    async fn call(self, server: &MisbehavingServer) -> String {
        match self {
            ClientUnderTest::Real => {
                UpstreamFixture::connected(spec(&server.url())).await.call("up_echo").await
            }
            ClientUnderTest::Weak(mistake) => careless(server.address, mistake).await,
        }
    }
}

/// A minimal handshake and call.
async fn careless(address: SocketAddr, mistake: Mistake) -> String {
    let message =
        |id: u64, method: &str| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": {} });
    let greeted = ask(address, None, &message(1, "initialize")).await;
    let session = greeted.and_then(|(_, session, _)| session).filter(|_| mistake != Mistake::ForgetsSession);
    let attempts = if matches!(mistake, Mistake::AsksTwice) { 2 } else { 1 };
    let mut to = address;
    for _ in 0..attempts + 1 {
        let Some((status, _, body)) = ask(to, session.as_deref(), &message(2, "tools/call")).await else {
            if attempts > 1 {
                continue;
            }
            return "broken off".to_owned();
        };
        if status == 307 && mistake == Mistake::FollowsAnywhere {
            to = body.parse().unwrap();
            continue;
        }
        return body;
    }
    String::new()
}

async fn ask(
    to: SocketAddr,
    session: Option<&str>,
    message: &Value,
) -> Option<(u16, Option<String>, String)> {
    let mut request = RawHttpRequest::post("/mcp", message.to_string());
    if let Some(session) = session {
        request = request.header("Mcp-Session-Id", session);
    }
    let mut connection = RawHttpConnection::open(to).await;
    connection.send(&request.bytes(to)).await.ok()?;
    let reply = connection.reply().await?;
    Some((reply.status(), reply.head.header("mcp-session-id").map(str::to_owned), reply.text()))
}

fn is_call(seen: &&RecordedRequest) -> bool {
    seen.asks() == "tools/call"
}

/// Returns whether nothing reached a URL that only the server named.
async fn stays(way: ClientUnderTest) -> bool {
    let elsewhere = MisbehavingServer::open(|seen| seen.usual()).await.unwrap();
    let (target, place) = (elsewhere.url(), elsewhere.address.to_string());
    let server = MisbehavingServer::open(move |seen| match seen.asks() {
        "tools/call" => MisbehavingReply::Answer(answer(307, &[("Location", &target)], &place)),
        _ => seen.usual(),
    });
    way.call(&server.await.unwrap()).await;
    elsewhere.seen().is_empty()
}

/// Returns whether a call that may have been carried out was sent once.
async fn asks_once(way: ClientUnderTest) -> bool {
    let server = MisbehavingServer::open(|seen| match seen.asks() {
        "tools/call" => MisbehavingReply::Closes(Vec::new()),
        _ => seen.usual(),
    });
    let server = server.await.unwrap();
    way.call(&server).await;
    server.seen().iter().filter(is_call).count() == 1
}

/// Returns whether the call had the session id.
async fn names_session(way: ClientUnderTest) -> bool {
    let server = MisbehavingServer::open(|seen| seen.usual()).await.unwrap();
    way.call(&server).await;
    server.seen().iter().filter(is_call).all(|seen| seen.header("mcp-session-id") == Some("s-1"))
}

/// Returns whether the client recovers from a lost session.
async fn comes_back(way: ClientUnderTest) -> bool {
    let lost = Arc::new(AtomicBool::new(true));
    let server = MisbehavingServer::open(move |seen| match seen.asks() {
        "tools/call" if lost.swap(false, Ordering::Relaxed) => {
            MisbehavingReply::Answer(answer(404, &[], "who?"))
        }
        _ => seen.usual(),
    });
    way.call(&server.await.unwrap()).await.contains("echoed")
}

#[tokio::test]
async fn every_check_passes_the_transport_and_finds_its_mistake() {
    for mistake in [Mistake::FollowsAnywhere, Mistake::AsksTwice, Mistake::ForgetsSession, Mistake::GivesUp] {
        for way in [ClientUnderTest::Real, ClientUnderTest::Weak(mistake)] {
            let passes = match mistake {
                Mistake::FollowsAnywhere => stays(way).await,
                Mistake::AsksTwice => asks_once(way).await,
                Mistake::ForgetsSession => names_session(way).await,
                Mistake::GivesUp => comes_back(way).await,
            };
            assert_eq!(passes, matches!(way, ClientUnderTest::Real), "{way:?}, checked for {mistake:?}");
        }
    }
}
