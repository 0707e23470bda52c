//! Tools with side messages: progress, logs, disconnects, change notifications.

use super::{NoArgs, form, pause, spec};
use portcullis_core::{
    CallCtx, CatalogChange, ChangeNotifier, Family, InputRequestKind, LogLevel, Text, ToolError, ToolSpec,
};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Between two messages of one call. Long enough to see that they are not held back until the end.
const STEP: Duration = Duration::from_millis(50);

/// From the disconnect to the result. The suite's own figure.
const RECONNECT: Duration = Duration::from_millis(100);

pub(super) fn add(family: Family, changes: ChangeNotifier) -> Family {
    let state = Arc::new(());
    let changes = Arc::new(changes);
    family
        .tool(PROGRESS, &state, progress)
        .tool(LOGGING, &state, logging)
        .tool(LOGGING_QUIET, &state, logging_quiet)
        .tool(RECONNECTION, &state, reconnection)
        .tool(MISSING_CAPABILITY, &state, missing_capability)
        .tool(STREAMING_ELICITATION, &state, streaming_elicitation)
        .tool(TOOL_CHANGE, &changes, tool_change)
        .tool(PROMPT_CHANGE, &changes, prompt_change)
}

const PROGRESS: ToolSpec =
    spec("test_tool_with_progress", "Progress", "Tells three times how far it is, then returns.");

async fn progress(_: Arc<()>, _: NoArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    for percent in [0.0, 50.0, 100.0] {
        if percent > 0.0 {
            pause(&ctx, STEP).await?;
        }
        ctx.progress(percent, Some(100.0), Some(&format!("Completed step {percent} of 100")));
    }
    Ok(Text("Tool with progress executed successfully.".to_owned()))
}

const LOGGING: ToolSpec =
    spec("test_tool_with_logging", "Logging", "Logs three messages to the client, then returns.");

async fn logging(_: Arc<()>, _: NoArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    ctx.log(LogLevel::Info, LOGGING.name, "Tool execution started");
    pause(&ctx, STEP).await?;
    ctx.log(LogLevel::Info, LOGGING.name, "Tool processing data");
    pause(&ctx, STEP).await?;
    ctx.log(LogLevel::Info, LOGGING.name, "Tool execution completed");
    Ok(Text("Tool with logging executed successfully.".to_owned()))
}

const LOGGING_QUIET: ToolSpec =
    spec("test_logging_tool", "Logging on request", "Logs one message, for a client that asked for logs.");

async fn logging_quiet(_: Arc<()>, _: NoArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    ctx.log(LogLevel::Info, LOGGING_QUIET.name, "Logging tool executed");
    Ok(Text("Logging tool executed successfully.".to_owned()))
}

const RECONNECTION: ToolSpec =
    spec("test_reconnection", "Reconnection", "Ends the connection; the result waits for the next one.");

async fn reconnection(_: Arc<()>, _: NoArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    ctx.peer.close_connection();
    pause(&ctx, RECONNECT).await?;
    Ok(Text("Reconnection test completed successfully.".to_owned()))
}

const MISSING_CAPABILITY: ToolSpec =
    spec("test_missing_capability", "Missing capability", "Works only for a client that offers sampling.");

async fn missing_capability(_: Arc<()>, _: NoArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    if !ctx.peer.offers(InputRequestKind::Sample) {
        return Err(ToolError::needs_capability(InputRequestKind::Sample));
    }
    Ok(Text("The client offers sampling.".to_owned()))
}

const STREAMING_ELICITATION: ToolSpec = spec(
    "test_streaming_elicitation",
    "Question in a stream",
    "Asks for a confirmation; the question must not go out as a request on the response stream.",
);

async fn streaming_elicitation(_: Arc<()>, _: NoArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    let ask = form("Please confirm", json!({ "confirm": { "type": "boolean" } }));
    let answer = ctx.ask("confirmation", ask).await?;
    Ok(Text(format!("Confirmation: {answer}")))
}

const TOOL_CHANGE: ToolSpec = spec(
    "test_trigger_tool_change",
    "Change of tools",
    "Announces that the list of tools changed, though it did not.",
);

async fn tool_change(changes: Arc<ChangeNotifier>, _: NoArgs, _: CallCtx) -> Result<Text, ToolError> {
    changes.announce(CatalogChange::Tools);
    Ok(Text("Tool list change announced.".to_owned()))
}

const PROMPT_CHANGE: ToolSpec = spec(
    "test_trigger_prompt_change",
    "Change of prompts",
    "Announces that the list of prompts changed, though it did not.",
);

async fn prompt_change(changes: Arc<ChangeNotifier>, _: NoArgs, _: CallCtx) -> Result<Text, ToolError> {
    changes.announce(CatalogChange::Prompts);
    Ok(Text("Prompt list change announced.".to_owned()))
}
