//! One file per command.

pub(crate) mod audit;
pub(crate) mod clients;
pub(crate) mod doctor;
pub(crate) mod init;
pub(crate) mod link;
pub(crate) mod selftest;
pub(crate) mod serve;
pub(crate) mod stdio;
pub(crate) mod tools;

use crate::cli::Cli;
use crate::config::{Config, Loaded};
use crate::home::Home;
use crate::print;
use anyhow::{Context, Result};
use clap::CommandFactory;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// How long threads that wait for input may hold up the end of the process.
const END_WITHIN: Duration = Duration::from_millis(200);

fn environment(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

/// Finds or makes the home and reads its configuration.
fn open(home: Option<&Path>) -> Result<(Home, Loaded)> {
    let home = Home::open(Home::locate(home, environment)?)?;
    let loaded = Config::load(home.path(), &environment)?;
    Ok((home, loaded))
}

/// Runs to the end, on a runtime that does not wait for a read of standard input that never returns.
fn block_on<T>(work: impl Future<Output = T>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    let result = runtime.block_on(work);
    runtime.shutdown_timeout(END_WITHIN);
    Ok(result)
}

/// Resolves when the process is told to end.
async fn told_to_end() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

pub(crate) fn completions(shell: clap_complete::Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "portcullis", &mut script);
    print::out(String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}
