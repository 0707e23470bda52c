//! The configuration as the guards take it.

use crate::config::{Config, ConfiguredDecision};
use portcullis_core::Client;
use portcullis_guard::{ApprovalTimes, Policy, PolicyRule, RuleAction};
use portcullis_store::approvals::ApprovalLifetimes;
use std::sync::Arc;

pub fn local_client(config: &Config) -> Arc<Client> {
    Arc::new(Client { name: config.stdio.client.clone(), scope: config.stdio.scope.clone(), token: None })
}

pub fn approval_times(config: &Config) -> ApprovalTimes {
    let approvals = &config.approvals;
    let lifetimes = ApprovalLifetimes { pending: approvals.pending, approved: approvals.approved };
    ApprovalTimes { wait: approvals.wait, lifetimes }
}

pub fn policy(config: &Config) -> Policy {
    let rules = config.policy.iter().enumerate().map(|(at, rule)| PolicyRule {
        name: format!("policy[{at}]"),
        clients: rule.clients.clone(),
        tools: rule.tools.clone(),
        origins: Some(rule.origins.clone()),
        effects: Some(rule.effects),
        reach: rule.reach,
        labels: rule.labels,
        when: rule.when,
        decision: match rule.decision {
            ConfiguredDecision::Allow => RuleAction::Allow,
            ConfiguredDecision::Ask => RuleAction::Ask,
            ConfiguredDecision::Deny => RuleAction::Deny,
        },
    });
    Policy { rules: rules.collect(), zone: config.time.zone.clone() }
}
