//! A client that may see a little must not find out about the rest.

use crate::support::{home, request};
use portcullis_testkit::raw_http::RawHttpRequest;
use serde_json::json;

/// Completion proposes what exists, and so it must leave out what the client may not see.
#[tokio::test]
async fn are_not_proposed_by_completion() {
    let home = home();
    for name in ["public/a.md", "public/b.md", "private/plan.md"] {
        home.write(name, "text");
    }
    let hub = home.serve().await;
    let few = home
        .add_client("few", &["--allow", "workspace:///public/*", "--allow", "workspace:///?+path?"])
        .await;
    let complete = async |token: &str, uri: &str, typed: &str| {
        let argument = json!({ "name": "path", "value": typed });
        let params = json!({ "ref": { "type": "ref/resource", "uri": uri }, "argument": argument });
        let body = request(1, "completion/complete", params).to_string();
        RawHttpRequest::post("/mcp", body).token(token).send(hub.address).await.json()
    };
    let template = "workspace:///{+path}";
    let seen = complete(&few, template, "").await;
    assert_eq!(seen["result"]["completion"]["values"], json!(["public/a.md", "public/b.md"]));
    assert_eq!(complete(&few, template, "private").await["result"]["completion"]["total"], 0);
    // What is no template proposes nothing at all.
    let refused = complete(&few, "workspace:///public/a.md", "").await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    // Who may see everything does.
    let all = complete(&hub.token, template, "private").await;
    assert_eq!(all["result"]["completion"]["values"], json!(["private/plan.md"]));
}

/// The numbers name tools, so they are not for a client that may not see all of them.
#[tokio::test]
async fn are_not_counted_for_everyone_to_read() {
    let home = home();
    let hub = home.serve().await;
    let reader = home.add_client("reader", &["--effects", "read"]).await;
    for name in ["workspace_write", "no_such"] {
        let call = json!({ "name": name, "arguments": { "path": "a.md", "content": "x" } });
        let body = request(1, "tools/call", call).to_string();
        let answer = RawHttpRequest::post("/mcp", body).token(&reader).send(hub.address).await.json();
        assert_eq!(answer["error"]["message"], format!("Unknown tool: {name}"));
    }
    assert_eq!(RawHttpRequest::get("/metrics").token(&reader).send(hub.address).await.status(), 403);
    let numbers = RawHttpRequest::get("/metrics").token(&hub.token).send(hub.address).await.text();
    assert!(numbers.contains(r#"portcullis_calls_total{tool="unknown",outcome="unknown"} 2"#), "{numbers}");
    assert!(!numbers.contains("workspace_write"), "{numbers}");
}
