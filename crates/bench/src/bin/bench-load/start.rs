//! How long it takes until a client that starts the hub has its first list of tools.

use crate::figure::{BenchFigure, median, millis};
use crate::http::list_tools;
use crate::hub::{BenchHub, spawn};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The target.
const START_MS_MAX: f64 = 20.0;
const STARTS: usize = 20;

/// What a client says first, all at once.
const FIRST_LINES: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    "\n",
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#,
    "\n"
);

pub(crate) fn measure(portcullis: &Path) -> Result<Vec<BenchFigure>> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let fresh = |at: usize, kind: &str| folder.path().join(format!("{kind}{at}"));
    let old = folder.path().join("old");
    let token = BenchHub::serve(portcullis, &old, None)?.place.token;
    Ok(vec![
        figure("`portcullis --mcp`, new home", |at| stdio(portcullis, &fresh(at, "stdio")))?,
        figure("`portcullis --mcp`, existing home", |_| stdio(portcullis, &old))?,
        figure("`portcullis serve`, new home", |at| http(portcullis, &fresh(at, "http"), None))?,
        figure("`portcullis serve`, existing home", |_| http(portcullis, &old, Some(&token)))?,
    ])
}

fn figure(what: &str, start: impl Fn(usize) -> Result<f64>) -> Result<BenchFigure> {
    let mut times = (0..STARTS).map(start).collect::<Result<Vec<f64>>>().context(what.to_owned())?;
    let what = format!("start to first `tools/list`: {what}");
    Ok(BenchFigure::at_most(what, median(&mut times), START_MS_MAX, "ms"))
}

fn stdio(portcullis: &Path, home: &Path) -> Result<f64> {
    let mut command = Command::new(portcullis);
    command.arg("--mcp").arg("--home").arg(home).stdin(Stdio::piped());
    let started = Instant::now();
    let (mut process, mut stdout) = spawn(command)?;
    let mut stdin = process.0.stdin.take().context("no standard input")?;
    stdin.write_all(FIRST_LINES.as_bytes())?;
    let mut line = String::new();
    while !line.contains(r#""id":2"#) {
        line.clear();
        if stdout.read_line(&mut line)? == 0 {
            bail!("the process ended before it answered");
        }
    }
    let taken = millis(started.elapsed());
    if !line.contains("workspace_read") {
        bail!("`tools/list` was answered {line}");
    }
    // The end of its input is the end of the process; the next start needs its home.
    drop(stdin);
    process.0.wait()?;
    Ok(taken)
}

fn http(portcullis: &Path, home: &Path, token: Option<&str>) -> Result<f64> {
    let started = Instant::now();
    let hub = BenchHub::serve(portcullis, home, token)?;
    list_tools(&mut hub.place.connect()?, &hub.place)?;
    Ok(millis(started.elapsed()))
}
