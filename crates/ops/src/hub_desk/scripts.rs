//! Scripts, as the page shows them: versions, dry runs, past runs.

use super::differences::change;
use super::done;
use super::script_status::ScriptStatusWatcher;
use crate::desk::{
    ActionReceipt, ApproveScript, DeskFuture, DryRun, DryRunResult, RejectScript, RestoreScript, SaveScript,
    ScriptBrief, ScriptDesk, ScriptDetail, ScriptGrants, ScriptList, ScriptProblem, ScriptRun, ScriptText,
    ScriptVersion,
};
use crate::scripts::{check_problem, script_diff_base, version_to_decide};
use crate::{Actor, Operations, Problem};
use portcullis_core::blocking;
use portcullis_tools::ScriptCheckError;
use portcullis_tools::scripts::{
    self as store, ScriptDecision, ScriptHeader, ScriptRunRecord, ScriptSnapshot, ScriptSummary,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The script desk of this hub.
pub(super) struct HubScripts {
    ops: Arc<Operations>,
    pub(super) states: Arc<ScriptStatusWatcher>,
}

impl HubScripts {
    pub(super) fn new(ops: Arc<Operations>) -> HubScripts {
        HubScripts { states: Arc::new(ScriptStatusWatcher::new(ops.script_checker().scripts.clone())), ops }
    }

    /// Runs an operation on the blocking pool.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Operations) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let ops = self.ops.clone();
        blocking(move || question(&ops)).await
    }

    /// As [`HubScripts::ask`], for changes: rescans the states, so that the next page shows them.
    async fn order<T: Send + 'static>(
        &self,
        order: impl FnOnce(&Operations) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let done = self.ask(order).await;
        self.states.look_again().await;
        done
    }

    async fn show(&self, name: String) -> Result<ScriptDetail, Problem> {
        let (looked, (decisions, runs)) =
            self.ask(move |ops| Ok((ops.review_script(&name)?, ops.script_history(&name)?))).await?;
        let text = version_to_decide(&looked).1.to_owned();
        let checked = self.ops.script_checker().check(looked.listed.name.as_str(), &text).await;
        let problem = checked.err().map(|error| script_problem(&error));
        let header = ScriptHeader::of(&text);
        let had = match &looked.approved {
            Some((decision, _)) => decision.granted.clone(),
            None => looked.listed.granted.clone().unwrap_or_default(),
        };
        let before = script_diff_base(&looked).map(|(_, source)| source.to_owned());
        Ok(ScriptDetail {
            brief: described(brief(&looked.listed), &header),
            change: before
                .filter(|before| *before != text)
                .map(|before| change(Some(before), Some(text.clone()))),
            text,
            capabilities_added: less(&header.wants, &had),
            capabilities_removed: less(&had, &header.wants),
            problem,
            versions: decisions.iter().map(version).collect(),
            runs: runs.iter().map(run).collect(),
        })
    }

    async fn try_out(&self, run: DryRun) -> Result<DryRunResult, Problem> {
        match self.ops.dry_run_script(run).await {
            Ok(ran) => Ok(DryRunResult {
                value: ran.value,
                printed: ran.printed,
                problem: None,
                duration_us: u64::try_from(ran.took.as_micros()).unwrap_or(u64::MAX),
            }),
            Err(error @ ScriptCheckError::Fault { .. }) => Ok(DryRunResult {
                value: None,
                printed: String::new(),
                problem: Some(script_problem(&error)),
                duration_us: 0,
            }),
            Err(error) => Err(check_problem(error)),
        }
    }
}

