//! Calls through the hub to another server, beside other programs that do the same, and beside the server alone.

use crate::figure::{BenchFigure, median};
use crate::hub::{ChildGuard, spawn};
use crate::peers::{ECHOED, ProxyUnderTest, TinyServer, TinyTransport, call};
use crate::request_load::{Measurements, RequestLoad};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The targets: beside the Rust peer, and beside the server alone over HTTP.
const TIMES_PEER_MIN: f64 = 2.0;
const TIMES_BARE_MIN: f64 = 0.9;
const CPU_OF_PEER_MAX: f64 = 0.5;
const LATENCY_OF_PEER_MAX: f64 = 0.6;
const MEMORY_MB_MAX: f64 = 25.0;
const IN_FLIGHT: usize = 16;
/// How long one side is loaded at a time, how long before it counts, and how often the sides take turns.
const TURN: Duration = Duration::from_millis(700);
const ALONE_TURN: Duration = Duration::from_millis(500);
const WARM_UP: Duration = Duration::from_millis(500);
const ROUNDS: usize = 15;
/// The same where builds are compared: short, so that none has a quiet machine to itself.
const COMPARED_TURN: Duration = Duration::from_millis(300);
const COMPARED_ROUNDS: usize = 25;
/// How many calls are counted at the server.
const COUNTED: usize = 20;
/// How long the hub is left alone before its memory is looked at.
const SETTLE: Duration = Duration::from_secs(2);

/// Whom the hub is compared with, as given on the command line: `rust=PROGRAM`, `npm=NODE:SCRIPT`, `pypi=PROGRAM`. And
/// `tiny=NODE:SCRIPT`, where the server behind all of them is another one than our own.
#[derive(Default)]
pub(crate) struct PeerPrograms<'a> {
    tiny: Option<&'a str>,
    rust: Option<&'a str>,
    npm: Option<&'a str>,
    pypi: Option<&'a str>,
}

impl<'a> PeerPrograms<'a> {
    pub(crate) fn parse(words: &[&'a str]) -> Result<PeerPrograms<'a>> {
        let mut peers = PeerPrograms::default();
        for word in words {
            match word.split_once('=') {
                Some(("tiny", words)) => peers.tiny = Some(words),
                Some(("rust", program)) => peers.rust = Some(program),
                Some(("npm", words)) => peers.npm = Some(words),
                Some(("pypi", program)) => peers.pypi = Some(program),
                _ => bail!("`{word}`: expected rust=PROGRAM, npm=, tiny=NODE:SCRIPT or pypi=PROGRAM"),
            }
        }
        Ok(peers)
    }
}

/// Who stands before the tiny server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contender {
    Bare,
    Hub,
    Rust,
    Npm,
    Pypi,
}

impl Contender {
    fn as_str(self) -> &'static str {
        match self {
            Contender::Bare => "direct (no proxy)",
            Contender::Hub => "hub",
            Contender::Rust => "`mcp-proxy` from crates.io",
            Contender::Npm => "`mcp-proxy` from npm",
            Contender::Pypi => "`mcp-proxy` from PyPI",
        }
    }
}

struct Side {
    who: Contender,
    kind: TinyTransport,
    door: ProxyUnderTest,
    load: RequestLoad,
    many: Measurements,
    alone: Measurements,
    /// What the server on HTTP worked for the calls of `many`.
    served: Duration,
}

impl Side {
    fn new(who: Contender, kind: TinyTransport, door: ProxyUnderTest) -> Side {
        let requests = (1..=IN_FLIGHT).map(|id| door.echo_request(id)).collect();
        let load = RequestLoad { address: door.address, requests, holds: ECHOED };
        let (many, alone) = (Measurements::default(), Measurements::default());
        Side { who, kind, door, load, many, alone, served: Duration::ZERO }
    }

    fn process<'a>(&'a self, tiny: &'a TinyServer) -> &'a ChildGuard {
        self.door.process.as_ref().unwrap_or(&tiny.process)
    }
}

