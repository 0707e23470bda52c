//! Sessions over HTTP: whose they are, how they end, and how a lost stream is taken up again.

use crate::support::{home, http, names, request};
use portcullis_core::Registry;
use portcullis_testkit::process::HubProcess;
use portcullis_testkit::raw_http::{
    RawHttpConnection, RawHttpRequest, RawHttpResponse, RawSseEvent, RawSseReader,
};
use portcullis_testkit::{BoxedHub, conformance};
use serde_json::{Value, json};
use std::net::SocketAddr;

fn post(message: &Value, token: &str) -> RawHttpRequest {
    RawHttpRequest::post("/mcp", message.to_string()).token(token)
}

fn list() -> Value {
    request(1, "tools/list", json!({}))
}

/// Every way to use a session, with the status that each gets.
async fn uses(hub: &HubProcess, token: &str, session: &str) -> [u16; 4] {
    let named = |request: RawHttpRequest| request.token(token).header("Mcp-Session-Id", session);
    let listed = named(RawHttpRequest::post("/mcp", list().to_string())).send(hub.address).await;
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let noted = named(RawHttpRequest::post("/mcp", note.to_string())).send(hub.address).await;
    let read = named(RawHttpRequest::get("/mcp").header("Accept", "text/event-stream")).bytes(hub.address);
    let mut reading = RawHttpConnection::open(hub.address).await;
    reading.send(&read).await.unwrap();
    let head = reading.head().await.unwrap();
    drop(reading);
    let deleted = named(RawHttpRequest::new("DELETE", "/mcp")).send(hub.address).await;
    [listed.status(), noted.status(), head.status, deleted.status()]
}

#[tokio::test]
async fn a_session_ends_when_it_is_deleted() {
    let home = home();
    let hub = home.serve().await;
    let client = http(&hub, "2025-11-25").await;
    let session = client.session().unwrap();
    assert_eq!(uses(&hub, &hub.token, session).await, [200, 202, 200, 204]);
    assert_eq!(uses(&hub, &hub.token, session).await, [404; 4]);
    assert_eq!(uses(&hub, &hub.token, "no-such-session").await, [404; 4]);
}

#[tokio::test]
async fn a_session_belongs_to_one_client() {
    let home = home();
    let hub = home.serve().await;
    let stranger = home.add_client("stranger", &[]).await;
    let mut client = http(&hub, "2025-11-25").await;
    let session = client.session().unwrap().to_owned();
    assert_eq!(uses(&hub, &stranger, &session).await, [404; 4]);
    // Nothing of this has touched it.
    client.result("tools/list", json!({})).await;
    // Nor can a stranger send messages into another's legacy session.
    let mut connection = RawHttpConnection::open(hub.address).await;
    let open = RawHttpRequest::get("/sse").token(&hub.token).bytes(hub.address);
    connection.send(&open).await.unwrap();
    connection.head().await.unwrap();
    let endpoint = RawSseReader::of(connection).next().await.unwrap().data;
    let taken = RawHttpRequest::post(endpoint, list().to_string()).token(&stranger).send(hub.address).await;
    assert_eq!(taken.status(), 404, "{}", taken.text());
}

