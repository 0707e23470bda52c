//! Tools of the older revision, where a question is a separate request.

use super::{NoArgs, form, sample, sampled_text, spec, spec_with};
use portcullis_core::{CallCtx, Family, InputRequest, InputResponse, Text, ToolError, ToolSpec};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) fn add(family: Family) -> Family {
    let state = Arc::new(());
    family
        .tool(SAMPLING, &state, sampling)
        .tool(ELICITATION, &state, elicitation)
        .tool(DEFAULTS, &state, defaults)
        .tool(ENUMS, &state, enums)
}

const SAMPLING: ToolSpec = spec_with(
    "test_sampling",
    "Sampling",
    "Lets the client's model answer a prompt and returns what it said.",
    r#"{"prompt":"Say hello."}"#,
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SamplingArgs {
    /// What the client's model is asked.
    prompt: String,
}

async fn sampling(_: Arc<()>, args: SamplingArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    let answer = ctx.ask("completion", sample(&args.prompt, 100)).await?;
    Ok(Text(format!("LLM response: {}", sampled_text(&answer)?)))
}

const ELICITATION: ToolSpec = spec_with(
    "test_elicitation",
    "Elicitation",
    "Asks the user for a name and an address and returns what was filled in.",
    r#"{"message":"Who are you?"}"#,
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ElicitationArgs {
    /// What the user is told above the form.
    message: String,
}

async fn elicitation(_: Arc<()>, args: ElicitationArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    let fields = json!({
        "username": { "type": "string", "description": "User's response" },
        "email": { "type": "string", "description": "User's email address" }
    });
    let answer = ctx.ask("user", form(&args.message, fields)).await?;
    Ok(told(&answer))
}

const DEFAULTS: ToolSpec = spec(
    "test_elicitation_sep1034_defaults",
    "Form with defaults",
    "Shows the user a form in which every field has a default.",
);

async fn defaults(_: Arc<()>, _: NoArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    let fields = json!({
        "name": { "type": "string", "description": "User name", "default": "John Doe" },
        "age": { "type": "integer", "description": "User age", "default": 30 },
        "score": { "type": "number", "description": "User score", "default": 95.5 },
        "status": {
            "type": "string",
            "description": "User status",
            "enum": ["active", "inactive", "pending"],
            "default": "active"
        },
        "verified": { "type": "boolean", "description": "Verification status", "default": true }
    });
    let answer = ctx.ask("defaults", open_form("Please review the form with its defaults", fields)).await?;
    Ok(told(&answer))
}

const ENUMS: ToolSpec = spec(
    "test_elicitation_sep1330_enums",
    "Form with choices",
    "Shows the user a form with every kind of choice.",
);

async fn enums(_: Arc<()>, _: NoArgs, ctx: CallCtx) -> Result<Text, ToolError> {
    let options = json!(["option1", "option2", "option3"]);
    let titled = |word: &str| {
        json!([
            { "const": "value1", "title": format!("First {word}") },
            { "const": "value2", "title": format!("Second {word}") },
            { "const": "value3", "title": format!("Third {word}") }
        ])
    };
    let fields = json!({
        "untitledSingle": { "type": "string", "enum": options },
        "titledSingle": { "type": "string", "oneOf": titled("Option") },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"]
        },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": options } },
        "titledMulti": { "type": "array", "items": { "anyOf": titled("Choice") } }
    });
    let answer = ctx.ask("choices", open_form("Please choose", fields)).await?;
    Ok(told(&answer))
}

/// An elicitation for any of the given fields.
fn open_form(message: &str, properties: Value) -> InputRequest {
    InputRequest::elicit(message, json!({ "type": "object", "properties": properties }))
}

/// Returns the sentence that the suite expects after an elicitation, for every answer.
fn told(answer: &InputResponse) -> Text {
    let action = answer.get("action").and_then(Value::as_str).unwrap_or("none");
    let content = answer.get("content").unwrap_or(&Value::Null);
    Text(format!("User response: action={action}, content={content}"))
}
