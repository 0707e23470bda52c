//! Approvals: list, detail with the previous decision, decide.

use super::differences::{change, pretty};
use super::{HubDesk, blocking};
use jiff::Timestamp;
use portcullis_core::Effect;
use portcullis_ops::always_allow::{REASON_CHARS_MAX, allow_always};
use portcullis_ops::desk::{
    ApprovalBrief, ApprovalChoice, ApprovalDetail, ApprovalFilter, ApprovalList, DecideApproval,
    DecisionInfo, DecisionReceipt, PreviousDecision,
};
use portcullis_ops::{Actor, Problem, ProblemCode};
use portcullis_store::approvals::{
    self, Approval, ApprovalError, ApprovalScope, ApprovalSnapshot, ApprovalStage,
};
use std::fmt::Write;

impl HubDesk {
    pub(super) async fn list_approvals(&self, wanted: ApprovalFilter) -> Result<ApprovalList, Problem> {
        let desk = self.composed.handles.approvals.clone();
        blocking(move || {
            let store = desk.approvals();
            let now = store.now();
            let (mut waiting, mut over): (Vec<Approval>, Vec<Approval>) = store
                .list()
                .map_err(problem)?
                .into_iter()
                .partition(|approval| approval.stage(now) == ApprovalStage::Pending);
            if wanted.all {
                over.reverse();
                waiting.extend(over);
            }
            Ok(ApprovalList { approvals: waiting.iter().map(|approval| brief(approval, now)).collect() })
        })
        .await
    }

    pub(super) async fn show_approval(&self, id: String) -> Result<ApprovalDetail, Problem> {
        let desk = self.composed.handles.approvals.clone();
        let (approval, all, now) = blocking(move || {
            let store = desk.approvals();
            let approval = store.get(&id).map_err(problem)?;
            Ok((approval, store.list().map_err(problem)?, store.now()))
        })
        .await?;
        let call = &approval.call;
        let tool = if call.kind == "tool" { self.show_tool(&call.target).ok() } else { None };
        // Newest first: the last decided one.
        let same = |other: &&Approval| {
            other.id != approval.id
                && (&other.call.client, &other.call.kind, &other.call.target)
                    == (&call.client, &call.kind, &call.target)
        };
        let last = all.iter().rev().filter(same).find_map(|other| Some((other, other.decided.as_ref()?)));
        let arguments_pretty = pretty(&call.arguments);
        let last_time = last.map(|(other, decided)| PreviousDecision {
            id: other.id.clone(),
            state: other.stage(now).to_string(),
            decided: decided_by(decided),
            arguments: change(Some(pretty(&other.call.arguments)), Some(arguments_pretty.clone())),
            same_definition: other.call.definition == call.definition,
        });
        Ok(ApprovalDetail {
            why: why(&approval),
            is_as_asked: self.is_as_asked(&approval),
            brief: brief(&approval, now),
            arguments_pretty,
            tool,
            last_time,
        })
    }

    pub(super) async fn decide_approval(
        &self,
        id: String,
        decision: DecideApproval,
        actor: Actor,
    ) -> Result<DecisionReceipt, Problem> {
        let DecideApproval { decision, reason, digest, seen } = decision;
        let reason = reason.filter(|reason| !reason.trim().is_empty());
        if reason.as_ref().is_some_and(|reason| reason.chars().count() > REASON_CHARS_MAX) {
            return Err(Problem::invalid(format!(
                "the reason is too long: the limit is {REASON_CHARS_MAX} characters"
            )));
        }
        if reason.is_some() && decision != ApprovalChoice::Reject {
            return Err(Problem::invalid("a reason is for rejections only"));
        }
        let desk = self.composed.handles.approvals.clone();
        let store = desk.clone();
        let approval = blocking(move || store.approvals().get(&id).map_err(problem)).await?;
        if approval.call.digest != digest {
            return Err(Problem::changed(format!("`{}` is not the call that you reviewed", approval.id))
                .hint("review it again, then decide"));
        }
        let now = desk.approvals().now();
        let verdict = match decision {
            ApprovalChoice::Once | ApprovalChoice::Always => {
                approvals::ApprovalVerdict::Approve(ApprovalScope::Once)
            }
            ApprovalChoice::Session => approvals::ApprovalVerdict::Approve(ApprovalScope::Session),
            ApprovalChoice::Reject => approvals::ApprovalVerdict::Reject { reason },
        };
        if !approval.takes(&verdict, seen, now) {
            return Err(over(&approval, now));
        }
        if decision != ApprovalChoice::Reject && !self.is_as_asked(&approval) {
            let message = format!(
                "`{}` changed since this call was made, so the call would not run",
                approval.call.target
            );
            return Err(Problem::changed(message)
                .hint("reject it; the agent can make the call again and request a new approval"));
        }
        let mut rule_written_to = None;
        if decision == ApprovalChoice::Always {
            let (home, about) = (self.home.clone(), approval.clone());
            // The rule first: if it cannot be written, nothing is decided.
            rule_written_to = blocking(move || allow_always(&home, &about, now)).await?;
        }
        // Compare and set: of two concurrent decisions, the second gets a conflict.
        let seen = ApprovalSnapshot { decided: seen, session: approval.call.session.clone() };
        let approval = match desk.answer(&approval.id, verdict, &actor.to_string(), seen).await {
            Ok(approval) => approval,
            Err(ApprovalError::Decided { .. } | ApprovalError::Expired(_)) => {
                let decided = desk.approvals().get(&approval.id).map_err(problem)?;
                let problem = over(&decided, desk.approvals().now());
                return Err(match rule_written_to {
                    Some(file) => problem.hint(format!("the rule was already written to {file}")),
                    None => problem,
                });
            }
            Err(error) => return Err(problem(error)),
        };
        tracing::info!(target: "admin", by = %actor, approval = approval.id, decision = ?decision, "approval decided");
        let said = said(&approval, decision, rule_written_to.as_deref());
        Ok(DecisionReceipt { approval: brief(&approval, desk.approvals().now()), rule_written_to, said })
    }

