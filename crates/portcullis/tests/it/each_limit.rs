//! Every limit is run into once, and the metrics say so.

use crate::support::{BINARY, request, stdio};
use portcullis_core::{Limit, Registry};
use portcullis_testkit::mcp_client::with_headers;
use portcullis_testkit::process::{HubProcess, TestHome, UNHURRIED};
use portcullis_testkit::raw_http::{RawHttpConnection, RawHttpRequest, RawSseReader};
use portcullis_testkit::wait::until;
use portcullis_testkit::{BoxedHub, conformance};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};

/// Limits that need a clock or a tool of the test's own; those tests are beside the code.
const ELSEWHERE: [Limit; 9] = [
    Limit::RateWaiting,
    Limit::SessionIdle,
    Limit::CallTime,
    Limit::ArgumentBytes,
    Limit::Questions,
    Limit::OwnServers,
    Limit::ValidationSteps,
    Limit::AuditQueue,
    Limit::SecretGuesses,
];

const TIGHT: &str = "[limits]
body_bytes_max = 65536
connections_max = 6
connections_per_source_max = 4
headers_secs = 1
body_secs = 1
write_secs = 1
keep_alive_secs = 1
token_failures_max = 2
sessions_max = 1
sessions_per_client_max = 1
result_bytes_max = 4096
";
const WIDE: &str = "[limits]\nline_bytes_max = 65536\nin_flight_max = 1000\n";

fn source(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, last).into()
}

/// Returns how often the hub says that a limit was run into.
async fn hits(hub: &HubProcess, limit: Limit) -> u64 {
    let mut connection = RawHttpConnection::open_from(source(9), hub.address).await;
    let page = connection.exchange(&RawHttpRequest::get("/metrics").token(&hub.token)).await.text();
    let name = format!("portcullis_limit_hits_total{{limit=\"{}\"}} ", limit.label());
    let value = page.lines().find_map(|line| line.strip_prefix(&name));
    value.unwrap_or_else(|| panic!("{name} is missing in:\n{page}")).parse().unwrap()
}

/// Waits until a limit was run into: some are noticed when nobody waits for an answer.
async fn is_hit(hub: &HubProcess, limit: Limit) {
    until(limit.label(), async || (hits(hub, limit).await > 0).then_some(())).await;
}

fn post(hub: &HubProcess, message: &Value) -> RawHttpRequest {
    RawHttpRequest::post("/mcp", message.to_string()).token(&hub.token)
}

fn home(limits: &str) -> TestHome {
    let home = TestHome::bare(BINARY);
    home.configure(&format!("{UNHURRIED}{limits}"));
    home.write("large.md", "plain words, line after line\n".repeat(35_000));
    home
}

async fn connections(hub: &HubProcess) {
    let mut own = Vec::new();
    for _ in 0..4 {
        own.push(RawHttpConnection::open_from(source(1), hub.address).await);
    }
    // One that says nothing makes room.
    own.push(RawHttpConnection::open_from(source(1), hub.address).await);
    is_hit(hub, Limit::ConnectionsPerSource).await;
    own.remove(0).closes().await;
    // They say nothing, and are sent away for that.
    for mut connection in own {
        connection.closes().await;
    }
    is_hit(hub, Limit::HeadersTime).await;
}

#[tokio::test]
async fn all_connections_together_are_counted() {
    let home = home("[limits]\nconnections_max = 3\nheaders_secs = 600\n");
    let hub = home.serve().await;
    let mut first = RawHttpConnection::open(hub.address).await;
    let mut own = Vec::new();
    for _ in 0..3 {
        own.push(RawHttpConnection::open(hub.address).await);
    }
    first.closes().await;
    is_hit(&hub, Limit::Connections).await;
}

