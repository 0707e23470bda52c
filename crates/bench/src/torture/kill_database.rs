//! A process that changes the database, killed at random moments: no acknowledged change is lost, and no row is torn.

use super::random::SplitMix64;
use anyhow::{Context, Result, ensure};
use portcullis_store::database::wait;
use portcullis_store::servers::ServerOverrides;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The longest it works before it is killed. A change takes a few milliseconds.
const WORKS_US_MAX: usize = 20_000;
/// A database is used for so many kills: each begins with what the last one left.
const KILLS_PER_DATABASE: u64 = 100;
/// How many changes one process makes at most.
const CHANGES_MAX: u64 = 10_000;

/// What was seen.
#[derive(Debug, Default)]
pub struct DatabaseKillFigures {
    pub kills: u64,
    pub acknowledged: u64,
    pub lost: u64,
    pub damaged: u64,
    pub problems: Vec<String>,
}

/// Changes the database until it is killed, and says which changes were acknowledged.
pub fn change(folder: &Path, round: &str) -> Result<()> {
    let overrides = ServerOverrides::open(&portcullis_store::open(folder, &[])?);
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready")?;
    for n in 0..CHANGES_MAX {
        overrides.set(&name(round, n), Some(false))?;
        writeln!(out, "{n}")?;
    }
    Ok(())
}

/// Kills a process that changes the database so many times.
pub fn run(this_program: &Path, kills: u64, seed: u64) -> Result<DatabaseKillFigures> {
    let mut random = SplitMix64::new(seed);
    let mut seen = DatabaseKillFigures::default();
    let mut folder = tempfile::tempdir()?;
    for round in 1..=kills {
        if round.is_multiple_of(KILLS_PER_DATABASE) {
            folder = tempfile::tempdir()?;
        }
        let works = Duration::from_micros(random.below(WORKS_US_MAX) as u64);
        let acknowledged = killed_after(this_program, folder.path(), round, works)?;
        seen.kills += 1;
        seen.acknowledged += acknowledged;
        check(folder.path(), round, acknowledged, &mut seen);
    }
    Ok(seen)
}

fn name(round: &str, n: u64) -> String {
    format!("r{round}-{n}")
}

/// Lets a process work for a while, kills it, and returns how many changes it had acknowledged.
fn killed_after(this_program: &Path, folder: &Path, round: u64, works: Duration) -> Result<u64> {
    let mut command = Command::new(this_program);
    command.arg("change-database").arg(folder).arg(round.to_string());
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let ready = lines.next().transpose()?;
    ensure!(ready.as_deref() == Some("ready"), "round {round}: it does not open what the last one left");
    let killer = std::thread::spawn(move || {
        let began = Instant::now();
        while began.elapsed() < works {
            std::thread::yield_now();
        }
        let killed = child.kill();
        child.wait().and(killed)
    });
    // What was written before the kill arrives after it.
    let said = lines.map_while(Result::ok).filter(|line| line.parse::<u64>().is_ok()).count() as u64;
    killer.join().map_err(|_| anyhow::anyhow!("the thread that kills has panicked"))??;
    Ok(said)
}

fn check(folder: &Path, round: u64, acknowledged: u64, seen: &mut DatabaseKillFigures) {
    let sound = portcullis_store::open(folder, &[]).and_then(|database| {
        let overrides = ServerOverrides::open(&database);
        let round = round.to_string();
        let is_lost = |n: &u64| overrides.of(&name(&round, *n)).enabled != Some(false);
        seen.lost += (0..acknowledged).filter(is_lost).count() as u64;
        wait(database.check())
    });
    match sound {
        Ok(problems) if problems.is_empty() => {}
        Ok(problems) => {
            seen.damaged += 1;
            seen.problems.push(format!("round {round}: {}", problems.join("; ")));
        }
        Err(error) => {
            seen.damaged += 1;
            seen.problems.push(format!("round {round}: {error}"));
        }
    }
}
