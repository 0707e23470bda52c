//! How the program starts, shares a home, and ends.

use crate::support::{BINARY, home, http, names, stdio, text};
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::process::{HubProcess, StdioProcess, TestHome, UNHURRIED, run};
use portcullis_testkit::raw_http::{RawHttpConnection, RawHttpRequest};
use portcullis_testkit::wait::until;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn a_home_has_one_hub() {
    let home = home();
    let hub = home.serve().await;
    let second = home.run(&["serve"]).await;
    assert_eq!((second.code, second.stdout.as_str()), (1, ""));
    assert!(second.stderr.contains("a hub is already running with home"), "{}", second.stderr);
    assert!(second.stderr.contains("stop it, or choose another home with `--home DIR`"), "{}", second.stderr);
    // The first one has not noticed.
    http(&hub, "2026-07-28").await.result("tools/list", json!({})).await;
}

#[tokio::test]
async fn only_the_owner_can_come_near() {
    let home = home();
    let _hub = home.serve().await;
    assert_eq!(mode(&home.path().join("hub.sock")), 0o600);
    assert_eq!(mode(&home.path().join("hub.lock")), 0o600);
    assert_eq!(mode(&home.path()), 0o700);
    assert_eq!(mode(&home.path().join("workspace/secure")), 0o700);
    assert_eq!(mode(&home.path().join("workspace/secure/portcullis.db")), 0o600);
}

/// Returns who made the calls that have ended.
fn recorded_clients(home: &TestHome) -> Vec<String> {
    let trail = std::fs::read_to_string(home.path().join("workspace/secure/audit/audit.jsonl")).unwrap();
    let records = trail.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let ends = records.filter(|record| record["phase"] == "end");
    ends.map(|end| end["client"].as_str().unwrap().to_owned()).collect()
}

/// Many processes, one hub: what one writes the other reads, and both are in one audit trail.
#[tokio::test]
async fn processes_on_one_home_share_its_hub() {
    let home = home();
    let hub = home.serve().await;
    let (mut one, mut two) = (stdio(&home, "2025-11-25"), stdio(&home, "2026-07-28"));
    one.initialize(json!({})).await;
    one.call("workspace_write", json!({ "path": "shared.md", "content": "from one" })).await;
    assert_eq!(text(&two.call("workspace_read", json!({ "path": "shared.md" })).await), "from one");
    let mut three = http(&hub, "2026-07-28").await;
    assert_eq!(text(&three.call("workspace_read", json!({ "path": "shared.md" })).await), "from one");
    // The end of a call is written when its answer is on the way.
    until("all three are recorded", async || {
        (recorded_clients(&home) == ["local", "local", "default"]).then_some(())
    })
    .await;
    // A bridge that is closed ends well, and alone.
    one.hang_up();
    assert_eq!(one.process().end().await, 0);
    two.result("tools/list", json!({})).await;
}

#[tokio::test]
async fn a_bridge_says_when_its_hub_has_died() {
    let home = home();
    let mut hub = home.serve().await;
    let mut bridge = stdio(&home, "2026-07-28");
    bridge.result("tools/list", json!({})).await;
    hub.process.signal(Signal::KILL);
    assert_eq!(hub.process.end().await, -1);
    assert_eq!(bridge.process().end().await, 1);
    bridge.process().says("the hub closed the connection; restart it, then reconnect").await;
    // What the dead one left behind is in nobody's way.
    let mut next = stdio(&home, "2026-07-28");
    next.result("tools/list", json!({})).await;
}

/// The first `--mcp` process is the hub of those that come after it, and stays until they have left.
#[tokio::test]
async fn a_hub_on_stdio_waits_for_its_guests() {
    let home = home();
    let mut first = stdio(&home, "2026-07-28");
    first.result("tools/list", json!({})).await;
    let mut second = stdio(&home, "2026-07-28");
    second.result("tools/list", json!({})).await;
    first.hang_up();
    first.process().says("serving other processes until they disconnect").await;
    second.result("tools/list", json!({})).await;
    second.hang_up();
    assert_eq!(second.process().end().await, 0);
    assert_eq!(first.process().end().await, 0);
}

