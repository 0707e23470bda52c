//! Demo approvals.

use crate::data::{HOSTILE, ago};
use crate::tools;
use jiff::Timestamp;
use portcullis_ops::desk::*;
use portcullis_ops::{Actor, Problem};
use serde_json::{Value, json};

/// Pending first, then decided.
pub(crate) struct DemoApprovals(Vec<ApprovalBrief>);

impl DemoApprovals {
    pub(crate) fn invented() -> DemoApprovals {
        DemoApprovals(approvals().into_iter().chain(over()).collect())
    }

    pub(crate) fn waiting(&self) -> usize {
        self.list(false).len()
    }

    pub(crate) fn list(&self, all: bool) -> Vec<ApprovalBrief> {
        self.0.iter().filter(|one| all || one.state == "pending").cloned().collect()
    }

    pub(crate) fn whole(&self, id: &str) -> Result<ApprovalDetail, Problem> {
        let found = self.0.iter().find(|one| one.id == id).cloned();
        let brief =
            found.ok_or_else(|| Problem::not_found("no such approval").hint("it may have expired"))?;
        let value: Value = serde_json::from_str(&brief.arguments).unwrap_or_default();
        let pretty = format!("{value:#}");
        let last_time = PreviousDecision {
            id: "aa11bb22".into(),
            state: "used".into(),
            decided: DecisionInfo {
                at: ago(33),
                by: "marta".into(),
                span: Some("once".into()),
                reason: None,
            },
            arguments: TextChange {
                before: Some(pretty.replace("Lyon", "Nantes")),
                after: Some(pretty.clone()),
                lines: Vec::new(),
            },
            same_definition: true,
        };
        Ok(ApprovalDetail {
            arguments_pretty: pretty,
            why: format!("{} says to ask before `{}` runs.", brief.rule, brief.target),
            tool: tools::tools().into_iter().find(|tool| tool.name == brief.target),
            is_as_asked: true,
            last_time: (brief.target == "workspace_write").then_some(last_time),
            brief,
        })
    }

    pub(crate) fn decide(
        &mut self,
        id: &str,
        decision: DecideApproval,
        by: Actor,
    ) -> Result<DecisionReceipt, Problem> {
        let rejects = decision.decision == ApprovalChoice::Reject;
        let one = self.0.iter_mut().find(|one| one.id == id);
        let one = one.ok_or_else(|| Problem::not_found("no such approval"))?;
        if one.digest != decision.digest {
            return Err(Problem::changed("the call is not the one that you reviewed"));
        }
        let is_as_seen = one.decided.as_ref().map(|decided| decided.at) == decision.seen;
        if !is_as_seen || !(if rejects { one.may_reject } else { one.may_approve }) {
            let problem = Problem::conflict(format!("`{id}` was decided already"));
            return Err(problem.hint("another administrator decided first"));
        }
        one.state = if rejects { "rejected" } else { "approved" }.into();
        (one.may_approve, one.may_reject) = (rejects, !rejects);
        one.decided = Some(DecisionInfo {
            at: Timestamp::now(),
            by: by.to_string(),
            span: (!rejects).then(|| "once".into()),
            reason: decision.reason,
        });
        let verb = if rejects { "may not run" } else { "may run" };
        Ok(DecisionReceipt {
            said: format!("Client `{}` {verb} tool `{}`.", one.client, one.target),
            approval: one.clone(),
            rule_written_to: None,
        })
    }
}

fn approvals() -> Vec<ApprovalBrief> {
    let one = |id: &str,
               client: &str,
               target: &str,
               effect: &str,
               reach: &str,
               rule: &str,
               minutes,
               arguments: &str| ApprovalBrief {
        id: id.into(),
        state: "pending".into(),
        client: client.into(),
        origin: "client".into(),
        kind: "tool".into(),
        target: target.into(),
        effect: effect.into(),
        reach: reach.into(),
        rule: rule.into(),
        asked: ago(minutes),
        expires: ago(minutes - 24 * 60),
        arguments: arguments.into(),
        arguments_left_out: 0,
        arguments_text: readable(arguments),
        digest: "9b2f".repeat(16),
        decided: None,
        may_approve: true,
        may_reject: true,
        may_session: effect != "destroy",
        may_always: effect != "destroy",
    };
    vec![
        one(
            "2e89j26n",
            "laptop",
            "workspace_write",
            "write",
            "local",
            "policy[0] (portcullis.toml:12)",
            1,
            "{\"path\":\"notes/plan.md\",\"content\":\"# Plan\\n\\n- call the plumber\\n- book the train to Lyon\\n\"}",
        ),
        one(
            "7xk2m9qa",
            "ci-deploy",
            "tickets_close_ticket",
            "destroy",
            "outside",
            "default: ask before destroying",
            4,
            "{\"id\":4711,\"note\":\"fixed in 1.9\"}",
        ),
        one(
            "q0c4v8rt",
            "research",
            "calculator_add",
            "write",
            "outside",
            "default: ask before reaching outside",
            9,
            &format!("{{\"a\":1,\"b\":{}}}", json!(HOSTILE)),
        ),
    ]
}

pub(crate) fn over() -> Vec<ApprovalBrief> {
    let decided = |by: &str, span: Option<&str>, reason: Option<&str>, minutes| {
        Some(DecisionInfo {
            at: ago(minutes),
            by: by.into(),
            span: span.map(Into::into),
            reason: reason.map(Into::into),
        })
    };
    let mut all = approvals();
    let mut made = Vec::new();
    for (at, (id, state, decided)) in [
        ("aa11bb22", "used", decided("marta", Some("once"), None, 33)),
        ("cc33dd44", "rejected", decided("marta", None, Some("Not to that address, please."), 70)),
        ("ee55ff66", "approved", decided("marta", Some("session"), None, 95)),
        ("gg77hh88", "expired", None),
    ]
    .into_iter()
    .enumerate()
    {
        if let Some(one) = all.get_mut(at % 2) {
            made.push(ApprovalBrief {
                id: id.into(),
                state: state.into(),
                decided,
                asked: ago(100),
                may_approve: state == "rejected",
                may_reject: state == "approved",
                ..one.clone()
            });
        }
    }
    made
}

/// As `portcullis_ops::approval_text` does it, as far as the demo needs.
fn readable(arguments: &str) -> String {
    let Ok(Value::Object(arguments)) = serde_json::from_str(arguments) else { return arguments.to_owned() };
    let line = |(name, value): (&String, &Value)| match value.as_str() {
        Some(text) if text.contains('\n') => format!("{name}:\n    {}", text.replace('\n', "\n    ")),
        Some(text) => format!("{name}: {text}"),
        None => format!("{name}: {value}"),
    };
    arguments.iter().map(line).collect::<Vec<_>>().join("\n")
}