pub(crate) async fn measure(portcullis: &Path, peers: &PeerPrograms<'_>) -> Result<Vec<BenchFigure>> {
    let tiny = TinyServer::start(peers.tiny)?;
    let mut sides = vec![Side::new(Contender::Bare, TinyTransport::Http, ProxyUnderTest::bare(&tiny)?)];
    for kind in TinyTransport::ALL {
        let hub = ProxyUnderTest::hub(portcullis, &tiny, kind).context("the hub")?;
        sides.push(Side::new(Contender::Hub, kind, hub));
        if let Some(program) = peers.rust {
            sides.push(Side::new(
                Contender::Rust,
                kind,
                ProxyUnderTest::rust(program, &tiny, kind).context("crates.io")?,
            ));
        }
    }
    if let Some(words) = peers.npm {
        sides.push(Side::new(
            Contender::Npm,
            TinyTransport::Stdio,
            ProxyUnderTest::npm(words, &tiny).context("npm")?,
        ));
    }
    if let Some(program) = peers.pypi {
        sides.push(Side::new(
            Contender::Pypi,
            TinyTransport::Stdio,
            ProxyUnderTest::pypi(program, &tiny).context("PyPI")?,
        ));
    }
    let mut figures = Vec::new();
    for side in sides.iter().filter(|side| side.who == Contender::Hub) {
        figures.push(counted(side)?);
    }
    for side in &sides {
        side.load.run(IN_FLIGHT, WARM_UP).await.with_context(|| side.who.as_str())?;
    }
    let mut piped = Measurements::default();
    for _ in 0..ROUNDS {
        for side in &mut sides {
            let process = side.door.process.as_ref().unwrap_or(&tiny.process);
            let before = tiny.process.cpu()?;
            side.many.turn(&side.load, IN_FLIGHT, process, TURN).await?;
            side.served += tiny.process.cpu()? - before;
        }
    }
    for _ in 0..ROUNDS {
        for side in &mut sides {
            let process = side.door.process.as_ref().unwrap_or(&tiny.process);
            side.alone.turn(&side.load, 1, process, ALONE_TURN).await?;
        }
        directly(&tiny, &mut piped, ALONE_TURN)?;
    }
    let bare = (median(&mut sides[0].many.rps), median(&mut sides[0].alone.p50));
    let floor = |kind: TinyTransport, piped: &mut Measurements| match kind {
        TinyTransport::Stdio => median(&mut piped.p50),
        TinyTransport::Http => bare.1,
    };
    for kind in TinyTransport::ALL {
        let floor = floor(kind, &mut piped);
        let hub = Sum::of(&mut sides, Contender::Hub, kind, floor).context("no hub")?;
        let via = format!("echo of a server on {}", kind.as_str());
        if let Some(peer) = Sum::of(&mut sides, Contender::Rust, kind, floor) {
            let than = "that of `mcp-proxy` from crates.io";
            figures.extend([
                BenchFigure::at_least(
                    format!("{via}: calls/s, times {than}"),
                    hub.rps / peer.rps,
                    TIMES_PEER_MIN,
                    "×",
                ),
                BenchFigure::at_most(
                    format!("… CPU per call, times {than}"),
                    hub.cpu_us / peer.cpu_us,
                    CPU_OF_PEER_MAX,
                    "×",
                ),
                BenchFigure::at_most(
                    format!("… latency added at 1 in flight, times {than}"),
                    hub.added_us / peer.added_us,
                    LATENCY_OF_PEER_MAX,
                    "×",
                ),
            ]);
        }
        let what = format!("{via}: calls/s, times that of the same server alone over HTTP");
        figures.push(BenchFigure::at_least(what, hub.rps / bare.0, TIMES_BARE_MIN, "×"));
    }
    tokio::time::sleep(SETTLE).await;
    for side in sides.iter().filter(|side| side.who == Contender::Hub) {
        let what = format!("memory of the hub after that, before a server on {}", side.kind.as_str());
        figures.push(BenchFigure::at_most(what, mb(side.process(&tiny).rss_kb()?), MEMORY_MB_MAX, "MB"));
    }
    for side in &mut sides {
        let what = format!("… {}, {}", side.who.as_str(), side.kind.as_str());
        let memory = mb(side.door.process.as_ref().unwrap_or(&tiny.process).rss_kb()?);
        let alone = median(&mut side.alone.p50);
        let told = format!("{}; alone p50 {alone:.0} µs; {memory:.0} MB", side.many.told());
        figures.push(BenchFigure::info(what, told));
    }
    let served = |who: Contender| {
        let side = sides.iter().find(|side| side.who == who && side.kind == TinyTransport::Http)?;
        Some(side.many.per_call_us(side.served))
    };
    if let (Some(bare), Some(hub)) = (served(Contender::Bare), served(Contender::Hub)) {
        let told = format!("{bare:.1} → {hub:.1} µs CPU per call");
        figures.push(BenchFigure::info("… the server on HTTP itself, alone → behind the hub", told));
    }
    let alone = median(&mut piped.p50);
    figures.push(BenchFigure::info("… direct (no proxy), stdio", format!("alone p50 {alone:.0} µs")));
    Ok(figures)
}

