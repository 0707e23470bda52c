//! One part of `cargo xtask torture`: `torture PART COUNT SEED`. Prints figures, and ends with 1 if one is not as it should be.

#![expect(clippy::print_stdout, reason = "the parent process reads the figures from here")]

use anyhow::{Context, Result, bail};
use portcullis_bench::torture::faults::{self, FaultErrno, FaultTarget, InjectedFault};
use portcullis_bench::torture::servers::{self, CalledServer, ServerFault, ServerProgram};
use portcullis_bench::torture::{
    SplitMix64, TIMES, TortureFigure, full_disk, kill, kill_database, kill_import, session,
};
use portcullis_testkit::{changeable_server, faulty_server};
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
        ["fault-server"] => return Ok(faulty_server::serve("2025-11-25").map(|()| ExitCode::SUCCESS)?),
        ["many-server", definitions, calls] => {
            changeable_server::serve(definitions.into(), calls.into());
            return Ok(ExitCode::SUCCESS);
        }
        ["change-database", folder, round] => {
            return kill_database::change(Path::new(folder), round).map(|()| ExitCode::SUCCESS);
        }
        _ => {}
    }
    let [part, count, seed] = args.as_slice() else { bail!("expected PART COUNT SEED") };
    let (count, seed) = (count.parse()?, seed.parse()?);
    let program = session::program().context("no program beside this one; PORTCULLIS_BIN names it")?;
    let figures = match part.as_str() {
        "kill" => kill(&program, count, seed)?,
        "faults" => faults(&program, count, seed)?,
        "kill-database" => kill_database(count, seed)?,
        "kill-import" => kill_import(&program, count)?,
        "full-disk" => full_disk(&program, count)?,
        "servers" => servers(&program, count)?,
        other => bail!(
            "`{other}` is no part; expected kill, kill-database, kill-import, faults, full-disk or servers"
        ),
    };
    figures.iter().for_each(|figure| println!("{figure}"));
    let failed = figures.iter().any(|figure| figure.ok == Some(false));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn kill(program: &Path, kills: u64, seed: u64) -> Result<Vec<TortureFigure>> {
    let (mut seen, _) = kill::run(program, kills, seed)?;
    seen.starts.sort_unstable();
    let start = |at: Option<&Duration>| at.map_or(f64::NAN, |took| took.as_secs_f64() * 1e3);
    let (middle, longest) = (start(seen.starts.get(seen.starts.len() / 2)), start(seen.starts.last()));
    seen.problems.iter().for_each(|problem| println!("{problem}"));
    Ok(vec![
        TortureFigure::exactly("kills", seen.kills, kills),
        at_least_one("writes acknowledged", seen.acknowledged),
        TortureFigure::exactly("of these lost", seen.lost, 0),
        TortureFigure::exactly("files torn", seen.torn, 0),
        TortureFigure::exactly("files without a begin record", seen.unannounced, 0),
        TortureFigure::exactly("kills after which the log does not verify", seen.unverified, 0),
        TortureFigure::info("lines cut off and marked as such", seen.marked.to_string()),
        TortureFigure::at_most("start after a kill, middle of all", middle, START_MS_MAX, "ms"),
        TortureFigure::info("longest start", format!("{longest:.0} ms")),
    ])
}

fn kill_database(kills: u64, seed: u64) -> Result<Vec<TortureFigure>> {
    let seen = kill_database::run(&std::env::current_exe()?, kills, seed)?;
    seen.problems.iter().for_each(|problem| println!("{problem}"));
    Ok(vec![
        TortureFigure::exactly("kills during changes of the database", seen.kills, kills),
        at_least_one("changes acknowledged", seen.acknowledged),
        TortureFigure::exactly("of these lost", seen.lost, 0),
        TortureFigure::exactly("databases that were damaged", seen.damaged, 0),
    ])
}

fn kill_import(program: &Path, kills: u64) -> Result<Vec<TortureFigure>> {
    if let Some(reason) = faults::missing() {
        return Ok(vec![TortureFigure::info("skipped", reason)]);
    }
    let seen = kill_import::run(program, u32::try_from(kills)?)?;
    seen.problems.iter().for_each(|problem| println!("{problem}"));
    Ok(vec![
        at_least_one("kills during the import", seen.kills),
        TortureFigure::info("of these before it was committed", seen.not_begun.to_string()),
        TortureFigure::exactly(
            "homes that lost, doubled or refused something",
            seen.problems.len() as u64,
            0,
        ),
    ])
}

