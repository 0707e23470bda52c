//! Requests that are sent again and again on kept connections, and what is noted of the answers.

use crate::figure::{median, micros};
use crate::http::BenchHead;
use crate::hub::{ChildGuard, CpuTicks};
use anyhow::{Result, bail};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// No turn makes more; it is a bound on memory, far above what a machine does in a turn.
const CALLS_PER_CONNECTION_MAX: usize = 1_000_000;
/// Larger than one answer with its head.
const ANSWER_BYTES_MAX: usize = 16 * 1024;

/// What is sent where.
#[derive(Clone)]
pub(crate) struct RequestLoad {
    pub(crate) address: SocketAddr,
    /// One per connection: within a session every call under way needs an id of its own.
    pub(crate) requests: Vec<Vec<u8>>,
    /// What every answer must hold. Where that is nothing, every answer must be like the others.
    pub(crate) holds: &'static str,
}

impl RequestLoad {
    /// Loads for one turn, and returns how long each call took.
    pub(crate) async fn run(&self, in_flight: usize, turn: Duration) -> Result<Vec<Duration>> {
        let until = Instant::now() + turn;
        let mut connections = JoinSet::new();
        for request in self.requests.iter().take(in_flight) {
            connections.spawn(connection(self.address, request.clone(), self.holds, until));
        }
        let mut latencies = Vec::new();
        while let Some(ended) = connections.join_next().await {
            latencies.extend(ended??);
        }
        Ok(latencies)
    }
}

/// Calls again and again on one connection.
async fn connection(
    address: SocketAddr,
    request: Vec<u8>,
    holds: &str,
    until: Instant,
) -> Result<Vec<Duration>> {
    #[expect(clippy::disallowed_methods, reason = "to a server that this program started")]
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut answer, mut latencies) = ([0; ANSWER_BYTES_MAX], Vec::new());
    let mut last = Vec::new();
    let mut expected: Option<BenchHead> = None;
    let mut started = Instant::now();
    while started < until && latencies.len() < CALLS_PER_CONNECTION_MAX {
        stream.write_all(&request).await?;
        // The load generator takes CPU from the programs under load, so it does little: what was right is right again.
        if let Some((head, bytes)) = read_answer(&mut stream, &mut answer, &last).await? {
            // Every call asks for the same, so every answer is alike; but some number their answers, which makes them longer.
            let is_like_others = !holds.is_empty() || *expected.get_or_insert(head) == head;
            if head.status != 200 || !is_like_others || !has(&answer[..bytes], holds) {
                let text = String::from_utf8_lossy(&answer[..bytes]);
                bail!("an answer that is not like the others: {head:?} {text}");
            }
            last.clear();
            last.extend_from_slice(&answer[..bytes]);
        }
        let now = Instant::now();
        latencies.push(now - started);
        started = now;
    }
    Ok(latencies)
}

fn has(answer: &[u8], holds: &str) -> bool {
    holds.is_empty() || answer.windows(holds.len()).any(|window| window == holds.as_bytes())
}

/// Reads one answer, and returns its head and its length, unless it is `last` once more, byte for byte.
async fn read_answer(
    stream: &mut TcpStream,
    answer: &mut [u8],
    last: &[u8],
) -> Result<Option<(BenchHead, usize)>> {
    let (mut filled, mut head) = (0, None);
    loop {
        let count = stream.read(&mut answer[filled..]).await?;
        if count == 0 {
            bail!("the connection was closed, or an answer was too large");
        }
        filled += count;
        if answer[..filled] == *last {
            return Ok(None);
        }
        head = head.or_else(|| BenchHead::parse(&answer[..filled]));
        if let Some(head) = head.filter(|head| head.is_whole(&answer[..filled])) {
            return Ok(Some((head, filled)));
        }
    }
}

/// What came of the turns of one side.
#[derive(Default)]
pub(crate) struct Measurements {
    pub(crate) rps: Vec<f64>,
    pub(crate) p50: Vec<f64>,
    pub(crate) p99: Vec<f64>,
    calls: usize,
    cpu: Duration,
    /// What all processors did meanwhile.
    ticks: CpuTicks,
}

impl Measurements {
    /// Loads for one turn and notes what came of it, with the processor time of `process`.
    pub(crate) async fn turn(
        &mut self,
        load: &RequestLoad,
        in_flight: usize,
        process: &ChildGuard,
        turn: Duration,
    ) -> Result<()> {
        let (cpu, ticks, started) = (process.cpu()?, CpuTicks::now()?, Instant::now());
        let latencies = load.run(in_flight, turn).await?;
        self.note(latencies, started.elapsed());
        self.cpu += process.cpu()? - cpu;
        let now = CpuTicks::now()?;
        self.ticks.all += now.all - ticks.all;
        self.ticks.idle += now.idle - ticks.idle;
        Ok(())
    }

    /// Notes how long the calls of one turn took.
    pub(crate) fn note(&mut self, mut latencies: Vec<Duration>, took: Duration) {
        self.calls += latencies.len();
        self.rps.push(latencies.len() as f64 / took.as_secs_f64());
        latencies.sort_unstable();
        let at = |share: f64| {
            let place = (latencies.len() as f64 * share) as usize;
            latencies.get(place).map_or(f64::NAN, |latency| micros(*latency))
        };
        self.p50.push(at(0.5));
        self.p99.push(at(0.99));
    }

    pub(crate) fn cpu_us(&self) -> f64 {
        self.per_call_us(self.cpu)
    }

    /// Returns how much of what all calls took is for one.
    pub(crate) fn per_call_us(&self, all: Duration) -> f64 {
        micros(all) / self.calls as f64
    }

    pub(crate) fn told(&mut self) -> String {
        format!(
            "{:.0} calls/s, p50 {:.2} ms, p99 {:.2} ms, {:.0} µs CPU per call, processors {:.0} % busy",
            median(&mut self.rps),
            median(&mut self.p50) / 1e3,
            median(&mut self.p99) / 1e3,
            self.cpu_us(),
            100.0 - 100.0 * self.ticks.idle as f64 / self.ticks.all as f64,
        )
    }
}