    /// Returns whether the tool definition is unchanged since the request.
    fn is_as_asked(&self, approval: &Approval) -> bool {
        let call = &approval.call;
        if call.kind != "tool" {
            return true;
        }
        let tools = self.composed.registry.tools();
        let tool = tools.iter().find(|tool| tool.name == call.target);
        tool.is_some_and(|tool| hex(&tool.digest()) == call.definition)
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The conflict error: who decided first.
fn over(approval: &Approval, now: Timestamp) -> Problem {
    let (id, state) = (&approval.id, approval.stage(now));
    match (&approval.decided, state) {
        (None, ApprovalStage::Pending) => Problem::changed(format!("`{id}` is still pending"))
            .hint("omit `seen`, which names an earlier decision"),
        (_, ApprovalStage::Expired) | (None, _) => problem(ApprovalError::Expired(id.clone())),
        (Some(decided), _) => Problem::conflict(format!("`{id}` is {state} already, by {}", decided.by))
            .hint("review it again; to change an unused decision, pass its time as `seen`"),
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

fn decided_by(decided: &approvals::ApprovalDecision) -> DecisionInfo {
    DecisionInfo {
        at: decided.at,
        by: decided.by.clone(),
        span: decided.span.map(|span| span.as_str().to_owned()),
        reason: decided.reason.clone(),
    }
}

pub(super) fn brief(approval: &Approval, now: Timestamp) -> ApprovalBrief {
    let call = approval.call.clone();
    let destroys = call.effect == Effect::Destroy.as_str();
    let may_always = !destroys && call.kind != "completion";
    let seen = approval.decided.as_ref().map(|decided| decided.at);
    let may = |verdict| approval.takes(&verdict, seen, now);
    ApprovalBrief {
        may_approve: may(approvals::ApprovalVerdict::Approve(ApprovalScope::Once)),
        may_reject: may(approvals::ApprovalVerdict::Reject { reason: None }),
        id: approval.id.clone(),
        state: approval.stage(now).to_string(),
        client: call.client,
        origin: call.origin,
        kind: call.kind,
        target: call.target,
        effect: call.effect,
        reach: call.reach,
        rule: call.rule,
        asked: approval.asked,
        expires: approval.expires,
        arguments: call.arguments,
        arguments_left_out: call.more,
        digest: call.digest,
        decided: approval.decided.as_ref().map(decided_by),
        may_session: !destroys,
        may_always,
    }
}

fn why(approval: &Approval) -> String {
    let call = &approval.call;
    let reach =
        if call.reach == "outside" { "reaches outside this machine" } else { "stays on this machine" };
    let does = match call.effect.as_str() {
        "read" => "only reads",
        "create" => "creates data",
        "write" => "changes data",
        _ => "can destroy data",
    };
    match call.rule.strip_prefix("policy[").and_then(|rest| rest.strip_suffix(']')) {
        Some(number) => {
            format!("Rule {number} of the configuration requires approval: the call {does} and {reach}.")
        }
        None => format!(
            "No rule matches; the default requires approval, because the call {does} and {reach} (`{}`).",
            call.rule
        ),
    }
}

fn said(approval: &Approval, decision: ApprovalChoice, rule: Option<&str>) -> String {
    let call = &approval.call;
    let (client, kind, target) = (&call.client, &call.kind, &call.target);
    match decision {
        ApprovalChoice::Reject => {
            format!("Client `{client}` may not run {kind} `{target}` with these arguments.")
        }
        ApprovalChoice::Once => {
            format!("Client `{client}` may run {kind} `{target}` once, until {:.0}.", approval.expires)
        }
        ApprovalChoice::Session => {
            format!("Client `{client}` may run {kind} `{target}` until its session ends.")
        }
        ApprovalChoice::Always => match rule {
            Some(file) => {
                format!("Client `{client}` may always run {kind} `{target}`; added a rule to {file}.")
            }
            None => {
                format!("Client `{client}` may always run {kind} `{target}`; a rule already allows it.")
            }
        },
    }
}
