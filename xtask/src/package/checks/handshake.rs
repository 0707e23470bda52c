//! A short MCP conversation over stdio, and the signals that end a hub.

use crate::run::{self, BackgroundProcess, StopMethod};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::io::BufRead;
use std::path::Path;
use std::process::Command;

const REQUESTS: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"packages","version":"1"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    "\n",
);
const LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;

/// Shakes hands, lists the tools and closes stdin; the program must end by itself, with success.
pub(super) fn converse(command: &mut Command, log: &Path) -> Result<()> {
    let responses = converse_with(command, log, &[LIST])?;
    match responses.first().and_then(|response| response.pointer("/result/tools")?.as_array()) {
        Some(tools) if !tools.is_empty() => Ok(()),
        _ => bail!("the hub lists no tools"),
    }
}

/// As [`converse`], with these requests, one at a time after the other. Returns the responses without the first.
pub(super) fn converse_with(command: &mut Command, log: &Path, requests: &[&str]) -> Result<Vec<Value>> {
    let mut process = BackgroundProcess::start(command, log)?;
    process.send(REQUESTS)?;
    for request in requests {
        process.send(&format!("{request}\n"))?;
    }
    let expected = requests.len() + 1;
    let responses = process.greeting(move |stdout| {
        let mut responses = Vec::new();
        let mut line = String::new();
        while responses.len() < expected {
            line.clear();
            if stdout.read_line(&mut line)? == 0 {
                bail!("the program ended after {} of {expected} responses", responses.len());
            }
            let message: Value = serde_json::from_str(&line).context("stdout has something else than MCP")?;
            if message.get("id").is_some() {
                responses.push(message);
            }
        }
        Ok(responses)
    });
    let mut responses = responses.with_context(|| format!("see {}", log.display()))?;
    // Responses come in the order in which the calls end.
    responses.sort_by_key(|response| response.pointer("/id").and_then(Value::as_u64));
    for response in &responses {
        if response.get("error").is_some() {
            bail!("an error instead of a response: {response}");
        }
    }
    let name = responses.first().and_then(|response| response.pointer("/result/serverInfo/name"));
    if name.and_then(Value::as_str) != Some("portcullis") {
        bail!("the server calls itself {name:?}");
    }
    let ended = process.end(StopMethod::ByStdin)?;
    if !ended.passed() {
        bail!("after stdin was closed: {ended}; see {}", log.display());
    }
    responses.remove(0);
    Ok(responses)
}

/// Serves HTTP, and asks the process that was started to end. It must end with success, and so must all it started.
pub(super) fn ends_on_sigterm(command: &mut Command, log: &Path) -> Result<()> {
    let mut process = BackgroundProcess::start(command, log)?;
    let greeting = process.greeting(|stdout| {
        let mut values = serde_json::Deserializer::from_reader(stdout).into_iter::<Value>();
        Ok(values.next().context("the hub ended at once")??)
    });
    greeting.with_context(|| format!("see {}", log.display()))?;
    let started = process.descendants();
    let ended = process.end(StopMethod::BySignal)?;
    let left: Vec<u32> = started.into_iter().filter(|id| run::is_running(*id)).collect();
    if !ended.passed() || !left.is_empty() {
        bail!("after SIGTERM: {ended}; still running: {left:?}");
    }
    Ok(())
}
