//! Approvals: list, look at one, decide.

use crate::always_allow::{REASON_CHARS_MAX, allow_always};
use crate::context::Operations;
use crate::desk::{ApprovalChoice, ApprovalFilter, DecideApproval};
use crate::guard_settings::approval_times;
use crate::{Actor, Problem, ProblemCode};
use data_encoding::HEXLOWER;
use jiff::Timestamp;
use portcullis_store::approvals::{
    Approval, ApprovalError, ApprovalRequest, ApprovalScope, ApprovalSnapshot, ApprovalStage, ApprovalVerdict,
};
use serde_json::json;

/// A decision that was made.
#[derive(Debug)]
pub struct DecidedApproval {
    pub approval: Approval,
    pub choice: ApprovalChoice,
    /// The file that an allow rule was written to.
    pub rule_written_to: Option<String>,
}

impl Operations {
    /// Returns the pending approvals, oldest first; then the others, if wanted, newest first.
    pub fn list_approvals(&self, wanted: &ApprovalFilter) -> Result<Vec<Approval>, Problem> {
        let store = self.approvals.approvals();
        let now = store.now();
        let is_pending = |approval: &Approval| approval.stage(now) == ApprovalStage::Pending;
        let (mut list, mut over): (Vec<_>, Vec<_>) =
            store.list().map_err(problem)?.into_iter().partition(is_pending);
        if wanted.all {
            over.reverse();
            list.extend(over);
        }
        Ok(list)
    }

    /// Returns an approval by its id or an id prefix.
    pub fn approval(&self, id: &str) -> Result<Approval, Problem> {
        self.approvals.approvals().get(id).map_err(problem)
    }

    /// Decides about exactly the call that the person saw.
    pub fn decide_approval(
        &self,
        id: &str,
        decision: DecideApproval,
        by: &Actor,
    ) -> Result<DecidedApproval, Problem> {
        let details = json!({ "id": id, "decision": decision.decision, "digest": decision.digest });
        self.record(by, "approvals.decide", details, || self.decide(id, decision, by))
    }

    fn decide(&self, id: &str, decision: DecideApproval, by: &Actor) -> Result<DecidedApproval, Problem> {
        let DecideApproval { decision: choice, reason, digest, seen } = decision;
        let verdict = verdict(choice, reason)?;
        let (store, lifetimes) = (self.approvals.approvals(), approval_times(&self.config()).lifetimes);
        let approval = self.approval(id)?;
        if approval.call.digest != digest {
            return Err(Problem::changed(format!("`{}` is not the call that you reviewed", approval.id))
                .hint("review it again, then decide"));
        }
        let now = store.now();
        if !approval.takes(&verdict, seen, now) {
            return Err(over(&approval, seen, now));
        }
        if choice != ApprovalChoice::Reject && self.is_as_asked(&approval) == Some(false) {
            let target = &approval.call.target;
            let message = format!("`{target}` changed since this call was made, so the call would not run");
            return Err(Problem::changed(message)
                .hint("reject it; the agent can make the call again and request a new approval"));
        }
        // The rule first: if it cannot be written, nothing is decided.
        let rule_written_to = match choice {
            ApprovalChoice::Always => allow_always(&self.home, &approval, self.server_factory().ok(), now)?,
            ApprovalChoice::Once | ApprovalChoice::Session | ApprovalChoice::Reject => None,
        };
        // Compare and set: of two concurrent decisions, the second gets a conflict.
        let snapshot = ApprovalSnapshot { decided: seen, session: approval.call.session.clone() };
        let decided = store.answer(&approval.id, verdict, &by.to_string(), &snapshot, lifetimes);
        let decided = decided.map_err(|error| match error {
            ApprovalError::Decided { .. } | ApprovalError::Expired(_) => {
                store.get(&approval.id).map_or_else(problem, |decided| over(&decided, seen, store.now()))
            }
            error => problem(error),
        });
        let approval = decided.map_err(|problem| match &rule_written_to {
            Some(file) => problem.hint(format!("the rule was already written to {file}")),
            None => problem,
        })?;
        Ok(DecidedApproval { approval, choice, rule_written_to })
    }

