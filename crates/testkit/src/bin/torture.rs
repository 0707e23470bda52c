//! One part of `cargo xtask torture`: `torture PART COUNT SEED`. Prints figures, and ends with 1 if one is not as it should be.

#![expect(clippy::print_stdout, reason = "whoever starts this reads the figures from here")]

use anyhow::{Context, Result, bail};
use portcullis_testkit::torture::faults::{self, Errno, Fault, Kind};
use portcullis_testkit::torture::{Figure, Random, full_disk, kill, session};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// A hub answers so soon after it was killed.
const START_MS_MAX: f64 = 300.0;

fn main() -> Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [part, count, seed] = args.as_slice() else { bail!("expected PART COUNT SEED") };
    let (count, seed) = (count.parse()?, seed.parse()?);
    let program = session::program().context("no program beside this one; PORTCULLIS_BIN names it")?;
    let figures = match part.as_str() {
        "kill" => kill(&program, count, seed)?,
        "faults" => faults(&program, count, seed)?,
        "full-disk" => full_disk(&program, count)?,
        other => bail!("`{other}` is no part; expected kill, faults or full-disk"),
    };
    figures.iter().for_each(|figure| println!("{figure}"));
    let failed = figures.iter().any(|figure| figure.ok == Some(false));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn kill(program: &Path, kills: u64, seed: u64) -> Result<Vec<Figure>> {
    let (mut seen, _) = kill::run(program, kills, seed)?;
    seen.starts.sort_unstable();
    let start = |at: Option<&Duration>| at.map_or(f64::NAN, |took| took.as_secs_f64() * 1e3);
    let (middle, longest) = (start(seen.starts.get(seen.starts.len() / 2)), start(seen.starts.last()));
    seen.problems.iter().for_each(|problem| println!("{problem}"));
    Ok(vec![
        Figure::exactly("kills", seen.kills, kills),
        at_least_one("writes acknowledged", seen.acknowledged),
        Figure::exactly("of these lost", seen.lost, 0),
        Figure::exactly("files torn", seen.torn, 0),
        Figure::exactly("files without a begin record", seen.unannounced, 0),
        Figure::exactly("kills after which the log does not verify", seen.unverified, 0),
        Figure::info("lines cut off and marked as such", seen.marked.to_string()),
        Figure::at_most("start after a kill, middle of all", middle, START_MS_MAX, "ms"),
        Figure::info("longest start", format!("{longest:.0} ms")),
    ])
}

fn faults(program: &Path, count: u64, seed: u64) -> Result<Vec<Figure>> {
    if let Some(reason) = faults::missing() {
        return Ok(vec![Figure::info("skipped", reason)]);
    }
    let all = [Fault::all(), Fault::lasting()].concat();
    let chosen = match usize::try_from(count)? {
        // The whole is not a choice.
        1_000.. => all,
        count => Fault::some(count, &mut Random::new(seed)),
    };
    let seen = faults::run(program, &chosen, seed)?;
    let kinds = [Kind::LogWrite, Kind::Flush, Kind::Rename, Kind::Open];
    let kinds: Vec<_> = kinds.iter().flat_map(|kind| Errno::ALL.map(|errno| (*kind, errno))).collect();
    let told = faults::commands(program, &kinds)?;
    seen.problems.iter().chain(&told.problems).for_each(|problem| println!("{problem}"));
    Ok(vec![
        Figure::exactly("runs of the hub", seen.runs, chosen.len() as u64),
        at_least_one("of these with a failure", seen.hit),
        at_least_one("failures made", seen.faults),
        at_least_one("calls acknowledged", seen.acknowledged),
        at_least_one("calls refused", seen.refused),
        Figure::info("hubs that said why they do not start", seen.not_started.to_string()),
        Figure::exactly(
            "promises broken, files torn, hubs that did not recover",
            seen.problems.len() as u64,
            0,
        ),
        Figure::info("commands run, failures made", format!("{}, {}", told.commands, told.faults)),
        Figure::exactly("secrets or clients lost or damaged", told.problems.len() as u64, 0),
    ])
}

fn full_disk(program: &Path, calls: u64) -> Result<Vec<Figure>> {
    let Some(seen) = full_disk::run(program, calls)? else {
        return Ok(vec![Figure::info("skipped", "a file system cannot be mounted here")]);
    };
    Ok(vec![
        Figure::exactly("writes with a full disk refused, with the reason", seen.refused, calls),
        Figure::exactly("files that changed all the same", seen.changed, 0),
        Figure::exactly("reads that went on", seen.read, calls),
        Figure::exactly("hubs that work again when there is room", u64::from(seen.recovered), 1),
        Figure::exactly("logs that verify afterwards", u64::from(seen.verified), 1),
    ])
}

#[expect(clippy::cast_precision_loss, reason = "it is shown")]
fn at_least_one(what: &str, count: u64) -> Figure {
    Figure::at_least(what, count as f64, 1.0, "")
}
