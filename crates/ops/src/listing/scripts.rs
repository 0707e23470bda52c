//! Scripts, as `--json` prints them.

use crate::scripts::script_difference;
use portcullis_tools::scripts::{ScriptDecision, ScriptPermissions, ScriptReview, ScriptSummary};
use serde_json::{Value, json};

fn capabilities_json(used: &ScriptPermissions) -> Value {
    json!({ "secrets": used.secrets, "hosts": used.hosts, "tools": used.tools, "timeout_ms": used.timeout_ms })
}

pub fn script_decision_listing(decision: &ScriptDecision) -> Value {
    json!({
        "sha256": decision.sha256,
        "approved": decision.approved,
        "granted": capabilities_json(&decision.granted),
        "by": decision.by,
        "at": decision.at.to_string(),
        "expires": decision.expires.map(|expires| expires.to_string()),
        "reason": decision.reason,
    })
}

pub fn script_listing(listed: &ScriptSummary) -> Value {
    json!({
        "name": listed.name.as_str(),
        "state": listed.state.as_str(),
        "sha256": listed.sha256,
        "bytes": listed.bytes,
        "description": listed.header.description,
        "author": listed.header.author,
        "version": listed.header.version,
        "wants": capabilities_json(&listed.header.wants),
        "granted": listed.granted.as_ref().map(capabilities_json),
        "decision": listed.decision.as_ref().map(script_decision_listing),
        "proposal": listed.proposal.as_ref().map(|proposal| json!({
            "sha256": proposal.sha256,
            "client": proposal.client,
            "at": proposal.at.to_string(),
        })),
        "exists": listed.exists,
        "problem": listed.problem,
    })
}

pub fn script_review_listing(looked: &ScriptReview) -> Value {
    let mut value = script_listing(&looked.listed);
    value["source"] = json!(looked.source);
    value["proposed_source"] = json!(looked.proposed);
    value["approved_source"] = json!(looked.approved.as_ref().map(|(_, source)| source));
    value["difference"] = match (&looked.proposed, &looked.approved) {
        (None, None) => Value::Null,
        _ => json!(script_difference(looked)),
    };
    value
}
