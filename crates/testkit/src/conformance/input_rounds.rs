//! Tools of the newer revision, where questions are the result of a round.

use super::{
    NoArgs, answer, filled_in, filled_in_text, form, question, root_uris, roots, sample, sampled_text, spec,
};
use portcullis_core::{CallCtx, Family, InputRequest, InputRequestKind, Text, ToolError, ToolSpec};
use serde_json::json;
use std::sync::Arc;

pub(super) fn add(family: Family) -> Family {
    let state = Arc::new(());
    family
        .tool(ELICITATION, &state, elicitation)
        .tool(SAMPLING, &state, sampling)
        .tool(LIST_ROOTS, &state, list_roots)
        .tool(REQUEST_STATE, &state, request_state)
        .tool(MULTIPLE_INPUTS, &state, multiple_inputs)
        .tool(MULTI_ROUND, &state, multi_round)
        .tool(TAMPERED_STATE, &state, tampered_state)
        .tool(CAPABILITIES, &state, capabilities)
}

/// Asks for the user's name. Also the first question of `test_tool_with_task`.
pub(super) fn ask_name() -> InputRequest {
    form("What is your name?", json!({ "name": { "type": "string" } }))
}

fn ask_ok() -> InputRequest {
    form("Please confirm", json!({ "ok": { "type": "boolean" } }))
}

const ELICITATION: ToolSpec =
    spec("test_input_required_result_elicitation", "Round with a form", "Asks for a name and greets.");

async fn elicitation(_: Arc<()>, _: NoArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    let answer = ctx.ask("user_name", ask_name()).await?;
    Ok(Text(format!("Hello, {}!", filled_in_text(&answer, "name")?)))
}

const SAMPLING: ToolSpec = spec(
    "test_input_required_result_sampling",
    "Round with sampling",
    "Lets the client's model name a capital and returns what it said.",
);

async fn sampling(_: Arc<()>, _: NoArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    let answer = ctx.ask("capital_question", sample("What is the capital of France?", 100)).await?;
    Ok(Text(sampled_text(&answer)?.to_owned()))
}

const LIST_ROOTS: ToolSpec = spec(
    "test_input_required_result_list_roots",
    "Round with roots",
    "Asks the client for its folders and returns their addresses.",
);

async fn list_roots(_: Arc<()>, _: NoArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    let answer = ctx.ask("client_roots", roots()).await?;
    Ok(Text(format!("Roots: {}", root_uris(&answer).join(", "))))
}

const REQUEST_STATE: ToolSpec = spec(
    "test_input_required_result_request_state",
    "Round with state",
    "Asks for a confirmation; the client brings the state of the call back.",
);

async fn request_state(_: Arc<()>, _: NoArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    let answer = ctx.ask("confirm", ask_ok()).await?;
    Ok(Text(format!("state-ok: {}", filled_in(&answer, "ok")?)))
}

const MULTIPLE_INPUTS: ToolSpec = spec(
    "test_input_required_result_multiple_inputs",
    "Round with several questions",
    "Asks for a name, a greeting and the client's folders at once.",
);

async fn multiple_inputs(_: Arc<()>, _: NoArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    let questions = vec![
        question("user_name", ask_name()),
        question("greeting", sample("Generate a greeting", 50)),
        question("client_roots", roots()),
    ];
    let answers = ctx.ask_all(questions).await?;
    let name = filled_in_text(answer(&answers, "user_name")?, "name")?;
    let greeting = sampled_text(answer(&answers, "greeting")?)?;
    let roots = root_uris(answer(&answers, "client_roots")?);
    Ok(Text(format!("name={name}, greeting={greeting}, roots={}", roots.join(" "))))
}

const MULTI_ROUND: ToolSpec = spec(
    "test_input_required_result_multi_round",
    "Several rounds",
    "Asks for a name, and once that is known for a colour.",
);

async fn multi_round(_: Arc<()>, _: NoArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    let name = form("Step 1: What is your name?", json!({ "name": { "type": "string" } }));
    let name = ctx.ask("step1", name).await?;
    let color = form("Step 2: What is your favorite color?", json!({ "color": { "type": "string" } }));
    let color = ctx.ask("step2", color).await?;
    let (name, color) = (filled_in_text(&name, "name")?, filled_in_text(&color, "color")?);
    Ok(Text(format!("{name} likes {color}.")))
}

const TAMPERED_STATE: ToolSpec = spec(
    "test_input_required_result_tampered_state",
    "Round with forged state",
    "Asks for a confirmation; state that the client changed is refused.",
);

async fn tampered_state(_: Arc<()>, _: NoArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    let answer = ctx.ask("confirm", ask_ok()).await?;
    Ok(Text(format!("Confirmed: {}", filled_in(&answer, "ok")?)))
}

const CAPABILITIES: ToolSpec = spec(
    "test_input_required_result_capabilities",
    "Round within what is offered",
    "Asks all that the client offers to be asked, and nothing else.",
);

async fn capabilities(_: Arc<()>, _: NoArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    let mut questions = Vec::new();
    for kind in [InputRequestKind::Elicit, InputRequestKind::Sample, InputRequestKind::Roots] {
        if ctx.peer.offers(kind) {
            questions.push(match kind {
                InputRequestKind::Elicit => question("user_name", ask_name()),
                InputRequestKind::Sample => question("greeting", sample("Generate a greeting", 50)),
                InputRequestKind::Roots => question("client_roots", roots()),
            });
        }
    }
    if questions.is_empty() {
        return Ok(Text("The client offers nothing to be asked.".to_owned()));
    }
    let answers = ctx.ask_all(questions).await?;
    let keys: Vec<&str> = answers.keys().map(String::as_str).collect();
    Ok(Text(format!("Answered: {}", keys.join(", "))))
}
