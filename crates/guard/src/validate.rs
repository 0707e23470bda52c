//! Arguments fit the tool's schema before anyone acts on them.
//!
//! They are read strictly (a key given twice is refused) and once: what is checked here is what the tool gets. All
//! that does not fit is told together, in words that say what would; see `explain`.

mod explain;

use crate::beside;
use jsonschema::Validator;
use portcullis_core::json::{is_mistakable, printable};
use portcullis_core::schema::plainly_fits;
use portcullis_core::{
    ArgumentCheck, Arguments, BoxFuture, Call, Layer, Limit, Next, Outcome, Target, TaskAsk, ToolDef,
    ToolError,
};
use serde_json::Value;

/// How many misfits are told. A model mends these and sees the rest in the next round.
const MISFITS_SHOWN_MAX: usize = 8;
/// How many misfits are counted. An array of a million wrong items is not worth a million texts.
const MISFITS_COUNTED_MAX: usize = 100;
/// How long one message is at most.
const MESSAGE_BYTES_MAX: usize = 2_000;
/// The layer.
pub(crate) struct Validate;

impl Layer for Validate {
    fn call<'a>(&'a self, call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        match check(&call) {
            Ok(()) => next.run(call),
            Err(error) => Box::pin(async move { Err(error) }),
        }
    }
}

fn check(call: &Call) -> Result<(), ToolError> {
    let readable = || call.arguments.value().map(|_| ()).map_err(|reason| invalid(&[reason.to_owned()]));
    let tool = match (&call.target, call.tool()) {
        // Ended it can be in any case.
        (Target::Task(TaskAsk::Cancel, _), _) => return readable(),
        // Resources, prompts and completions have no schema: their providers say themselves what they need.
        (_, None) => return readable(),
        (_, Some(tool)) => tool,
    };
    // Before a person is asked about a call that cannot run.
    if let Some(hint) = &tool.withheld {
        let message = format!("tool `{}` waits until a person has looked at it", tool.name);
        return Err(ToolError::unavailable(message).hint(hint.clone()));
    }
    check_beside(tool, call)?;
    match &call.target {
        // What is said to a task is no argument of its tool: the server knows what it asked.
        Target::Task(..) => readable(),
        _ => check_arguments(tool, &call.arguments),
    }
}

/// Counts what stands beside the arguments with them, so that nothing gets past their bound there.
fn check_beside(tool: &ToolDef, call: &Call) -> Result<(), ToolError> {
    let Some(members) = beside::members(call) else { return Ok(()) };
    let (bytes, bytes_max) = (call.arguments.raw().get().len() + members.len(), tool.limits.input_bytes_max);
    if bytes > bytes_max {
        return Err(too_large("the text of the arguments and of what stands beside them", bytes, bytes_max));
    }
    Ok(())
}

/// Says whether a tool takes these arguments. Every call is checked so.
pub fn check_arguments(tool: &ToolDef, arguments: &Arguments) -> Result<(), ToolError> {
    if let Some(too_long) = arguments.too_long() {
        return Err(too_large("the text of the arguments", too_long.bytes, too_long.bytes_max));
    }
    let arguments = arguments.value().map_err(|reason| invalid(&[reason.to_owned()]))?;
    if tool.server.is_some() {
        told_apart(tool, arguments)?;
    }
    if plainly_fits(&tool.input_schema, arguments) {
        return Ok(());
    }
    let check = tool.check_with(compile).map_err(|reason| {
        ToolError::unavailable(format!("the schema of tool `{}` cannot be understood", tool.name))
            .hint("an administrator can report this to whoever offers the tool")
            .caused_by(reason.to_owned())
    })?;
    check.check(arguments).map_err(|misfits| invalid(&misfits))
}

fn too_large(what: &str, bytes: usize, bytes_max: usize) -> ToolError {
    Limit::ArgumentBytes.hit();
    ToolError::too_large(what, bytes, bytes_max).hint("give it less at once, in several calls")
}

/// Refuses an argument that another server could take for one that is declared: that one was checked, and not this.
fn told_apart(tool: &ToolDef, arguments: &Value) -> Result<(), ToolError> {
    let (Some(given), Some(declared)) = (arguments.as_object(), tool.input_schema["properties"].as_object())
    else {
        return Ok(());
    };
    for name in given.keys().filter(|name| !declared.contains_key(*name)) {
        if let Some(own) = declared.keys().find(|own| is_mistakable(name, own)) {
            return Err(invalid(&[format!(
                "`{}` could be taken for `{}`; leave it out",
                printable(name),
                printable(own)
            )]));
        }
    }
    Ok(())
}

fn invalid(misfits: &[String]) -> ToolError {
    // Whole ones only: what they quote may be secret, and half a secret is not recognised.
    let (mut shown, mut count) = (String::new(), 0);
    for misfit in misfits.iter().take(MISFITS_SHOWN_MAX) {
        if shown.len() + misfit.len() > MESSAGE_BYTES_MAX {
            break;
        }
        shown.push_str(if count == 0 { "" } else { "; " });
        shown.push_str(misfit);
        count += 1;
    }
    let more = match misfits.len().saturating_sub(count) {
        0 => String::new(),
        more if count == 0 => format!("{more} of them, too long to repeat"),
        more if misfits.len() >= MISFITS_COUNTED_MAX => format!("; and {more} or more others"),
        more => format!("; and {more} more"),
    };
    ToolError::invalid_args(format!("invalid arguments: {shown}{more}"))
}

/// A schema, ready to be compared with.
struct Schema {
    validator: Validator,
    source: Value,
}

fn compile(schema: &Value) -> Result<Box<dyn ArgumentCheck>, String> {
    let validator = portcullis_core::schema::compile(schema)?;
    Ok(Box::new(Schema { validator, source: schema.clone() }))
}

impl ArgumentCheck for Schema {
    fn check(&self, arguments: &Value) -> Result<(), Vec<String>> {
        if self.validator.is_valid(arguments) {
            return Ok(());
        }
        let errors = self.validator.iter_errors(arguments);
        let misfits = errors.flat_map(|error| explain::misfits(&error, &self.source));
        Err(misfits.take(MISFITS_COUNTED_MAX).collect())
    }
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