/// A call that waits for a person when the hub is told to end is told to come back; its question is not lost.
#[tokio::test]
async fn a_call_that_waits_for_a_person_does_not_hold_up_the_end() {
    let home = home();
    home.configure(&format!("{UNHURRIED}[[policy]]\ntools = [\"workspace_write\"]\ndecision = \"ask\"\n"));
    let mut hub = home.serve().await;
    let mut client = McpClient::http(hub.address, &hub.token, "2025-06-18").await;
    client.initialize(json!({ "elicitation": {} })).await;
    let session = client.session().unwrap().to_owned();
    let named = |body: Value| {
        RawHttpRequest::post("/mcp", body.to_string()).token(&hub.token).header("Mcp-Session-Id", &session)
    };
    let write = json!({ "name": "workspace_write", "arguments": { "path": "late.md", "content": "done" } });
    let call = json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": write });
    let mut calling = RawHttpConnection::open(hub.address).await;
    calling.send(&named(call).bytes(hub.address)).await.unwrap();
    assert!(calling.head().await.unwrap().is_event_stream());
    let mut events = portcullis_testkit::raw_http::RawSseReader::of(calling);
    let question: Value = serde_json::from_str(&events.next().await.unwrap().data).unwrap();
    assert_eq!(question["method"], "elicitation/create");
    hub.process.heeds(Signal::TERM).await;
    hub.process.signal(Signal::TERM);
    let mut result: Value = serde_json::from_str(&events.next().await.unwrap().data).unwrap();
    while result["id"] != json!(9) {
        // The form is taken off the screen.
        assert_eq!(result["method"], "notifications/cancelled", "{result}");
        result = serde_json::from_str(&events.next().await.unwrap().data).unwrap();
    }
    assert_eq!(result["result"]["isError"], json!(true), "{result}");
    assert!(result.to_string().contains("is pending approval by a person"), "{result}");
    assert_eq!(hub.process.end().await, 0);
    assert!(!home.files().join("late.md").exists());
    assert_eq!(home.run(&["approvals", "--json"]).await.json().as_array().unwrap().len(), 1);
}

/// Many writes at once: those that were answered have happened, whatever comes after.
#[tokio::test]
async fn what_was_answered_has_happened() {
    let home = home();
    let mut client = stdio(&home, "2026-07-28");
    for n in 0..100 {
        let write = json!({ "path": format!("{n}.md"), "content": "x" });
        client.begin("tools/call", json!({ "name": "workspace_write", "arguments": write })).await;
    }
    let first = client.wait("a first answer", |message| message.get("id").is_some()).await;
    assert_eq!(first["result"]["isError"], false, "{first}");
    client.process().heeds(Signal::TERM).await;
    client.process().signal(Signal::TERM);
    let answers = client.until_end().await;
    assert_eq!(client.process().end().await, 0);
    for answer in answers.iter().filter(|answer| answer["result"]["isError"] == false) {
        let path = answer["result"]["structuredContent"]["path"].as_str().unwrap();
        assert!(home.files().join(path).exists(), "{path}");
    }
}

#[tokio::test]
async fn signals_end_the_hub_in_order() {
    for signal in [Signal::TERM, Signal::INT] {
        let home = home();
        let mut hub = home.serve().await;
        // Streams that only listen do not hold it up.
        let client = http(&hub, "2025-11-25").await;
        let _listening = McpClient::sse(hub.address, &hub.token, "2024-11-05").await;
        hub.process.heeds(signal).await;
        hub.process.signal(signal);
        assert_eq!(hub.process.end().await, 0);
        assert!(!home.path().join("hub.sock").exists());
        drop(client);
    }
}

#[tokio::test]
async fn the_environment_chooses_where_no_command_does() {
    let home = home();
    let with = |transport: &str| {
        let mut command = home.command(&["--json"]);
        command.env("MCP_TRANSPORT", transport);
        command
    };
    let bad = run(with("garbage"), "").await;
    assert_eq!(bad.code, 2);
    assert!(bad.stderr.contains("MCP_TRANSPORT is `garbage`, expected `stdio` or `http`"), "{}", bad.stderr);
    let mut client = McpClient::lines(StdioProcess::start(with("stdio")), "2026-07-28");
    let listed = client.result("tools/list", json!({})).await;
    assert_eq!(names(&listed["tools"])[0], "workspace_read");
    client.hang_up();
    assert_eq!(client.process().end().await, 0);
    for transport in ["http", ""] {
        let mut hub = HubProcess::start(with(transport)).await;
        assert_eq!(RawHttpRequest::get("/healthz").send(hub.address).await.status(), 200);
        hub.process.stop().await;
    }
}

#[tokio::test]
async fn a_port_is_chosen_and_a_taken_one_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let home = TestHome::bare(BINARY);
    let with_port = |port: &str| {
        let mut command = home.command(&["serve", "--json"]);
        command.env("MCP_HTTP_PORT", port);
        command
    };
    let refused = run(with_port(&address.port().to_string()), "").await;
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""));
    let says =
        format!("{address} is in use by another program; choose a port with MCP_HTTP_PORT or `http.listen`");
    assert!(refused.stderr.contains(&says), "{}", refused.stderr);
    drop(taken);
    let hub = HubProcess::start(with_port(&address.port().to_string())).await;
    assert_eq!(hub.address, address);
    for port in ["70000", "http", "-1"] {
        let bad = run(with_port(port), "").await;
        assert_eq!(bad.code, 2, "{port}: {}", bad.stderr);
        assert!(bad.stderr.contains("MCP_HTTP_PORT"), "{}", bad.stderr);
    }
}
