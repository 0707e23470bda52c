//! The explanation of a decision, as `--json` prints it.

use crate::policy::{effect_names, zone_name};
use crate::policy_test::{PolicyTestReport, TestedClient};
use portcullis_core::Pattern;
use portcullis_guard::{PolicyRule, RuleCondition};
use serde_json::{Value, json};

pub fn policy_test_listing(report: &PolicyTestReport<'_>) -> Value {
    let client = report.who.client();
    let rules: Vec<Value> =
        report.policy.rules.iter().enumerate().map(|(at, rule)| rule_json(report, at, rule)).collect();
    json!({
        "client": {
            "name": report.name,
            "known": client.is_some(),
            "let_in": report.who.is_let_in(),
            "local": matches!(report.who, TestedClient::Local(_)),
            "expired": match report.who { TestedClient::Expired(_, at) => Some(at.to_string()), _ => None },
            "allow": client.map(|client| client.scope.allow.globs()),
            "deny": client.and_then(|client| client.scope.deny.as_ref()).map(Pattern::globs),
            "effects": client.map(|client| effect_names(client.scope.effects)),
        },
        "tool": {
            "name": report.tool_name,
            "known": report.tool.is_some(),
            "assumed_of": report.assumed_of,
            "effect": report.tool.as_ref().map(|tool| tool.effect.as_str()),
            "reach": report.tool.as_ref().map(|tool| tool.reach.as_str()),
            "labels": report.tool.as_ref().map(|tool| tool.labels.names()),
            "nearest": report.nearest,
        },
        "origin": report.origin.as_str(),
        "at": report.now.to_string(),
        "timezone": zone_name(report.zone),
        "out_of_scope": report.explained.as_ref().and_then(|explained| explained.out_of_scope).map(RuleCondition::as_str),
        "rules": rules,
        "arguments": report.arguments.as_ref().map(|fit| json!({ "fit": fit.is_ok(), "problem": fit.as_ref().err() })),
        "decision": report.decision.as_str(),
        "rule": report.decision.rule(),
        "place": report.place(),
        "next": report.next(),
    })
}

/// `matched` is null for a rule that was not evaluated.
fn rule_json(report: &PolicyTestReport<'_>, at: usize, rule: &PolicyRule) -> Value {
    let met = report.explained.as_ref().and_then(|explained| explained.considered.get(at));
    let part = met.and_then(|(_, part)| *part);
    json!({
        "name": rule.name,
        "place": report.place_of(at),
        "decision": rule.decision.as_str(),
        "matched": met.map(|(_, part)| part.is_none()),
        "mismatch": part.map(RuleCondition::as_str),
        "why": part.map(|part| report.why(rule, part)),
    })
}
