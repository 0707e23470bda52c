//! The cost of a change of the database, and of a look at what is in it.
//!
//! On a disk, because a change ends with a flush; in memory a flush costs nothing. Once with a small database and no other
//! process, and once with a large one that a second process has open, too.

use crate::figure::{BenchFigure, millis};
use anyhow::{Context, Result, ensure};
use portcullis_bench::sample_rows;
use portcullis_core::SystemClock;
use portcullis_store::approvals::{ApprovalScope, ApprovalStore, ApprovalVerdict};
use portcullis_store::clients::ClientDirectory;
use portcullis_store::servers::ServerOverrides;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

/// The targets. A change is on disk and in force in every process when it returns; a look is a look into memory.
const CHANGE_MS_MAX: f64 = 5.0;
const LOOK_US_MAX: f64 = 1.0;
const CHANGES: usize = 200;
const LOOKS: u32 = 100_000;
/// A large home: all approvals that are kept, pending ones among them, and many clients.
const CLIENTS: usize = 1_000;
const APPROVALS: usize = 900;
/// Of these so many were used or rejected; the others are pending.
const USED: usize = 500;
const REJECTED: usize = 200;
/// Approvals of one client, which may have no more pending.
const BATCH: usize = 40;
const REJECT: ApprovalVerdict = ApprovalVerdict::Reject { reason: None };

pub(crate) fn measure() -> Result<Vec<BenchFigure>> {
    let folder = on_disk()?;
    let database = portcullis_store::open(folder.path(), &[])?;
    let overrides = ServerOverrides::open(&database);
    let mut change = Vec::with_capacity(CHANGES);
    for n in 0..CHANGES {
        change.push(timed(|| Ok(overrides.set("git", Some(n % 2 == 0))?))?);
    }
    let began = Instant::now();
    for _ in 0..LOOKS {
        std::hint::black_box(overrides.of("git"));
    }
    let look = millis(began.elapsed()) * 1e3 / f64::from(LOOKS);
    let mut figures = vec![
        BenchFigure::at_most("a change of the database, p95", p95(&mut change), CHANGE_MS_MAX, "ms"),
        BenchFigure::at_most("a look at what the database holds", look, LOOK_US_MAX, "µs"),
    ];

    let clients = ClientDirectory::open(&database, Arc::new(SystemClock));
    for n in 0..CLIENTS {
        clients.add(sample_rows::client(format!("client-{n}")))?;
    }
    let approvals = ApprovalStore::open(&database, Arc::new(SystemClock));
    let ask = |n: usize| {
        approvals.ask(&sample_rows::approval(&format!("client-{}", n / BATCH), n), sample_rows::LIFETIMES)
    };
    let decide = |verdict: ApprovalVerdict| {
        let oldest = approvals.pending()?.first().context("a pending approval")?.id.clone();
        approvals.decide(&oldest, verdict, "bench", sample_rows::LIFETIMES)?;
        Ok::<_, anyhow::Error>(())
    };
    for n in 0..APPROVALS {
        ask(n)?;
        if n < USED {
            decide(ApprovalVerdict::Approve(ApprovalScope::Once))?;
            // The call is made, which consumes the approval.
            ask(n)?;
        } else if n < USED + REJECTED {
            decide(REJECT)?;
        }
    }
    let held = approvals.list()?.len();
    ensure!(held == APPROVALS, "{held} approvals are kept, not {APPROVALS}");
    let other = OtherProcess::start(folder.path())?;
    let (mut client, mut approval) = (Vec::new(), Vec::new());
    for n in 0..CHANGES {
        let name = format!("new-{n}");
        client.push(timed(|| Ok(clients.add(sample_rows::client(name)).map(drop)?))?);
        approval.push(timed(|| decide(REJECT))?);
        ask(APPROVALS + n)?;
    }
    other.end()?;
    let beside = "with a second process, p95";
    figures.extend([
        BenchFigure::at_most(
            format!("a new client beside {CLIENTS}, {beside}"),
            p95(&mut client),
            CHANGE_MS_MAX,
            "ms",
        ),
        BenchFigure::at_most(
            format!("a decision beside {held} approvals, {beside}"),
            p95(&mut approval),
            CHANGE_MS_MAX,
            "ms",
        ),
    ]);
    Ok(figures)
}

/// The other process: has the database open, and what is in it in memory, until its standard input ends.
#[expect(clippy::print_stdout, reason = "the parent process waits for this line")]
pub(crate) fn hold(folder: &Path) -> Result<()> {
    let database = portcullis_store::open(folder, &[])?;
    let clients = ClientDirectory::open(&database, Arc::new(SystemClock));
    let approvals = ApprovalStore::open(&database, Arc::new(SystemClock));
    ensure!(clients.list()?.len() >= CLIENTS && !approvals.list()?.is_empty(), "the rows are not there");
    println!("ready");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

struct OtherProcess(Child);

impl OtherProcess {
    fn start(folder: &Path) -> Result<OtherProcess> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("hold-database").arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut said = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut said)?;
        ensure!(said == "ready\n", "the second process does not open the database: {said}");
        Ok(OtherProcess(child))
    }

    fn end(mut self) -> Result<()> {
        drop(self.0.stdin.take());
        ensure!(self.0.wait()?.success(), "the second process failed");
        Ok(())
    }
}

/// Makes a folder beside this program: folders for what is temporary are often in memory.
fn on_disk() -> Result<tempfile::TempDir> {
    let program = std::env::current_exe()?;
    let folder = program.parent().map_or_else(|| PathBuf::from("."), Path::to_owned);
    tempfile::tempdir_in(folder).context("no folder beside this program")
}

fn timed(change: impl FnOnce() -> Result<()>) -> Result<f64> {
    let began = Instant::now();
    change()?;
    Ok(millis(began.elapsed()))
}

fn p95(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() * 95 / 100).copied().unwrap_or(f64::NAN)
}