    /// Returns whether the tool definition is unchanged since the request; `None` without a running hub, which checks it
    /// before the call runs.
    pub fn is_as_asked(&self, approval: &Approval) -> Option<bool> {
        let (call, live) = (&approval.call, self.live.as_ref()?);
        let tools = live.registry.tools();
        let tool = tools.iter().find(|tool| tool.name == call.target);
        Some(
            call.kind != "tool"
                || tool.is_some_and(|tool| HEXLOWER.encode(&tool.digest()) == call.definition),
        )
    }
}

impl DecidedApproval {
    /// Returns what was decided, in one sentence.
    pub fn sentence(&self) -> String {
        let ApprovalRequest { client, kind, target, session, .. } = &self.approval.call;
        let expires = self.approval.expires;
        let span = self.approval.decided.as_ref().and_then(|decided| decided.span);
        let how = match (self.choice, span, &self.rule_written_to) {
            (ApprovalChoice::Reject, ..) => {
                return format!("Client `{client}` may not run {kind} `{target}` with these arguments.");
            }
            (ApprovalChoice::Always, _, Some(file)) => format!("always; added a rule to {file}"),
            (ApprovalChoice::Always, _, None) => "always; a rule already allows it".to_owned(),
            (_, Some(ApprovalScope::Session), _) if session.is_some() => "until its session ends".to_owned(),
            (_, Some(ApprovalScope::Session), _) => {
                format!("until {expires:.0} (the client has no session)")
            }
            (_, Some(ApprovalScope::Once) | None, _) => format!("once, until {expires:.0}"),
        };
        format!("Client `{client}` may run {kind} `{target}` {how}.")
    }
}

fn verdict(choice: ApprovalChoice, reason: Option<String>) -> Result<ApprovalVerdict, Problem> {
    let reason = reason.filter(|reason| !reason.trim().is_empty());
    if reason.as_ref().is_some_and(|reason| reason.chars().count() > REASON_CHARS_MAX) {
        return Err(Problem::invalid(format!(
            "the reason is too long: the limit is {REASON_CHARS_MAX} characters"
        )));
    }
    if reason.is_some() && choice != ApprovalChoice::Reject {
        return Err(Problem::invalid("a reason is for rejections only"));
    }
    Ok(match choice {
        ApprovalChoice::Once | ApprovalChoice::Always => ApprovalVerdict::Approve(ApprovalScope::Once),
        ApprovalChoice::Session => ApprovalVerdict::Approve(ApprovalScope::Session),
        ApprovalChoice::Reject => ApprovalVerdict::Reject { reason },
    })
}

/// The conflict error: who decided first.
fn over(approval: &Approval, seen: Option<Timestamp>, now: Timestamp) -> Problem {
    let (id, state) = (&approval.id, approval.stage(now));
    match (&approval.decided, state) {
        (None, ApprovalStage::Pending) => Problem::changed(format!("`{id}` is still pending"))
            .hint("omit `seen`, which names an earlier decision"),
        (_, ApprovalStage::Expired) | (None, _) => problem(ApprovalError::Expired(id.clone())),
        (Some(decided), _) => {
            let problem = Problem::conflict(format!("`{id}` is {state} already, by {}", decided.by));
            if seen == Some(decided.at) {
                // What the person saw does not admit this decision.
                return problem;
            }
            problem.hint("review it again; to change an unused decision, pass its time as `seen`")
        }
    }
}

fn problem(error: ApprovalError) -> Problem {
    let code = match &error {
        ApprovalError::Unknown(_) => ProblemCode::NotFound,
        ApprovalError::Ambiguous(_) | ApprovalError::SingleUse(_) => ProblemCode::Invalid,
        ApprovalError::Expired(_) | ApprovalError::Decided { .. } => ProblemCode::Conflict,
        ApprovalError::TooLarge | ApprovalError::Full => ProblemCode::Conflict,
        ApprovalError::Damaged(_) | ApprovalError::Database(_) => ProblemCode::Unavailable,
        ApprovalError::Random(_) => ProblemCode::Internal,
    };
    Problem::new(code, error.to_string())
}