#[tokio::test]
async fn curl_needs_no_session() {
    let home = home();
    let hub = home.serve().await;
    // As `curl -d` sends it: form data by name, anything accepted, no version.
    let message = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let mut connection = RawHttpConnection::open(hub.address).await;
    let bytes = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nUser-Agent: curl/8\r\nAccept: */*\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{message}",
        hub.address,
        hub.token,
        message.len()
    );
    connection.send(bytes.as_bytes()).await.unwrap();
    let reply = connection.reply().await.unwrap();
    assert_eq!((reply.status(), reply.head.header("mcp-session-id")), (200, None));
    assert_eq!(reply.head.header("content-type"), Some("application/json"));
    let listed = reply.json();
    assert_eq!(names(&listed["result"]["tools"])[0], "workspace_read");
    // What needs a session says so.
    let subscribe = request(2, "resources/subscribe", json!({ "uri": "workspace:///a.md" }));
    let refused = post(&subscribe, &hub.token).send(hub.address).await.json();
    assert_eq!(refused["error"]["code"], -32600);
    assert!(refused["error"]["message"].as_str().unwrap().contains("send `initialize` first"), "{refused}");
}

/// Reads a session's stream, from the start or from after an event.
async fn events(address: SocketAddr, token: &str, session: &str, last: Option<&str>) -> RawSseReader {
    let mut request = RawHttpRequest::get("/mcp").token(token).header("Accept", "text/event-stream");
    request = request.header("Mcp-Session-Id", session);
    if let Some(last) = last {
        request = request.header("Last-Event-ID", last);
    }
    let mut connection = RawHttpConnection::open(address).await;
    connection.send(&request.bytes(address)).await.unwrap();
    assert_eq!(connection.head().await.unwrap().status, 200);
    RawSseReader::of(connection)
}

/// Returns the next event that is a message.
async fn message(events: &mut RawSseReader) -> (RawSseEvent, Value) {
    loop {
        let event = events.next().await.expect("another event");
        if !event.data.is_empty() {
            let message = serde_json::from_str(&event.data).unwrap();
            return (event, message);
        }
    }
}

async fn open_session(address: SocketAddr, token: &str) -> String {
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
    let reply: RawHttpResponse = post(&request(1, "initialize", params), token).send(address).await;
    reply.head.header("mcp-session-id").unwrap().to_owned()
}

#[tokio::test]
async fn a_lost_stream_is_taken_up_where_it_was_lost() {
    let home = home();
    for name in ["a.txt", "b.txt"] {
        home.write(name, "before");
    }
    let hub = home.serve().await;
    let session = open_session(hub.address, &hub.token).await;
    let listed = post(&request(2, "resources/list", json!({})), &hub.token).send(hub.address).await.json();
    let uris: Vec<&str> = listed["result"]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["uri"].as_str().unwrap())
        .collect();
    for uri in &uris {
        let subscribe = post(&request(3, "resources/subscribe", json!({ "uri": uri })), &hub.token);
        let reply = subscribe.header("Mcp-Session-Id", &session).send(hub.address).await;
        assert_eq!(reply.json()["result"], json!({}));
    }
    let mut stream = events(hub.address, &hub.token, &session, None).await;
    let first = stream.next().await.unwrap();
    assert_eq!((first.id.as_deref(), first.data.as_str()), (Some("s0-0"), ""), "an id to come back with");
    home.write("a.txt", "after");
    let (seen, told) = message(&mut stream).await;
    assert_eq!(
        (&told["method"], &told["params"]["uri"]),
        (&json!("notifications/resources/updated"), &json!(uris[0]))
    );
    // The connection is lost, and something happens meanwhile.
    drop(stream);
    home.write("b.txt", "after");
    let mut stream = events(hub.address, &hub.token, &session, seen.id.as_deref()).await;
    let (missed, told) = message(&mut stream).await;
    assert_eq!(told["params"]["uri"], uris[1]);
    // Whoever asks for it again gets the same event again.
    let mut again = events(hub.address, &hub.token, &session, seen.id.as_deref()).await;
    assert_eq!(message(&mut again).await.0, missed);
    // A newer reader sends an older one away.
    assert_eq!(stream.next().await, None);
}

/// The answer to a call waits for a client that lost the stream on which it was to come.
#[tokio::test]
async fn an_answer_waits_for_a_client_that_comes_back() {
    let registry = Registry::default();
    registry.add(conformance::family(registry.changes())).unwrap();
    let boxed = BoxedHub::new(registry, false).unwrap();
    let address = boxed.listen(0).await.unwrap();
    let session = open_session(address, "any").await;
    let call = request(7, "tools/call", json!({ "name": "test_reconnection", "arguments": {} }));
    let mut connection = RawHttpConnection::open(address).await;
    let bytes = post(&call, "any").header("Mcp-Session-Id", &session).bytes(address);
    connection.send(&bytes).await.unwrap();
    assert!(connection.head().await.unwrap().is_event_stream());
    let mut stream = RawSseReader::of(connection);
    let mut last = None;
    while let Some(event) = stream.next().await {
        assert!(!event.data.contains("\"id\":7"), "the stream is closed before the answer");
        last = event.id;
    }
    let mut stream = events(address, "any", &session, last.as_deref()).await;
    let (_, answer) = message(&mut stream).await;
    assert_eq!(answer["id"], 7);
    assert_eq!(answer["result"]["isError"], false);
    // A stream that nobody knows is gone.
    let mut lost = RawHttpConnection::open(address).await;
    let request = RawHttpRequest::get("/mcp").header("Accept", "text/event-stream");
    let request = request.header("Mcp-Session-Id", &session).header("Last-Event-ID", "s99-1");
    assert_eq!(lost.exchange(&request).await.status(), 404);
}

#[tokio::test]
async fn the_newest_revision_only_posts() {
    let home = home();
    let hub = home.serve().await;
    for method in ["GET", "DELETE"] {
        let request =
            RawHttpRequest::new(method, "/mcp").token(&hub.token).header("Accept", "text/event-stream");
        let reply = request.header("MCP-Protocol-Version", "2026-07-28").send(hub.address).await;
        assert_eq!((reply.status(), reply.head.header("allow")), (405, Some("POST")), "{method}");
    }
    // A session id is ignored, and none is ever made.
    let mut client = http(&hub, "2026-07-28").await;
    client.result("server/discover", json!({})).await;
    assert_eq!(client.session(), None);
}
