//! Scripts: versions, approval, dry runs, past runs.

use super::differences::change;
use super::done;
use super::script_status::ScriptStatusWatcher;
use portcullis_core::blocking;
use portcullis_ops::desk::{
    ActionReceipt, ApproveScript, DeskFuture, DryRun, DryRunResult, RejectScript, RestoreScript, SaveScript,
    ScriptBrief, ScriptDesk, ScriptDetail, ScriptGrants, ScriptList, ScriptProblem, ScriptRun, ScriptText,
    ScriptVersion,
};
use portcullis_ops::{Actor, Operations, Problem, ProblemCode};
use portcullis_store::clients::parse_duration;
use portcullis_tools::scripts::{
    self as store, ScriptApproval, ScriptDecision, ScriptError, ScriptHeader, ScriptName, ScriptRejection,
    ScriptRestoration, ScriptReview, ScriptRunRecord, ScriptSnapshot, ScriptSummary,
};
use portcullis_tools::{ScriptCheckError, ScriptChecker as Sandbox};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The script desk of this hub.
pub(super) struct HubScripts {
    desk: Sandbox,
    pub(super) states: Arc<ScriptStatusWatcher>,
    ops: Arc<Operations>,
}

impl HubScripts {
    pub(super) fn new(desk: Sandbox, ops: Arc<Operations>) -> HubScripts {
        HubScripts { states: Arc::new(ScriptStatusWatcher::new(desk.scripts.clone())), desk, ops }
    }

    /// Queries the store on the blocking pool.
    async fn ask<T: Send + 'static>(
        &self,
        name: String,
        question: impl FnOnce(&store::ScriptStore, &ScriptName) -> Result<T, ScriptError> + Send + 'static,
    ) -> Result<T, Problem> {
        let scripts = self.desk.scripts.clone();
        blocking(move || {
            let name = name.parse().map_err(|error| problem(ScriptError::Name(error)))?;
            question(&scripts, &name).map_err(problem)
        })
        .await
    }

    /// As [`HubScripts::ask`], for changes: rescans the states, so that the next page shows them.
    async fn order<T: Send + 'static>(
        &self,
        name: String,
        order: impl FnOnce(&store::ScriptStore, &ScriptName) -> Result<T, ScriptError> + Send + 'static,
    ) -> Result<T, Problem> {
        let done = self.ask(name, order).await;
        self.states.look_again().await;
        done
    }

    /// Makes a change that is recorded.
    async fn recorded<T>(
        &self,
        actor: Actor,
        action: &'static str,
        details: serde_json::Value,
        change: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        self.ops.changes.record_async(&actor, action, details, change).await
    }

    async fn brief_of(&self, name: String) -> Result<ScriptBrief, Problem> {
        self.ask(name, |scripts, name| Ok(brief(&scripts.review(name)?.listed))).await
    }

    async fn show(&self, name: String) -> Result<ScriptDetail, Problem> {
        let (looked, decisions, runs) = self
            .ask(name, |scripts, name| {
                Ok((scripts.review(name)?, scripts.decisions(name)?, scripts.runs(name)?))
            })
            .await?;
        let text = to_decide(&looked).to_owned();
        let problem = match self.desk.check(looked.listed.name.as_str(), &text).await {
            Ok(_) => None,
            Err(error) => Some(script_problem(&error)),
        };
        let header = ScriptHeader::of(&text);
        let had = match &looked.approved {
            Some((decision, _)) => decision.granted.clone(),
            None => looked.listed.granted.clone().unwrap_or_default(),
        };
        let before = match (&looked.proposed, &looked.approved) {
            (Some(_), _) if looked.listed.exists => Some(looked.source.clone()),
            (_, Some((_, source))) => Some(source.clone()),
            (_, None) => None,
        };
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

    async fn give_leave(
        &self,
        name: String,
        approval: ApproveScript,
        actor: Actor,
    ) -> Result<ScriptBrief, Problem> {
        let expires = approval.expires.as_deref().map(parse_duration).transpose();
        let expires = expires.map_err(|error| Problem::invalid(error.to_string()))?;
        let by = actor.to_string();
        let brief = self
            .order(name, move |scripts, name| {
                let looked = scripts.review(name)?;
                // Checked against the reviewed version: grants of another one do not apply.
                let wants = ScriptHeader::of(looked.version(&approval.sha256)?).wants;
                let granted = granted(&approval.grant, &wants)?;
                let sha256 = approval.sha256;
                scripts.approve(
                    name,
                    ScriptApproval { sha256, granted, expires, by, seen: Some(approval.seen) },
                )?;
                Ok(brief(&scripts.review(name)?.listed))
            })
            .await?;
        tracing::info!(target: "admin", by = %actor, script = brief.name, "script approved");
        Ok(brief)
    }

    async fn refuse(
        &self,
        name: String,
        rejection: RejectScript,
        actor: Actor,
    ) -> Result<ScriptBrief, Problem> {
        let by = actor.to_string();
        let RejectScript { sha256, reason, seen } = rejection;
        let brief = self
            .order(name, move |scripts, name| {
                let before = scripts.review(name)?.listed;
                scripts.reject(name, ScriptRejection { sha256, reason, by, seen: Some(seen) })?;
                match scripts.review(name) {
                    Ok(looked) => Ok(brief(&looked.listed)),
                    // A rejected proposal no longer exists.
                    Err(ScriptError::Unknown(_)) => {
                        Ok(ScriptBrief { state: "rejected".to_owned(), ..brief(&before) })
                    }
                    Err(error) => Err(error),
                }
            })
            .await?;
        tracing::info!(target: "admin", by = %actor, script = brief.name, "script rejected");
        Ok(brief)
    }

    async fn write(&self, name: String, text: SaveScript, actor: Actor) -> Result<ScriptBrief, Problem> {
        let brief = self
            .order(name, move |scripts, name| {
                scripts.write(name, &text.text, text.was.as_deref())?;
                Ok(brief(&scripts.review(name)?.listed))
            })
            .await?;
        tracing::info!(target: "admin", by = %actor, script = brief.name, "script saved");
        Ok(brief)
    }

    async fn try_out(&self, run: DryRun) -> Result<DryRunResult, Problem> {
        let DryRun { text, function, args } = run;
        match self.desk.try_text(&text, function, &args).await {
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
            Err(error) => Err(desk_problem(error)),
        }
    }
}

