//! Other servers that misbehave behind the real program, while one that does not is called.
//!
//! What the others do must cost the good one nothing, the hub no memory, and the caller no more time than was agreed.

mod many_servers;
mod sequential_client;

pub use many_servers::{ManyServersFigures, many};

use super::session::TortureHome;
use anyhow::{Context, Result, bail};
use portcullis_testkit::misbehaving_server::{
    MisbehavingReply, MisbehavingServer, RecordedRequest as Request,
};
use rustix::process::{Pid, Signal, kill_process};
use sequential_client::SequentialClient;
use serde_json::{Value, json};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

/// What a call to one of them may take.
pub const TIMEOUT: Duration = Duration::from_millis(1_000);
/// How long the good server is called with and without a fault.
const WINDOW: Duration = Duration::from_millis(1_000);
/// How many calls hang at once.
const HANGING: usize = 16;
/// How long a call needs at most to reach its server, so that it is under way when that crashes. One that comes later waits
/// until the server is back, and then has its time.
const UNDER_WAY_AFTER: Duration = Duration::from_millis(100);
/// How long anything else may take before the run is given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a connection has to last to be a good one; only then the next attempt comes soon.
const GOOD_AFTER: Duration = Duration::from_secs(11);
/// How long what the hub has started may run on after it.
const GONE_WITHIN: Duration = Duration::from_secs(3);
/// How long the hub is left alone before its memory is looked at. It gives back what it does not need after some seconds.
const SETTLE: Duration = Duration::from_secs(8);
/// Their tools only read. A call that may change something goes to its server when the disk has the record of it; that wait
/// is the disk's, not the same from one second to the next, and no server's.
const READS: &str = "effects = { \"*\" = \"read\" }\n";
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A program that serves [`portcullis_testkit::faulty_server`] or [`crate::changeable_server`] on its standard streams.
#[derive(Debug, Clone)]
pub struct ServerProgram {
    pub path: PathBuf,
    pub args: Vec<String>,
}

impl ServerProgram {
    fn section(&self, name: &str, more: &str) -> String {
        let ServerProgram { path, args } = self;
        format!("[mcp.{name}]\ncommand = {path:?}\nargs = {args:?}\ntrust = \"always\"\n{more}\n")
    }
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerFault {
    /// It is only called. What that costs the good one on two processors is no fault.
    Nothing,
    Crash,
    Hang,
    Garbage,
    LongLine,
    ReusedIds,
    HalfOpen,
    Storm,
}

impl ServerFault {
    pub const ALL: [ServerFault; 8] = [
        ServerFault::Nothing,
        ServerFault::Crash,
        ServerFault::Hang,
        ServerFault::Garbage,
        ServerFault::LongLine,
        ServerFault::ReusedIds,
        ServerFault::HalfOpen,
        ServerFault::Storm,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            ServerFault::Nothing => "it does all that it should",
            ServerFault::Crash => "it crashes",
            ServerFault::Hang => "it does not respond",
            ServerFault::Garbage => "it says what is no message",
            ServerFault::LongLine => "it sends a line of 1 GB",
            ServerFault::ReusedIds => "it answers twice, and what the hub did not ask",
            ServerFault::HalfOpen => "its sockets go silent half way",
            ServerFault::Storm => "it says 1,000 times a second that its list changed",
        }
    }

    /// Returns the calls that make it happen, each repeated so long as the window lasts.
    fn calls(self) -> Vec<(&'static str, Value)> {
        match self {
            ServerFault::Nothing => vec![("bad_echo", json!({ "text": "hello" }))],
            ServerFault::Crash => vec![("bad_hang", json!({})), ("bad_crash", json!({}))],
            ServerFault::Hang => vec![("bad_hang", json!({})); HANGING],
            ServerFault::Garbage => vec![("bad_garbage", json!({ "lines": 1_000 }))],
            ServerFault::LongLine => vec![("bad_huge", json!({ "megabytes": 1_024 }))],
            ServerFault::ReusedIds => vec![("bad_reuse", json!({}))],
            ServerFault::HalfOpen => vec![("half_echo", json!({})); HANGING],
            ServerFault::Storm => vec![("bad_storm", json!({ "times": 1_000 }))],
        }
    }

    /// How often at most a call is repeated within a window.
    fn repeats(self) -> usize {
        match self {
            ServerFault::Crash
            | ServerFault::Hang
            | ServerFault::LongLine
            | ServerFault::HalfOpen
            | ServerFault::Storm => 1,
            ServerFault::Nothing | ServerFault::Garbage | ServerFault::ReusedIds => 20,
        }
    }
}

