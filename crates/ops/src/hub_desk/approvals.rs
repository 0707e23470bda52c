//! Approvals, as the page shows them: with the previous decision, and what changed since.

use super::HubDesk;
use super::differences::{change, pretty};
use crate::approval_text::FileComparison;
use crate::desk::{
    ApprovalBrief, ApprovalDetail, ApprovalFilter, ApprovalList, DecideApproval, DecisionInfo,
    DecisionReceipt, PreviousDecision,
};
use crate::{Actor, Operations, Problem};
use jiff::Timestamp;
use portcullis_core::Effect;
use portcullis_store::approvals::{self, Approval, ApprovalScope};

/// Writes in a list that are compared with the current file, which costs a read of up to a megabyte and a diff. A client chooses how
/// many calls wait.
const COMPARED_MAX: usize = 4;

impl HubDesk {
    pub(super) async fn show_approvals(&self, wanted: ApprovalFilter) -> Result<ApprovalList, Problem> {
        self.run(move |ops| {
            let (all, now) = (ops.list_approvals(&wanted)?, ops.approvals.approvals().now());
            let briefs = all.iter().enumerate().map(|(at, approval)| {
                let is_first = at < COMPARED_MAX;
                let comparison = if is_first { FileComparison::WithCurrent } else { FileComparison::Skipped };
                brief(ops, approval, comparison, now)
            });
            Ok(ApprovalList { approvals: briefs.collect() })
        })
        .await
    }

    pub(super) async fn show_approval(&self, id: String) -> Result<ApprovalDetail, Problem> {
        let all = ApprovalFilter { all: true };
        let (approval, brief, all, now, is_as_asked) = self
            .run(move |ops| {
                let approval = ops.approval(&id)?;
                let is_as_asked = ops.is_as_asked(&approval).unwrap_or(true);
                let now = ops.approvals.approvals().now();
                let brief = brief(ops, &approval, FileComparison::WithCurrent, now);
                Ok((approval, brief, ops.list_approvals(&all)?, now, is_as_asked))
            })
            .await?;
        let call = &approval.call;
        let tool = if call.kind == "tool" { self.show_tool(&call.target).ok() } else { None };
        let same = |other: &&Approval| {
            other.id != approval.id
                && (&other.call.client, &other.call.kind, &other.call.target)
                    == (&call.client, &call.kind, &call.target)
        };
        // Newest first: the last decided one.
        let last = all.iter().filter(same).find_map(|other| Some((other, other.decided.as_ref()?)));
        let arguments_pretty = pretty(&call.arguments);
        let last_time = last.map(|(other, decided)| PreviousDecision {
            id: other.id.clone(),
            state: other.stage(now).to_string(),
            decided: decided_by(decided),
            arguments: change(Some(pretty(&other.call.arguments)), Some(arguments_pretty.clone())),
            same_definition: other.call.definition == call.definition,
        });
        Ok(ApprovalDetail { why: why(&approval), is_as_asked, brief, arguments_pretty, tool, last_time })
    }

    pub(super) async fn show_decision(
        &self,
        id: String,
        decision: DecideApproval,
        actor: Actor,
    ) -> Result<DecisionReceipt, Problem> {
        self.run(move |ops| {
            let decided = ops.decide_approval(&id, decision, &actor)?;
            let said = decided.sentence();
            let approval =
                brief(ops, &decided.approval, FileComparison::Skipped, ops.approvals.approvals().now());
            Ok(DecisionReceipt { approval, rule_written_to: decided.rule_written_to, said })
        })
        .await
    }
}

fn decided_by(decided: &approvals::ApprovalDecision) -> DecisionInfo {
    DecisionInfo {
        at: decided.at,
        by: decided.by.clone(),
        span: decided.span.map(|span| span.as_str().to_owned()),
        reason: decided.reason.clone(),
    }
}

pub(super) fn brief(
    ops: &Operations,
    approval: &Approval,
    comparison: FileComparison,
    now: Timestamp,
) -> ApprovalBrief {
    let scrub = |text: &str| match &ops.live {
        Some(live) => live.handles.redactor.scrub(text).into_owned(),
        None => text.to_owned(),
    };
    let arguments_text = ops.readable_arguments(approval, comparison, &scrub);
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
        arguments_text,
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
