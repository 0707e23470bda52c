//! `cargo xtask bench`: measures every figure that the project promises, in one run.
//!
//! `bench-load` measures. This task builds it and the hub as shipped, runs it, and writes the table to
//! `docs/benchmarks.md`. It is never part of a test: a busy machine is not a regression.

mod peers;

use crate::dist;
use crate::layout::Layout;
use crate::python;
use anyhow::{Context, Result, bail};
use std::fmt::Write;
use std::process::{Command, Stdio};

const REPORT: &str = "docs/benchmarks.md";
const HEADINGS: [&str; 4] = ["Figure", "Measured", "Target", "Verdict"];

const INTRODUCTION: &str = "\
<!-- Written by `cargo xtask bench`; run it again instead of editing. -->

# Benchmarks

```sh
cargo xtask bench
```

It needs Linux and about five minutes, and ripgrep for one comparison. It first builds the shipped binary (`cargo xtask dist`: half an
hour whenever the code has changed): all crates as one codegen unit, with a profile of this load (PGO). The bare servers for comparison
are built in the same way, with the same profile; other projects' programs come from their registries. Other work on the machine shows
in the wall times, and in the share of the echo too: on a shared machine with two cores one build was measured between 39 % and 53 %.
Read that figure from several runs, together with the CPU per call, which varies less. `bench-load compare OLD NEW` loads two builds
alternately, to show whether a change helped.

How each figure is measured:

- **Guards**: `workspace_read` of a 4 KB file through `portcullis_guard::stack` and through a gate without layers, in one process;
  batches of 2,000 calls alternate, and the median of the differences is shown.
- **Over HTTP**: the shipped binary with all checks on and only the rate limit raised, one client token, 16 calls in flight on 16
  keep-alive connections, in both eras of the protocol (with a session, and stateless). The echo is a bare axum server that parses the
  JSON of a request and sends it back; its requests are the hub's responses, so both write the same bytes. It is a separate process with
  the same allocator and as many threads. Hub and echo alternate in seven rounds of 1.5 s; medians are compared. For comparison there is
  also a bare server that parses the hub's small request and responds with a constant: no server that opens a file can be as fast. The
  load generator is one thread on the same machine. CPU is user and system time of the server's process.
- **Start**: from the start of the process until the response to `tools/list` has been read; median of 20.
- **Database**: one process changes one row, 200 times, each on disk and in force when it returns; the median is shown.
- **`web_fetch`**: the shipped binary and `mcp-server-fetch` from PyPI, both on stdio with the same client, fetch the same pages from a
  site on this machine, alternately, 5 times each; medians are compared. Both texts are searched for what should survive of a page.
  `cargo xtask bench fetch` does only this. It needs Python.
- **Vault**: 10,000 notes of 4 KB with the word frequencies of a natural language. The first figure is from the start of the process to
  the response to the first search. Searches go over HTTP through every check, alternating with `rg -i -l` for the same words in the
  same folder; the median of the ratios is shown. Edits are made by writing the file. Memory is `VmRSS` beyond that of a hub without a
  vault.
- **Upstream servers**: a tiny server echoes a sentence, on stdio or over HTTP. It runs under Node, as most servers do, and does as little
  as possible; `bench-load upstream` without `tiny=` uses one in Rust, whose calls cost less than any proxy adds.
  Compared are the hub, `mcp-proxy` 0.6.0 from crates.io, 6.7.19 from npm and 0.13.0 from PyPI (the latter two only on stdio, which is
  what they are for), and the server alone. The hub has every check on and only the rate limit raised: a token is required, the server's
  definitions are reviewed and pinned, its tools are declared as reads, every call is recorded. The proxies are set up as their
  documentation shows for one server, without middleware, token or audit log, and log warnings only. The one from crates.io is built as
  `cargo install` builds it.
  The same client loads all of them: one session each, of 2025-06-18, 16 keep-alive connections, and then one. Seven rounds of 1 s and
  of 0.5 s; medians are compared, and CPU is that of the proxy, without the tiny server. The added latency is the median at 1 in flight
  minus that of calling the tiny server directly, on its pipes or over HTTP. Every response is checked. The tiny server counts its
  requests. `cargo xtask bench upstream` does only this. It needs Node, npm and Python.
  Load, hub and server share the machine, and each row shows the CPU utilization. At full utilization, calls per second measure the work
  of all three together. For an HTTP server the hub adds a second TCP exchange, so on two processors it comes close to the server alone
  only if the server has more work per call than hub and load together. The server's own work per call, alone and behind the hub, shows
  how close it comes if each has its own processor.
- **Memory**: `VmRSS` after 2 s of idling; each session has its own connection with an open event stream.
";

