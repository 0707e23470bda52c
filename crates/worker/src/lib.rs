//! The worker process: enters the sandbox, runs one script, and exits.

pub mod sandbox;

mod diagnostic;
mod json;
mod modules;
mod run;
mod run_context;
mod secret_handle;

use portcullis_script::frame;
use portcullis_script::message::{HubMessage, WorkerMessage};
use std::ffi::OsString;
use std::io::{self, Read};
use std::process::ExitCode;

/// CPU time limit before the hub sets the limit of the job.
const CPU_SECS_MAX: u64 = 600;

/// Reads one job from standard input, runs it and exits. `arguments` are those after [`portcullis_script::WORD`].
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let memory = arguments.next().and_then(|text| text.to_str()?.parse().ok());
    let Some(memory_bytes_max) = memory else { return ExitCode::from(2) };
    // Built before the job arrives because it is slow, and before the sandbox because it needs more rights.
    let globals = modules::globals();
    let missing = sandbox::enter(memory_bytes_max, CPU_SECS_MAX).0;
    match work(&globals, missing) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Like [`main`], but without the sandbox. Tests use it to show that the interpreter's limits are not enough.
pub fn main_without_sandbox() -> ExitCode {
    match work(&modules::globals(), Vec::new()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn work(globals: &starlark::environment::Globals, missing: Vec<String>) -> io::Result<()> {
    run_context::send(&WorkerMessage::Ready { missing })?;
    let HubMessage::Job(job) = frame::read(&mut io::stdin().lock())? else {
        return Err(io::Error::other("expected a job"));
    };
    let ended = run::run(globals, job);
    run_context::send(&WorkerMessage::Done(ended))?;
    // The hub kills the process. Until then it reads the peak memory from /proc.
    let mut nothing = [0; 1];
    let _ = io::stdin().lock().read(&mut nothing);
    Ok(())
}
