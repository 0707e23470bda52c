//! An agent connected to a hub, for the suite's client scenarios: it lists everything and calls every tool.

use crate::mcp_client::McpClient;
use serde_json::{Map, Value, json};
use std::net::SocketAddr;

/// The revision of agents with sessions.
const WITH_SESSIONS: &str = "2025-11-25";

/// Requests from the hub at `address` everything that the suite expects its server to receive.
///
/// The agent has a session, in any era of the upstream server: questions arrive on its stream during a call,
/// and the hub translates for each side.
pub async fn run(address: SocketAddr, scenario: &str, context: &Value) -> anyhow::Result<()> {
    let mut agent = McpClient::sse(address, "anyone", WITH_SESSIONS).await;
    agent.initialize(json!({ "elicitation": { "form": {} }, "sampling": {}, "roots": {} })).await;
    let listed = agent.result("tools/list", json!({})).await;
    let tools = listed["tools"].as_array().cloned().unwrap_or_default();
    if let Some(calls) = context["toolCalls"].as_array() {
        for call in calls {
            let name = call["name"].as_str().unwrap_or_default();
            let mut arguments = call["arguments"].as_object().cloned().unwrap_or_default();
            // Null members are left out: the hub validates against the schema.
            arguments.retain(|_, value| !value.is_null());
            said(scenario, name, &use_tool(&mut agent, name, arguments.into()).await)?;
        }
        return Ok(());
    }
    for tool in &tools {
        let name = tool["name"].as_str().unwrap_or_default();
        said(scenario, name, &use_tool(&mut agent, name, arguments(&tool["inputSchema"])).await)?;
    }
    Ok(())
}

/// The suite judges a failed call, unless the hub could not make it at all.
fn said(scenario: &str, tool: &str, answer: &Value) -> anyhow::Result<()> {
    tracing::info!(scenario, tool, %answer, "called");
    match &answer["result"]["structuredContent"]["code"] {
        Value::String(code) if code == "unavailable" => anyhow::bail!("{tool}: {answer}"),
        _ => Ok(()),
    }
}

/// Calls a tool and answers its questions meanwhile.
async fn use_tool(agent: &mut McpClient, name: &str, arguments: Value) -> Value {
    let id = json!(agent.begin("tools/call", json!({ "name": name, "arguments": arguments })).await);
    loop {
        let is_question = |message: &Value| message["method"] == "elicitation/create";
        let is_answer = |message: &Value| message.get("method").is_none() && message["id"] == id;
        let message = agent.wait("an answer", |message| is_question(message) || is_answer(message)).await;
        if is_answer(&message) {
            return message;
        }
        agent.reply(&message["id"], elicited(&message["params"])).await;
    }
}

/// Accepts an elicitation with its defaults.
fn elicited(params: &Value) -> Value {
    let mut content = Map::new();
    for (name, property) in params["requestedSchema"]["properties"].as_object().into_iter().flatten() {
        if let Some(suggested) = property.get("default") {
            content.insert(name.clone(), suggested.clone());
        }
    }
    json!({ "action": "accept", "content": content })
}

/// Makes arguments that match a schema, as far as the suite's go.
fn arguments(schema: &Value) -> Value {
    let mut made = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        made.insert(name.clone(), value(property));
    }
    made.into()
}

fn value(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("number" | "integer") => json!(2),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => arguments(schema),
        _ => json!("test"),
    }
}
