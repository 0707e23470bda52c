//! Well-behaved servers over streamable HTTP and HTTP+SSE.

use crate::support::{UpstreamFixture, conformance_hub, reads, said, spec, with_headers};
use portcullis_testkit::misbehaving_server::{MisbehavingReply, MisbehavingServer, answer, events};
use portcullis_testkit::wait::until;
use portcullis_upstream::{HeaderSpec, StatusKind, ValueResolver};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The same conversation over both transports: content, progress, a question, a prompt, a resource, a failing tool.
#[tokio::test]
async fn a_hub_behind_a_hub_is_the_same_by_every_way() {
    let (_behind, address) = conformance_hub().await;
    for (path, revision) in [("mcp", "2026-07-28"), ("sse", "2025-11-25")] {
        let world = UpstreamFixture::connected(spec(&format!("http://{address}/{path}"))).await;
        let status = world.upstream.status();
        assert_eq!(status.revision, Some(revision), "{path}");
        assert!(status.tools > 20 && status.prompts > 2 && status.resources > 1, "{status:?}");
        let mut client = world.client().await;
        let simple = client.call("up_test_simple_text", json!({})).await;
        assert_eq!(said(&simple), "This is a simple text response for testing.", "{path}");
        let image = client.call("up_test_image_content", json!({})).await;
        assert_eq!(image["content"][0]["type"], "image", "{path}");
        let failed = client.call("up_test_error_handling", json!({})).await;
        assert_eq!(failed["isError"], true, "{path} {failed}");

        let params =
            json!({ "name": "up_test_tool_with_progress", "arguments": {}, "_meta": { "progressToken": 7 } });
        let id = client.begin("tools/call", params).await;
        let progress = client.told("notifications/progress").await;
        assert_eq!(progress["params"]["progressToken"], 7, "{path} {progress}");
        client.answer(&json!(id)).await;

        let id = client
            .begin("tools/call", json!({ "name": "up_test_sampling", "arguments": { "prompt": "hello" } }))
            .await;
        let asked = client.told("sampling/createMessage").await;
        let text =
            json!({ "role": "assistant", "content": { "type": "text", "text": "mine" }, "model": "m" });
        client.reply(&asked["id"], text).await;
        let sampled = client.answer(&json!(id)).await;
        assert!(sampled.to_string().contains("mine"), "{path} {sampled}");

        let prompt = client.result("prompts/get", json!({ "name": "up_test_simple_prompt" })).await;
        assert!(prompt["messages"].is_array(), "{path} {prompt}");
        let read = client.result("resources/read", json!({ "uri": "test://static-text" })).await;
        assert!(read["contents"][0]["text"].is_string(), "{path} {read}");
    }
}

#[tokio::test]
async fn a_session_is_kept_and_ended() {
    let server = MisbehavingServer::open(|seen| seen.usual()).await.unwrap();
    let world = UpstreamFixture::connected(spec(&server.url())).await;
    for _ in 0..3 {
        assert_eq!(world.call("up_echo").await, "echoed");
    }
    let seen = server.seen();
    let at = seen.iter().position(|seen| seen.asks() == "initialize").unwrap();
    assert!(seen[..=at].iter().all(|seen| seen.header("mcp-session-id").is_none()));
    for seen in &seen[at + 1..] {
        assert_eq!(seen.header("mcp-session-id"), Some("s-1"), "{seen:?}");
        assert_eq!(seen.header("mcp-protocol-version"), Some("2025-11-25"), "{seen:?}");
    }
    // Sequential requests need one connection; the notification stream may need another.
    let connections = seen.iter().map(|seen| seen.connection).max().unwrap() + 1;
    assert!(connections <= 3, "{connections} connections for {} requests", seen.len());
    world.upstream.stop();
    until("the session is ended", async || {
        server
            .seen()
            .iter()
            .any(|seen| seen.method == "DELETE" && seen.header("mcp-session-id") == Some("s-1"))
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_newer_era_says_in_headers_what_the_body_says() {
    let server = MisbehavingServer::open(|seen| match seen.asks() {
        "server/discover" => {
            seen.result(json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } }))
        }
        "tools/list" => seen.result(json!({ "tools": [{ "name": "größe", "inputSchema": { "type": "object",
            "properties": { "city": { "type": "string", "x-mcp-header": "City" } } } }] })),
        _ => {
            seen.result(json!({ "resultType": "complete", "content": [{ "type": "text", "text": "done" }] }))
        }
    })
    .await
    .unwrap();
    let world = UpstreamFixture::connected(spec(&server.url())).await;
    let mut client = world.client().await;
    let listed = client.result("tools/list", json!({})).await;
    let tool = listed["tools"][0]["name"].as_str().unwrap().to_owned();
    let result = client.call(&tool, json!({ "city": "Zürich" })).await;
    assert_eq!(said(&result), "done");
    let seen = server.seen();
    let call = seen.iter().find(|seen| seen.asks() == "tools/call").unwrap();
    for (header, expected) in [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "=?base64?Z3LDtsOfZQ==?="),
        ("mcp-param-city", "=?base64?WsO8cmljaA==?="),
    ] {
        assert_eq!(call.header(header), Some(expected), "{call:?}");
    }
    assert!(seen.iter().all(|seen| seen.header("mcp-session-id").is_none() && seen.method == "POST"));
}