async fn bodies_and_headers(hub: &HubProcess) {
    let large = RawHttpRequest::post("/mcp", "x".repeat(70_000)).token(&hub.token).send(hub.address).await;
    assert_eq!(large.status(), 413);
    is_hit(hub, Limit::BodyBytes).await;
    let headers = RawHttpRequest::get("/metrics").token(&hub.token).header("X-Large", "x".repeat(100_000));
    let mut connection = RawHttpConnection::open(hub.address).await;
    let _ = connection.send(&headers.bytes(hub.address)).await;
    if let Some(reply) = connection.reply().await {
        assert_eq!(reply.status(), 431);
    }
    is_hit(hub, Limit::HeaderBytes).await;
    let mut bytes = post(hub, &request(1, "ping", json!({}))).bytes(hub.address);
    bytes.truncate(bytes.len() - 1);
    let mut connection = RawHttpConnection::open(hub.address).await;
    connection.send(&bytes).await.unwrap();
    assert_eq!(connection.reply().await.unwrap().status(), 408);
    connection.closes().await;
    is_hit(hub, Limit::BodyTime).await;
}

async fn who_does_nothing(hub: &HubProcess) {
    let mut idle = RawHttpConnection::open(hub.address).await;
    assert_eq!(idle.exchange(&post(hub, &request(1, "ping", json!({})))).await.status(), 200);
    idle.closes().await;
    is_hit(hub, Limit::KeepAliveTime).await;
    // Asks for much and reads nothing. The system takes some megabytes before the hub notices.
    let mut deaf = RawHttpConnection::open(hub.address).await;
    let asked = RawHttpRequest::get("/metrics").token(&hub.token).bytes(hub.address).repeat(4_000);
    let asking = tokio::spawn(async move {
        let _ = deaf.send(&asked).await;
        deaf
    });
    is_hit(hub, Limit::WriteTime).await;
    drop(asking);
}

async fn tokens_and_sessions(home: &TestHome, hub: &HubProcess) {
    // Known before the guesses, which count for the whole machine.
    let other = home.add_client("other", &[]).await;
    let ping = RawHttpRequest::post("/mcp", request(1, "ping", json!({})).to_string()).token(&other);
    assert_eq!(ping.send(hub.address).await.status(), 200);
    let mut n = 0;
    until("a token is not looked at", async || {
        n += 1;
        let guess = RawHttpRequest::get("/metrics").token(&format!("pcl_{n:0>43}"));
        let mut connection = RawHttpConnection::open_from(source(4), hub.address).await;
        (connection.exchange(&guess).await.status() == 429).then_some(())
    })
    .await;
    is_hit(hub, Limit::TokenFailures).await;
    let initialize = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
    let initialize = RawHttpRequest::post("/mcp", request(1, "initialize", initialize).to_string());
    for (token, status) in [(&hub.token, 200), (&hub.token, 200), (&other, 503)] {
        assert_eq!(initialize.clone().token(token).send(hub.address).await.status(), status);
    }
    is_hit(hub, Limit::SessionsPerClient).await;
    is_hit(hub, Limit::Sessions).await;
    let read = json!({ "name": "workspace_read", "arguments": { "path": "large.md" } });
    let answer = post(hub, &request(1, "tools/call", read)).send(hub.address).await.json();
    assert_eq!(answer["result"]["structuredContent"]["code"], "too_large", "{answer}");
    is_hit(hub, Limit::ResultBytes).await;
}