/// What was seen of one fault.
#[derive(Debug, Default, Clone)]
pub struct FaultImpact {
    /// The 99th percentile of the good server's calls with the fault, over that without, one per round.
    pub p99: Vec<f64>,
    /// How much longer than agreed the longest call took.
    pub late: Duration,
}

/// What was seen.
#[derive(Debug, Default)]
pub struct ServerFaultFigures {
    pub beside: Vec<(ServerFault, FaultImpact)>,
    /// From the end of a server until it answered again.
    pub reconnected: Vec<Duration>,
    /// Before anything went wrong, after everything went wrong once, and at the end.
    pub memory_fresh_kb: u64,
    pub memory_before_kb: u64,
    pub memory_after_kb: u64,
    pub started: usize,
    /// What the hub had started and what ran after it had ended.
    pub left: usize,
}

/// Which server is called while the others misbehave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CalledServer {
    AnotherOne,
    /// The one that misbehaves itself: for this nothing can hold.
    TheSame,
}

/// Runs every fault `rounds` times.
pub fn run(
    program: &Path,
    fault: &ServerProgram,
    rounds: u64,
    faults: &[ServerFault],
    called: CalledServer,
) -> Result<ServerFaultFigures> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let half = runtime.block_on(MisbehavingServer::open(half_open))?;
    let lab = TortureHome::new(program)?;
    let agreed = format!("timeout_ms = {}\n{READS}", TIMEOUT.as_millis());
    let half = format!("[mcp.half]\nurl = {:?}\ntrust = \"always\"\n{agreed}", half.url());
    let sections = [
        portcullis_testkit::process::UNHURRIED.to_owned(),
        fault.section("good", &agreed),
        fault.section("bad", &agreed),
        half,
    ];
    std::fs::write(lab.home().join("portcullis.toml"), sections.join("\n"))?;
    let hub = TortureHub::start(&lab)?;
    let tool = match called {
        CalledServer::AnotherOne => "good_echo",
        CalledServer::TheSame => "bad_echo",
    };
    let mut good = hub.caller()?;
    for tool in ["good_echo", "bad_echo", "half_echo"] {
        until(&format!("`{tool}` answers"), || Ok(good.lists(tool)?.then_some(())))?;
    }
    // Each is called once before anything counts.
    window(&mut good, tool)?;
    let mut seen = ServerFaultFigures { memory_fresh_kb: settled(&hub)?, ..ServerFaultFigures::default() };
    seen.beside = faults.iter().map(|fault| (*fault, FaultImpact::default())).collect();
    for round in 0..=rounds {
        // After one round that does not count either: code that runs for the first time is read from the disk, and stays.
        if round == 1 {
            seen.memory_before_kb = settled(&hub)?;
            seen.beside.iter_mut().for_each(|(_, beside)| *beside = FaultImpact::default());
            seen.reconnected.clear();
        }
        for (fault, beside) in &mut seen.beside {
            if *fault == ServerFault::Crash {
                pause(GOOD_AFTER);
            }
            let before = window(&mut good, tool)?;
            let with = disturbed(&hub, *fault, &mut good, tool)?;
            until("the server that misbehaved answers again", || Ok(good.echoes("bad_echo")?.then_some(())))?;
            // Between two that nothing disturbs: a machine on which others work too is not the same from second to second.
            let without = f64::midpoint(before, window(&mut good, tool)?);
            beside.p99.push(with.p99 / without);
            beside.late = beside.late.max(with.late);
            seen.reconnected.extend(with.reconnected);
        }
    }
    seen.memory_after_kb = settled(&hub)?;
    let started = hub.descendants();
    seen.started = started.len();
    hub.end()?;
    let began = Instant::now();
    while started.iter().any(|id| is_running(*id)) && began.elapsed() < GONE_WITHIN {
        pause(LOOK_EVERY);
    }
    seen.left = started.into_iter().filter(|id| is_running(*id)).count();
    Ok(seen)
}

