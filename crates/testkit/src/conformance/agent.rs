//! An agent behind a hub, for the suite's client scenarios: it lists everything and calls every tool.

use crate::mcp_client::{McpClient, NEWEST};
use serde_json::{Map, Value, json};
use std::net::SocketAddr;

/// The revision of agents with sessions.
const WITH_SESSIONS: &str = "2025-11-25";
/// How often a call may be answered with a question.
const ROUNDS_MAX: usize = 10;

/// Asks the hub at `address` for all that the suite wants to see its server asked for.
pub async fn run(address: SocketAddr, scenario: &str, version: &str, context: &Value) -> anyhow::Result<()> {
    let revision = if version == NEWEST { NEWEST } else { WITH_SESSIONS };
    let mut agent = match revision {
        NEWEST => McpClient::http(address, "anyone", revision).await,
        // Where questions arrive while a call is under way.
        _ => McpClient::sse(address, "anyone", revision).await,
    };
    if revision != NEWEST {
        agent.initialize(json!({ "elicitation": { "form": { "applyDefaults": true } } })).await;
    }
    let listed = agent.result("tools/list", json!({})).await;
    let tools = listed["tools"].as_array().cloned().unwrap_or_default();
    if let Some(calls) = context["toolCalls"].as_array() {
        for call in calls {
            let name = call["name"].as_str().unwrap_or_default();
            said(scenario, name, &use_tool(&mut agent, name, call["arguments"].clone()).await)?;
        }
        return Ok(());
    }
    for tool in &tools {
        let name = tool["name"].as_str().unwrap_or_default();
        said(scenario, name, &use_tool(&mut agent, name, arguments(&tool["inputSchema"])).await)?;
    }
    Ok(())
}

/// A call that went wrong is the suite's to judge, unless the hub could not make it at all.
fn said(scenario: &str, tool: &str, answer: &Value) -> anyhow::Result<()> {
    tracing::info!(scenario, tool, %answer, "called");
    match &answer["result"]["structuredContent"]["code"] {
        Value::String(code) if code == "unavailable" => anyhow::bail!("{tool}: {answer}"),
        _ => Ok(()),
    }
}

/// Calls a tool and answers what it asks, until it is done.
async fn use_tool(agent: &mut McpClient, name: &str, arguments: Value) -> Value {
    let mut params = json!({ "name": name, "arguments": arguments });
    let mut answer = Value::Null;
    for _ in 0..ROUNDS_MAX {
        answer = call(agent, params.clone()).await;
        if answer["result"]["resultType"] != "input_required" {
            break;
        }
        let asked = answer["result"]["inputRequests"].as_object().cloned().unwrap_or_default();
        let answers: Map<String, Value> =
            asked.into_iter().map(|(key, request)| (key, elicited(&request["params"]))).collect();
        params["inputResponses"] = answers.into();
        params["requestState"] = answer["result"]["requestState"].clone();
    }
    answer
}

/// Calls a tool and answers what it asks meanwhile.
async fn call(agent: &mut McpClient, params: Value) -> Value {
    let id = json!(agent.begin("tools/call", params).await);
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

/// Accepts a question with what it suggests.
fn elicited(params: &Value) -> Value {
    let mut content = Map::new();
    for (name, property) in params["requestedSchema"]["properties"].as_object().into_iter().flatten() {
        if let Some(suggested) = property.get("default") {
            content.insert(name.clone(), suggested.clone());
        }
    }
    json!({ "action": "accept", "content": content })
}

/// Makes up arguments that fit a schema, as far as the suite's go.
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