/// Loads several builds by turns, so that what else the machine does befalls them alike.
pub(crate) async fn compare(portcullises: &[&str], peers: &PeerPrograms<'_>) -> Result<Vec<BenchFigure>> {
    let tiny = TinyServer::start(peers.tiny)?;
    let mut sides = Vec::new();
    for kind in TinyTransport::ALL {
        for portcullis in portcullises {
            let side =
                Side::new(Contender::Hub, kind, ProxyUnderTest::hub(Path::new(portcullis), &tiny, kind)?);
            side.load.run(IN_FLIGHT, WARM_UP).await?;
            sides.push((portcullis, side));
        }
    }
    for _ in 0..COMPARED_ROUNDS {
        for (_, side) in &mut sides {
            let process = side.door.process.as_ref().unwrap_or(&tiny.process);
            side.many.turn(&side.load, IN_FLIGHT, process, COMPARED_TURN).await?;
            side.alone.turn(&side.load, 1, process, COMPARED_TURN).await?;
        }
    }
    let told = sides.iter_mut().map(|(portcullis, side)| {
        let told = format!("{}; alone p50 {:.0} µs", side.many.told(), median(&mut side.alone.p50));
        BenchFigure::info(format!("{portcullis}, {}", side.kind.as_str()), told)
    });
    Ok(told.collect())
}

/// The middle of what was measured of one side.
struct Sum {
    rps: f64,
    cpu_us: f64,
    added_us: f64,
}

impl Sum {
    fn of(sides: &mut [Side], who: Contender, kind: TinyTransport, floor_us: f64) -> Option<Sum> {
        let side = sides.iter_mut().find(|side| side.who == who && side.kind == kind)?;
        Some(Sum {
            rps: median(&mut side.many.rps),
            cpu_us: side.many.cpu_us(),
            added_us: median(&mut side.alone.p50) - floor_us,
        })
    }
}

fn mb(kb: u64) -> f64 {
    kb as f64 / 1024.0
}

/// Lets the server itself count what it is asked for so many calls.
fn counted(side: &Side) -> Result<BenchFigure> {
    side.door.seen()?;
    for _ in 0..COUNTED {
        if !side.door.echoes()? {
            bail!("a call was not answered");
        }
    }
    let (seen, wanted) = (side.door.seen()?, format!("tools/call={COUNTED}"));
    let what = format!("{COUNTED} calls, as a server on {} counts them", side.kind.as_str());
    Ok(BenchFigure::same(what, seen, wanted))
}

/// Calls the tiny server on its own pipes.
fn directly(tiny: &TinyServer, measured: &mut Measurements, turn: Duration) -> Result<()> {
    let mut command = tiny.stdio();
    command.stdin(Stdio::piped());
    let (mut process, mut stdout) = spawn(command)?;
    let mut stdin = process.0.stdin.take().context("no standard input")?;
    let line = call(1, "echo", &format!(r#"{{"text":"{ECHOED}"}}"#)) + "\n";
    let mut answer = String::new();
    let mut calls_for = |turn: Duration| {
        let (begun, mut latencies) = (Instant::now(), Vec::new());
        while begun.elapsed() < turn {
            answer.clear();
            let started = Instant::now();
            stdin.write_all(line.as_bytes())?;
            stdout.read_line(&mut answer)?;
            latencies.push(started.elapsed());
            if !answer.contains(ECHOED) {
                bail!("not echoed: {answer}");
            }
        }
        Ok((latencies, begun.elapsed()))
    };
    // The first answer comes when the process has started; as the others, this one is measured when it is warm.
    calls_for(Duration::from_nanos(1))?;
    calls_for(WARM_UP)?;
    let (latencies, took) = calls_for(turn)?;
    measured.note(latencies, took);
    Ok(())
}
