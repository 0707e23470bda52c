//! A client that sees nothing of a server, and counts how often something changes there.
//!
//! The figure: of a server and of files that it does not see, it hears nothing; of those that it sees, all.

use crate::changing_server::{Shop, tool};
use crate::support::{home, http, names};
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::process::UNHURRIED;
use portcullis_testkit::wait::until;
use serde_json::{Value, json};

const TOOLS: &str = "notifications/tools/list_changed";
const PROMPTS: &str = "notifications/prompts/list_changed";
const RESOURCES: &str = "notifications/resources/list_changed";

fn offer(tools: &[&str], prompts: &[&str]) -> Value {
    let tools: Vec<Value> = tools.iter().map(|name| tool(name, "Does it")).collect();
    let prompts: Vec<Value> = prompts.iter().map(|name| json!({ "name": name })).collect();
    json!({ "tools": tools, "prompts": prompts })
}

/// Returns how often a client has been told of each list.
fn heard(client: &mut McpClient) -> [usize; 2] {
    let all = client.unasked();
    [TOOLS, RESOURCES].map(|method| all.iter().filter(|said| said["method"] == method).count())
}

/// Lets the far server, a file and the near server change, in this order, and returns what each client has heard before
/// the last word of the near one, with sessions and by a request that listens.
async fn hears(scope: &[&str]) -> [[usize; 2]; 2] {
    let (far, near) = (Shop::new(&offer(&["a"], &["p"])), Shop::new(&offer(&["a"], &["p"])));
    let home = home();
    let more = "trust = \"always\"";
    home.configure(&format!("{UNHURRIED}{}{}", far.section("far", more), near.section("near", more)));
    let hub = home.serve().await;
    let mut all = http(&hub, "2025-11-25").await;
    all.initialize(json!({})).await;
    until("both servers are there", async || {
        let list = all.result("tools/list", json!({})).await;
        let listed = names(&list["tools"]);
        (listed.contains(&"far_a") && listed.contains(&"near_a")).then_some(())
    })
    .await;
    let token = home.add_client("counts", scope).await;
    let mut session = McpClient::http(hub.address, &token, "2025-11-25").await;
    session.initialize(json!({})).await;
    let mut listener = McpClient::http(hub.address, &token, "2026-07-28").await;
    let wanted =
        json!({ "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true });
    listener.listen(wanted).await;

    all.unasked();
    far.offers(&offer(&["a", "b"], &["p"]));
    until("the far server has changed", async || {
        let list = all.result("tools/list", json!({})).await;
        names(&list["tools"]).contains(&"far_b").then_some(())
    })
    .await;
    all.told(TOOLS).await;
    all.unasked();
    home.write("private.md", "x");
    all.told(RESOURCES).await;
    near.offers(&offer(&["a", "b"], &["p", "q"]));
    let mut counts = Vec::new();
    for client in [&mut session, &mut listener] {
        // The prompts of a server are told of after its tools.
        client.told(PROMPTS).await;
        counts.push(heard(client));
    }
    counts.try_into().unwrap()
}

#[tokio::test]
async fn of_what_a_client_does_not_see_are_not_told() {
    assert_eq!(hears(&["--allow", "near_*"]).await, [[1, 0]; 2]);
}

/// The weak variant: a client that may see everything hears of everything, as all did when all were told.
#[tokio::test]
async fn told_to_all_would_be_noticed() {
    for [tools, resources] in hears(&[]).await {
        assert!(tools >= 2 && resources >= 1, "{tools} {resources}");
    }
}
