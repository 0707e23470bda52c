//! One part of `cargo xtask torture`: `torture PART COUNT SEED`. Prints figures, and ends with 1 if one is not as it should be.

#![expect(clippy::print_stdout, reason = "whoever starts this reads the figures from here")]

use anyhow::{Context, Result, bail};
use portcullis_testkit::torture::faults::{self, Errno, Fault, Kind};
use portcullis_testkit::torture::servers::{self, Called, Fault as ServerFault, Program};
use portcullis_testkit::torture::{Figure, Random, TIMES, full_disk, kill, session};
use portcullis_testkit::{changeable, fault};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// A hub answers so soon after it was killed.
const START_MS_MAX: f64 = 300.0;

/// What a server that misbehaves may cost another, and its callers.
const P99_TIMES_MAX: f64 = 1.1;
const RECONNECTED_MS_MAX: f64 = 2_000.0;
const LATE_MS_MAX: f64 = 100.0;
/// Memory that is kept for the next time is not lost; what is lost grows with every round.
const MEMORY_TIMES_MAX: f64 = 1.1;
const SERVERS: usize = 100;
const LIST_MS_MAX: f64 = 2.0;
const MANY_MB_MAX: f64 = 60.0;

fn main() -> Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // The servers of `servers` are this program too.
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["fault-server"] => return Ok(fault::serve("2025-11-25").map(|()| ExitCode::SUCCESS)?),
        ["many-server", definitions, calls] => {
            changeable::serve(definitions.into(), calls.into());
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    let [part, count, seed] = args.as_slice() else { bail!("expected PART COUNT SEED") };
    let (count, seed) = (count.parse()?, seed.parse()?);
    let program = session::program().context("no program beside this one; PORTCULLIS_BIN names it")?;
    let figures = match part.as_str() {
        "kill" => kill(&program, count, seed)?,
        "faults" => faults(&program, count, seed)?,
        "full-disk" => full_disk(&program, count)?,
        "servers" => servers(&program, count)?,
        other => bail!("`{other}` is no part; expected kill, faults, full-disk or servers"),
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
fn servers(program: &Path, rounds: u64) -> Result<Vec<Figure>> {
    let server = |word: &str| -> Result<Program> {
        Ok(Program { path: std::env::current_exe()?, args: vec![word.to_owned()] })
    };
    let seen =
        servers::run(program, &server("fault-server")?, rounds, &ServerFault::ALL, Called::AnotherOne)?;
    let many = servers::many(program, &server("many-server")?, SERVERS)?;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let mb = |kb: u64| kb as f64 / 1024.0;
    let mut figures = Vec::new();
    for (fault, beside) in &seen.beside {
        let mut p99 = beside.p99.clone();
        p99.sort_by(f64::total_cmp);
        let middle = p99.get(p99.len() / 2).copied().unwrap_or(f64::NAN);
        let how = fault.as_str();
        figures.push(match fault {
            ServerFault::Nothing => {
                let what = format!("… p99 of another server while one is called ({how}), as below");
                Figure::info(what, format!("{middle:.2} {TIMES}"))
            }
            _ => {
                let what = format!(
                    "p99 of another server while one misbehaves ({how}), times that before and after"
                );
                Figure::at_most(what, middle, P99_TIMES_MAX, TIMES)
            }
        });
    }
    let (fault, latest) = seen.beside.iter().max_by_key(|(_, beside)| beside.late).context("no fault")?;
    let late = format!("longest call beyond its timeout ({})", fault.as_str());
    let longest = seen.reconnected.iter().max().copied().context("nothing crashed")?;
    let memory = [seen.memory_fresh_kb, seen.memory_before_kb, seen.memory_after_kb];
    let memory = memory.map(|kb| format!("{:.1}", mb(kb))).join(" → ");
    let grown = seen.memory_after_kb as f64 / seen.memory_before_kb as f64;
    figures.extend([
        Figure::at_most(late, ms(latest.late), LATE_MS_MAX, "ms"),
        Figure::at_most(
            "longest time until a server that crashed answers again",
            ms(longest),
            RECONNECTED_MS_MAX,
            "ms",
        ),
        Figure::at_most(
            "memory afterwards, times that after the first round",
            grown,
            MEMORY_TIMES_MAX,
            TIMES,
        ),
        Figure::info("… fresh → after the first round → afterwards", format!("{memory} MB")),
        at_least_one("processes that the hub has started", seen.started as u64),
        Figure::exactly("of these left after its end", seen.left as u64, 0),
        Figure::at_least("tools of 100 servers", many.tools as f64, (SERVERS * 10) as f64, ""),
        Figure::at_most("`tools/list` of all of them, all pages", ms(many.list), LIST_MS_MAX, "ms"),
        Figure::info("… the first page", format!("{:.2} ms", ms(many.page))),
        Figure::at_most("memory of the hub with all of them", mb(many.memory_kb), MANY_MB_MAX, "MB"),
    ]);
    Ok(figures)
}

#[expect(clippy::cast_precision_loss, reason = "it is shown")]
fn at_least_one(what: &str, count: u64) -> Figure {
    Figure::at_least(what, count as f64, 1.0, "")
}
