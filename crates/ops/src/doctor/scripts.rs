//! Check of scripts: sandbox support, pending approvals.

use super::{CheckState, RESTORE, unreadable};
use crate::config::Config;
use crate::home::Home;
use crate::{database, script_sandbox};
use portcullis_script::SandboxStrictness;
use portcullis_tools::scripts::{ScriptState, ScriptSummary};

pub async fn check_scripts(home: &Home, config: &Config) -> CheckState {
    if !config.scripts.enabled {
        return CheckState::Good("off".to_owned());
    }
    let database = match database::open_to_look(home, config) {
        Ok(database) => database,
        Err(error) => return unreadable(&error),
    };
    let desk = script_sandbox::desk(config, &database);
    let missing = match desk.probe().await {
        Ok(missing) => missing,
        Err(error) => {
            return CheckState::bad(
                error.to_string(),
                "check that this user can start processes and has free memory",
            );
        }
    };
    if let Err(problem) = desk.scripts.health() {
        return CheckState::bad(problem, RESTORE);
    }
    if !missing.is_empty() {
        let missing = missing.join("; ");
        return match config.scripts.strictness {
            SandboxStrictness::Required => CheckState::bad(
                format!("incomplete sandbox, so scripts do not run: {missing}"),
                "use a kernel with Landlock and seccomp (Linux 5.13), or set `scripts.sandbox = \"best-effort\"`",
            ),
            SandboxStrictness::BestEffort => {
                CheckState::Warning(format!("scripts run in an incomplete sandbox: {missing}"))
            }
        };
    }
    let list = match desk.scripts.list() {
        Ok(list) => list,
        Err(error) => return CheckState::bad(error.to_string(), "check `scripts.path` and its permissions"),
    };
    let waits = |listed: &&ScriptSummary| {
        listed.proposal.is_some() || matches!(listed.state, ScriptState::Pending | ScriptState::Changed)
    };
    match list.iter().filter(waits).count() {
        0 => CheckState::Good(format!("{} scripts; sandbox available", list.len())),
        waiting => CheckState::Warning(format!(
            "{waiting} of {} scripts need approval; list them with `portcullis scripts`",
            list.len()
        )),
    }
}
