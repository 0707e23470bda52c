//! That the checks of the transport can fail: each is made of the real one, and of one with just the mistake that it is for.

use crate::support::{World, spec};
use portcullis_testkit::http::{Connection, Request};
use portcullis_testkit::misbehaving::{Does, Misbehaving, Seen, answer};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a careless client does.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mistake {
    /// Goes wherever it is sent.
    FollowsAnywhere,
    /// Makes a call again that may have been carried out.
    AsksTwice,
    /// Does not repeat the name of its session.
    ForgetsSession,
    /// Takes the refusal of a session for the last word.
    GivesUp,
}

/// Who calls a tool of the server at an address.
#[derive(Debug, Clone, Copy)]
enum Way {
    Real,
    Weak(Mistake),
}

impl Way {
    async fn call(self, server: &Misbehaving) -> String {
        match self {
            Way::Real => World::connected(spec(&server.url())).await.call("up_echo").await,
            Way::Weak(mistake) => careless(server.address, mistake).await,
        }
    }
}

/// Greets and calls, as little as that can be.
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
    let mut request = Request::post("/mcp", message.to_string());
    if let Some(session) = session {
        request = request.header("Mcp-Session-Id", session);
    }
    let mut connection = Connection::open(to).await;
    connection.send(&request.bytes(to)).await.ok()?;
    let reply = connection.reply().await?;
    Some((reply.status(), reply.head.header("mcp-session-id").map(str::to_owned), reply.text()))
}

fn is_call(seen: &&Seen) -> bool {
    seen.asks() == "tools/call"
}

/// Says whether nothing reached a place that only the server named.
async fn stays(way: Way) -> bool {
    let elsewhere = Misbehaving::open(|seen| seen.usual()).await.unwrap();
    let (target, place) = (elsewhere.url(), elsewhere.address.to_string());
    let server = Misbehaving::open(move |seen| match seen.asks() {
        "tools/call" => Does::Answer(answer(307, &[("Location", &target)], &place)),
        _ => seen.usual(),
    });
    way.call(&server.await.unwrap()).await;
    elsewhere.seen().is_empty()
}

/// Says whether a call that may have been carried out was made once.
async fn asks_once(way: Way) -> bool {
    let server = Misbehaving::open(|seen| match seen.asks() {
        "tools/call" => Does::Closes(Vec::new()),
        _ => seen.usual(),
    });
    let server = server.await.unwrap();
    way.call(&server).await;
    server.seen().iter().filter(is_call).count() == 1
}

/// Says whether the call named the session that the server had given.
async fn names_session(way: Way) -> bool {
    let server = Misbehaving::open(|seen| seen.usual()).await.unwrap();
    way.call(&server).await;
    server.seen().iter().filter(is_call).all(|seen| seen.header("mcp-session-id") == Some("s-1"))
}

/// Says whether a session that the server lost was no loss to the caller.
async fn comes_back(way: Way) -> bool {
    let lost = Arc::new(AtomicBool::new(true));
    let server = Misbehaving::open(move |seen| match seen.asks() {
        "tools/call" if lost.swap(false, Ordering::Relaxed) => Does::Answer(answer(404, &[], "who?")),
        _ => seen.usual(),
    });
    way.call(&server.await.unwrap()).await.contains("echoed")
}

#[tokio::test]
async fn every_check_passes_the_transport_and_finds_its_mistake() {
    for mistake in [Mistake::FollowsAnywhere, Mistake::AsksTwice, Mistake::ForgetsSession, Mistake::GivesUp] {
        for way in [Way::Real, Way::Weak(mistake)] {
            let passes = match mistake {
                Mistake::FollowsAnywhere => stays(way).await,
                Mistake::AsksTwice => asks_once(way).await,
                Mistake::ForgetsSession => names_session(way).await,
                Mistake::GivesUp => comes_back(way).await,
            };
            assert_eq!(passes, matches!(way, Way::Real), "{way:?}, checked for {mistake:?}");
        }
    }
}
