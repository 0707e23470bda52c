//! Asks a person, where the decision is to ask.
//!
//! Deciding *whether* to ask is `authorize`'s job, not ours. The question goes to the person at the client, through
//! the client; a client that cannot put it gets no action.

use portcullis_core::{
    Ask, AskKind, BoxFuture, Call, Decision, ErrorKind, Layer, Next, Outcome, Reach, ToolError, json,
};
use serde_json::{Value, json};

/// Under which key the answer is found.
const QUESTION_KEY: &str = "portcullis_approval";
/// How much of the arguments a person is shown. About a screen; more would push the question itself out of sight.
const PREVIEW_CHARS_MAX: usize = 1_000;

/// The layer.
pub(crate) struct Approve;

impl Layer for Approve {
    fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        match call.trail.decision.get() {
            Some(Decision::Allow { .. }) => next.run(call),
            Some(Decision::Ask { .. }) => Box::pin(async move {
                ask(&call).await?;
                next.run(call).await
            }),
            // Nobody decided, or nobody obeyed. Neither can happen in the stack as it is, and neither may act.
            Some(Decision::Deny { .. }) | None => {
                Box::pin(async { Err(ToolError::internal("a call came to approval without being allowed")) })
            }
        }
    }
}

async fn ask(call: &Call) -> Result<(), ToolError> {
    if !call.ctx.peer.offers(AskKind::Elicit) {
        return Err(needs_approval(call));
    }
    let schema = json!({
        "type": "object",
        "properties": {
            "approve": { "type": "boolean", "title": "Approve", "description": "Whether the call may run" }
        },
        "required": ["approve"]
    });
    // A client that is asked by the result of this round gets its question as an error, and that passes as it is.
    let answer = call.ctx.ask(QUESTION_KEY, Ask::elicit(&question(call), schema)).await?;
    if is_approval(&answer) {
        return Ok(());
    }
    let (kind, name) = (call.target.kind(), json::printable(call.target.name()));
    Err(ToolError::denied(format!("{kind} `{name}` was not approved")).hint(
        "do not try the same call again unless the person asks for it; say what you wanted to do and why",
    ))
}

fn is_approval(answer: &Value) -> bool {
    answer.get("action").and_then(Value::as_str) == Some("accept")
        && answer.pointer("/content/approve") == Some(&Value::Bool(true))
}

fn needs_approval(call: &Call) -> ToolError {
    let (kind, name) = (call.target.kind(), json::printable(call.target.name()));
    ToolError::new(ErrorKind::NeedsApproval, format!("{kind} `{name}` needs approval by a person"))
        .hint("use a client that offers elicitation, so that the person there can be asked")
        .hint(format!("or let an administrator add an `allow` rule for `{name}` to portcullis.toml"))
}

fn question(call: &Call) -> String {
    let client = json::printable(&call.caller.client.name);
    let (kind, name) = (call.target.kind(), json::printable(call.target.name()));
    let effect = call.effect();
    let reach = match call.tool().map_or(Reach::Local, |tool| tool.reach) {
        Reach::Local => "",
        Reach::Outside => ", reaches outside",
    };
    let preview = preview(call.arguments.raw().get());
    format!("Client `{client}` wants to run {kind} `{name}` (effect: {effect}{reach}) with:\n{preview}")
}

/// Returns the arguments as a person can trust them: nothing hidden, and said so if there is more.
fn preview(arguments: &str) -> String {
    let mut shown = String::new();
    let mut chars = arguments.chars();
    for c in chars.by_ref().take(PREVIEW_CHARS_MAX) {
        if c.is_control() || json::is_invisible(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    match chars.count() {
        0 => shown,
        more => format!("{shown}… and {more} characters more"),
    }
}

#[cfg(test)]
#[path = "approve_tests.rs"]
mod tests;
