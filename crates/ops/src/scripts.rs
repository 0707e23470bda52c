//! Scripts: review, approve and reject versions, restore, save, remove.

use crate::context::Operations;
use crate::desk::{ApproveScript, DryRun, RejectScript, SaveScript, ScriptGrants};
use crate::{Actor, Problem, ProblemCode};
use portcullis_core::json::{printable, visible_lines};
use portcullis_store::clients::parse_duration;
use portcullis_tools::scripts::{
    ScriptApproval, ScriptDecision, ScriptError, ScriptHeader, ScriptName, ScriptPermissions,
    ScriptRejection, ScriptRestoration, ScriptReview, ScriptRunRecord, ScriptSnapshot, ScriptStore,
    ScriptSummary,
};
use portcullis_tools::{ScriptCheckError, ScriptCheckReport};
use serde_json::json;
use similar::TextDiff;

/// The file, in a comparison with a proposal to change it.
const FILE_NOW: &str = "the file";

/// A decision about a version.
#[derive(Debug)]
pub struct DecidedScript {
    pub name: ScriptName,
    /// The script after the decision; `None` for a rejected proposal, which no longer exists.
    pub now: Option<ScriptSummary>,
    /// The script before the decision.
    pub was: ScriptSummary,
    /// The decision that was in force until now.
    pub before: Option<ScriptDecision>,
}

impl Operations {
    pub fn list_scripts(&self) -> Result<Vec<ScriptSummary>, Problem> {
        self.script_store().list().map_err(script_problem)
    }

    pub fn review_script(&self, name: &str) -> Result<ScriptReview, Problem> {
        self.script_store().review(&named(name)?).map_err(script_problem)
    }

    /// Returns the source of a version that was decided on.
    pub fn script_source(&self, name: &str, sha256: &str) -> Result<String, Problem> {
        self.script_store().version(&named(name)?, sha256).map_err(script_problem)
    }

    /// Returns the decisions about a script and its runs, newest first.
    pub fn script_history(&self, name: &str) -> Result<(Vec<ScriptDecision>, Vec<ScriptRunRecord>), Problem> {
        let (name, store) = (named(name)?, self.script_store());
        let decisions = store.decisions(&name).map_err(script_problem)?;
        Ok((decisions, store.runs(&name).map_err(script_problem)?))
    }

    /// Approves exactly the version that was reviewed, with these grants.
    pub fn approve_script(
        &self,
        name: &str,
        approval: ApproveScript,
        by: &Actor,
    ) -> Result<DecidedScript, Problem> {
        let details = json!({ "name": name, "sha256": approval.sha256, "grant": approval.grant });
        self.record(by, "scripts.approve", details, || {
            let ApproveScript { sha256, grant, expires, seen, beyond_requested } = approval;
            let (name, store) = (named(name)?, self.script_store());
            let expires = expires.as_deref().map(parse_duration).transpose();
            let expires = expires.map_err(|error| Problem::invalid(error.to_string()))?;
            let review = store.review(&name).map_err(script_problem)?;
            // Checked against the reviewed version: grants of another one do not apply.
            let wants = ScriptHeader::of(review.version(&sha256).map_err(script_problem)?).wants;
            if !beyond_requested {
                check_requested(&grant, &wants)?;
            }
            let granted = permissions(&grant, &wants);
            let approval = ScriptApproval { sha256, granted, expires, by: by.to_string(), seen: Some(seen) };
            let before = store.approve(&name, approval).map_err(script_problem)?;
            let now = store.review(&name).map_err(script_problem)?.listed;
            Ok(DecidedScript { name, now: Some(now), was: review.listed, before })
        })
    }

    pub fn reject_script(
        &self,
        name: &str,
        rejection: RejectScript,
        by: &Actor,
    ) -> Result<DecidedScript, Problem> {
        let details = json!({ "name": name, "sha256": rejection.sha256 });
        self.record(by, "scripts.reject", details, || {
            let RejectScript { sha256, reason, seen } = rejection;
            let (name, store) = (named(name)?, self.script_store());
            let was = store.review(&name).map_err(script_problem)?.listed;
            let rejection = ScriptRejection { sha256, reason, by: by.to_string(), seen: Some(seen) };
            let before = store.reject(&name, rejection).map_err(script_problem)?;
            let now = match store.review(&name) {
                Ok(review) => Some(review.listed),
                Err(ScriptError::Unknown(_)) => None,
                Err(error) => return Err(script_problem(error)),
            };
            Ok(DecidedScript { name, now, was, before })
        })
    }

    /// Writes the file. It does not run until an administrator approves it.
    pub fn save_script(&self, name: &str, text: &SaveScript, by: &Actor) -> Result<ScriptSummary, Problem> {
        self.record(by, "scripts.save", json!({ "name": name }), || {
            let (name, store) = (named(name)?, self.script_store());
            store.write(&name, &text.text, text.was.as_deref()).map_err(script_problem)?;
            Ok(store.review(&name).map_err(script_problem)?.listed)
        })
    }

