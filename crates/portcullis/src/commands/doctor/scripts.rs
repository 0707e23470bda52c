//! Check of scripts: sandbox support, pending approvals.

use super::{State, bad, block_on, unreadable};
use crate::config::Config;
use crate::database;
use anyhow::Result;
use portcullis_ops::script_sandbox as scripts;
use portcullis_script::SandboxStrictness;
use portcullis_tools::scripts as store;

pub(super) fn look(config: &Config) -> Result<State> {
    if !config.scripts.enabled {
        return Ok(State::Good("off".to_owned()));
    }
    let database = match database::open_to_look(config) {
        Ok(database) => database,
        Err(error) => return Ok(unreadable(&error)),
    };
    let desk = scripts::desk(config, &database);
    let missing = match block_on(desk.probe())? {
        Ok(missing) => missing,
        Err(error) => {
            return Ok(bad(
                error.to_string(),
                "check that this user can start processes and has free memory",
            ));
        }
    };
    if let Err(problem) = desk.scripts.health() {
        return Ok(bad(problem, super::RESTORE));
    }
    if !missing.is_empty() {
        let missing = missing.join("; ");
        return Ok(match config.scripts.strictness {
            SandboxStrictness::Required => bad(
                format!("incomplete sandbox, so scripts do not run: {missing}"),
                "use a kernel with Landlock and seccomp (Linux 5.13), or set `scripts.sandbox = \"best-effort\"`",
            ),
            SandboxStrictness::BestEffort => {
                State::Warning(format!("scripts run in an incomplete sandbox: {missing}"))
            }
        });
    }
    let list = match desk.scripts.list() {
        Ok(list) => list,
        Err(error) => return Ok(bad(error.to_string(), "check `scripts.path` and its permissions")),
    };
    let waits = |listed: &&store::ScriptSummary| {
        listed.proposal.is_some()
            || matches!(listed.state, store::ScriptState::Pending | store::ScriptState::Changed)
    };
    Ok(match list.iter().filter(waits).count() {
        0 => State::Good(format!("{} scripts; sandbox available", list.len())),
        waiting => State::Warning(format!(
            "{waiting} of {} scripts need approval; list them with `portcullis scripts`",
            list.len()
        )),
    })
}
