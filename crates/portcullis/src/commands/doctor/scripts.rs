//! Scripts: whether their sandbox is to be had here, and what waits for a person.

use super::{State, bad, block_on};
use crate::config::Config;
use crate::scripts;
use anyhow::Result;
use portcullis_script::Strictness;
use portcullis_store::scripts as store;

pub(super) fn look(config: &Config) -> Result<State> {
    if !config.scripts.enabled {
        return Ok(State::Good("off".to_owned()));
    }
    let desk = scripts::desk(config);
    let missing = match block_on(desk.probe())? {
        Ok(missing) => missing,
        Err(error) => {
            return Ok(bad(
                error.to_string(),
                "look whether this user can start processes, and has memory left",
            ));
        }
    };
    if let Err(problem) = desk.scripts.health() {
        let advice = "restore `scripts.json` from a backup, or move it away and approve the scripts anew";
        return Ok(bad(problem, advice));
    }
    if !missing.is_empty() {
        let missing = missing.join("; ");
        return Ok(match config.scripts.strictness {
            Strictness::Required => bad(
                format!("the sandbox is not complete, so no script runs: {missing}"),
                "use a kernel with Landlock and seccomp (Linux 5.13), or set `scripts.sandbox = \"best-effort\"`",
            ),
            Strictness::BestEffort => State::Warning(format!("scripts run with half a sandbox: {missing}")),
        });
    }
    let list = match desk.scripts.list() {
        Ok(list) => list,
        Err(error) => return Ok(bad(error.to_string(), "check `scripts.path` and who may read it")),
    };
    let waits = |listed: &&store::Listed| {
        listed.proposal.is_some() || matches!(listed.state, store::State::Pending | store::State::Changed)
    };
    Ok(match list.iter().filter(waits).count() {
        0 => State::Good(format!("{} scripts; the sandbox is complete", list.len())),
        waiting => State::Warning(format!(
            "{waiting} of {} scripts wait for a person; `portcullis scripts` lists them",
            list.len()
        )),
    })
}
