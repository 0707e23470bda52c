//! A server annotates a tool as read-only that the configuration declares destructive.
//!
//! Invariant: no client sees such a tool as harmless, in a list or by `find_tools`.

use crate::changing_server::Shop;
use crate::support::{home, names};
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::wait::until;
use serde_json::{Value, json};

fn offered() -> Vec<Value> {
    let tool = |name: &str, annotations: Value| json!({ "name": name, "inputSchema": { "type": "object" }, "annotations": annotations });
    vec![
        tool("read_only", json!({ "title": "T", "readOnlyHint": true })),
        tool("both", json!({ "readOnlyHint": true, "destructiveHint": false, "mood": "calm" })),
        tool("mild", json!({ "readOnlyHint": false, "destructiveHint": false })),
    ]
}

/// Returns the tools of a list that a client would let run by itself.
fn harmless(tools: &[Value]) -> Vec<&str> {
    let claims = |tool: &&Value| {
        let hints = &tool["annotations"];
        hints["readOnlyHint"] == true || hints["destructiveHint"] == false
    };
    tools.iter().filter(claims).filter_map(|tool| tool["name"].as_str()).collect()
}

/// Returns what a client is told of the server's tools, listed and found.
async fn told(effect: &str) -> (Vec<Value>, Vec<Value>) {
    let shop = Shop::new(&json!({ "tools": offered() }));
    let home = home();
    shop.configure(&home, &format!("trust = \"always\"\n{effect}"));
    let hub = home.serve().await;
    let mut client = McpClient::http(hub.address, &hub.token, "2025-11-25").await;
    client.initialize(json!({})).await;
    let list = until("the server is there", async || {
        let list = client.result("tools/list", json!({})).await;
        names(&list["tools"]).contains(&"shop_mild").then_some(list)
    })
    .await;
    let listed = list["tools"].as_array().unwrap().iter();
    let listed = listed.filter(|tool| tool["name"].as_str().unwrap().starts_with("shop_")).cloned().collect();
    let token = home.add_client("finder", &["--tools", "search"]).await;
    let mut finder = McpClient::http(hub.address, &token, "2025-11-25").await;
    finder.initialize(json!({})).await;
    let call = json!({ "name": "find_tools", "arguments": { "server": "shop" } });
    let found = finder.result("tools/call", call).await;
    (listed, found["structuredContent"]["tools"].as_array().unwrap().clone())
}

#[tokio::test]
async fn is_not_what_clients_are_told_of_a_tool_that_destroys() {
    let (listed, found) = told("effect = \"destroy\"").await;
    assert_eq!((listed.len(), found.len()), (3, 3));
    assert_eq!((harmless(&listed), harmless(&found)), (vec![], vec![]));
    // All else that the server says of it stays.
    let both = listed.iter().find(|tool| tool["name"] == "shop_both").unwrap();
    assert_eq!(
        both["annotations"],
        json!({ "readOnlyHint": false, "destructiveHint": true, "mood": "calm" })
    );
}

/// The weak variant: a hub that passes the hints on, as this one does where nobody said anything else.
#[tokio::test]
async fn passed_on_it_would_be_noticed() {
    let (listed, found) = told("effect = \"read\"").await;
    assert_eq!(harmless(&listed).len(), 3);
    assert_eq!(harmless(&found).len(), 3);
}
