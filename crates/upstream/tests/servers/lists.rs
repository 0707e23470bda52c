//! Lists that cannot be read, or not to their end: each is reported, and affects nothing else.

use crate::support::{UpstreamFixture, spec};
use portcullis_core::{Provider, ResourceClaim, WatchState};
use portcullis_testkit::misbehaving_server::{
    MisbehavingReply, MisbehavingServer, RecordedRequest, answer, events,
};
use portcullis_testkit::wait::{until, within};
use portcullis_upstream::{PerClient, ServerSpec, ServerStatus, StatusKind};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::broadcast;

/// A server with one item of every kind.
fn one_of_each(seen: &RecordedRequest) -> MisbehavingReply {
    match seen.asks() {
        "initialize" => seen.result(json!({ "protocolVersion": "2025-11-25",
            "capabilities": { "tools": {}, "prompts": {}, "resources": {}, "logging": {} } })),
        "prompts/list" => seen.result(json!({ "prompts": [{ "name": "ask" }] })),
        "resources/list" => seen.result(json!({ "resources": [{ "uri": "x://1", "name": "one" }] })),
        "resources/templates/list" => seen.result(json!({ "resourceTemplates": [] })),
        _ => seen.usual(),
    }
}

/// The status of such a server, with another response to one list.
async fn status(
    method: &'static str,
    does: impl Fn(&RecordedRequest) -> MisbehavingReply + Send + Sync + 'static,
) -> ServerStatus {
    let does =
        move |seen: &RecordedRequest| if seen.asks() == method { does(seen) } else { one_of_each(seen) };
    let server = MisbehavingServer::open(does).await.unwrap();
    let world = UpstreamFixture::new(spec(&server.url())).await;
    world.upstream.settled().await
}

fn refused(seen: &RecordedRequest, code: i64) -> MisbehavingReply {
    let error = json!({ "code": code, "message": "the shelf fell down" });
    let message = json!({ "jsonrpc": "2.0", "id": seen.body["id"], "error": error });
    MisbehavingReply::Answer(answer(200, &[("Content-Type", "application/json")], &message.to_string()))
}

#[tokio::test]
async fn a_server_without_its_tools_has_failed_and_says_which_list() {
    for (result, expected) in [
        (json!({ "tools": { "echo": {} } }), "`tools/list`: `tools` is not a list"),
        (json!({}), "`tools/list`: the response has no `tools`"),
        (json!([]), "`tools/list`: the response is not an object"),
    ] {
        let status = status("tools/list", move |seen| seen.result(result.clone())).await;
        assert_eq!((status.kind, status.reason.as_deref()), (StatusKind::Failed, Some(expected)));
    }
    let status = status("tools/list", |seen| refused(seen, -32603)).await;
    let expected = "`tools/list`: the server answered with error -32603: the shelf fell down";
    assert_eq!((status.kind, status.reason.as_deref()), (StatusKind::Failed, Some(expected)));
}

#[tokio::test]
async fn any_other_list_that_fails_is_named_and_the_rest_is_there() {
    for (method, list, stays) in [
        ("prompts/list", "prompts", (1, 0, 1)),
        ("resources/list", "resources", (1, 1, 0)),
        ("resources/templates/list", "resourceTemplates", (1, 1, 1)),
    ] {
        for why in ["the shelf fell down", "is not a list", "500 Internal Server Error"] {
            let status = status(method, move |seen| match why {
                "is not a list" => seen.result(json!({ list: "many" })),
                "the shelf fell down" => refused(seen, -32603),
                _ => MisbehavingReply::Answer(answer(500, &[], "")),
            });
            let status = status.await;
            assert_eq!(status.kind, StatusKind::Connected, "{method} {:?}", status.reason);
            assert_eq!((status.tools, status.prompts, status.resources), stays, "{method}");
            let [(what, told)] = status.dropped.as_slice() else { panic!("{method}: {:?}", status.dropped) };
            assert!(what == list && told.contains(method) && told.contains(why), "{method}: {told}");
        }
    }
}