    /// Restores an approved version. `instead_of` is what the person saw, if the version that is replaced was shown.
    pub fn restore_script(
        &self,
        name: &str,
        sha256: &str,
        instead_of: Option<ScriptSnapshot>,
        by: &Actor,
    ) -> Result<ScriptDecision, Problem> {
        self.record(by, "scripts.restore", json!({ "name": name, "sha256": sha256 }), || {
            let restore = ScriptRestoration { sha256: sha256.to_owned(), by: by.to_string(), instead_of };
            self.script_store().restore(&named(name)?, restore).map_err(script_problem)
        })
    }

    pub fn remove_script(&self, name: &str, by: &Actor) -> Result<ScriptName, Problem> {
        self.record(by, "scripts.remove", json!({ "name": name }), || {
            let name = named(name)?;
            self.script_store().remove(&name).map_err(script_problem)?;
            Ok(name)
        })
    }

    /// Runs a source in the sandbox, without secrets, network or tools.
    pub async fn dry_run_script(&self, run: DryRun) -> Result<ScriptCheckReport, ScriptCheckError> {
        let DryRun { text, function, args } = run;
        self.script_checker().try_text(&text, function, &args).await
    }

    fn script_store(&self) -> &ScriptStore {
        &self.script_checker().scripts
    }
}

/// Returns hash and source of the version to decide on: the proposal, or else the file.
pub fn version_to_decide(review: &ScriptReview) -> (&str, &str) {
    match (&review.listed.proposal, &review.proposed) {
        (Some(proposal), Some(source)) => (&proposal.sha256, source),
        _ => (&review.listed.sha256, &review.source),
    }
}

/// Returns name and source of what the version to decide on is compared with: the file for a proposal, or else the last
/// approved version.
pub fn script_diff_base(review: &ScriptReview) -> Option<(&'static str, &str)> {
    match (&review.proposed, &review.approved) {
        (Some(_), _) if review.listed.exists => Some((FILE_NOW, &review.source)),
        (_, Some((_, approved))) => Some(("approved", approved)),
        (_, None) => None,
    }
}

/// Returns a diff of the version to decide on: grants first, then the source.
pub fn script_difference(review: &ScriptReview) -> String {
    let Some((name, old)) = script_diff_base(review) else {
        return "No earlier version to compare with.\n".to_owned();
    };
    let is_proposal = name == FILE_NOW;
    let had = match &review.approved {
        Some((decision, _)) if !is_proposal => &decision.granted,
        _ => review.listed.granted.as_ref().unwrap_or(&review.listed.header.wants),
    };
    // A proposal is compared only with a file that exists.
    let new = if is_proposal { version_to_decide(review).1 } else { &review.source };
    let mut text = String::new();
    for line in had.differences(&ScriptHeader::of(new).wants) {
        text.push_str(&format!("{line}\n"));
    }
    let (old, new) = (visible_lines(old), visible_lines(new));
    let diff = TextDiff::from_lines(&old, &new);
    text.push_str(&diff.unified_diff().context_radius(3).header(name, "now").to_string());
    text
}

/// Returns the state of a script as people read it in a list.
pub fn script_state_words(listed: &ScriptSummary) -> String {
    match (listed.exists, &listed.proposal) {
        (false, _) => "proposed".to_owned(),
        (true, Some(_)) => format!("{}, change proposed", listed.state.as_str()),
        (true, None) => listed.state.as_str().to_owned(),
    }
}

fn named(name: &str) -> Result<ScriptName, Problem> {
    name.parse().map_err(|error| script_problem(ScriptError::Name(error)))
}

/// Refuses grants that the script does not request.
fn check_requested(given: &ScriptGrants, wants: &ScriptPermissions) -> Result<(), Problem> {
    let kinds = [
        ("secret", &given.secrets, &wants.secrets),
        ("host", &given.hosts, &wants.hosts),
        ("tool", &given.tools, &wants.tools),
    ];
    for (kind, given, wants) in kinds {
        if let Some(more) = given.iter().find(|name| !wants.contains(*name)) {
            let more = printable(more);
            let reason = format!("the script does not request the {kind} `{more}`");
            return Err(script_problem(ScriptError::Capabilities(reason)));
        }
    }
    Ok(())
}

fn permissions(grant: &ScriptGrants, wants: &ScriptPermissions) -> ScriptPermissions {
    let set = |names: &[String]| names.iter().cloned().collect();
    ScriptPermissions {
        secrets: set(&grant.secrets),
        hosts: set(&grant.hosts),
        tools: set(&grant.tools),
        timeout_ms: wants.timeout_ms,
    }
}

/// A check or a run that did not end with a fault of the script.
pub fn check_problem(error: ScriptCheckError) -> Problem {
    match error {
        ScriptCheckError::Script(error) => script_problem(error),
        ScriptCheckError::Fault { told, .. } => Problem::invalid(told),
        error @ ScriptCheckError::TooLarge(_) => Problem::new(ProblemCode::TooLarge, error.to_string()),
        error @ ScriptCheckError::Sandbox(_) => Problem::unavailable(error.to_string()),
    }
}

fn script_problem(error: ScriptError) -> Problem {
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
