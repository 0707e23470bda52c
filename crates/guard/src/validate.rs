//! Validation: the tool is ready, and the arguments match its input schema.
//!
//! They are parsed strictly (duplicate keys are refused) and once: the validated value is the one the tool gets. All errors
//! are reported together, with what is expected; see `explain`.
//!
//! The schema of an upstream tool is untrusted, and validation may take a while even within its step budget
//! (`core::schema`). If the fast path cannot decide, it runs on a blocking thread, a few at once for each server.

mod explain;
mod signature;

use crate::extra_params;
use parking_lot::Mutex;
use portcullis_core::json::{folded, printable};
use portcullis_core::schema::{BoundedValidator, TooCostly, plainly_fits};
use portcullis_core::{
    ArgumentCheck, ArgumentRejection, Arguments, BoxFuture, Call, Layer, Limit, Next, Outcome, Target,
    TaskOperation, ToolDef, ToolError, blocking,
};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Bound on reported errors. A model fixes these and sees the rest in the next round.
const MISFITS_SHOWN_MAX: usize = 8;
/// Bound on counted errors. An array of a million wrong items is not worth a million texts.
const MISFITS_COUNTED_MAX: usize = 100;
/// Bound on one message.
const MESSAGE_BYTES_MAX: usize = 2_000;
/// Concurrent validations per server. Further calls queue.
const VALIDATIONS_PER_SERVER_MAX: usize = 2;

/// The validation layer.
#[derive(Default)]
pub(crate) struct ValidationLayer {
    /// Permits by server. A permit is held until the validation has ended, also if the call was cancelled.
    permits: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Layer for ValidationLayer {
    fn call<'a>(&'a self, call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        // Also for what the tool itself finds wrong with its arguments.
        let tool = call.tool().cloned();
        let advised = move |error: ToolError| match &tool {
            Some(tool) => signature::advise(tool, error),
            None => error,
        };
        match check(&call) {
            Ok(Checked::Fits) => Box::pin(async move { next.run(call).await.map_err(advised) }),
            Ok(Checked::NeedsValidator(tool, server)) => {
                let (permits, arguments) = (self.permits_of(&server), call.arguments.clone());
                // Off the async workers. The deadline of the call applies while it waits (`contain`).
                let validated = async move {
                    let permit = permits.acquire_owned().await;
                    let permit = permit.map_err(|closed| ToolError::internal(closed.to_string()))?;
                    blocking(move || {
                        let _permit = permit;
                        compare(&tool, arguments.value().map_err(|reason| invalid(&[reason.to_owned()]))?)
                    })
                    .await?;
                    next.run(call).await
                };
                Box::pin(async move { validated.await.map_err(advised) })
            }
            Err(error) => Box::pin(async move { Err(advised(error)) }),
        }
    }
}

impl ValidationLayer {
    fn permits_of(&self, server: &str) -> Arc<Semaphore> {
        let mut permits = self.permits.lock();
        if let Some(of_server) = permits.get(server) {
            return of_server.clone();
        }
        let of_server = Arc::new(Semaphore::new(VALIDATIONS_PER_SERVER_MAX));
        permits.insert(server.to_owned(), of_server.clone());
        of_server
    }
}

/// The result of the fast path.
enum Checked {
    Fits,
    /// The schema of this server's tool must be evaluated.
    NeedsValidator(Arc<ToolDef>, String),
}

fn check(call: &Call) -> Result<Checked, ToolError> {
    let readable = || match call.arguments.value() {
        Ok(_) => Ok(Checked::Fits),
        Err(reason) => Err(invalid(&[reason.to_owned()])),
    };
    let tool = match (&call.target, call.tool()) {
        // Cancelling is always allowed.
        (Target::Task(TaskOperation::Cancel, _), _) => return readable(),
        // Resources, prompts and completions have no schema: their providers validate.
        (_, None) => return readable(),
        (_, Some(tool)) => tool,
    };
    // Before a person is asked about a call that cannot run.
    if let Some(hint) = &tool.withheld {
        let message = format!("tool `{}` needs review before it can be called", tool.name);
        return Err(ToolError::unavailable(message).hint(hint.clone()));
    }
    if let (Target::Tool(_), Some(ready)) = (&call.target, &tool.readiness) {
        ready()?;
    }
    check_extra_params(tool, call)?;
    match &call.target {
        // Input for a task is not an argument of its tool: the server knows what it requested.
        Target::Task(..) => readable(),
        _ => match (fits_plainly(tool, &call.arguments)?, &tool.server) {
            (Ok(()), _) => Ok(Checked::Fits),
            (Err(_), Some(server)) => Ok(Checked::NeedsValidator(tool.clone(), server.clone())),
            (Err(arguments), None) => compare(tool, arguments).map(|()| Checked::Fits),
        },
    }
}