/// Tools do not wait for a late list, which appears when it arrives.
#[tokio::test]
async fn a_list_that_is_late_holds_nothing_else_up() {
    let asked = AtomicUsize::new(0);
    let server = MisbehavingServer::open(move |seen| match seen.asks() {
        "resources/list" if asked.fetch_add(1, Ordering::Relaxed) == 0 => MisbehavingReply::Hangs(Vec::new()),
        "resources/subscribe" => seen.result(json!({})),
        "logging/setLevel" => MisbehavingReply::Hangs(Vec::new()),
        _ => one_of_each(seen),
    });
    let server = server.await.unwrap();
    let world = UpstreamFixture::new(spec(&server.url())).await;
    // As inherited from the server that this one replaces.
    Provider::watch(&world.upstream, "x://gone", "any", WatchState::Wanted);
    let status = world.upstream.settled().await;
    assert_eq!((status.kind, status.tools, status.prompts), (StatusKind::Connected, 1, 1));
    let [(what, told)] = status.dropped.as_slice() else { panic!("{:?}", status.dropped) };
    assert!(what == "resources" && told.contains("`resources/list`: the server did not respond"), "{told}");
    assert_eq!(world.upstream.owns_resource("x://gone", "any"), ResourceClaim::Listed);
    until("the list is there", async || {
        let status = world.upstream.status();
        (status.resources == 1 && status.dropped.is_empty()).then_some(())
    })
    .await;
    assert_eq!(world.upstream.owns_resource("x://gone", "any"), ResourceClaim::Not);
}

/// What is known of a server stays known on its next connection, while a list is late.
#[tokio::test]
async fn a_list_that_is_late_is_as_it_was_until_it_comes() {
    let asked = AtomicUsize::new(0);
    let server = MisbehavingServer::open(move |seen| match seen.asks() {
        "resources/list" if asked.fetch_add(1, Ordering::Relaxed) > 0 => MisbehavingReply::Hangs(Vec::new()),
        _ => one_of_each(seen),
    });
    let server = server.await.unwrap();
    let world = UpstreamFixture::connected(spec(&server.url())).await;
    assert_eq!(world.upstream.status().resources, 1);
    world.upstream.reconnect();
    until("it is late", async || (!world.upstream.status().dropped.is_empty()).then_some(())).await;
    assert_eq!(world.upstream.status().resources, 1);
}

fn times(server: &MisbehavingServer, asks: &str) -> usize {
    server.seen().iter().filter(|seen| seen.asks() == asks).count()
}

/// Waits until the server got this request so often.
async fn asked(server: &MisbehavingServer, asks: &str, often: usize) {
    until(asks, async || (times(server, asks) >= often).then_some(())).await;
}

const TOOLS_CHANGED: &[u8] =
    b"data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n";

/// Calls wait for changed tools, and not for a late list.
#[tokio::test]
async fn a_list_that_never_comes_holds_up_no_call_when_tools_change() {
    let (says, _) = broadcast::channel(16);
    let tells = says.clone();
    let server = MisbehavingServer::open(move |seen| match (seen.method.as_str(), seen.asks()) {
        ("GET", _) => MisbehavingReply::Tells { head: events(&[], ""), says: tells.clone() },
        (_, "resources/list") => MisbehavingReply::Hangs(Vec::new()),
        _ => one_of_each(seen),
    });
    let server = server.await.unwrap();
    let world = UpstreamFixture::connected(spec(&server.url())).await;
    // The second time concurrently with calls.
    asked(&server, "resources/list", 2).await;
    for often in 3..5 {
        says.send(TOOLS_CHANGED.to_vec()).unwrap();
        asked(&server, "tools/list", often).await;
        assert_eq!(within("the call", world.call("up_echo")).await, "echoed");
    }
}

/// Anything may have changed in a gap of the notifications.
#[tokio::test]
async fn a_list_that_never_comes_holds_up_no_call_when_a_stream_is_open_again() {
    let (lists, streams) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let server = MisbehavingServer::open(move |seen| match (seen.method.as_str(), seen.asks()) {
        ("GET", _) => match streams.fetch_add(1, Ordering::Relaxed) {
            0 => MisbehavingReply::Closes(events(&[], "retry: 1\ndata:\n\n")),
            _ => MisbehavingReply::Hangs(events(&[], "")),
        },
        (_, "resources/list") if lists.fetch_add(1, Ordering::Relaxed) > 0 => {
            MisbehavingReply::Hangs(Vec::new())
        }
        _ => one_of_each(seen),
    });
    let server = server.await.unwrap();
    let world = UpstreamFixture::connected(spec(&server.url())).await;
    asked(&server, "resources/list", 2).await;
    assert_eq!(within("the call", world.call("up_echo")).await, "echoed");
    assert_eq!(world.upstream.status().resources, 1);
}