impl ScriptDesk for HubScripts {
    fn list(&self) -> DeskFuture<'_, ScriptList> {
        Box::pin(self.ask(|ops| Ok(ScriptList { scripts: ops.list_scripts()?.iter().map(brief).collect() })))
    }

    fn detail(&self, name: String) -> DeskFuture<'_, ScriptDetail> {
        Box::pin(self.show(name))
    }

    fn version(&self, name: String, sha256: String) -> DeskFuture<'_, ScriptText> {
        Box::pin(self.ask(move |ops| {
            let text = ops.script_source(&name, &sha256)?;
            Ok(ScriptText { sha256, text })
        }))
    }

    fn approve(&self, name: String, approval: ApproveScript, actor: Actor) -> DeskFuture<'_, ScriptBrief> {
        Box::pin(self.order(move |ops| {
            let decided = ops.approve_script(&name, approval, &actor)?;
            Ok(brief(&decided.now.unwrap_or(decided.was)))
        }))
    }

    fn reject(&self, name: String, rejection: RejectScript, actor: Actor) -> DeskFuture<'_, ScriptBrief> {
        Box::pin(self.order(move |ops| {
            let decided = ops.reject_script(&name, rejection, &actor)?;
            // A rejected proposal no longer exists.
            let gone = || ScriptBrief { state: "rejected".to_owned(), ..brief(&decided.was) };
            Ok(decided.now.as_ref().map_or_else(gone, brief))
        }))
    }

    fn save(&self, name: String, text: SaveScript, actor: Actor) -> DeskFuture<'_, ScriptBrief> {
        Box::pin(self.order(move |ops| Ok(brief(&ops.save_script(&name, &text, &actor)?))))
    }

    fn restore(&self, name: String, version: RestoreScript, actor: Actor) -> DeskFuture<'_, ScriptBrief> {
        Box::pin(self.order(move |ops| {
            let RestoreScript { sha256, was, seen } = version;
            let instead_of = Some(ScriptSnapshot { sha256: was, seen });
            ops.restore_script(&name, &sha256, instead_of, &actor)?;
            Ok(brief(&ops.review_script(&name)?.listed))
        }))
    }

    fn remove(&self, name: String, actor: Actor) -> DeskFuture<'_, ActionReceipt> {
        Box::pin(self.order(move |ops| {
            let gone = ops.remove_script(&name, &actor)?;
            Ok(done(format!("Removed script `{gone}`. Its decisions are kept.")))
        }))
    }

    fn dry_run(&self, run: DryRun, _: Actor) -> DeskFuture<'_, DryRunResult> {
        Box::pin(self.try_out(run))
    }
}

pub(super) fn brief(listed: &ScriptSummary) -> ScriptBrief {
    let state = match &listed.proposal {
        Some(_) if listed.exists => store::ScriptState::Changed,
        _ => listed.state,
    };
    let decision = listed.decision.as_ref();
    let brief = ScriptBrief {
        name: listed.name.to_string(),
        state: state.as_str().to_owned(),
        sha256: listed.proposal.as_ref().map_or(&listed.sha256, |proposal| &proposal.sha256).clone(),
        seen: listed.seen,
        description: None,
        author: None,
        version: None,
        wanted: ScriptGrants::default(),
        granted: shown(listed.granted.as_ref()),
        proposed_by: listed.proposal.as_ref().map(|proposal| proposal.client.clone()),
        decided_by: decision.map(|decision| decision.by.clone()),
        decided_at: decision.map(|decision| decision.at),
        expires: decision.and_then(|decision| decision.expires),
        reason: decision.and_then(|decision| decision.reason.clone()).or_else(|| listed.problem.clone()),
    };
    described(brief, &listed.header)
}

/// Adds the metadata of the header comment.
fn described(brief: ScriptBrief, header: &ScriptHeader) -> ScriptBrief {
    let said = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    ScriptBrief {
        description: said(&header.description),
        author: said(&header.author),
        version: said(&header.version),
        wanted: shown(Some(&header.wants)),
        ..brief
    }
}

fn shown(capabilities: Option<&store::ScriptPermissions>) -> ScriptGrants {
    let all = |names: &BTreeSet<String>| names.iter().cloned().collect();
    capabilities.map_or_else(ScriptGrants::default, |has| ScriptGrants {
        secrets: all(&has.secrets),
        hosts: all(&has.hosts),
        tools: all(&has.tools),
    })
}

/// Returns `all` minus `some`.
fn less(all: &store::ScriptPermissions, some: &store::ScriptPermissions) -> ScriptGrants {
    let less = |all: &BTreeSet<String>, some: &BTreeSet<String>| all.difference(some).cloned().collect();
    ScriptGrants {
        secrets: less(&all.secrets, &some.secrets),
        hosts: less(&all.hosts, &some.hosts),
        tools: less(&all.tools, &some.tools),
    }
}

fn version(decision: &ScriptDecision) -> ScriptVersion {
    ScriptVersion {
        sha256: decision.sha256.clone(),
        at: decision.at,
        by: decision.by.clone(),
        state: if decision.approved { "approved" } else { "rejected" }.to_owned(),
    }
}

fn run(run: &ScriptRunRecord) -> ScriptRun {
    ScriptRun {
        at: run.at,
        sha256: run.sha256.clone(),
        client: run.client.clone(),
        duration_us: run.duration_ms.saturating_mul(1000),
        outcome: run.outcome.clone(),
    }
}

fn script_problem(error: &ScriptCheckError) -> ScriptProblem {
    let place = match error {
        ScriptCheckError::Fault { place, .. } => place.as_deref(),
        _ => None,
    };
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    ScriptProblem {
        message: place.map_or_else(|| error.to_string(), |place| place.message.clone()),
        line: place.and_then(|place| place.line).map(number),
        column: place.and_then(|place| place.column).map(number),
        excerpt: place.and_then(|place| place.excerpt.clone()),
    }
}
