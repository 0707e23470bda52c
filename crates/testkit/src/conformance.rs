//! The tools, prompts and resources that the official MCP conformance suite calls, as one native family.
//!
//! The names and the behaviour are the suite's, so they do not follow the house rule `family_verb`. No
//! fixture knows of protocol revisions. A tool asks with [`CallCtx::ask`] and reads the answer in the next
//! line; whether the hub waited for it, or ran the tool once more with it, is not to be seen here. This
//! puts duties on the hub:
//!
//! * An answer that is no object, or comes under a key that was not asked for, is not handed to the tool;
//!   the question is put again.
//! * Of a call in rounds, the answers of all former rounds are handed in, though the client repeats none
//!   of them (`test_input_required_result_multi_round`).
//! * Whether a log message reaches the client is the hub's to decide: `test_logging_tool` always speaks.
//! * `test_tool_with_task` is [`TaskSupport::RequiredAfterQuestions`] and asks before anything else. Its first question
//!   is to be put in an ordinary round, and the task begins with the answer. All other tasks ask from
//!   within the task.
//!
//! [`TaskSupport::RequiredAfterQuestions`]: portcullis_core::TaskSupport::RequiredAfterQuestions

pub mod agent;
mod asking;
mod contents;
mod prompts;
mod resources;
mod rounds;
mod running;
mod schemas;
mod tasks;
#[cfg(test)]
mod tests;

use portcullis_core::{
    Answer, Answers, Ask, AskKind, CallCtx, Changes, Effect, Example, Family, Limits, Question, Reach,
    ToolError, ToolSpec,
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

/// Returns the family; `changes` is where its tools announce that a list changed.
///
/// The order is the suite's: it calls the first tool without arguments.
pub fn family(changes: Changes) -> Family {
    let family = Family::new("conformance");
    let family = contents::add(family);
    let family = schemas::add(family);
    let family = running::add(family, changes);
    let family = asking::add(family);
    let family = rounds::add(family);
    let family = tasks::add(family);
    family.prompts(prompts::Prompts).resources(resources::Resources)
}

/// The arguments of a tool that takes none.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoArgs {}

/// States a tool that takes no arguments.
const fn spec(name: &'static str, title: &'static str, description: &'static str) -> ToolSpec {
    spec_with(name, title, description, "{}")
}

/// States a tool with arguments that work. Every fixture only looks, so that no one is asked for approval.
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
        limits: Limits::DEFAULT,
        example: Example { what: title, arguments },
    }
}

/// Waits, but no longer than the caller does.
async fn pause(ctx: &CallCtx, duration: Duration) -> Result<(), ToolError> {
    tokio::select! {
        biased;
        () = ctx.cancel.cancelled() => Err(ToolError::cancelled()),
        () = tokio::time::sleep(duration) => Ok(()),
    }
}

/// Asks a person to fill in all the given fields.
fn form(message: &str, properties: Value) -> Ask {
    let required: Vec<&String> =
        properties.as_object().into_iter().flat_map(|fields| fields.keys()).collect();
    let required = json!(required);
    Ask::elicit(message, json!({ "type": "object", "properties": properties, "required": required }))
}

/// Asks the client's model to answer one message.
fn sample(text: &str, tokens_max: u32) -> Ask {
    let message = json!({ "role": "user", "content": { "type": "text", "text": text } });
    Ask { kind: AskKind::Sample, params: json!({ "messages": [message], "maxTokens": tokens_max }) }
}

/// Asks the client for its folders.
fn roots() -> Ask {
    Ask { kind: AskKind::Roots, params: json!({}) }
}

fn question(key: &str, ask: Ask) -> Question {
    Question { key: key.to_owned(), ask }
}

/// Returns one of several answers.
fn answer<'a>(answers: &'a Answers, key: &str) -> Result<&'a Answer, ToolError> {
    answers.get(key).ok_or_else(|| ToolError::internal(format!("no answer to `{key}`, which was asked")))
}

/// Returns a field of a form that was accepted.
fn filled_in<'a>(form: &'a Answer, field: &str) -> Result<&'a Value, ToolError> {
    let accepted = form.get("action").and_then(Value::as_str) == Some("accept");
    let value = form.get("content").and_then(|content| content.get(field));
    value.filter(|_| accepted).ok_or_else(|| {
        ToolError::invalid_args(format!("the form came back without `{field}`"))
            .hint(format!("accept the form and fill in `{field}`"))
    })
}

/// Returns a text field of a form that was accepted.
fn filled_in_text<'a>(form: &'a Answer, field: &str) -> Result<&'a str, ToolError> {
    let not_text = || ToolError::invalid_args(format!("`{field}` in the form is not a text"));
    filled_in(form, field)?.as_str().ok_or_else(not_text)
}

/// Returns what the client's model said; it may come as one block or as several.
fn sampled_text(message: &Answer) -> Result<&str, ToolError> {
    let text = message.pointer("/content/text").or_else(|| message.pointer("/content/0/text"));
    text.and_then(Value::as_str).ok_or_else(|| ToolError::invalid_args("the client's model answered no text"))
}

/// Returns the addresses of the client's folders.
fn root_uris(answer: &Answer) -> Vec<&str> {
    let roots = answer.get("roots").and_then(Value::as_array).into_iter().flatten();
    roots.filter_map(|root| root.get("uri").and_then(Value::as_str)).collect()
}