async fn rate(home: &TestHome, hub: &HubProcess) {
    home.configure(&format!("[rate_limit]\nrequests_per_second = 1\nburst = 1\nwait_ms = 0\n{TIGHT}"));
    until("a request comes too soon", async || {
        post(hub, &request(1, "tools/list", json!({}))).send(hub.address).await;
        (hits(hub, Limit::Rate).await > 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn over_http_is_counted() {
    let home = home(TIGHT);
    let hub = home.serve().await;
    connections(&hub).await;
    bodies_and_headers(&hub).await;
    who_does_nothing(&hub).await;
    tokens_and_sessions(&home, &hub).await;
    rate(&home, &hub).await;
}

#[tokio::test]
async fn in_messages_is_counted() {
    let home = home(WIDE);
    let hub = home.serve().await;
    let mut lines = stdio(&home, "2026-07-28");
    lines.send_bytes("x".repeat(70_000).as_bytes()).await;
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"workspace_read","arguments":{"path":DEEP}}}"#;
    lines.send_bytes(call.replace("DEEP", &deep).as_bytes()).await;
    let many: Vec<Value> = (0..65).map(|n| request(n, "ping", json!({}))).collect();
    lines.send_bytes(json!(many).to_string().as_bytes()).await;
    for limit in [Limit::LineBytes, Limit::JsonDepth, Limit::BatchMessages] {
        is_hit(&hub, limit).await;
    }
    // All that one connection may have under way, and as many listeners as one client may have.
    let listen = |wanted: Value| ("subscriptions/listen", json!({ "notifications": wanted }));
    let uris: Vec<String> = (0..1_001).map(|n| format!("workspace:///{n}")).collect();
    let (method, watch) = listen(json!({ "resourceSubscriptions": uris }));
    lines.begin(method, watch).await;
    is_hit(&hub, Limit::Subscriptions).await;
    let (method, hear) = listen(json!({ "toolsListChanged": true }));
    for _ in 0..1_001 {
        lines.begin(method, hear.clone()).await;
    }
    is_hit(&hub, Limit::InFlight).await;
    let mut more = stdio(&home, "2026-07-28");
    more.begin(method, hear).await;
    is_hit(&hub, Limit::Listeners).await;
}

#[tokio::test]
async fn a_stream_that_is_not_read_is_counted() {
    let home = home(WIDE);
    let hub = home.serve().await;
    let mut connection = RawHttpConnection::open(hub.address).await;
    let open = RawHttpRequest::get("/sse").token(&hub.token).header("Accept", "text/event-stream");
    connection.send(&open.bytes(hub.address)).await.unwrap();
    connection.head().await.unwrap();
    let mut events = RawSseReader::of(connection);
    let endpoint = events.next().await.unwrap().data;
    let read = json!({ "name": "workspace_read", "arguments": { "path": "large.md" } });
    let mut n = 0;
    until("the session is closed", async || {
        n += 1;
        let call = request(n, "tools/call", read.clone()).to_string();
        let status = RawHttpRequest::post(&endpoint, call).token(&hub.token).send(hub.address).await.status();
        (status == 503).then_some(())
    })
    .await;
    is_hit(&hub, Limit::StreamBacklog).await;
}

/// The hub itself has no tools that run as tasks yet; the hub in a box has.
#[tokio::test]
async fn tasks_are_counted() {
    let registry = Registry::default();
    registry.add(conformance::family(registry.changes())).unwrap();
    let boxed = BoxedHub::new(registry, true).unwrap();
    let address = boxed.listen(0).await.unwrap();
    let mut connection = RawHttpConnection::open(address).await;
    let call = |n: u64| {
        let capabilities = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        });
        let params =
            json!({ "name": "slow_compute", "arguments": { "seconds": 60, "label": "x" }, "_meta": meta });
        request(n, "tools/call", params)
    };
    let mut refused = Value::Null;
    for n in 0..101 {
        let message = call(n);
        let request = with_headers(RawHttpRequest::post("/mcp", message.to_string()), "2026-07-28", &message);
        refused = connection.exchange(&request).await.json();
    }
    assert_eq!(refused["error"]["code"], -32000, "{refused}");
    let page = boxed.handles.metrics.encode();
    assert!(page.contains("portcullis_limit_hits_total{limit=\"tasks\"} 1"), "{page}");
}

/// Each limit is in one of these tests, or named as one that is tested beside its code.
#[test]
fn no_limit_is_forgotten() {
    let text = include_str!("each_limit.rs");
    let forgotten: Vec<Limit> = Limit::ALL
        .into_iter()
        .filter(|limit| !ELSEWHERE.contains(limit) && *limit != Limit::Tasks)
        .filter(|limit| !text.contains(&format!("Limit::{limit:?}")))
        .collect();
    assert_eq!(forgotten, []);
}
