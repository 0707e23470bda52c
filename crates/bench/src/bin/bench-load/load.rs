//! Calls over HTTP: 16 in flight, each on a connection that is kept, against the hub and against a bare echo.

use crate::figure::{BenchFigure, median};
use crate::http::{HubEndpoint, SessionMode, ask, begin_session};
use crate::hub::{BenchHub, ChildGuard, FILE_NAME, furnish, sample_text, spawn};
use crate::request_load::{Measurements, RequestLoad};
use anyhow::{Context, Result, bail};
use std::io::BufRead;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

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

/// One side of the comparison, and what was measured of it.
struct Side {
    what: String,
    load: RequestLoad,
    measured: Measurements,
}

impl Side {
    fn hub(hub: &BenchHub, era: SessionMode) -> Result<Side> {
        let mut stream = hub.place.connect()?;
        let session = match era {
            SessionMode::Sessions => Some(begin_session(&mut stream, &hub.place)?),
            SessionMode::PerRequest => None,
        };
        let headers = era.headers(session.as_deref());
        let what = format!("hub {}", era.as_str());
        Side::new(what, &hub.place, |id| hub.place.request("POST", &headers, &era.read_call(id, FILE_NAME)))
    }

    /// Checks once that the requests get what they ask for.
    fn new(what: String, place: &HubEndpoint, request: impl Fn(usize) -> Vec<u8>) -> Result<Side> {
        let requests: Vec<Vec<u8>> = (1..=IN_FLIGHT).map(request).collect();
        let answer = ask(&mut place.connect()?, &requests[0])?;
        let text: serde_json::Value = serde_json::from_str(&answer.body)?;
        if text["result"]["content"][0]["text"] != sample_text() {
            bail!("{what} answered {} {}", answer.status, answer.body);
        }
        let load = RequestLoad { address: place.address, requests, holds: "" };
        Ok(Side { what, load, measured: Measurements::default() })
    }

    /// Loads this side for one turn and notes what came of it.
    async fn turn(&mut self, process: &ChildGuard, turn: Duration) -> Result<()> {
        self.measured.turn(&self.load, IN_FLIGHT, process, turn).await
    }

    async fn warm_up(&self) -> Result<()> {
        self.load.run(IN_FLIGHT, WARM_UP).await.map(drop)
    }

    fn figure(&mut self) -> BenchFigure {
        BenchFigure::info(format!("… {}", self.what), self.measured.told())
    }
}

pub(crate) async fn measure(portcullis: &Path) -> Result<Vec<BenchFigure>> {
    let home = tempfile::tempdir().context("no temporary folder")?;
    furnish(home.path())?;
    let hub = BenchHub::serve(portcullis, home.path(), None)?;
    let mut hubs = [Side::hub(&hub, SessionMode::Sessions)?, Side::hub(&hub, SessionMode::PerRequest)?];
    // The echo is sent what the hub answers, so both write the same bytes.
    let answer = ask(&mut hub.place.connect()?, &hubs[1].load.requests[0])?.body;
    let (echo_process, echo_place) = start_bare(&["echo"])?;
    let request = |_| echo_place.request("POST", "", &answer);
    let mut echo = Side::new("bare axum JSON echo".to_owned(), &echo_place, request)?;
    let (constant_process, constant_place) = start_bare(&["constant", &sample_text().len().to_string()])?;
    let request = |id| constant_place.request("POST", "", &SessionMode::Sessions.read_call(id, FILE_NAME));
    let mut constant = Side::new("bare axum, constant answer".to_owned(), &constant_place, request)?;

    for side in hubs.iter().chain([&echo, &constant]) {
        side.warm_up().await?;
    }
    for _ in 0..ROUNDS {
        echo.turn(&echo_process, TURN).await?;
        constant.turn(&constant_process, TURN).await?;
        for side in &mut hubs {
            side.turn(&hub.process, TURN).await?;
        }
    }
    let floor = median(&mut echo.measured.rps);
    let mut figures = Vec::new();
    for side in &mut hubs {
        let share = 100.0 * median(&mut side.measured.rps) / floor;
        let what = format!("`workspace_read` over HTTP, {}, share of the echo", side.what);
        figures.push(BenchFigure::at_least(what, share, SHARE_PERCENT_MIN, "%"));
        figures.push(side.figure());
    }
    figures.push(echo.figure());
    figures.push(constant.figure());
    Ok(figures)
}

/// Starts a bare server in a process of its own, as the hub is one.
fn start_bare(arguments: &[&str]) -> Result<(ChildGuard, HubEndpoint)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments);
    let (process, mut stdout) = spawn(command)?;
    let mut address = String::new();
    stdout.read_line(&mut address)?;
    let address = address.trim().parse().context("the echo did not start")?;
    // The same headers as for the hub: as much to parse.
    let token = format!("pcl_{}", "x".repeat(43));
    Ok((process, HubEndpoint { address, token }))
}

/// Loads several builds by turns, so that what else the machine does befalls them alike.
pub(crate) async fn compare(portcullises: &[&str]) -> Result<Vec<BenchFigure>> {
    let (mut hubs, mut homes) = (Vec::new(), Vec::new());
    for portcullis in portcullises {
        let home = tempfile::tempdir().context("no temporary folder")?;
        furnish(home.path())?;
        let hub = BenchHub::serve(Path::new(portcullis), home.path(), None)?;
        for era in SessionMode::ALL {
            let mut side = Side::hub(&hub, era)?;
            side.what = format!("{portcullis} {}", era.as_str());
            side.warm_up().await?;
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
#[expect(clippy::print_stderr, reason = "a profiler needs the process id")]
pub(crate) async fn only(portcullis: &Path, era: SessionMode, seconds: u64) -> Result<()> {
    let home = tempfile::tempdir().context("no temporary folder")?;
    furnish(home.path())?;
    let hub = BenchHub::serve(portcullis, home.path(), None)?;
    let mut side = Side::hub(&hub, era)?;
    side.warm_up().await?;
    eprintln!("loading process {}", hub.process.0.id());
    let until = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < until {
        side.turn(&hub.process, TURN).await?;
    }
    eprintln!("{}", side.figure());
    Ok(())
}
