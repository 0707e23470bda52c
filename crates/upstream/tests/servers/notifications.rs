//! Notifications of servers, and which clients get them.

use crate::support::{UpstreamFixture, spec};
use futures::future::join_all;
use parking_lot::Mutex;
use portcullis_core::CatalogChange;
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::misbehaving_server::{
    MisbehavingReply, MisbehavingServer, RecordedRequest, answer, events,
};
use portcullis_testkit::wait::until;
use portcullis_upstream::{ServerSpec, StatusKind};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::broadcast;

const UPDATED: &str = "notifications/resources/updated";

/// A notification as an SSE event.
fn event(method: &str, params: Value) -> String {
    format!("data: {}\n\n", json!({ "jsonrpc": "2.0", "method": method, "params": params }))
}

fn updated(uri: &str) -> String {
    event(UPDATED, json!({ "uri": uri }))
}

fn listed(uris: impl IntoIterator<Item = String>) -> Value {
    let resources: Vec<Value> = uris.into_iter().map(|uri| json!({ "uri": uri, "name": uri })).collect();
    json!({ "resources": resources })
}

/// A server of the older era with resources, which notifies on its stream.
fn older(seen: &RecordedRequest, says: &broadcast::Sender<Vec<u8>>) -> MisbehavingReply {
    match (seen.method.as_str(), seen.asks()) {
        ("GET", _) => MisbehavingReply::Tells { head: events(&[], ""), says: says.clone() },
        (_, "initialize") => seen.result(json!({ "protocolVersion": "2025-11-25",
            "capabilities": { "tools": {}, "resources": { "subscribe": true, "listChanged": true } } })),
        (_, "resources/templates/list") => seen.result(json!({ "resourceTemplates": [] })),
        (_, "resources/subscribe" | "resources/unsubscribe") => seen.result(json!({})),
        _ => seen.usual(),
    }
}

fn say(says: &broadcast::Sender<Vec<u8>>, text: &str) {
    says.send(text.as_bytes().to_vec()).unwrap();
}

/// Waits until so many streams are open.
async fn open(says: &broadcast::Sender<Vec<u8>>, streams: usize) {
    until("the stream is open", async || (says.receiver_count() == streams).then_some(())).await;
}

async fn subscribe(client: &mut McpClient, uri: &str) {
    assert_eq!(client.result("resources/subscribe", json!({ "uri": uri })).await, json!({}));
}