#[tokio::test]
async fn an_answer_that_broke_off_is_taken_up_again() {
    let server = MisbehavingServer::open(|seen| {
        let result = |id: &Value| {
            json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [{ "type": "text", "text": "late" }] } })
        };
        match (seen.method.as_str(), seen.asks(), seen.header("last-event-id")) {
            ("POST", "tools/call", _) => {
                let id = &seen.body["id"];
                MisbehavingReply::Closes(events(&[], &format!("id: a-{id}\nretry: 20\ndata: \n\n")))
            }
            ("GET", _, Some(last)) => {
                let id: Value = last.strip_prefix("a-").unwrap().parse().unwrap();
                MisbehavingReply::Closes(events(&[], &format!("data: {}\n\n", result(&id))))
            }
            _ => seen.usual(),
        }
    })
    .await
    .unwrap();
    let world = UpstreamFixture::connected(spec(&server.url())).await;
    assert_eq!(world.call("up_echo").await, "late");
    assert_eq!(server.seen().iter().filter(|seen| seen.asks() == "tools/call").count(), 1);
}

#[tokio::test]
async fn what_a_server_says_by_itself_is_heard_and_heard_again() {
    let lists = Arc::new(AtomicUsize::new(0));
    let counted = lists.clone();
    let server = MisbehavingServer::open(move |seen| match (seen.method.as_str(), seen.asks()) {
        ("GET", _) => {
            let last = seen.header("last-event-id").map_or(0, |last| last.parse::<u32>().unwrap());
            let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
            MisbehavingReply::Closes(events(
                &[],
                &format!("retry: 10\nid: {}\ndata: {changed}\n\n", last + 1),
            ))
        }
        ("POST", "tools/list") => {
            counted.fetch_add(1, Ordering::Relaxed);
            seen.usual()
        }
        _ => seen.usual(),
    })
    .await
    .unwrap();
    let _world = UpstreamFixture::connected(spec(&server.url())).await;
    until("it is listed again", async || (lists.load(Ordering::Relaxed) >= 3).then_some(())).await;
    let seen = server.seen();
    let gets: Vec<_> =
        seen.iter().filter(|seen| seen.method == "GET").map(|seen| seen.header("last-event-id")).collect();
    assert_eq!(gets[..2], [None, Some("1")]);
}

#[tokio::test]
async fn a_socket_of_this_machine_is_a_place_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("up.sock");
    let server = MisbehavingServer::open_unix(&path, |seen| seen.usual()).unwrap();
    let world = UpstreamFixture::connected(spec(&format!("unix:{}:/there?x=1", path.display()))).await;
    assert_eq!(world.call("up_echo").await, "echoed");
    assert!(
        server
            .seen()
            .iter()
            .all(|seen| seen.path == "/there?x=1" && seen.header("host") == Some("localhost"))
    );
}

#[tokio::test]
async fn headers_are_looked_up_each_time() {
    let server = MisbehavingServer::open(|seen| seen.usual()).await.unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let values = ValueResolver(Arc::new(move |written: &str| {
        Ok(format!("{written}-{}", counted.fetch_add(1, Ordering::Relaxed)))
    }));
    let name = "x-key".parse().unwrap();
    let headers = vec![HeaderSpec { name, written: "key".to_owned(), values }];
    let spec = with_headers(&server.url(), headers);
    let world = UpstreamFixture::connected(spec).await;
    world.call("up_echo").await;
    let keys: std::collections::BTreeSet<_> =
        server.seen().iter().map(|seen| seen.header("x-key").unwrap().to_owned()).collect();
    assert!(keys.len() >= 4 && keys.contains("key-0"), "{keys:?}");
}

#[tokio::test]
async fn a_server_that_moved_within_itself_is_followed() {
    let server = MisbehavingServer::open(|seen| match seen.path.as_str() {
        "/mcp" => MisbehavingReply::Answer(answer(307, &[("Location", "/mcp/")], "")),
        _ => seen.usual(),
    })
    .await
    .unwrap();
    let world = UpstreamFixture::connected(reads(&server.url())).await;
    assert_eq!(world.call("up_echo").await, "echoed");
    // Probed once.
    assert_eq!(server.seen().iter().filter(|seen| seen.path == "/mcp").count(), 1);
    world.status(StatusKind::Connected).await;
}
