//! What operators see: numbers, readiness, logs.

use crate::support::{home, http, stdio};
use portcullis_testkit::process::UNHURRIED;
use portcullis_testkit::raw_http::RawHttpRequest;
use serde_json::{Value, json};

#[tokio::test]
async fn metrics_count_calls_by_tool_and_outcome() {
    let home = home();
    home.write("a.md", "text");
    let hub = home.serve().await;
    let mut client = http(&hub, "2025-11-25").await;
    client.call("workspace_read", json!({ "path": "a.md" })).await;
    client.call("workspace_read", json!({ "path": "gone.md" })).await;
    client.call("workspace_read", json!({})).await;
    client.refused("tools/call", json!({ "name": "made_up_name" })).await;
    client.refused("resources/read", json!({ "uri": "workspace:///gone.md" })).await;
    let mut bridge = stdio(&home, "2026-07-28");
    bridge.result("tools/list", json!({})).await;
    let reply = RawHttpRequest::get("/metrics").token(&hub.token).send(hub.address).await;
    assert_eq!(reply.status(), 200);
    assert!(reply.head.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    let page = reply.text();
    let expected = [
        "portcullis_calls_total{tool=\"workspace_read\",outcome=\"ok\"} 1",
        "portcullis_calls_total{tool=\"workspace_read\",outcome=\"not_found\"} 1",
        "portcullis_calls_total{tool=\"workspace_read\",outcome=\"invalid_args\"} 1",
        "portcullis_calls_total{tool=\"unknown\",outcome=\"unknown\"} 1",
        "portcullis_calls_total{tool=\"resource\",outcome=\"not_found\"} 1",
        "portcullis_call_duration_seconds_count{tool=\"workspace_read\"} 3",
        "portcullis_calls_in_flight 0",
        "portcullis_rate_limited_total 0",
        "portcullis_sessions{transport=\"http\"} 1",
        "portcullis_sessions{transport=\"socket\"} 1",
        "portcullis_sessions{transport=\"sse\"} 0",
        concat!("portcullis_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
        "# EOF",
    ];
    for line in expected {
        assert!(page.lines().any(|own| own == line), "{line} is missing in:\n{page}");
    }
    assert!(!page.contains("made_up_name"), "what a client types makes no series");
}

#[tokio::test]
async fn readiness_names_each_component() {
    let home = home();
    let hub = home.serve().await;
    let ready = RawHttpRequest::get("/readyz").send(hub.address).await;
    assert_eq!(ready.status(), 200);
    let ok = json!({ "status": "ok" });
    let components = json!({ "approvals": ok, "audit": ok, "clients": ok, "config": ok, "pins": ok, "scripts": ok, "secrets": ok, "workspace": ok });
    let names = [
        "approval-notifier",
        "approvals",
        "changes",
        "config",
        "http",
        "memory",
        "policy-schedule",
        "scripts",
        "secrets",
        "servers",
        "service-status",
        "sessions",
        "socket",
    ];
    let services: serde_json::Map<_, _> = names.iter().map(|name| ((*name).to_owned(), ok.clone())).collect();
    assert_eq!(ready.json(), json!({ "status": "ready", "components": components, "services": services }));
    assert_eq!(RawHttpRequest::get("/healthz").send(hub.address).await.text(), "ok\n");
    // A list of clients that cannot be read lets nobody in, and says so; that is not the client's fault.
    home.edit_rows("clients", "UPDATE clients SET record = '{ broken'").await;
    let list = RawHttpRequest::get("/metrics").token(&hub.token);
    let refused = list.send(hub.address).await;
    assert_eq!((refused.status(), refused.head.header("retry-after")), (503, Some("2")));
    let not_ready = RawHttpRequest::get("/readyz").send(hub.address).await;
    assert_eq!(not_ready.status(), 503);
    let said = not_ready.json();
    assert_eq!(said["components"]["clients"]["status"], "failed", "{said}");
    assert!(said["components"]["clients"]["reason"].as_str().is_some_and(|reason| !reason.is_empty()));
    assert_eq!(RawHttpRequest::get("/healthz").send(hub.address).await.status(), 200, "it still lives");
}

#[tokio::test]
async fn logs_have_the_form_that_is_documented() {
    let home = home();
    home.configure(&format!("{UNHURRIED}[logging]\nlevel = \"debug\"\n"));
    home.write("a.md", "SENTINEL content");
    let mut client = stdio(&home, "2025-11-25");
    client.initialize(json!({})).await;
    client.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" })).await;
    client.answer(&json!(1)).await;
    client.call("workspace_read", json!({ "path": "a.md" })).await;
    client.send(&json!({ "jsonrpc": "2.0", "id": "x\u{1b}[2J\ny", "method": "ping" })).await;
    client.answer(&json!("x\u{1b}[2J\ny")).await;
    client.hang_up();
    assert_eq!(client.process().end().await, 0);
    client.process().says("received request method=ping").await;
    let log = client.process().stderr();
    for line in [
        "DEBUG mcp: received request method=tools/list id=1",
        "DEBUG mcp: sending response id=1 tools=10",
        "DEBUG mcp: received request method=tools/call id=2 tool=workspace_read",
    ] {
        // Behind the time.
        let is_it = |own: &str| own.trim().split_once(' ').is_some_and(|(_, rest)| rest == line);
        assert!(log.lines().any(is_it), "{line} is missing in:\n{log}");
    }
    assert!(log.contains("DEBUG mcp: tool execution completed id=2 duration="), "{log}");
    assert!(!log.contains("SENTINEL"), "contents are not logged");
    assert!(!log.contains('\u{1b}'), "what a client sends cannot move the cursor");
}

#[tokio::test]
async fn logs_can_be_json() {
    let home = home();
    home.configure(&format!("{UNHURRIED}[logging]\nlevel = \"debug\"\nformat = \"json\"\n"));
    let mut client = stdio(&home, "2026-07-28");
    client.result("tools/list", json!({})).await;
    client.hang_up();
    assert_eq!(client.process().end().await, 0);
    client.process().says("received request").await;
    let log = client.process().stderr();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let request = lines.iter().find(|line| line["message"] == "received request").unwrap();
    assert_eq!(
        (&request["level"], &request["target"], &request["method"]),
        (&json!("DEBUG"), &json!("mcp"), &json!("tools/list"))
    );
    assert!(request["timestamp"].is_string());
}

/// Whatever happens, standard output carries messages and nothing else. The client fails on any other line.
#[tokio::test]
async fn standard_output_carries_only_messages() {
    let home = home();
    home.configure(&format!("{UNHURRIED}[logging]\nlevel = \"trace\"\n"));
    let mut client = stdio(&home, "2025-11-25");
    client.initialize(json!({})).await;
    client.send_bytes(b"nonsense").await;
    client.send_bytes(b"").await;
    client.send_bytes(b"[1,2,3]").await;
    client.notify("notifications/whatever", json!({ "a": 1 })).await;
    home.configure("[loging]\n");
    client.process().says("configuration invalid; keeping the previous one").await;
    client.result("tools/list", json!({})).await;
    client.hang_up();
    let messages = client.until_end().await;
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(messages.iter().all(|message| message["jsonrpc"] == "2.0"), "{messages:?}");
}
