//! Calls over HTTP: 16 in flight, each on a connection that is kept, against the hub and against a bare echo.

use crate::figure::{Figure, median, micros};
use crate::http::{Era, Head, Place, ask, begin_session};
use crate::hub::{FILE_NAME, Hub, Process, furnish, sample_text, spawn};
use anyhow::{Context, Result, bail};
use std::io::BufRead;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The target: what the hub reaches of the echo, in calls per second.
const SHARE_PERCENT_MIN: f64 = 50.0;
const IN_FLIGHT: usize = 16;
/// How long one side is loaded at a time, how long before it counts, and how often the sides take turns.
const TURN: Duration = Duration::from_millis(1_500);
const WARM_UP: Duration = Duration::from_millis(500);
const ROUNDS: usize = 7;
/// The same where builds are compared: short, so that none has a quiet machine to itself.
const COMPARED_TURN: Duration = Duration::from_millis(300);
const COMPARED_ROUNDS: usize = 25;
/// No turn makes more; it is a bound on memory, far above what a machine does in a turn.
const CALLS_PER_CONNECTION_MAX: usize = 1_000_000;
/// Larger than one answer with its head.
const ANSWER_BYTES_MAX: usize = 16 * 1024;

/// One side of the comparison, and what was measured of it.
struct Side {
    what: String,
    address: std::net::SocketAddr,
    /// One per connection: within a session every call under way needs an id of its own.
    requests: Vec<Vec<u8>>,
    rps: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
    calls: usize,
    cpu: Duration,
}

impl Side {
    fn hub(hub: &Hub, era: Era) -> Result<Side> {
        let mut stream = hub.place.connect()?;
        let session = match era {
            Era::Sessions => Some(begin_session(&mut stream, &hub.place)?),
            Era::PerRequest => None,
        };
        let headers = era.headers(session.as_deref());
        let what = format!("hub {}", era.as_str());
        Side::new(what, &hub.place, |id| hub.place.request("POST", &headers, &era.read_call(id, FILE_NAME)))
    }

    /// Checks once that the requests get what they ask for.
    fn new(what: String, place: &Place, request: impl Fn(usize) -> Vec<u8>) -> Result<Side> {
        let requests: Vec<Vec<u8>> = (1..=IN_FLIGHT).map(request).collect();
        let answer = ask(&mut place.connect()?, &requests[0])?;
        let text: serde_json::Value = serde_json::from_str(&answer.body)?;
        if text["result"]["content"][0]["text"] != sample_text() {
            bail!("{what} answered {} {}", answer.status, answer.body);
        }
        let (rps, p50, p99) = (Vec::new(), Vec::new(), Vec::new());
        let (calls, cpu) = (0, Duration::ZERO);
        Ok(Side { what, address: place.address, requests, rps, p50, p99, calls, cpu })
    }

    /// Loads this side for one turn and notes what came of it.
    async fn turn(&mut self, process: &Process, turn: Duration) -> Result<()> {
        let (cpu, started) = (process.cpu()?, Instant::now());
        let mut latencies = self.load(turn).await?;
        self.cpu += process.cpu()? - cpu;
        self.calls += latencies.len();
        self.rps.push(latencies.len() as f64 / started.elapsed().as_secs_f64());
        latencies.sort_unstable();
        let at = |share: f64| {
            let place = (latencies.len() as f64 * share) as usize;
            latencies.get(place).map_or(f64::NAN, |latency| micros(*latency))
        };
        self.p50.push(at(0.5));
        self.p99.push(at(0.99));
        Ok(())
    }

    /// Returns how long each call took.
    async fn load(&self, turn: Duration) -> Result<Vec<Duration>> {
        let until = Instant::now() + turn;
        let mut connections = JoinSet::new();
        for request in &self.requests {
            connections.spawn(connection(self.address, request.clone(), until));
        }
        let mut latencies = Vec::new();
        while let Some(ended) = connections.join_next().await {
            latencies.extend(ended??);
        }
        Ok(latencies)
    }

    fn cpu_us(&self) -> f64 {
        micros(self.cpu) / self.calls as f64
    }

    fn figure(&mut self) -> Figure {
        let measured = format!(
            "{:.0} calls/s, p50 {:.2} ms, p99 {:.2} ms, {:.0} µs CPU per call",
            median(&mut self.rps),
            median(&mut self.p50) / 1e3,
            median(&mut self.p99) / 1e3,
            self.cpu_us()
        );
        Figure::info(format!("… {}", self.what), measured)
    }
}

/// Calls again and again on one connection.
async fn connection(
    address: std::net::SocketAddr,
    request: Vec<u8>,
    until: Instant,
) -> Result<Vec<Duration>> {
    #[expect(clippy::disallowed_methods, reason = "to a hub that this program started")]
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut answer, mut latencies) = ([0; ANSWER_BYTES_MAX], Vec::new());
    let mut expected: Option<Head> = None;
    let mut started = Instant::now();
    while started < until && latencies.len() < CALLS_PER_CONNECTION_MAX {
        stream.write_all(&request).await?;
        let head = read_answer(&mut stream, &mut answer).await?;
        // Every call asks for the same, so every answer is alike.
        if head.status != 200 || *expected.get_or_insert(head) != head {
            bail!("an answer that is not like the others: {head:?}");
        }
        let now = Instant::now();
        latencies.push(now - started);
        started = now;
    }
    Ok(latencies)
}