impl ScriptDesk for HubScripts {
    fn list(&self) -> DeskFuture<'_, ScriptList> {
        let scripts = self.desk.scripts.clone();
        Box::pin(blocking(move || {
            let all = scripts.list().map_err(problem)?;
            Ok(ScriptList { scripts: all.iter().map(brief).collect() })
        }))
    }

    fn detail(&self, name: String) -> DeskFuture<'_, ScriptDetail> {
        Box::pin(self.show(name))
    }

    fn version(&self, name: String, sha256: String) -> DeskFuture<'_, ScriptText> {
        Box::pin(self.ask(name, move |scripts, name| {
            let text = scripts.version(name, &sha256)?;
            Ok(ScriptText { sha256, text })
        }))
    }

    fn approve(&self, name: String, approval: ApproveScript, actor: Actor) -> DeskFuture<'_, ScriptBrief> {
        Box::pin(self.recorded(
            actor.clone(),
            "scripts.approve",
            json!({ "name": name, "sha256": approval.sha256, "grant": approval.grant }),
            self.give_leave(name, approval, actor),
        ))
    }

    fn reject(&self, name: String, rejection: RejectScript, actor: Actor) -> DeskFuture<'_, ScriptBrief> {
        Box::pin(self.recorded(
            actor.clone(),
            "scripts.reject",
            json!({ "name": name, "sha256": rejection.sha256 }),
            self.refuse(name, rejection, actor),
        ))
    }

    fn save(&self, name: String, text: SaveScript, actor: Actor) -> DeskFuture<'_, ScriptBrief> {
        Box::pin(self.recorded(
            actor.clone(),
            "scripts.save",
            json!({ "name": name }),
            self.write(name, text, actor),
        ))
    }

    fn restore(&self, name: String, version: RestoreScript, actor: Actor) -> DeskFuture<'_, ScriptBrief> {
        Box::pin(self.recorded(
            actor.clone(),
            "scripts.restore",
            json!({ "name": name, "sha256": version.sha256 }),
            async move {
                let (by, again) = (actor.to_string(), name.clone());
                let RestoreScript { sha256, was, seen } = version;
                let restore =
                    ScriptRestoration { sha256, by, instead_of: Some(ScriptSnapshot { sha256: was, seen }) };
                self.order(name, move |scripts, name| scripts.restore(name, restore)).await?;
                tracing::info!(target: "admin", by = %actor, script = again, "script restored");
                self.brief_of(again).await
            },
        ))
    }

    fn remove(&self, name: String, actor: Actor) -> DeskFuture<'_, ActionReceipt> {
        Box::pin(self.recorded(actor.clone(), "scripts.remove", json!({ "name": name }), async move {
            let gone =
                self.order(name, |scripts, name| scripts.remove(name).map(|()| name.to_string())).await?;
            tracing::info!(target: "admin", by = %actor, script = gone, "script removed");
            Ok(done(format!("Removed script `{gone}`. Its decisions are kept.")))
        }))
    }

    fn dry_run(&self, run: DryRun, _: Actor) -> DeskFuture<'_, DryRunResult> {
        Box::pin(self.try_out(run))
    }
}

