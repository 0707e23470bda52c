//! The real binary as a child process, and what the kernel knows of it.

use crate::http::HubEndpoint;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The file that is read, and how large it is.
pub(crate) const FILE_NAME: &str = "bench.md";
const FILE_BYTES: usize = 4_096;
/// How the kernel counts processor time on every Linux that Rust runs on: `USER_HZ`.
const TICKS_PER_SECOND: u64 = 100;

/// All guards as they are by default, except that no client is told to slow down.
pub(crate) const CONFIG: &str = "[http]\nlisten = \"127.0.0.1:0\"\n\n\
                      [rate_limit]\nrequests_per_second = 1000000\nburst = 1000000\n";

/// Returns text as a note holds it: words and line ends.
pub(crate) fn sample_text() -> String {
    let mut text = String::with_capacity(FILE_BYTES + 80);
    for line in 1.. {
        if text.len() >= FILE_BYTES {
            break;
        }
        // Writing to a string cannot fail.
        let _ = writeln!(text, "- [ ] item {line}: \"water the plants\" before the gate closes at dusk");
    }
    text.truncate(FILE_BYTES);
    text
}

/// Makes a home with the file and the settings that the measurements need.
pub(crate) fn furnish(home: &Path) -> Result<()> {
    let data = home.join("workspace/ai-data");
    std::fs::create_dir_all(&data)?;
    std::fs::write(data.join(FILE_NAME), sample_text())?;
    std::fs::write(home.join("portcullis.toml"), CONFIG)?;
    Ok(())
}

/// How long a process gets to end by itself, and how often it is looked whether it has.
const END_WITHIN: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A child process that ends with this value. It is asked to first: a build that learns from what it does writes down what it
/// learned when it ends by itself.
pub(crate) struct ChildGuard(pub(crate) Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // One that has ended already is what is wanted; its number may be another's by now.
        if !matches!(self.0.try_wait(), Ok(None)) {
            return;
        }
        if let Some(id) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(id, Signal::TERM);
        }
        let asked = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) && asked.elapsed() < END_WITHIN {
            pause();
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "nothing else is to be done meanwhile")]
fn pause() {
    std::thread::sleep(LOOK_EVERY);
}

impl ChildGuard {
    /// Returns the processor time that it used so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        // The name in brackets may hold anything; what follows it is numbers, from the third field on.
        let fields: Vec<&str> =
            stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().collect();
        let ticks: u64 = match fields.get(11..13) {
            Some([user, system]) => user.parse::<u64>()? + system.parse::<u64>()?,
            _ => bail!("/proc has no times of the process"),
        };
        Ok(Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND))
    }

    /// Returns its memory in kilobytes.
    pub(crate) fn rss_kb(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse()?)
    }
}

/// What all processors did since the machine started, in ticks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CpuTicks {
    pub(crate) all: u64,
    pub(crate) idle: u64,
}

impl CpuTicks {
    pub(crate) fn now() -> Result<CpuTicks> {
        let stat = std::fs::read_to_string("/proc/stat")?;
        let words = stat.lines().next().unwrap_or_default().split_ascii_whitespace().skip(1);
        // user, nice, system, idle, iowait, irq, softirq, steal; the rest is part of these.
        let ticks = words.take(8).map(str::parse).collect::<Result<Vec<u64>, _>>()?;
        let idle = ticks.get(3..5).context("/proc has no times of the processors")?.iter().sum();
        Ok(CpuTicks { all: ticks.iter().sum(), idle })
    }
}

/// A hub that serves HTTP.
pub(crate) struct BenchHub {
    pub(crate) process: ChildGuard,
    pub(crate) place: HubEndpoint,
    /// Held open, so that the hub always has someone to print to.
    pub(crate) stdout: BufReader<ChildStdout>,
}

impl BenchHub {
    /// Starts `portcullis serve` and returns when it says where it is. A home that was used before needs the token.
    pub(crate) fn serve(portcullis: &Path, home: &Path, token: Option<&str>) -> Result<BenchHub> {
        let mut command = Command::new(portcullis);
        command.args(["serve", "--json", "--home"]).arg(home).env("MCP_HTTP_PORT", "0");
        let (process, mut stdout) = spawn(command)?;
        let mut greeting = String::new();
        while !greeting.ends_with("}\n") {
            if stdout.read_line(&mut greeting)? == 0 {
                bail!("the hub ended before it was ready");
            }
        }
        let greeting: serde_json::Value = serde_json::from_str(&greeting)?;
        let url = greeting["url"].as_str().context("no address")?;
        let address = url.trim_start_matches("http://").trim_end_matches("/mcp").parse()?;
        let token = greeting["token"].as_str().or(token).context("no token")?.to_owned();
        Ok(BenchHub { process, place: HubEndpoint { address, token }, stdout })
    }
}

/// Starts a child with its standard output at hand.
pub(crate) fn spawn(mut command: Command) -> Result<(ChildGuard, BufReader<ChildStdout>)> {
    command.env_remove("PORTCULLIS_HOME").env_remove("MCP_TRANSPORT");
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("a process could not start")?;
    let stdout = child.stdout.take();
    let process = ChildGuard(child);
    Ok((process, BufReader::new(stdout.context("no standard output")?)))
}
