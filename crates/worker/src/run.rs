//! One job: parse, evaluate, and serialize the result.

use super::run_context::{self, RunContext};
use super::{diagnostic, json};
use portcullis_script::ScriptDiagnostic;
use portcullis_script::message::{JobResult, JobSpec, WorkerMessage};
use serde_json::value::RawValue;
use starlark::environment::{Globals, Module};
use starlark::eval::Evaluator;
use starlark::syntax::{AstModule, Dialect, DialectTypes};
use starlark::values::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Depth of the call stack.
const CALLS_MAX: usize = 100;
/// Nesting depth of brackets. The parser uses native stack for each level, and crashes when it overflows.
const BRACKETS_MAX: usize = 250;
/// How much earlier than the hub the worker ends the script, so that the error has a position.
const EARLY_BY: Duration = Duration::from_millis(50);

const DIALECT: Dialect = Dialect {
    enable_def: true,
    enable_lambda: true,
    enable_load: false,
    enable_keyword_only_arguments: true,
    enable_positional_only_arguments: true,
    enable_types: DialectTypes::ParseOnly,
    enable_load_reexport: false,
    enable_top_level_stmt: true,
    enable_f_strings: true,
    ..Dialect::Standard
};

pub(crate) fn run(globals: &Globals, job: JobSpec) -> JobResult {
    let run = match RunContext::begin(Duration::from_millis(job.timeout_ms)) {
        Ok(run) => run,
        Err(error) => {
            return JobResult { outcome: Err(diagnostic::plain(error.to_string())), printed: String::new() };
        }
    };
    // A panic of the interpreter affects only this script: it is alone in its process.
    let outcome = catch_unwind(AssertUnwindSafe(|| evaluate(globals, &job, &run)));
    let outcome = outcome.unwrap_or_else(|panic| Err(diagnostic::of_panic(&*panic)));
    JobResult { outcome, printed: run.printed() }
}

fn evaluate(globals: &Globals, job: &JobSpec, run: &RunContext) -> Result<Box<RawValue>, ScriptDiagnostic> {
    check_nesting(&job.source)?;
    let fault_of = |error: starlark::Error| {
        let mut fault = diagnostic::of(&error, &job.source, run.refused());
        fault.message = run.handles.named(fault.message);
        fault
    };
    let parsed = AstModule::parse(&job.name, job.source.clone(), &DIALECT).map_err(fault_of)?;
    // If this fails, the hub has exited, and this process exits too.
    let _ = run_context::send(&WorkerMessage::Parsed);
    if job.check_only {
        return Ok(RawValue::NULL.to_owned());
    }
    Module::with_temp_heap(|module| {
        let mut eval = Evaluator::new(&module);
        eval.set_print_handler(run);
        eval.set_check_cancelled(Box::new(|| run.remaining_time() < EARLY_BY));
        for set in [eval.set_max_callstack_size(CALLS_MAX), eval.set_max_heap_size(job.heap_bytes_max)] {
            set.map_err(|error| diagnostic::plain(error.to_string()))?;
        }
        let last = eval.eval_module(parsed, globals).map_err(fault_of)?;
        let value = match callee(&module, job)? {
            Some(function) => {
                let args = arguments(&job.args, module.heap())?;
                eval.eval_function(function, &args, &[]).map_err(fault_of)?
            }
            None => module.get("result").unwrap_or(last),
        };
        let text = json::text_of(value, module.heap());
        let text = text.map_err(|why| diagnostic::plain(format!("the result cannot be returned: {why}")))?;
        RawValue::from_string(run.handles.named(text)).map_err(|error| diagnostic::plain(error.to_string()))
    })
}

/// Returns the function to call, if any.
fn callee<'v>(module: &Module<'v>, job: &JobSpec) -> Result<Option<Value<'v>>, ScriptDiagnostic> {
    let is_function = |value: &Value<'v>| value.get_type() == "function";
    let Some(name) = &job.function else { return Ok(module.get("main").filter(is_function)) };
    match module.get(name) {
        Some(value) if is_function(&value) => Ok(Some(value)),
        Some(_) => Err(diagnostic::plain(format!("`{name}` is not a function"))),
        None => {
            let mut functions: Vec<String> = module
                .names()
                .filter(|name| module.get(name.as_str()).is_some_and(|value| is_function(&value)))
                .map(|name| name.as_str().to_owned())
                .collect();
            functions.sort();
            let available = if functions.is_empty() { "none".to_owned() } else { functions.join(", ") };
            Err(diagnostic::plain(format!("there is no function `{name}`; available: {available}")))
        }
    }
}

fn arguments<'v>(
    args: &RawValue,
    heap: starlark::values::Heap<'v>,
) -> Result<Vec<Value<'v>>, ScriptDiagnostic> {
    let args: Vec<serde_json::Value> =
        serde_json::from_str(args.get()).map_err(|error| diagnostic::plain(format!("`args`: {error}")))?;
    Ok(args.iter().map(|arg| json::value_of(arg, heap)).collect())
}

/// Refuses deep nesting of brackets before parsing. Nesting that this check misses crashes the process.
fn check_nesting(source: &str) -> Result<(), ScriptDiagnostic> {
    let (mut depth, mut line, mut column) = (0_usize, 1, 0);
    for byte in source.bytes() {
        column += 1;
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'\n' => (line, column) = (line + 1, 0),
            _ => {}
        }
        if depth > BRACKETS_MAX {
            let message = format!("brackets are nested more than {BRACKETS_MAX} levels deep");
            return Err(ScriptDiagnostic {
                line: Some(line),
                column: Some(column),
                ..diagnostic::plain(message)
            });
        }
    }
    Ok(())
}