/// Counts the extra parameters with the arguments, so that they cannot bypass the size limit.
fn check_extra_params(tool: &ToolDef, call: &Call) -> Result<(), ToolError> {
    let Some(members) = extra_params::members(call) else { return Ok(()) };
    let (bytes, bytes_max) = (call.arguments.raw().get().len() + members.len(), tool.limits.input_bytes_max);
    if bytes > bytes_max {
        return Err(too_large("the text of the arguments and the extra parameters", bytes, bytes_max));
    }
    Ok(())
}

/// Returns whether a tool accepts these arguments. The check of every call.
pub fn check_arguments(tool: &ToolDef, arguments: &Arguments) -> Result<(), ToolError> {
    match fits_plainly(tool, arguments)? {
        Ok(()) => Ok(()),
        Err(arguments) => compare(tool, arguments),
    }
}

/// The checks without the full validator. Returns the arguments if the fast path cannot decide.
fn fits_plainly<'a>(tool: &ToolDef, arguments: &'a Arguments) -> Result<Result<(), &'a Value>, ToolError> {
    if let Some(too_long) = arguments.too_long() {
        return Err(too_large("the text of the arguments", too_long.bytes, too_long.bytes_max));
    }
    let arguments = arguments.value().map_err(|reason| invalid(&[reason.to_owned()]))?;
    if tool.server.is_some() {
        reject_confusable(tool, arguments)?;
    }
    Ok(if plainly_fits(&tool.input_schema, arguments) { Ok(()) } else { Err(arguments) })
}

/// Validates arguments against the tool's schema, which is compiled on first use.
fn compare(tool: &ToolDef, arguments: &Value) -> Result<(), ToolError> {
    let check = tool.check_with(compile).map_err(|reason| {
        ToolError::unavailable(format!("the schema of tool `{}` cannot be understood", tool.name))
            .hint("an administrator can report this to the author of the tool")
            .caused_by(reason.to_owned())
    })?;
    check.check(arguments).map_err(|unchecked| match unchecked {
        ArgumentRejection::Misfits(misfits) => {
            signature::with_nearest_names(tool, arguments, invalid(&misfits))
        }
        ArgumentRejection::TooCostly(why) => {
            Limit::ValidationSteps.hit();
            ToolError::invalid_args(format!(
                "comparing these arguments with the schema of tool `{}` is too much work: {why}",
                tool.name
            ))
            .hint("give it less at once, or nest it less deeply")
        }
    })
}

fn too_large(what: &str, bytes: usize, bytes_max: usize) -> ToolError {
    Limit::ArgumentBytes.hit();
    ToolError::too_large(what, bytes, bytes_max).hint("give it less at once, in several calls")
}

/// Refuses an argument that an upstream server could confuse with a declared one: the declared one was validated, this one
/// was not.
fn reject_confusable(tool: &ToolDef, arguments: &Value) -> Result<(), ToolError> {
    let (Some(given), Some(declared)) = (arguments.as_object(), tool.input_schema["properties"].as_object())
    else {
        return Ok(());
    };
    let mut others = given.keys().filter(|name| !declared.contains_key(*name)).peekable();
    if others.peek().is_none() {
        return Ok(());
    }
    let declared: HashMap<String, &String> = declared.keys().map(|own| (folded(own), own)).collect();
    for name in others {
        if let Some(own) = declared.get(&folded(name)) {
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
    // Complete messages only: they may quote a secret, and a truncated secret is not recognized.
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

/// A compiled schema with its source.
struct CompiledSchema {
    validator: BoundedValidator,
    source: Value,
}

fn compile(schema: &Value) -> Result<Box<dyn ArgumentCheck>, String> {
    let validator = portcullis_core::schema::compile(schema)?;
    Ok(Box::new(CompiledSchema { validator, source: schema.clone() }))
}

impl ArgumentCheck for CompiledSchema {
    fn check(&self, arguments: &Value) -> Result<(), ArgumentRejection> {
        let too_costly = |why: TooCostly| ArgumentRejection::TooCostly(why.to_string());
        if self.validator.is_valid(arguments).map_err(too_costly)? {
            return Ok(());
        }
        let Ok(errors) = self.validator.errors(arguments) else {
            return Err(ArgumentRejection::Misfits(vec![UNEXPLAINED.to_owned()]));
        };
        let misfits = errors.flat_map(|error| explain::misfits(&error, &self.source));
        Err(ArgumentRejection::Misfits(misfits.take(MISFITS_COUNTED_MAX).collect()))
    }
}

/// The message if collecting the errors would exceed the budget.
const UNEXPLAINED: &str = "they do not fit the schema of the tool, and are too many or too deep to say where";

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;

#[cfg(test)]
mod stuck_schema_tests;
