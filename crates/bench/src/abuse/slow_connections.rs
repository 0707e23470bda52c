//! Slow connections (slowloris), while a well-behaved client works.

use super::AbuseReport;
use portcullis_testkit::raw_http::{RawHttpConnection, RawHttpRequest};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Pause between two bytes of a slow connection.
const DRIP_EVERY: Duration = Duration::from_millis(700);
/// How long after the limit a connection is still watched, to tell late from never.
const LATE: Duration = Duration::from_secs(2);
/// Limit for the p99 latency of the well-behaved client.
const P99_MAX: Duration = Duration::from_millis(100);

/// How many connections, and how long they may stay open.
#[derive(Debug, Clone, Copy)]
pub struct SlowConnectionPlan {
    pub headers: usize,
    pub bodies: usize,
    pub closed_within: Duration,
}

impl SlowConnectionPlan {
    /// The full figure, at a hub with its default limits.
    pub const FULL: SlowConnectionPlan =
        SlowConnectionPlan { headers: 1_000, bodies: 1_000, closed_within: Duration::from_secs(15) };
}

/// Figures of the run.
#[derive(Debug, Clone, Default)]
pub struct SlowFigures {
    pub slow: usize,
    /// Connections that were not closed in time, or could not even connect.
    pub still_open: usize,
    pub not_connected: usize,
    pub longest: Duration,
    pub calls: usize,
    pub failed_calls: usize,
    pub p99: Duration,
}

impl AbuseReport for SlowFigures {
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.still_open > 0 {
            faults.push(format!(
                "{} of {} slow connections were not closed in time",
                self.still_open, self.slow
            ));
        }
        if self.not_connected > 0 {
            faults.push(format!("{} connections were not taken", self.not_connected));
        }
        if self.failed_calls > 0 || self.calls == 0 {
            faults.push(format!("{} of {} good calls failed", self.failed_calls, self.calls));
        }
        if self.p99 > P99_MAX {
            faults.push(format!("good calls took {:?} at the 99th percentile", self.p99));
        }
        faults
    }
}

impl fmt::Display for SlowFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} slow connections: {} not closed in time, the longest after {:.1} s; good client: {} calls, {} failed, \
             p99 {:.1} ms",
            self.slow,
            self.still_open,
            self.longest.as_secs_f64(),
            self.calls,
            self.failed_calls,
            self.p99.as_secs_f64() * 1_000.0
        )
    }
}

/// Opens all connections at once and waits until they are closed, or should have been.
pub async fn slow_connections(address: SocketAddr, token: &str, slow: SlowConnectionPlan) -> SlowFigures {
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    );
    let body = Arc::<str>::from(format!("{head}Content-Length: 100000\r\n\r\n{{"));
    let head = Arc::<str>::from(head);
    let done = Arc::new(AtomicBool::new(false));
    let good = tokio::spawn(work(address, token.to_owned(), done.clone()));
    let give_up = slow.closed_within + LATE;
    let mut all = Vec::new();
    for n in 0..slow.headers + slow.bodies {
        // A byte of an unfinished header, or of a string in the body.
        let (begin, drip) = if n % 2 == 0 && n / 2 < slow.headers || n / 2 >= slow.bodies {
            (head.clone(), "X-Slow: 1\r\n")
        } else {
            (body.clone(), " ")
        };
        all.push(tokio::spawn(async move {
            #[expect(clippy::disallowed_methods, reason = "to a hub that a test started")]
            let mut stream = TcpStream::connect(address).await.ok()?;
            stream.write_all(begin.as_bytes()).await.ok()?;
            Some(open_for(stream, drip, give_up).await)
        }));
    }
    let mut figures = SlowFigures { slow: all.len(), ..SlowFigures::default() };
    for one in all {
        match one.await {
            Ok(Some(open)) => {
                figures.longest = figures.longest.max(open);
                figures.still_open += usize::from(open > slow.closed_within);
            }
            _ => figures.not_connected += 1,
        }
    }
    done.store(true, Ordering::Relaxed);
    if let Ok((mut times, failed)) = good.await {
        times.sort_unstable();
        figures.calls = times.len() + failed;
        figures.failed_calls = failed;
        figures.p99 = times.get(times.len() * 99 / 100).copied().unwrap_or_default();
    }
    figures
}

/// Drips bytes, and returns after how long the peer closed.
async fn open_for(mut stream: TcpStream, drip: &str, give_up: Duration) -> Duration {
    let started = Instant::now();
    let (mut reader, mut writer) = stream.split();
    let closed = async {
        let mut buffer = [0; 4_096];
        while matches!(reader.read(&mut buffer).await, Ok(1..)) {}
    };
    let dripping = async {
        loop {
            tokio::time::sleep(DRIP_EVERY).await;
            // The reader notices when the peer has closed.
            let _ = writer.write_all(drip.as_bytes()).await;
        }
    };
    tokio::select! {
        () = closed => {}
        () = dripping => {}
        () = tokio::time::sleep(give_up) => {}
    }
    started.elapsed()
}

/// Calls a tool repeatedly, and returns the latencies and the number of failures.
async fn work(address: SocketAddr, token: String, done: Arc<AtomicBool>) -> (Vec<Duration>, usize) {
    const LIST: &str =
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"workspace_list","arguments":{}}}"#;
    let request = RawHttpRequest::post("/mcp", LIST).token(&token);
    let mut connection = RawHttpConnection::open(address).await;
    let (mut times, mut failed) = (Vec::new(), 0);
    while !done.load(Ordering::Relaxed) {
        let started = Instant::now();
        let reply = connection.exchange(&request).await;
        if reply.status() == 200 && reply.json()["result"]["isError"] != true {
            times.push(started.elapsed());
        } else {
            failed += 1;
        }
        // Some hundred calls a second: a client at work, not another attack.
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    (times, failed)
}

/// Returns a value of the metrics page; zero if missing.
pub(super) fn number(page: &str, name: &str) -> u64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or(0)
}
