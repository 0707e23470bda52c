//! Authentication and scopes of clients.

use crate::support::{home, http, names, request, stdio};
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::process::UNHURRIED;
use portcullis_testkit::raw_http::{RawHttpConnection, RawHttpRequest};
use portcullis_testkit::wait::until;
use serde_json::json;

fn list() -> String {
    request(1, "tools/list", json!({})).to_string()
}

#[tokio::test]
async fn every_route_but_two_wants_a_token() {
    let home = home();
    // So many wrong tokens would be told to wait.
    home.configure(&format!("{UNHURRIED}[limits]\ntoken_failures_max = 1000\n"));
    let hub = home.serve().await;
    let routes = [
        ("POST", "/mcp"),
        ("GET", "/mcp"),
        ("DELETE", "/mcp"),
        ("GET", "/sse"),
        ("POST", "/messages"),
        ("GET", "/metrics"),
        ("GET", "/nothing"),
    ];
    let with = |value: &str| Some(value.to_owned());
    let wrong = [
        None,
        with(""),
        with("Bearer"),
        with("Bearer "),
        with("Bearer pcl_wrong"),
        with(&hub.token),
        with(&format!("Basic {}", hub.token)),
        with(&format!("Bearer {}", hub.token.to_uppercase())),
        with(&format!("Bearer {}x", hub.token)),
        with(&format!("Bearer {} {}", hub.token, hub.token)),
    ];
    for (method, path) in routes {
        for value in &wrong {
            let mut request = RawHttpRequest::new(method, path);
            if let Some(value) = value {
                request = request.header("Authorization", value.as_str());
            }
            let reply = request.send(hub.address).await;
            assert_eq!(reply.status(), 401, "{method} {path} {value:?}");
            let challenge = reply.head.header("www-authenticate").unwrap();
            assert!(challenge.starts_with("Bearer realm="), "{challenge}");
            assert!(
                reply.text().contains("create one with `portcullis clients add NAME`"),
                "{}",
                reply.text()
            );
        }
        let twice =
            RawHttpRequest::new(method, path).token(&hub.token).token("pcl_other").send(hub.address).await;
        assert_eq!(twice.status(), 401, "two tokens are none: {method} {path}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(RawHttpRequest::get(path).send(hub.address).await.status(), 200, "{path}");
    }
}

#[tokio::test]
async fn a_revoked_token_is_dead_with_the_next_request() {
    let home = home();
    let hub = home.serve().await;
    let token = home.add_client("laptop", &[]).await;
    let mut connection = RawHttpConnection::open(hub.address).await;
    let request = RawHttpRequest::post("/mcp", list()).token(&token);
    assert_eq!(connection.exchange(&request).await.status(), 200);
    let mut client = McpClient::http(hub.address, &token, "2025-11-25").await;
    client.initialize(json!({})).await;
    assert_eq!(home.run(&["clients", "revoke", "laptop"]).await.code, 0);
    assert_eq!(connection.exchange(&request).await.status(), 401, "on a connection that was good");
    client.notify("notifications/initialized", json!({})).await;
    assert_eq!(client.status, 401, "in a session that was open");
    // Others are not affected.
    http(&hub, "2025-11-25").await.result("tools/list", json!({})).await;
}

#[tokio::test]
async fn an_expired_token_is_dead() {
    let home = home();
    let hub = home.serve().await;
    let token = home.add_client("guest", &["--expires", "1s"]).await;
    let request = RawHttpRequest::post("/mcp", list()).token(&token);
    until("the token expires", async || (request.send(hub.address).await.status() == 401).then_some(()))
        .await;
    let listed = home.run(&["clients", "list", "--json"]).await.json();
    let guest = listed.as_array().unwrap().iter().find(|client| client["name"] == "guest").unwrap();
    assert_eq!(guest["expired"], true);
}

/// What a client may not see is answered as what does not exist, byte for byte.
#[tokio::test]
async fn a_hidden_tool_looks_like_none_over_http() {
    let home = home();
    home.write("a.md", "text");
    let hub = home.serve().await;
    let token = home.add_client("reader", &["--allow", "workspace_read", "--effects", "read"]).await;
    let mut client = McpClient::http(hub.address, &token, "2025-11-25").await;
    client.initialize(json!({})).await;
    check_scope(&mut client).await;
    let raw = async |name: &str| {
        let call = request(1, "tools/call", json!({ "name": name, "arguments": { "path": "a.md" } }));
        let reply = RawHttpRequest::post("/mcp", call.to_string()).token(&token).send(hub.address).await;
        let head = format!("{:?}", reply.head).replace(name, "NAME");
        (without_date(&head), reply.text().replace(name, "NAME"))
    };
    assert_eq!(raw("workspace_write").await, raw("workspace_wrong").await);
    assert_eq!(raw("memory_read").await, raw("memory_rode").await);
}

fn without_date(head: &str) -> String {
    let start = head.find("\"date\"").unwrap();
    let end = start + head[start..].find(')').unwrap();
    format!("{}{}", &head[..start], &head[end..])
}

#[tokio::test]
async fn a_hidden_tool_looks_like_none_on_stdio() {
    let home = home();
    home.write("a.md", "text");
    home.configure(&format!("{UNHURRIED}[stdio]\nallow = [\"workspace_read\"]\neffects = [\"read\"]\n"));
    let mut client = stdio(&home, "2025-11-25");
    client.initialize(json!({})).await;
    check_scope(&mut client).await;
}

async fn check_scope(client: &mut McpClient) {
    let listed = client.result("tools/list", json!({})).await;
    assert_eq!(names(&listed["tools"]), ["workspace_read"]);
    for (hidden, unknown) in [("workspace_write", "workspace_wrong"), ("memory_read", "memory_rode")] {
        let mut answers = Vec::new();
        for name in [hidden, unknown] {
            // Good arguments, and such as only its schema could complain about.
            for arguments in [json!({ "path": "a.md", "content": "x" }), json!({ "nonsense": 1 })] {
                let mut answer =
                    client.request("tools/call", json!({ "name": name, "arguments": arguments })).await;
                answer["id"] = json!(0);
                answers.push(answer.to_string().replace(name, "NAME"));
            }
        }
        assert_eq!(
            answers[0],
            r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"Unknown tool: NAME"}}"#
        );
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    }
    let read = client.call("workspace_read", json!({ "path": "a.md" })).await;
    assert_eq!(read["content"][0]["text"], "text");
    // Its scope names no resource, so it sees none.
    assert_eq!(client.result("resources/list", json!({})).await["resources"], json!([]));
    assert_eq!(client.refused("resources/read", json!({ "uri": "workspace:///a.md" })).await, -32002);
}

/// A token opens no more than its client may do, whatever a rule says.
#[tokio::test]
async fn a_rule_does_not_widen_a_scope() {
    let home = home();
    home.configure(&format!("{UNHURRIED}[[policy]]\ntools = [\"*\"]\ndecision = \"allow\"\n"));
    let hub = home.serve().await;
    let token = home.add_client("reader", &["--effects", "read"]).await;
    let mut client = McpClient::http(hub.address, &token, "2026-07-28").await;
    let listed = client.result("tools/list", json!({})).await;
    assert_eq!(
        names(&listed["tools"]),
        ["workspace_read", "workspace_list", "memory_read", "script_list", "script_exec", "script_reload"]
    );
    let write = json!({ "name": "workspace_write", "arguments": { "path": "a", "content": "b" } });
    assert_eq!(client.refused("tools/call", write).await, -32602);
    assert!(!home.files().join("a").exists());
}
