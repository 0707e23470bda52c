//! A restricted client that is installed on stdio: its process speaks for the client, not for the user.

use super::*;
use crate::support::{names, request};
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::process::StdioProcess;

fn speaking_for(home: &TestHome, words: &[&str]) -> McpClient {
    McpClient::lines(StdioProcess::start(home.command(words)), "2025-06-18")
}

/// Looks and writes as an agent would, and is revoked meanwhile.
async fn check(home: &TestHome, name: &str, words: &[&str]) {
    home.add_client(name, &["--effects", "read", "--allow", "workspace_*"]).await;
    let mut agent = speaking_for(home, words);
    agent.initialize(json!({})).await;
    let tools = agent.result("tools/list", json!({})).await;
    assert_eq!(names(&tools["tools"]), ["workspace_read", "workspace_list"], "{words:?}");
    let write = json!({ "name": "workspace_write", "arguments": { "path": "x.md", "content": "x" } });
    let refused = agent.request("tools/call", write).await;
    assert!(refused.to_string().contains("Unknown tool"), "{refused}");
    agent.call("workspace_list", json!({})).await;
    let records = home.run(&["audit", "search", "--client", name, "--json"]).await.stdout;
    assert!(records.contains("workspace_list"), "{records}");
    // A name that is given again is another client.
    assert_eq!(home.run(&["clients", "revoke", name]).await.code, 0);
    home.add_client(name, &[]).await;
    agent.send(&request(99, "tools/call", json!({ "name": "workspace_list", "arguments": {} }))).await;
    let rest = agent.until_end().await;
    assert!(rest.iter().all(|message| message["result"].is_null()), "{rest:?}");
}

#[tokio::test]
async fn is_as_restricted_as_over_http_where_it_is_the_hub() {
    let home = home();
    check(&home, "ro", &["stdio", "--client", "ro"]).await;
    // Weak: without a name it is the user, whom nothing restricts.
    let mut user = speaking_for(&home, &["stdio"]);
    user.initialize(json!({})).await;
    let tools = user.result("tools/list", json!({})).await;
    assert!(names(&tools["tools"]).contains(&"workspace_write"));
}

#[tokio::test]
async fn is_as_restricted_as_over_http_where_it_joins_a_hub() {
    let home = home();
    let hub = home.serve().await;
    check(&home, "ro", &["--mcp", "--client", "ro"]).await;
    drop(hub);
}

#[tokio::test]
async fn that_nobody_knows_does_not_start() {
    let home = home();
    let ended = home.run(&["stdio", "--client", "nobody"]).await;
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("client `nobody`: there is no such client"), "{}", ended.stderr);
    let _hub = home.serve().await;
    let ended = home.run(&["stdio", "--client", "nobody"]).await;
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("client `nobody`: there is no such client"), "{}", ended.stderr);
}
