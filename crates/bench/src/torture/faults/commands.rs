//! Failures in the commands that change what the hub keeps: `secrets set` and `clients add`.

use super::{FaultDuration, FaultErrno, FaultFigures, FaultTarget, InjectedFault, NTH_MAX, workplace};
use crate::torture::durable;
use crate::torture::session::TortureHome;
use crate::torture::trace;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::Path;

/// After so many runs in which nothing failed, nothing is left that could.
const IDLE_RUNS_MAX: u32 = 3;

/// What the command finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HomeState {
    /// Nothing: it makes all that it needs.
    New,
    /// What the commands before it left, whether they failed or not.
    Used,
}

struct StoredNames {
    secrets: Vec<String>,
    clients: Vec<String>,
}

pub(super) fn run(
    program: &Path,
    kind: FaultTarget,
    errno: FaultErrno,
    home: HomeState,
) -> Result<FaultFigures> {
    let mut seen = FaultFigures::default();
    let mut lab = TortureHome::in_folder(program, &workplace())?;
    let mut kept = StoredNames { secrets: Vec::new(), clients: Vec::new() };
    let mut idle = 0;
    for nth in 1..=NTH_MAX {
        if home == HomeState::New {
            lab = TortureHome::in_folder(program, &workplace())?;
            kept = StoredNames { secrets: Vec::new(), clients: Vec::new() };
        }
        let fault = InjectedFault { kind, errno, nth, lasts: FaultDuration::Once };
        let mut hit = false;
        for (what, name) in [("secrets", format!("N{nth}")), ("clients", format!("n{nth}"))] {
            let faults = one(&lab, &fault, what, &name, &mut kept, &mut seen)
                .with_context(|| format!("{fault:?}, {what}, {home:?}"));
            match faults {
                Ok(faults) => {
                    hit |= faults > 0;
                    seen.faults += faults;
                }
                Err(error) => seen.problems.push(format!("{error:#}")),
            }
        }
        idle = if hit { 0 } else { idle + 1 };
        if idle == IDLE_RUNS_MAX {
            break;
        }
    }
    Ok(seen)
}

/// Runs one command with the failure, and returns how often that happened.
fn one(
    lab: &TortureHome,
    fault: &InjectedFault,
    what: &str,
    name: &str,
    kept: &mut StoredNames,
    seen: &mut FaultFigures,
) -> Result<u64> {
    let log = lab.beside("trace");
    let (verb, input) =
        if what == "secrets" { ("set", "a-value-9f3c-of-some-length\n") } else { ("add", "") };
    let ran = lab.run(&fault.strace(&log, &[]), &[what, verb, name, "--json"], input)?;
    seen.commands += 1;
    let said = String::from_utf8_lossy(&ran.stderr);
    ensure!(!said.contains("panicked"), "it panicked: {said}");
    let acknowledged = ran.status.success();
    ensure!(ran.status.code().is_some(), "it ended with {}: {said}", ran.status);
    // What cannot be written cannot be said either.
    let could_say = fault.kind != FaultTarget::LogWrite;
    ensure!(acknowledged || !could_say || !said.trim().is_empty(), "it failed and did not say why");

    let calls = trace::parse(&std::fs::read_to_string(&log)?);
    if acknowledged {
        let database = lab.secure().join("portcullis.db").display().to_string();
        let missing = durable::database_missing_at_end(&calls, &lab.home().display().to_string(), &database);
        ensure!(missing.is_empty(), "it succeeded, but {}", missing.join("; "));
        let names = if what == "secrets" { &mut kept.secrets } else { &mut kept.clients };
        names.push(name.to_owned());
    }
    for (what, names) in [("secrets", &kept.secrets), ("clients", &kept.clients)] {
        let listed: Value = serde_json::from_str(&lab.succeeds(&[what, "list", "--json"])?)?;
        let listed = listed.to_string();
        let gone: Vec<_> = names.iter().filter(|name| !listed.contains(&format!("\"{name}\""))).collect();
        ensure!(gone.is_empty(), "{what} that were acknowledged are gone: {gone:?}");
    }
    Ok(calls.iter().filter(|call| call.injected).count() as u64)
}
