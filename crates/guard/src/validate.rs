//! Arguments fit the tool's schema before anyone acts on them.
//!
//! They are read strictly (a key given twice is refused) and once: what is checked here is what the tool gets. All
//! that does not fit is told together, in words that say what would; see `explain`.
//!
//! The schema of another server's tool is a stranger's, and comparing with it may take a while even within its step budget
//! (`core::schema`). What does not plainly fit such a schema is compared on a blocking thread, a few at once for each server.

mod explain;

use crate::beside;
use portcullis_core::json::{folded, printable};
use portcullis_core::schema::{BoundedValidator, TooCostly, plainly_fits};
use portcullis_core::{
    ArgumentCheck, Arguments, BoxFuture, Call, Layer, Limit, Next, Outcome, Target, TaskAsk, ToolDef,
    ToolError, Unchecked,
};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// How many misfits are told. A model mends these and sees the rest in the next round.
const MISFITS_SHOWN_MAX: usize = 8;
/// How many misfits are counted. An array of a million wrong items is not worth a million texts.
const MISFITS_COUNTED_MAX: usize = 100;
/// How long one message is at most.
const MESSAGE_BYTES_MAX: usize = 2_000;
/// How many calls of one server's tools are compared with their schemas at once. The others wait for their turn.
const AT_ONCE_PER_SERVER: usize = 2;

/// The layer.
#[derive(Default)]
pub(crate) struct Validate {
    /// By server, who may compare. A place is held until the comparison has ended, whether or not anybody still waits for it.
    turns: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Layer for Validate {
    fn call<'a>(&'a self, call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        match check(&call) {
            Ok(Checked::Fits) => next.run(call),
            Ok(Checked::NotPlainly(tool, server)) => {
                let (turns, arguments) = (self.turns_of(&server), call.arguments.clone());
                // Not on a worker that answers others. The deadline of the call holds while it waits (`contain`).
                Box::pin(async move {
                    let turn = turns.acquire_owned().await;
                    let turn = turn.map_err(|closed| ToolError::internal(closed.to_string()))?;
                    let compared = tokio::task::spawn_blocking(move || {
                        let _turn = turn;
                        compare(&tool, arguments.value().map_err(|reason| invalid(&[reason.to_owned()]))?)
                    });
                    compared.await.map_err(|panicked| ToolError::internal(panicked.to_string()))??;
                    next.run(call).await
                })
            }
            Err(error) => Box::pin(async move { Err(error) }),
        }
    }
}

impl Validate {
    fn turns_of(&self, server: &str) -> Arc<Semaphore> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_server) = turns.get(server) {
            return of_server.clone();
        }
        let of_server = Arc::new(Semaphore::new(AT_ONCE_PER_SERVER));
        turns.insert(server.to_owned(), of_server.clone());
        of_server
    }
}

/// What a look at the arguments has shown.
enum Checked {
    Fits,
    /// They have to be compared with the schema of this server's tool.
    NotPlainly(Arc<ToolDef>, String),
}

fn check(call: &Call) -> Result<Checked, ToolError> {
    let readable = || match call.arguments.value() {
        Ok(_) => Ok(Checked::Fits),
        Err(reason) => Err(invalid(&[reason.to_owned()])),
    };
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
        _ => match (fits_plainly(tool, &call.arguments)?, &tool.server) {
            (Ok(()), _) => Ok(Checked::Fits),
            (Err(_), Some(server)) => Ok(Checked::NotPlainly(tool.clone(), server.clone())),
            (Err(arguments), None) => compare(tool, arguments).map(|()| Checked::Fits),
        },
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
    match fits_plainly(tool, arguments)? {
        Ok(()) => Ok(()),
        Err(arguments) => compare(tool, arguments),
    }
}

/// Refuses what no schema is needed for to refuse it. Returns the arguments where they do not plainly fit.
fn fits_plainly<'a>(tool: &ToolDef, arguments: &'a Arguments) -> Result<Result<(), &'a Value>, ToolError> {
    if let Some(too_long) = arguments.too_long() {
        return Err(too_large("the text of the arguments", too_long.bytes, too_long.bytes_max));
    }
    let arguments = arguments.value().map_err(|reason| invalid(&[reason.to_owned()]))?;
    if tool.server.is_some() {
        told_apart(tool, arguments)?;
    }
    Ok(if plainly_fits(&tool.input_schema, arguments) { Ok(()) } else { Err(arguments) })
}

/// Compares arguments with the schema of their tool, which is made ready for that at the first use.
fn compare(tool: &ToolDef, arguments: &Value) -> Result<(), ToolError> {
    let check = tool.check_with(compile).map_err(|reason| {
        ToolError::unavailable(format!("the schema of tool `{}` cannot be understood", tool.name))
            .hint("an administrator can report this to whoever offers the tool")
            .caused_by(reason.to_owned())
    })?;
    check.check(arguments).map_err(|unchecked| match unchecked {
        Unchecked::Misfits(misfits) => invalid(&misfits),
        Unchecked::TooCostly(why) => {
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

/// Refuses an argument that another server could take for one that is declared: that one was checked, and not this.
fn told_apart(tool: &ToolDef, arguments: &Value) -> Result<(), ToolError> {
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
    validator: BoundedValidator,
    source: Value,
}

fn compile(schema: &Value) -> Result<Box<dyn ArgumentCheck>, String> {
    let validator = portcullis_core::schema::compile(schema)?;
    Ok(Box::new(Schema { validator, source: schema.clone() }))
}

impl ArgumentCheck for Schema {
    fn check(&self, arguments: &Value) -> Result<(), Unchecked> {
        let too_costly = |why: TooCostly| Unchecked::TooCostly(why.to_string());
        if self.validator.is_valid(arguments).map_err(too_costly)? {
            return Ok(());
        }
        let Ok(errors) = self.validator.errors(arguments) else {
            return Err(Unchecked::Misfits(vec![UNEXPLAINED.to_owned()]));
        };
        let misfits = errors.flat_map(|error| explain::misfits(&error, &self.source));
        Err(Unchecked::Misfits(misfits.take(MISFITS_COUNTED_MAX).collect()))
    }
}

/// What is told where finding out more would be too much work.
const UNEXPLAINED: &str = "they do not fit the schema of the tool, and are too many or too deep to say where";

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;

#[cfg(test)]
mod stuck_schema_tests;