async fn read_answer(stream: &mut TcpStream, answer: &mut [u8]) -> Result<Head> {
    let (mut filled, mut head) = (0, None);
    loop {
        let count = stream.read(&mut answer[filled..]).await?;
        if count == 0 {
            bail!("the connection was closed, or an answer was too large");
        }
        filled += count;
        head = head.or_else(|| Head::parse(&answer[..filled]));
        if let Some(head) = head {
            let content_bytes = head.content_bytes.context("an answer without a length")?;
            if filled >= head.bytes + content_bytes {
                return Ok(head);
            }
        }
    }
}

pub(crate) async fn measure(portcullis: &Path) -> Result<Vec<Figure>> {
    let home = tempfile::tempdir().context("no temporary folder")?;
    furnish(home.path())?;
    let hub = Hub::serve(portcullis, home.path(), None)?;
    let mut hubs = [Side::hub(&hub, Era::Sessions)?, Side::hub(&hub, Era::PerRequest)?];
    // The echo is sent what the hub answers, so both write the same bytes.
    let answer = ask(&mut hub.place.connect()?, &hubs[1].requests[0])?.body;
    let (echo_process, echo_place) = start_bare(&["echo"])?;
    let request = |_| echo_place.request("POST", "", &answer);
    let mut echo = Side::new("bare axum JSON echo".to_owned(), &echo_place, request)?;
    let (constant_process, constant_place) = start_bare(&["constant", &sample_text().len().to_string()])?;
    let request = |id| constant_place.request("POST", "", &Era::Sessions.read_call(id, FILE_NAME));
    let mut constant = Side::new("bare axum, constant answer".to_owned(), &constant_place, request)?;

    for side in hubs.iter().chain([&echo, &constant]) {
        side.load(WARM_UP).await?;
    }
    for _ in 0..ROUNDS {
        echo.turn(&echo_process, TURN).await?;
        constant.turn(&constant_process, TURN).await?;
        for side in &mut hubs {
            side.turn(&hub.process, TURN).await?;
        }
    }
    let floor = median(&mut echo.rps);
    let mut figures = Vec::new();
    for side in &mut hubs {
        let share = 100.0 * median(&mut side.rps) / floor;
        let what = format!("`workspace_read` over HTTP, {}, share of the echo", side.what);
        figures.push(Figure::at_least(what, share, SHARE_PERCENT_MIN, "%"));
        figures.push(side.figure());
    }
    figures.push(echo.figure());
    figures.push(constant.figure());
    Ok(figures)
}

/// Starts a bare server in a process of its own, as the hub is one.
fn start_bare(arguments: &[&str]) -> Result<(Process, Place)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments);
    let (process, mut stdout) = spawn(command)?;
    let mut address = String::new();
    stdout.read_line(&mut address)?;
    let address = address.trim().parse().context("the echo did not start")?;
    // The same headers as for the hub: as much to parse.
    let token = format!("pcl_{}", "x".repeat(43));
    Ok((process, Place { address, token }))
}

/// Loads several builds by turns, so that what else the machine does befalls them alike.
pub(crate) async fn compare(portcullises: &[&str]) -> Result<Vec<Figure>> {
    let (mut hubs, mut homes) = (Vec::new(), Vec::new());
    for portcullis in portcullises {
        let home = tempfile::tempdir().context("no temporary folder")?;
        furnish(home.path())?;
        let hub = Hub::serve(Path::new(portcullis), home.path(), None)?;
        for era in Era::ALL {
            let mut side = Side::hub(&hub, era)?;
            side.what = format!("{portcullis} {}", era.as_str());
            side.load(WARM_UP).await?;
            hubs.push((hubs.len() / 2, side));
        }
        homes.push((hub, home));
    }
    for _ in 0..COMPARED_ROUNDS {
        for (at, side) in &mut hubs {
            side.turn(&homes[*at].0.process, COMPARED_TURN).await?;
        }
    }
    Ok(hubs.iter_mut().map(|(_, side)| side.figure()).collect())
}

/// Only loads, and says on standard error where.
#[expect(clippy::print_stderr, reason = "whoever profiles needs the process id")]
pub(crate) async fn only(portcullis: &Path, era: Era, seconds: u64) -> Result<()> {
    let home = tempfile::tempdir().context("no temporary folder")?;
    furnish(home.path())?;
    let hub = Hub::serve(portcullis, home.path(), None)?;
    let mut side = Side::hub(&hub, era)?;
    side.load(WARM_UP).await?;
    eprintln!("loading process {}", hub.process.0.id());
    let until = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < until {
        side.turn(&hub.process, TURN).await?;
    }
    eprintln!("{}", side.figure());
    Ok(())
}
