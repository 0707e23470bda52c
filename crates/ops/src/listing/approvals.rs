//! Approvals, as `--json` prints them.

use jiff::Timestamp;
use portcullis_store::approvals::{Approval, ApprovalRequest, ApprovalScope};
use serde::Serialize;

#[derive(Serialize)]
pub struct ApprovalListing<'a> {
    id: &'a str,
    state: &'static str,
    client: &'a str,
    origin: &'a str,
    kind: &'a str,
    target: &'a str,
    effect: &'a str,
    reach: &'a str,
    rule: &'a str,
    arguments: &'a str,
    arguments_left_out: usize,
    digest: &'a str,
    asked: Timestamp,
    expires: Timestamp,
    decided: Option<DecisionListing<'a>>,
}

#[derive(Serialize)]
struct DecisionListing<'a> {
    at: Timestamp,
    by: &'a str,
    #[serde(rename = "for")]
    span: Option<&'static str>,
    reason: Option<&'a str>,
}

impl ApprovalListing<'_> {
    pub fn of(approval: &Approval, now: Timestamp) -> ApprovalListing<'_> {
        let ApprovalRequest {
            digest,
            client,
            origin,
            kind,
            target,
            effect,
            reach,
            rule,
            arguments,
            more,
            ..
        } = &approval.call;
        let decided = approval.decided.as_ref().map(|decided| DecisionListing {
            at: decided.at,
            by: &decided.by,
            span: decided.span.map(ApprovalScope::as_str),
            reason: decided.reason.as_deref(),
        });
        ApprovalListing {
            id: &approval.id,
            state: approval.stage(now).as_str(),
            client,
            origin,
            kind,
            target,
            effect,
            reach,
            rule,
            arguments,
            arguments_left_out: *more,
            digest,
            asked: approval.asked,
            expires: approval.expires,
            decided,
        }
    }
}
