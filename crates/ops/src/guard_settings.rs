//! The configuration as the guards take it.

use crate::config::{Config, ConfiguredDecision};
use portcullis_core::{CallLimits, Client};
use portcullis_guard::{ApprovalTimes, Policy, PolicyRule, RateSettings, RuleAction};
use portcullis_store::approvals::ApprovalLifetimes;
use std::num::NonZeroU32;
use std::sync::Arc;

pub fn local_client(config: &Config) -> Arc<Client> {
    Arc::new(Client { name: config.stdio.client.clone(), scope: config.stdio.scope.clone(), token: None })
}

pub fn approval_times(config: &Config) -> ApprovalTimes {
    let approvals = &config.approvals;
    let lifetimes = ApprovalLifetimes { pending: approvals.pending, approved: approvals.approved };
    ApprovalTimes { wait: approvals.wait, lifetimes }
}

pub fn rate(config: &Config) -> RateSettings {
    let at_least_one = |n: u32| NonZeroU32::new(n).unwrap_or(NonZeroU32::MIN);
    RateSettings {
        per_second: at_least_one(config.rate_limit.requests_per_second),
        burst: at_least_one(config.rate_limit.burst),
        wait: config.rate_limit.wait,
    }
}

pub fn ceiling(config: &Config) -> CallLimits {
    let deadline_ms = u64::try_from(config.limits.call_within.as_millis()).unwrap_or(u64::MAX);
    CallLimits { deadline_ms, output_bytes_max: config.limits.result_bytes_max, ..CallLimits::CEILING }
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