/// Returns the source to decide on: the proposal, or else the file.
fn to_decide(looked: &ScriptReview) -> &str {
    looked.proposed.as_deref().unwrap_or(&looked.source)
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

/// Returns the grants, if the script requests all of them.
fn granted(
    given: &ScriptGrants,
    wants: &store::ScriptPermissions,
) -> Result<store::ScriptPermissions, ScriptError> {
    let kinds = [
        ("secret", &given.secrets, &wants.secrets),
        ("host", &given.hosts, &wants.hosts),
        ("tool", &given.tools, &wants.tools),
    ];
    for (kind, given, wants) in kinds {
        if let Some(more) = given.iter().find(|name| !wants.contains(*name)) {
            let more = portcullis_core::json::printable(more);
            return Err(ScriptError::Capabilities(format!(
                "the script does not request the {kind} `{more}`"
            )));
        }
    }
    let set = |names: &[String]| names.iter().cloned().collect();
    Ok(store::ScriptPermissions {
        secrets: set(&given.secrets),
        hosts: set(&given.hosts),
        tools: set(&given.tools),
        timeout_ms: wants.timeout_ms,
    })
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

fn desk_problem(error: ScriptCheckError) -> Problem {
    match error {
        ScriptCheckError::Script(error) => problem(error),
        ScriptCheckError::Fault { told, .. } => Problem::invalid(told),
        error @ ScriptCheckError::TooLarge(_) => Problem::new(ProblemCode::TooLarge, error.to_string()),
        error @ ScriptCheckError::Sandbox(_) => Problem::unavailable(error.to_string()),
    }
}

fn problem(error: ScriptError) -> Problem {
    let message = error.to_string();
    match error {
        ScriptError::Name(_)
        | ScriptError::NotText(_)
        | ScriptError::Ambiguous { .. }
        | ScriptError::Capabilities(_)
        | ScriptError::LongReason => Problem::invalid(message),
        ScriptError::TooLarge { .. } => Problem::new(ProblemCode::TooLarge, message),
        ScriptError::Unknown(_) | ScriptError::NoVersion { .. } => Problem::not_found(message),
        ScriptError::NotThatVersion { .. } => Problem::changed(message),
        ScriptError::NotFile(_)
        | ScriptError::Unreadable { .. }
        | ScriptError::Exists(_)
        | ScriptError::Decided { .. }
        | ScriptError::ManyProposals
        | ScriptError::ManyOwnProposals
        | ScriptError::ProposedByAnother(_)
        | ScriptError::Full => Problem::conflict(message),
        ScriptError::Damaged(_) | ScriptError::Io(_) | ScriptError::Database(_) => {
            Problem::unavailable(message)
        }
    }
}