async fn told(client: &mut McpClient) -> String {
    client.told(UPDATED).await["params"]["uri"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn of_many_changes_at_once_none_is_lost() {
    const MANY: usize = 150;
    let (says, _) = broadcast::channel(16);
    let (speaks, count) = (says.clone(), Arc::new(AtomicUsize::new(MANY)));
    let counted = count.clone();
    let server = MisbehavingServer::open(move |seen| match seen.asks() {
        "resources/list" => {
            let count = counted.load(Ordering::Relaxed);
            seen.result(listed((0..count).map(|number| format!("x://{number}"))))
        }
        _ => older(seen, &speaks),
    });
    let server = server.await.unwrap();
    let world = UpstreamFixture::connected(spec(&server.url())).await;
    let mut client = world.client().await;
    for number in 0..MANY {
        subscribe(&mut client, &format!("x://{number}")).await;
    }
    open(&says, 1).await;
    count.store(MANY + 1, Ordering::Relaxed);
    let all: String = (0..MANY).map(|number| updated(&format!("x://{number}"))).collect();
    say(&says, &format!("{all}{}", event("notifications/resources/list_changed", json!({}))));
    let mut heard = BTreeSet::new();
    while heard.len() < MANY {
        heard.insert(told(&mut client).await);
    }
    until("the new one is listed", async || (world.upstream.status().resources == MANY + 1).then_some(()))
        .await;
}

#[tokio::test]
async fn a_part_of_what_is_watched_is_told_of_and_what_is_not_is_not() {
    let (says, _) = broadcast::channel(16);
    let speaks = says.clone();
    let server = MisbehavingServer::open(move |seen| match seen.asks() {
        "resources/list" => seen.result(listed(["x://a", "x://b", "x://b/c"].map(str::to_owned))),
        _ => older(seen, &speaks),
    });
    let server = server.await.unwrap();
    let world = UpstreamFixture::connected(spec(&server.url())).await;
    let (mut one, mut two) = (world.client().await, world.client().await);
    subscribe(&mut one, "x://a").await;
    subscribe(&mut two, "x://b/c").await;
    open(&says, 1).await;
    // With more than a URI, which is passed on as it came, and without.
    for more in [json!({}), json!({ "_meta": { "of": "the server" } })] {
        for uri in ["x://b", "x://ab", "y://a", "x://b/c", "x://a/1/2"] {
            let mut params = more.clone();
            params["uri"] = uri.into();
            say(&says, &event(UPDATED, params));
        }
        assert_eq!(told(&mut one).await, "x://a/1/2");
        assert_eq!(told(&mut two).await, "x://b/c");
    }
}

#[tokio::test]
async fn whoever_watches_a_resource_wakes_its_server() {
    let (says, _) = broadcast::channel(16);
    let speaks = says.clone();
    let server = MisbehavingServer::open(move |seen| match seen.asks() {
        "resources/list" => seen.result(listed(["x://a".to_owned()])),
        _ => older(seen, &speaks),
    });
    let server = server.await.unwrap();
    let spec = ServerSpec { idle_stop: Some(Duration::from_millis(1)), ..spec(&server.url()) };
    let world = UpstreamFixture::connected(spec).await;
    let mut client = world.client().await;
    until("it rests", async || world.upstream.status().idle.then_some(())).await;
    subscribe(&mut client, "x://a").await;
    until("it knows", async || {
        server.seen().iter().any(|seen| seen.asks() == "resources/subscribe").then_some(())
    })
    .await;
    // Repeated until the stream is there that carries it.
    until("the client is told", async || {
        let _ = says.send(updated("x://a").into_bytes());
        client.unasked().iter().any(|message| message["params"]["uri"] == "x://a").then_some(())
    })
    .await;
    // The server may become idle again.
    client.result("resources/unsubscribe", json!({ "uri": "x://a" })).await;
    until("it rests again", async || world.upstream.status().idle.then_some(())).await;
}

/// A server whose first stream breaks. The next one is refused with `status`, the one after it is open.
async fn reopens(status: u16) {
    let (says, _) = broadcast::channel(16);
    let (speaks, gets) = (says.clone(), AtomicUsize::new(0));
    let server = MisbehavingServer::open(move |seen| match (seen.method.as_str(), seen.asks()) {
        ("GET", _) => match gets.fetch_add(1, Ordering::Relaxed) {
            0 => MisbehavingReply::Closes(events(&[], "retry: 1\ndata:\n\n")),
            1 => MisbehavingReply::Answer(answer(status, &[], "")),
            _ => older(seen, &speaks),
        },
        (_, "resources/list") => seen.result(listed(["x://a".to_owned()])),
        _ => older(seen, &speaks),
    });
    let server = server.await.unwrap();
    let world = UpstreamFixture::connected(spec(&server.url())).await;
    let mut client = world.client().await;
    subscribe(&mut client, "x://a").await;
    open(&says, 1).await;
    say(&says, &updated("x://a"));
    assert_eq!(told(&mut client).await, "x://a", "{status}");
    let greeted = server.seen().iter().filter(|seen| seen.asks() == "initialize").count();
    assert_eq!(greeted, 1, "{status}");
}

#[tokio::test]
async fn a_stream_that_cannot_be_opened_again_now_is_opened_later() {
    join_all([409, 429, 408, 401, 403, 503].map(reopens)).await;
}

/// A server of the newer era whose tools may change.
fn newer(seen: &RecordedRequest) -> MisbehavingReply {
    match seen.asks() {
        "server/discover" => seen
            .result(json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": { "tools": { "listChanged": true } }, "ttlMs": 0, "cacheScope": "private" })),
        _ => seen.usual(),
    }
}

/// The beginning of a stream of the newer era.
fn acknowledged() -> String {
    event(
        "notifications/subscriptions/acknowledged",
        json!({ "notifications": { "toolsListChanged": true } }),
    )
}

/// A server that does not repeat what changed in a gap.
#[tokio::test]
async fn what_changed_while_a_stream_was_broken_is_looked_at() {
    for is_newer in [true, false] {
        let (says, _) = broadcast::channel(16);
        let streams = AtomicUsize::new(0);
        let server = MisbehavingServer::open(move |seen| match (seen.method.as_str(), seen.asks()) {
            ("GET", _) | (_, "subscriptions/listen") => {
                let head =
                    events(&[], &if is_newer { acknowledged() } else { "retry: 1\ndata:\n\n".to_owned() });
                match streams.fetch_add(1, Ordering::Relaxed) {
                    0 => MisbehavingReply::Closes(head),
                    _ => MisbehavingReply::Tells { head, says: says.clone() },
                }
            }
            (_, "tools/list") => {
                let count = if streams.load(Ordering::Relaxed) > 1 { 2 } else { 1 };
                let tools = (0..count).map(
                    |number| json!({ "name": format!("tool{number}"), "inputSchema": { "type": "object" } }),
                );
                seen.result(json!({ "tools": tools.collect::<Vec<_>>() }))
            }
            _ if is_newer => newer(seen),
            _ => seen.usual(),
        });
        let server = server.await.unwrap();
        let world = UpstreamFixture::connected(spec(&server.url())).await;
        let expected = if is_newer { "2026-07-28" } else { "2025-11-25" };
        assert_eq!(world.upstream.status().revision, Some(expected));
        until("the new tool is there", async || (world.upstream.status().tools == 2).then_some(())).await;
    }
}

/// An oversized notification is missed, and nothing that comes after it.
#[tokio::test]
async fn a_server_that_says_too_much_at_once_is_listened_to_anew() {
    let (says, _) = broadcast::channel(16);
    let streams = AtomicUsize::new(0);
    let server = MisbehavingServer::open(move |seen| match (seen.method.as_str(), seen.asks()) {
        ("GET", _) => match streams.fetch_add(1, Ordering::Relaxed) {
            0 => {
                let long = "x".repeat(17 * 1024 * 1024);
                MisbehavingReply::Closes(events(&[], &format!("retry: 1\nid: 7\ndata:\n\ndata: {long}\n\n")))
            }
            _ => MisbehavingReply::Tells { head: events(&[], ""), says: says.clone() },
        },
        (_, "tools/list") => {
            let count = if streams.load(Ordering::Relaxed) > 1 { 2 } else { 1 };
            let tools = (0..count).map(
                |number| json!({ "name": format!("tool{number}"), "inputSchema": { "type": "object" } }),
            );
            seen.result(json!({ "tools": tools.collect::<Vec<_>>() }))
        }
        _ => seen.usual(),
    });
    let server = server.await.unwrap();
    let world = UpstreamFixture::connected(spec(&server.url())).await;
    until("the new tool is there", async || (world.upstream.status().tools == 2).then_some(())).await;
    let again = server.seen().into_iter().filter(|seen| seen.method == "GET").nth(1).unwrap();
    assert_eq!(again.header("last-event-id"), None);
}

#[tokio::test]
async fn a_server_that_is_gone_is_not_called_connected() {
    // Ended as a whole, with every connection and every task.
    let elsewhere = tokio::runtime::Runtime::new().unwrap();
    let server = elsewhere.spawn(MisbehavingServer::open(|seen| match seen.asks() {
        "subscriptions/listen" => MisbehavingReply::Hangs(events(&[], &acknowledged())),
        _ => newer(seen),
    }));
    let server = server.await.unwrap().unwrap();
    let world = UpstreamFixture::connected(spec(&server.url())).await;
    until("it is listened to", async || {
        server.seen().iter().any(|seen| seen.asks() == "subscriptions/listen").then_some(())
    })
    .await;
    elsewhere.shutdown_background();
    world.status(StatusKind::Failed).await;
}

#[tokio::test]
async fn a_server_that_leaves_a_subscription_unanswered_is_heard_all_the_same() {
    let (says, _) = broadcast::channel(16);
    let speaks = says.clone();
    let server = MisbehavingServer::open(move |seen| match (seen.asks(), &seen.body["params"]["uri"]) {
        ("resources/list", _) => seen.result(listed(["x://a", "x://b"].map(str::to_owned))),
        ("resources/subscribe", uri) if uri == "x://b" => MisbehavingReply::Hangs(Vec::new()),
        _ => older(seen, &speaks),
    });
    let server = server.await.unwrap();
    let world = UpstreamFixture::connected(spec(&server.url())).await;
    let (mut one, mut two) = (world.client().await, world.client().await);
    subscribe(&mut one, "x://a").await;
    let asked = two.begin("resources/subscribe", json!({ "uri": "x://b" })).await;
    until("it was asked", async || {
        server.seen().iter().any(|seen| seen.body["params"]["uri"] == "x://b").then_some(())
    })
    .await;
    open(&says, 1).await;
    say(&says, &updated("x://a"));
    assert_eq!(told(&mut one).await, "x://a");
    let is_answered = two.unasked().iter().any(|message| message["id"] == asked);
    assert!(!is_answered, "it still waits, and nobody else did");
}

/// Busy, or restarting: no one else would repeat the subscription.
#[tokio::test]
async fn a_subscription_that_does_not_arrive_is_made_again() {
    for status in [429, 503] {
        let (says, _) = broadcast::channel(16);
        let (speaks, refused) = (says.clone(), AtomicUsize::new(0));
        let server = MisbehavingServer::open(move |seen| match seen.asks() {
            "resources/list" => seen.result(listed(["x://a".to_owned()])),
            "resources/subscribe" if refused.fetch_add(1, Ordering::Relaxed) < 2 => {
                MisbehavingReply::Answer(answer(status, &[], "not now"))
            }
            _ => older(seen, &speaks),
        });
        let server = server.await.unwrap();
        let world = UpstreamFixture::connected(spec(&server.url())).await;
        let mut client = world.client().await;
        // The client does not have to wait for that.
        subscribe(&mut client, "x://a").await;
        let subscribed = || server.seen().iter().filter(|seen| seen.asks() == "resources/subscribe").count();
        until("it is said again", async || (subscribed() == 3).then_some(())).await;
        open(&says, 1).await;
        say(&says, &updated("x://a"));
        assert_eq!(told(&mut client).await, "x://a", "{status}");
        // Once it succeeded, it is not repeated when something else is watched.
        client.result("resources/unsubscribe", json!({ "uri": "x://a" })).await;
        until("it knows", async || {
            server.seen().iter().any(|seen| seen.asks() == "resources/unsubscribe").then_some(())
        })
        .await;
        assert_eq!(subscribed(), 3);
    }
}

/// A server with one resource, in either era, that sends nothing on its streams; with what ends its first stream,
/// and what the others do.
async fn silent(
    is_newer: bool,
) -> (MisbehavingServer, broadcast::Sender<Vec<u8>>, broadcast::Sender<Vec<u8>>) {
    let ((ends, _), (stays, _)) = (broadcast::channel(1), broadcast::channel(1));
    let (first, later) = (Mutex::new(Some(ends.clone())), stays.clone());
    let server = MisbehavingServer::open(move |seen| match (seen.method.as_str(), seen.asks()) {
        ("GET", _) | (_, "subscriptions/listen") => {
            let head = if is_newer { acknowledged() } else { "retry: 1\ndata:\n\n".to_owned() };
            let says = first.lock().take().unwrap_or_else(|| later.clone());
            MisbehavingReply::Tells { head: events(&[], &head), says }
        }
        (_, "server/discover") if is_newer => {
            let capabilities = json!({ "resources": { "subscribe": true } });
            seen.result(json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": capabilities, "ttlMs": 0, "cacheScope": "private" }))
        }
        (_, "resources/list") => seen.result(listed(["x://a".to_owned()])),
        _ => older(seen, &later),
    });
    (server.await.unwrap(), ends, stays)
}

/// Has a client subscribe at such a server, once it listens by `tells`.
async fn watching(
    server: &MisbehavingServer,
    tells: &broadcast::Sender<Vec<u8>>,
) -> (UpstreamFixture, McpClient) {
    let world = UpstreamFixture::connected(spec(&server.url())).await;
    let mut client = world.client().await;
    subscribe(&mut client, "x://a").await;
    open(tells, 1).await;
    let was_told = client.unasked().iter().any(|message| message["method"] == UPDATED);
    assert!(!was_told, "nothing was missed");
    (world, client)
}

#[tokio::test]
async fn whatever_is_watched_is_told_of_when_a_server_is_heard_again() {
    for is_newer in [true, false] {
        let (server, ends, stays) = silent(is_newer).await;
        let (_world, mut client) = watching(&server, &ends).await;
        drop(ends);
        open(&stays, 1).await;
        assert_eq!(told(&mut client).await, "x://a", "{is_newer}");
    }
}

#[tokio::test]
async fn whatever_is_watched_is_told_of_when_a_server_is_connected_again() {
    for is_newer in [true, false] {
        let (server, ends, _stays) = silent(is_newer).await;
        let (world, mut client) = watching(&server, &ends).await;
        world.upstream.reconnect();
        assert_eq!(told(&mut client).await, "x://a", "{is_newer}");
    }
}

/// More notifications than fit, at once: a client that watches something else still gets its own.
#[tokio::test]
async fn a_hub_that_falls_behind_tells_of_all_that_is_watched() {
    let (says, _) = broadcast::channel(16);
    let server = MisbehavingServer::open(move |seen| match seen.asks() {
        "resources/list" => seen.result(listed(["x://a".to_owned()])),
        _ => older(seen, &says),
    });
    let server = server.await.unwrap();
    let world = UpstreamFixture::connected(spec(&server.url())).await;
    let mut older = world.client().await;
    subscribe(&mut older, "x://a").await;
    let mut newer = McpClient::http(world.address, "any", "2026-07-28").await;
    newer.listen(json!({ "resourceSubscriptions": ["x://a"] })).await;
    world.changes.announce(CatalogChange::ResourceUpdated("x://a".to_owned()));
    for number in 0..1_000 {
        world.changes.announce(CatalogChange::ResourceUpdated(format!("y://{number}")));
    }
    assert_eq!(told(&mut older).await, "x://a");
    assert_eq!(told(&mut newer).await, "x://a");
}
