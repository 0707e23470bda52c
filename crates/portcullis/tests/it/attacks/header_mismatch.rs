//! A header that says something else than the body: what a proxy allowed is not what would run.

use super::Victim;
use portcullis_testkit::raw_http::RawHttpRequest;
use serde_json::{Value, json};

type Headers<'a> = &'a [(&'a str, &'a str)];

fn body(method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

#[tokio::test]
async fn is_refused() {
    let mut victim = Victim::over_http().await;
    let hub = victim.hub.as_ref().unwrap();
    let write = body(
        "tools/call",
        json!({ "name": "workspace_write", "arguments": { "path": "x", "content": "x" } }),
    );
    let list = body("tools/list", json!({}));
    let version = ("MCP-Protocol-Version", "2026-07-28");
    let method = ("Mcp-Method", "tools/call");
    let name = ("Mcp-Name", "workspace_write");
    let cases: [(&Value, Headers<'_>, &str); 11] = [
        (&write, &[], "MCP-Protocol-Version"),
        (&write, &[method, name], "MCP-Protocol-Version"),
        (&write, &[("MCP-Protocol-Version", "2099-01-01"), method, name], "MCP-Protocol-Version"),
        (&write, &[version], "Mcp-Method"),
        (&write, &[version, name], "Mcp-Method"),
        (&write, &[version, ("Mcp-Method", "tools/list"), name], "Mcp-Method"),
        (&write, &[version, ("Mcp-Method", "Tools/Call"), name], "Mcp-Method"),
        (&write, &[version, method], "Mcp-Name"),
        (&write, &[version, method, ("Mcp-Name", "workspace_read")], "Mcp-Name"),
        (&write, &[version, method, ("Mcp-Name", "=?base64?d29ya3NwYWNlX3JlYWQ=?=")], "Mcp-Name"),
        (&list, &[version, method], "Mcp-Method"),
    ];
    for (body, headers, says) in cases {
        let mut request = RawHttpRequest::post("/mcp", body.to_string()).token(&hub.token);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let reply = request.send(hub.address).await;
        let error = &reply.json()["error"];
        assert_eq!((reply.status(), &error["code"]), (400, &json!(-32020)), "{headers:?}: {}", reply.text());
        assert!(error["message"].as_str().unwrap().contains(says), "{headers:?}: {error}");
    }
    // Said twice, it is said two ways: which one a proxy looked at nobody knows.
    let mut twice = RawHttpRequest::post("/mcp", write.to_string()).token(&hub.token);
    for (name, value) in [version, method, ("Mcp-Name", "workspace_write"), ("Mcp-Name", "workspace_read")] {
        twice = twice.header(name, value);
    }
    let reply = twice.send(hub.address).await;
    assert_eq!((reply.status(), &reply.json()["error"]["code"]), (400, &json!(-32020)), "{}", reply.text());
    assert!(!victim._home.files().join("x").exists(), "nothing was run");
    // And with the right ones it runs.
    let mut right = RawHttpRequest::post("/mcp", write.to_string()).token(&hub.token);
    for (name, value) in [version, method, ("Mcp-Name", "=?base64?d29ya3NwYWNlX3dyaXRl?=")] {
        right = right.header(name, value);
    }
    assert_eq!(right.send(hub.address).await.json()["result"]["isError"], false);
    victim.lives().await;
}