fn faults(program: &Path, count: u64, seed: u64) -> Result<Vec<TortureFigure>> {
    if let Some(reason) = faults::missing() {
        return Ok(vec![TortureFigure::info("skipped", reason)]);
    }
    let all = [InjectedFault::all(), InjectedFault::lasting()].concat();
    let chosen = match usize::try_from(count)? {
        // The whole is not a choice.
        1_000.. => all,
        count => InjectedFault::some(count, &mut SplitMix64::new(seed)),
    };
    let seen = faults::run(program, &chosen, seed)?;
    // The database is written with `pwrite64`, as files of agents are.
    let kinds = FaultTarget::ALL;
    let kinds: Vec<_> = kinds.iter().flat_map(|kind| FaultErrno::ALL.map(|errno| (*kind, errno))).collect();
    let told = faults::commands(program, &kinds)?;
    seen.problems.iter().chain(&told.problems).for_each(|problem| println!("{problem}"));
    Ok(vec![
        TortureFigure::exactly("runs of the hub", seen.runs, chosen.len() as u64),
        at_least_one("of these with a failure", seen.hit),
        at_least_one("failures made", seen.faults),
        at_least_one("calls acknowledged", seen.acknowledged),
        at_least_one("calls refused", seen.refused),
        at_least_one("approvals consumed", seen.approved),
        TortureFigure::info("hubs that said why they do not start", seen.not_started.to_string()),
        TortureFigure::exactly(
            "promises broken, files torn, hubs that did not recover",
            seen.problems.len() as u64,
            0,
        ),
        TortureFigure::info("commands run, failures made", format!("{}, {}", told.commands, told.faults)),
        TortureFigure::exactly("secrets or clients lost or damaged", told.problems.len() as u64, 0),
    ])
}

fn full_disk(program: &Path, calls: u64) -> Result<Vec<TortureFigure>> {
    let Some(seen) = full_disk::run(program, calls)? else {
        return Ok(vec![TortureFigure::info("skipped", "a file system cannot be mounted here")]);
    };
    Ok(vec![
        TortureFigure::exactly("writes with a full disk refused, with the reason", seen.refused, calls),
        TortureFigure::exactly("files that changed all the same", seen.changed, 0),
        TortureFigure::exactly("reads that went on", seen.read, calls),
        TortureFigure::exactly("hubs that work again when there is room", u64::from(seen.recovered), 1),
        TortureFigure::exactly("logs that verify afterwards", u64::from(seen.verified), 1),
        TortureFigure::exactly(
            "clients revoked exactly if the command said so",
            u64::from(seen.revocation_held),
            1,
        ),
    ])
}

#[expect(clippy::cast_precision_loss, reason = "it is shown")]
fn servers(program: &Path, rounds: u64) -> Result<Vec<TortureFigure>> {
    let server = |word: &str| -> Result<ServerProgram> {
        Ok(ServerProgram { path: std::env::current_exe()?, args: vec![word.to_owned()] })
    };
    let seen =
        servers::run(program, &server("fault-server")?, rounds, &ServerFault::ALL, CalledServer::AnotherOne)?;
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
                TortureFigure::info(what, format!("{middle:.2} {TIMES}"))
            }
            _ => {
                let what = format!(
                    "p99 of another server while one misbehaves ({how}), times that before and after"
                );
                TortureFigure::at_most(what, middle, P99_TIMES_MAX, TIMES)
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
        TortureFigure::at_most(late, ms(latest.late), LATE_MS_MAX, "ms"),
        TortureFigure::at_most(
            "longest time until a server that crashed answers again",
            ms(longest),
            RECONNECTED_MS_MAX,
            "ms",
        ),
        TortureFigure::at_most(
            "memory afterwards, times that after the first round",
            grown,
            MEMORY_TIMES_MAX,
            TIMES,
        ),
        TortureFigure::info("… fresh → after the first round → afterwards", format!("{memory} MB")),
        at_least_one("processes that the hub has started", seen.started as u64),
        TortureFigure::exactly("of these left after its end", seen.left as u64, 0),
        TortureFigure::at_least("tools of 100 servers", many.tools as f64, (SERVERS * 10) as f64, ""),
        TortureFigure::at_most("`tools/list` of all of them, all pages", ms(many.list), LIST_MS_MAX, "ms"),
        TortureFigure::info("… the first page", format!("{:.2} ms", ms(many.page))),
        TortureFigure::at_most("memory of the hub with all of them", mb(many.memory_kb), MANY_MB_MAX, "MB"),
    ]);
    Ok(figures)
}

#[expect(clippy::cast_precision_loss, reason = "it is shown")]
fn at_least_one(what: &str, count: u64) -> TortureFigure {
    TortureFigure::at_least(what, count as f64, 1.0, "")
}
