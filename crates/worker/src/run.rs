//! One job: parse, evaluate, and the value that comes of it.

use super::hub::{self, Run};
use super::{fault, json};
use portcullis_script::Fault;
use portcullis_script::message::{Ended, FromWorker, Work};
use serde_json::value::RawValue;
use starlark::environment::{Globals, Module};
use starlark::eval::Evaluator;
use starlark::syntax::{AstModule, Dialect, DialectTypes};
use starlark::values::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// How many calls may be in one another.
const CALLS_MAX: usize = 100;
/// How deep brackets may nest. The parser needs native stack for each, and dies where there is none left.
const BRACKETS_MAX: usize = 250;
/// How much earlier than the hub the script is told that its time is up: its message says where it was.
const EARLY: Duration = Duration::from_millis(50);

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

pub(crate) fn run(globals: &Globals, work: Work) -> Ended {
    let run = match Run::begin(Duration::from_millis(work.timeout_ms)) {
        Ok(run) => run,
        Err(error) => return Ended { outcome: Err(fault::plain(error.to_string())), printed: String::new() },
    };
    // A panic in the evaluator is this script's trouble; nothing else is in this process.
    let outcome = catch_unwind(AssertUnwindSafe(|| evaluate(globals, &work, &run)));
    let outcome = outcome.unwrap_or_else(|panic| Err(fault::of_panic(&*panic)));
    Ended { outcome, printed: run.printed() }
}

fn evaluate(globals: &Globals, work: &Work, run: &Run) -> Result<Box<RawValue>, Fault> {
    check_nesting(&work.source)?;
    let told = |error: starlark::Error| {
        let mut fault = fault::of(&error, &work.source, run.refused());
        fault.message = run.handles.named(fault.message);
        fault
    };
    let parsed = AstModule::parse(&work.name, work.source.clone(), &DIALECT).map_err(told)?;
    // If the hub does not hear it, it has gone, and this process goes with it.
    let _ = hub::say(&FromWorker::Parsed);
    if work.check_only {
        return Ok(RawValue::NULL.to_owned());
    }
    Module::with_temp_heap(|module| {
        let mut eval = Evaluator::new(&module);
        eval.set_print_handler(run);
        eval.set_check_cancelled(Box::new(|| run.left() < EARLY));
        for set in [eval.set_max_callstack_size(CALLS_MAX), eval.set_max_heap_size(work.heap_bytes_max)] {
            set.map_err(|error| fault::plain(error.to_string()))?;
        }
        let last = eval.eval_module(parsed, globals).map_err(told)?;
        let value = match callee(&module, work)? {
            Some(function) => {
                let args = arguments(&work.args, module.heap())?;
                eval.eval_function(function, &args, &[]).map_err(told)?
            }
            None => module.get("result").unwrap_or(last),
        };
        let text = json::text_of(value, module.heap());
        let text = text.map_err(|why| fault::plain(format!("the result cannot be returned: {why}")))?;
        RawValue::from_string(run.handles.named(text)).map_err(|error| fault::plain(error.to_string()))
    })
}

/// Returns the function to call, if one is.
fn callee<'v>(module: &Module<'v>, work: &Work) -> Result<Option<Value<'v>>, Fault> {
    let is_function = |value: &Value<'v>| value.get_type() == "function";
    let Some(name) = &work.function else { return Ok(module.get("main").filter(is_function)) };
    match module.get(name) {
        Some(value) if is_function(&value) => Ok(Some(value)),
        Some(_) => Err(fault::plain(format!("`{name}` is not a function"))),
        None => {
            let mut functions: Vec<String> = module
                .names()
                .filter(|name| module.get(name.as_str()).is_some_and(|value| is_function(&value)))
                .map(|name| name.as_str().to_owned())
                .collect();
            functions.sort();
            let there = if functions.is_empty() { "none".to_owned() } else { functions.join(", ") };
            Err(fault::plain(format!("there is no function `{name}`; there are: {there}")))
        }
    }
}

fn arguments<'v>(args: &RawValue, heap: starlark::values::Heap<'v>) -> Result<Vec<Value<'v>>, Fault> {
    let args: Vec<serde_json::Value> =
        serde_json::from_str(args.get()).map_err(|error| fault::plain(format!("`args`: {error}")))?;
    Ok(args.iter().map(|arg| json::value_of(arg, heap)).collect())
}

/// Refuses what nests too deeply, as far as that can be seen without parsing. What cannot be seen ends the process.
fn check_nesting(source: &str) -> Result<(), Fault> {
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
            return Err(Fault { line: Some(line), column: Some(column), ..fault::plain(message) });
        }
    }
    Ok(())
}
