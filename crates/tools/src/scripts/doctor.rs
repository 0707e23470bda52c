//! Check of scripts: sandbox support, pending approvals.

use super::{ScriptState, ScriptSummary, ScriptsSection};
use portcullis_core::{BoxFuture, counted};
use portcullis_family::{CheckState, DoctorParts, HealthCheck};
use portcullis_script::SandboxStrictness;

pub(super) fn checks<'a>(parts: &'a DoctorParts<'a>) -> BoxFuture<'a, Vec<HealthCheck>> {
    Box::pin(async { vec![check(parts).await.of("scripts")] })
}

async fn check(parts: &DoctorParts<'_>) -> CheckState {
    let Some(settings) = parts.section::<ScriptsSection>().filter(|settings| settings.enabled) else {
        return CheckState::Good("off".to_owned());
    };
    let database = match parts.database {
        Ok(database) => database,
        Err(error) => return CheckState::unreadable(error),
    };
    let desk = settings.checker(database);
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
        return CheckState::unreadable(problem);
    }
    if !missing.is_empty() {
        let missing = missing.join("; ");
        return match settings.strictness {
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
        0 => CheckState::Good(format!("{}; sandbox available", counted(list.len(), "script"))),
        waiting => CheckState::Warning(format!(
            "{waiting} of {} {}; list them with `portcullis scripts`",
            counted(list.len(), "script"),
            if waiting == 1 { "needs approval" } else { "need approval" },
        )),
    }
}
