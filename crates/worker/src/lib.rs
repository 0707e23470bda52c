//! The process in which a script runs: one job, after everything else was given up.

pub mod sandbox;

mod fault;
mod hub;
mod json;
mod modules;
mod run;
mod secret;

use portcullis_script::frame;
use portcullis_script::message::{FromWorker, ToWorker};
use std::ffi::OsString;
use std::io::{self, Read};
use std::process::ExitCode;

/// How long a worker may compute before the hub sets a limit for its job.
const CPU_SECS_MAX: u64 = 600;

/// Runs one job that comes over standard input and ends. `arguments` are those after [`portcullis_script::WORD`].
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let memory = arguments.next().and_then(|text| text.to_str()?.parse().ok());
    let Some(memory_bytes_max) = memory else { return ExitCode::from(2) };
    // What takes long to make is made before the job comes; some of it needs rights that are given up next.
    let globals = modules::globals();
    let missing = sandbox::enter(memory_bytes_max, CPU_SECS_MAX).0;
    match work(&globals, missing) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// As [`main`], but with the language's own limits only. To show in tests that those are not enough.
pub fn main_without_sandbox() -> ExitCode {
    match work(&modules::globals(), Vec::new()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn work(globals: &starlark::environment::Globals, missing: Vec<String>) -> io::Result<()> {
    hub::say(&FromWorker::Ready { missing })?;
    let ToWorker::Job(job) = frame::read(&mut io::stdin().lock())? else {
        return Err(io::Error::other("an answer to nothing"));
    };
    let ended = run::run(globals, job);
    hub::say(&FromWorker::Done(ended))?;
    // The hub ends it. Until then it can be seen how much memory it took.
    let mut nothing = [0; 1];
    let _ = io::stdin().lock().read(&mut nothing);
    Ok(())
}