/// The call is sent on the next connection.
#[tokio::test]
async fn a_call_does_not_wait_for_lists_of_a_connection_that_is_over() {
    let ((says, _), (refuses, _)) = (broadcast::channel(16), broadcast::channel(16));
    let (tells, refusing, lists) = (says.clone(), refuses.clone(), AtomicUsize::new(0));
    let server = MisbehavingServer::open(move |seen| match (seen.method.as_str(), seen.asks()) {
        ("GET", _) => MisbehavingReply::Tells { head: events(&[], ""), says: tells.clone() },
        (_, "tools/list") if lists.fetch_add(1, Ordering::Relaxed) == 1 => {
            MisbehavingReply::Tells { head: Vec::new(), says: refusing.clone() }
        }
        _ => one_of_each(seen),
    });
    let server = server.await.unwrap();
    let world = UpstreamFixture::connected(spec(&server.url())).await;
    let mut client = world.client().await;
    until("the stream is open", async || (says.receiver_count() == 1).then_some(())).await;
    says.send(TOOLS_CHANGED.to_vec()).unwrap();
    until("it is asked", async || (refuses.receiver_count() == 1).then_some(())).await;
    let call = client.begin("tools/call", json!({ "name": "up_echo", "arguments": {} })).await;
    // The call waits by then; one that does not is answered all the same.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let seen = server.seen().into_iter().rfind(|seen| seen.asks() == "tools/list").unwrap();
    let MisbehavingReply::Answer(refusal) = refused(&seen, -32603) else { panic!("no answer") };
    refuses.send(refusal).unwrap();
    let answer = within("the call", client.answer(&call.into())).await.to_string();
    assert!(answer.contains("echoed"), "{answer}");
}

/// A per-client server is slow to list its prompts, and the client gets those that it was shown.
#[tokio::test]
async fn a_prompt_is_there_while_a_client_s_own_server_is_slow_to_say_so() {
    let lists = AtomicUsize::new(0);
    let server = MisbehavingServer::open(move |seen| match seen.asks() {
        "prompts/list" if lists.fetch_add(1, Ordering::Relaxed) > 0 => MisbehavingReply::Hangs(Vec::new()),
        "prompts/get" => seen.result(json!({ "messages": [], "description": "as ever" })),
        _ => one_of_each(seen),
    });
    let server = server.await.unwrap();
    let spec = ServerSpec { per_client: Some(PerClient { clients_max: 4 }), ..spec(&server.url()) };
    let world = UpstreamFixture::connected(spec).await;
    let mut client = world.client().await;
    let asked = client.request("prompts/get", json!({ "name": "up_ask" }));
    let answer = within("the prompt", asked).await.to_string();
    assert!(answer.contains("as ever"), "{answer}");
}

#[tokio::test]
async fn what_a_server_does_not_have_is_no_fault() {
    let status_of = [
        status("prompts/list", |seen| refused(seen, -32601)).await,
        status("prompts/list", |seen| seen.result(json!({ "prompts": null }))).await,
    ];
    for status in status_of {
        assert_eq!((status.kind, status.tools, status.prompts), (StatusKind::Connected, 1, 0));
        assert!(status.dropped.is_empty(), "{:?}", status.dropped);
    }
}

/// A page of one tool, and the next cursor.
fn page(seen: &RecordedRequest) -> (u64, Value) {
    let at = seen.body["params"]["cursor"].as_str().map_or(0, |cursor| cursor.parse::<u64>().unwrap());
    let tool = json!({ "name": format!("tool{at}"), "inputSchema": { "type": "object" } });
    (at, json!({ "tools": [tool], "nextCursor": (at + 1).to_string() }))
}

#[tokio::test]
async fn a_list_that_is_cut_says_so_and_shows_what_there_was() {
    let endless = status("tools/list", |seen| seen.result(page(seen).1)).await;
    let broken = status("tools/list", |seen| match page(seen) {
        (0 | 1, page) => seen.result(page),
        _ => refused(seen, -32602),
    });
    for (status, tools, why) in
        [(endless, 200, "more than 200 pages"), (broken.await, 2, "-32602: the shelf fell down")]
    {
        assert_eq!((status.kind, status.tools), (StatusKind::Connected, tools));
        let [(what, told)] = status.dropped.as_slice() else { panic!("{:?}", status.dropped) };
        assert!(what == "tools" && told.contains("the list is truncated") && told.contains(why), "{told}");
    }
}
