//! Fixtures of the official MCP conformance suite: its tools, prompts and resources, as one native family.
//!
//! The names and the behaviour are the suite's, so they do not follow the house rule `family_verb`. No
//! fixture knows of protocol revisions. A tool asks with [`CallCtx::ask`] and reads the answer in the next
//! line; it does not see whether the hub waited for the answer, or ran the tool again with it. So the hub
//! must:
//!
//! * Ask again, instead of passing on an answer that is no object or has a key that was not asked for.
//! * Pass on the answers of all former rounds of a call, though the client repeats none of them
//!   (`test_input_required_result_multi_round`).
//! * Decide whether a log message reaches the client: `test_logging_tool` always logs.
//! * Ask the first question of `test_tool_with_task` in an ordinary round, and start the task with the answer: the tool is
//!   [`TaskSupport::RequiredAfterQuestions`] and asks before anything else. All other tasks ask from within the task.
//!
//! [`TaskSupport::RequiredAfterQuestions`]: portcullis_core::TaskSupport::RequiredAfterQuestions

pub mod agent;
mod contents;
mod input_rounds;
mod legacy_input;
mod notifying_tools;
mod prompts;
mod resources;
mod schemas;
mod tasks;
#[cfg(test)]
mod tests;

use portcullis_core::{
    CallCtx, CallLimits, ChangeNotifier, Effect, Example, Family, InputRequest, InputRequestKind,
    InputResponse, InputResponses, KeyedInputRequest, Reach, ToolError, ToolSpec,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// An image of one pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";

/// A sound of one sample.
const WAV: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";

/// Returns the family; `changes` is where its tools announce list changes.
///
/// The order is the suite's: it calls the first tool without arguments.
pub fn family(changes: ChangeNotifier) -> Family {
    let family = Family::new("conformance");
    let family = contents::add(family);
    let family = schemas::add(family);
    let family = notifying_tools::add(family, changes);
    let family = legacy_input::add(family);
    let family = input_rounds::add(family);
    let family = tasks::add(family);
    family.prompts(prompts::ConformancePrompts).resources(resources::ConformanceResources)
}

/// The arguments of a tool that takes none.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoArgs {}

/// Declares a tool without arguments.
const fn spec(name: &'static str, title: &'static str, description: &'static str) -> ToolSpec {
    spec_with(name, title, description, "{}")
}

/// Declares a tool with example arguments. Every fixture only reads, so that no approval is needed.
const fn spec_with(
    name: &'static str,
    title: &'static str,
    description: &'static str,
    arguments: &'static str,
) -> ToolSpec {
    ToolSpec {
        name,
        title,
        description,
        effect: Effect::Read,
        reach: Reach::Local,
        limits: CallLimits::DEFAULT,
        example: Example { what: title, arguments },
    }
}

/// Sleeps, at most until the call is cancelled.
async fn pause(ctx: &CallCtx, duration: Duration) -> Result<(), ToolError> {
    tokio::select! {
        biased;
        () = ctx.cancel.cancelled() => Err(ToolError::cancelled()),
        () = tokio::time::sleep(duration) => Ok(()),
    }
}

/// An elicitation for all the given fields.
fn form(message: &str, properties: Value) -> InputRequest {
    let required: Vec<&String> =
        properties.as_object().into_iter().flat_map(|fields| fields.keys()).collect();
    let required = json!(required);
    InputRequest::elicit(message, json!({ "type": "object", "properties": properties, "required": required }))
}

/// A sampling request of one message.
fn sample(text: &str, tokens_max: u32) -> InputRequest {
    let message = json!({ "role": "user", "content": { "type": "text", "text": text } });
    InputRequest {
        kind: InputRequestKind::Sample,
        params: json!({ "messages": [message], "maxTokens": tokens_max }),
    }
}

/// A roots request.
fn roots() -> InputRequest {
    InputRequest { kind: InputRequestKind::Roots, params: json!({}) }
}

fn question(key: &str, ask: InputRequest) -> KeyedInputRequest {
    KeyedInputRequest { key: key.to_owned(), ask }
}

/// Returns one of several answers.
fn answer<'a>(answers: &'a InputResponses, key: &str) -> Result<&'a InputResponse, ToolError> {
    answers.get(key).ok_or_else(|| ToolError::internal(format!("no answer to `{key}`, which was asked")))
}

/// Returns a field of an accepted form.
fn filled_in<'a>(form: &'a InputResponse, field: &str) -> Result<&'a Value, ToolError> {
    let accepted = form.get("action").and_then(Value::as_str) == Some("accept");
    let value = form.get("content").and_then(|content| content.get(field));
    value.filter(|_| accepted).ok_or_else(|| {
        ToolError::invalid_args(format!("the form came back without `{field}`"))
            .hint(format!("accept the form and fill in `{field}`"))
    })
}

/// Returns a text field of an accepted form.
fn filled_in_text<'a>(form: &'a InputResponse, field: &str) -> Result<&'a str, ToolError> {
    let not_text = || ToolError::invalid_args(format!("`{field}` in the form is not a text"));
    filled_in(form, field)?.as_str().ok_or_else(not_text)
}

/// Returns the sampled text; it may be one block or several.
fn sampled_text(message: &InputResponse) -> Result<&str, ToolError> {
    let text = message.pointer("/content/text").or_else(|| message.pointer("/content/0/text"));
    text.and_then(Value::as_str).ok_or_else(|| ToolError::invalid_args("the client's model answered no text"))
}

/// Returns the URIs of the client's roots.
fn root_uris(answer: &InputResponse) -> Vec<&str> {
    let roots = answer.get("roots").and_then(Value::as_array).into_iter().flatten();
    roots.filter_map(|root| root.get("uri").and_then(Value::as_str)).collect()
}
