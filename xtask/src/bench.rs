//! `cargo xtask bench`: every figure that the project promises, measured in one run.
//!
//! The measuring is `bench-load`'s job (`crates/testkit`). This builds it and the hub as they are shipped, runs it,
//! and writes the table to `docs/benchmarks.md`. Never part of a test: a busy machine is no fault of a change.

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

It needs Linux and about five minutes, wants ripgrep for one comparison, and builds first, as what is shipped is built
(`cargo xtask dist`: half an hour whenever the code has changed): all crates as one unit, and laid out by what a build before it
counted under this load. The bare servers that the hub is compared with are built in the same way, with the same counts;
other people's programs are as their registries give them. A machine that does other work at the same time shows it in the wall times, and in the share of the echo too: on a shared machine with two cores one build was measured
between 39 % and 53 %. Read that figure from several runs, together with the CPU per call, which moves less.
`bench-load compare OLD NEW` loads two builds by turns, to tell whether a change helped.

How each figure is taken:

- **Guards**: `workspace_read` of a 4 KB file through `portcullis_guard::stack` and through a gate without layers,
  in one process; batches of 2,000 calls take turns, and the median of the differences is shown.
- **Over HTTP**: the shipped binary with all guards on and only the rate limit raised, one client token, 16 calls in
  flight on 16 kept connections, in both eras of the protocol (with a session, and with everything in each request).
  The echo is a bare axum server that parses the JSON it is sent and sends it back; it is sent what the hub answers, so
  both write the same bytes. It is a process of its own with the same allocator and as many threads. Hub and echo take
  seven turns of 1.5 s; medians are compared. For comparison there is also a bare server that parses the hub's small
  request and answers with text it has at hand: no server that opens a file can be as fast.
  The load generator is one thread on the same machine. CPU is user and system time of the server's process.
- **Start**: from the start of the process until the answer to `tools/list` has been read; median of 20.
- **`web_fetch`**: the shipped binary and `mcp-server-fetch` from PyPI, both on stdio and spoken to in the same way, fetch the
  same pages from a site on this machine, by turns, 5 times each; medians are compared. What should survive of a page is
  looked for in both texts. `cargo xtask bench fetch` does only this. It needs Python.
- **Vault**: 10,000 notes of 4 KB with words as often as in a language. The first figure is from the start of the process to
  the answer to the first search. Searches go over HTTP through every guard, by turns with `rg -i -l` for the same words in the same
  folder; the median of the quotients is shown. Edits are made by writing the file. The memory is `VmRSS` beyond that of a hub
  without a vault.
- **Other servers**: a tiny server echoes a sentence; it is started on stdio, or reached over HTTP. It runs under Node, as most
  servers do, and does as little there as can be done; `bench-load upstream` without `tiny=` has one in Rust, whose calls
  cost less than the way through anything that stands in between.
  Before it stand by turns the hub, `mcp-proxy` 0.6.0 from crates.io, 6.7.19 from npm and 0.13.0 from PyPI (these two only on
  stdio, which is what they are for), and nobody. The hub has every guard on but the rate limit raised: a token is asked for, the
  server's definitions were looked at and are pinned, its tools are declared to read, every call is recorded. The others are set up
  as their documentation shows it for one server, with no middleware, no token and no record, and with their logs
  turned down to warnings. The one from crates.io is built as `cargo install` builds it.
  The same client loads all of them: one session each, of 2025-06-18, 16 kept connections, and then one. Seven turns of
  1 s and of 0.5 s; medians are compared, and CPU is that of whoever stands between, without the tiny server. The latency that somebody adds is
  the median at 1 in flight less that of calling the tiny server directly, on its pipes or over HTTP. Every answer is
  looked at. The tiny server counts what it is asked. `cargo xtask bench upstream` does only this. It needs Node, npm and Python.
  Load, hub and server share the machine, and each row says how busy its processors were. Where that is all of them, calls per
  second tell how much work all three have together. Before a server on HTTP the hub takes part in two exchanges over TCP where the
  server alone has one, so on two processors it comes close to the server alone only where the server has more work per call than hub
  and load together. What the server itself works for a call, alone and behind the hub, says how close it comes where each has a
  processor of its own.
- **Memory**: `VmRSS` after 2 s of rest; each session has its own connection with an open event stream.
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

/// Calls another server through the hub, and through others of its kind.
fn upstream(layout: &Layout, peers: &[String]) -> Result<String> {
    let mut bench = layout.command(layout.shipped("bench-load"));
    bench.arg("upstream").arg(layout.shipped("portcullis")).args(peers);
    figures(&mut bench).context("calls to another server")
}

/// Compares `web_fetch` with the reference server, which is a package for Python.
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

/// Returns a Markdown table that is also readable as it is.
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

/// Returns what the figures depend on, as a Markdown list.
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