/// A server over HTTP that says hello and lists, but whose answer to a call never comes to its end.
fn half_open(request: &Request) -> MisbehavingReply {
    match request.asks() {
        "tools/call" => {
            MisbehavingReply::Hangs(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n".to_vec())
        }
        _ => request.usual(),
    }
}

/// Calls a tool for one window, and returns the 99th percentile in seconds.
fn window(caller: &mut SequentialClient, tool: &str) -> Result<f64> {
    let (began, mut took) = (Instant::now(), Vec::new());
    while began.elapsed() < WINDOW {
        let started = Instant::now();
        if !caller.echoes(tool)? && tool == "good_echo" {
            bail!("`{tool}` did not answer as it should");
        }
        took.push(started.elapsed());
    }
    took.sort_unstable();
    let at = took.len() * 99 / 100;
    Ok(took.get(at).or(took.last()).context("no call")?.as_secs_f64())
}

/// What a window was like in which something went wrong elsewhere.
#[derive(Default)]
struct DisturbedWindow {
    p99: f64,
    /// How much longer than agreed a call took there.
    late: Duration,
    /// From the end of a server until it answered again.
    reconnected: Option<Duration>,
}

fn disturbed(
    hub: &TortureHub,
    fault: ServerFault,
    good: &mut SequentialClient,
    tool: &str,
) -> Result<DisturbedWindow> {
    // They say hello before the window: that clients come is no fault of a server.
    let callers = fault.calls().into_iter().map(|call| Ok((hub.caller()?, call)));
    let callers = callers.collect::<Result<Vec<_>>>()?;
    std::thread::scope(|scope| {
        let disturb =
            |(caller, (tool, arguments))| scope.spawn(move || disturb(caller, fault, tool, &arguments));
        let disturbers: Vec<_> = callers.into_iter().map(disturb).collect();
        let mut seen = DisturbedWindow { p99: window(good, tool)?, ..DisturbedWindow::default() };
        for disturber in disturbers {
            let (late, reconnected) =
                disturber.join().map_err(|_| anyhow::anyhow!("a caller panicked"))??;
            seen.late = seen.late.max(late);
            seen.reconnected = seen.reconnected.or(reconnected);
        }
        Ok(seen)
    })
}

/// Calls what goes wrong. Returns how late a call ended, and how long it took until a server that crashed was back.
fn disturb(
    mut caller: SequentialClient,
    fault: ServerFault,
    tool: &str,
    arguments: &Value,
) -> Result<(Duration, Option<Duration>)> {
    let (began, mut late) = (Instant::now(), Duration::ZERO);
    if tool == "bad_crash" {
        pause(UNDER_WAY_AFTER);
    }
    for _ in 0..fault.repeats() {
        let started = Instant::now();
        caller.call(tool, arguments)?;
        late = late.max(started.elapsed().saturating_sub(TIMEOUT));
        if began.elapsed() > WINDOW {
            break;
        }
    }
    if tool != "bad_crash" {
        return Ok((late, None));
    }
    let ended = Instant::now();
    until("the server that crashed answers again", || Ok(caller.echoes("bad_echo")?.then_some(())))?;
    Ok((late, Some(ended.elapsed())))
}

fn settled(hub: &TortureHub) -> Result<u64> {
    pause(SETTLE);
    hub.rss_kb()
}

fn until<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let began = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if began.elapsed() > PATIENCE {
            bail!("{what}: not within {} s", PATIENCE.as_secs());
        }
        pause(LOOK_EVERY);
    }
}

#[expect(clippy::disallowed_methods, reason = "no runtime's thread is blocked by this")]
fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// The program, serving HTTP.
struct TortureHub {
    child: Child,
    address: std::net::SocketAddr,
    token: String,
    /// Held open, so that the hub always has someone to print to.
    _stdout: BufReader<ChildStdout>,
}

impl TortureHub {
    fn start(lab: &TortureHome) -> Result<TortureHub> {
        let mut command = lab.command::<&str>(&[], &["serve", "--json"]);
        command.env("MCP_HTTP_PORT", "0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let mut stdout = BufReader::new(child.stdout.take().context("no standard output")?);
        let greeting = serde_json::Deserializer::from_reader(&mut stdout).into_iter::<Value>().next();
        let greeting = greeting.context("the hub ended before it was ready")??;
        let text = |key: &str| greeting[key].as_str().map(str::to_owned).context("no address or token");
        let (url, token) = (text("url")?, text("token")?);
        let address = url.trim_start_matches("http://").trim_end_matches("/mcp").parse()?;
        Ok(TortureHub { child, address, token, _stdout: stdout })
    }

    fn caller(&self) -> Result<SequentialClient> {
        SequentialClient::connect(self.address, &self.token)
    }

    fn rss_kb(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse()?)
    }

    fn descendants(&self) -> Vec<u32> {
        descendants(self.child.id())
    }

    fn end(mut self) -> Result<()> {
        if let Some(id) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            kill_process(id, Signal::TERM)?;
        }
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for TortureHub {
    fn drop(&mut self) {
        // One that has ended already is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the children of a process, theirs, and so on.
fn descendants(id: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten() {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            found.push(child);
            found.extend(descendants(child));
        }
    }
    found
}

fn is_running(id: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}