pub(crate) fn run(args: &[String]) -> Result<()> {
    let layout = Layout::find()?;
    match args {
        [] => all(&layout),
        [part] if part == "fetch" => {
            dist::build(&layout)?;
            let measured = fetch(&layout)?;
            let rows = rows(&measured);
            println!("{}\n{}", machine(), table(&rows));
            judge(&rows)
        }
        [part] if part == "upstream" => {
            let peers = peers::install(&layout)?;
            dist::build(&layout)?;
            let measured = upstream(&layout, &peers)?;
            let rows = rows(&measured);
            println!("{}\n{}", machine(), table(&rows));
            judge(&rows)
        }
        [other, ..] => bail!("`bench` takes nothing, `fetch` or `upstream`, `{other}` was given"),
    }
}

fn all(layout: &Layout) -> Result<()> {
    let peers = peers::install(layout)?;
    dist::build(layout)?;
    let mut bench = layout.command(layout.shipped("bench-load"));
    bench.arg("run").arg(layout.shipped("portcullis"));
    let mut measured = figures(&mut bench).context("bench-load")?;
    measured += &upstream(layout, &peers)?;
    measured += &fetch(layout)?;
    let rows = rows(&measured);
    let table = table(&rows);
    let machine = machine();
    println!("{machine}\n{table}");
    let report = format!("{INTRODUCTION}\n## The last run\n\n{machine}\n{table}");
    std::fs::write(layout.root.join(REPORT), report).with_context(|| format!("cannot write {REPORT}"))?;
    judge(&rows)
}

/// Measures calls to an upstream server through the hub, and through other proxies.
fn upstream(layout: &Layout, peers: &[String]) -> Result<String> {
    let mut bench = layout.command(layout.shipped("bench-load"));
    bench.arg("upstream").arg(layout.shipped("portcullis")).args(peers);
    figures(&mut bench).context("calls to another server")
}

/// Compares `web_fetch` with the reference server, a Python package.
fn fetch(layout: &Layout) -> Result<String> {
    let python = python::install(layout, "fetch")?;
    let mut bench = layout.command(python);
    bench.arg("tests/clients/python/fetch_bench.py").arg(layout.shipped("portcullis"));
    figures(&mut bench).context("the comparison with mcp-server-fetch")
}

/// Runs a program that prints figures.
fn figures(program: &mut Command) -> Result<String> {
    let measured = program.stderr(Stdio::inherit()).output().context("it did not start")?;
    if !measured.status.success() {
        bail!("it failed");
    }
    Ok(String::from_utf8(measured.stdout)?)
}

fn rows(measured: &str) -> Vec<Vec<&str>> {
    measured.lines().map(|line| line.split('\t').collect()).collect()
}

fn judge(rows: &[Vec<&str>]) -> Result<()> {
    match rows.iter().filter(|row| row.get(3) == Some(&"FAIL")).count() {
        0 => Ok(()),
        failed => bail!("{failed} targets were missed"),
    }
}

/// Returns a Markdown table with aligned columns.
fn table(rows: &[Vec<&str>]) -> String {
    let cell = |row: &[&str], column: usize| row.get(column).copied().unwrap_or_default().to_owned();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| cell(row, column).chars().count());
        cells.chain([HEADINGS[column].len()]).max().unwrap_or_default()
    };
    let widths: [usize; 4] = std::array::from_fn(width);
    let mut text = String::new();
    let mut line = |cells: [String; 4]| {
        for (cell, width) in cells.iter().zip(widths) {
            // Writing to a string cannot fail.
            let _ = write!(text, "| {cell:<width$} ");
        }
        text.push_str("|\n");
    };
    line(HEADINGS.map(str::to_owned));
    line(widths.map(|width| "-".repeat(width)));
    for row in rows {
        line(std::array::from_fn(|column| cell(row, column)));
    }
    text
}

/// Returns the machine and toolchain that the figures depend on, as a Markdown list.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let models: Vec<&str> = cpus
        .lines()
        .filter(|line| line.starts_with("model name"))
        .filter_map(|line| line.split_once(": ").map(|(_, model)| model))
        .collect();
    let model = models.first().copied().unwrap_or("unknown processor");
    let load = read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" ");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let rustc = Command::new(rustc).arg("--version").output().map(|output| output.stdout);
    let rustc = String::from_utf8_lossy(&rustc.unwrap_or_default()).trim().to_owned();
    format!(
        "- {} × {model}\n- Linux {}\n- {rustc}, built by `cargo xtask dist`\n- load average after the run {load}\n",
        models.len().max(1),
        read("/proc/sys/kernel/osrelease").trim(),
    )
}
