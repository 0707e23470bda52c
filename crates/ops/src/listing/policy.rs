//! Policy rules, as `--json` prints them.

use crate::mcp::ServerFactory;
use crate::policy::{PolicyRules, effect_names, policy_defaults, server_policy};
use jiff::Timestamp;
use portcullis_core::{Labels, Reach};
use portcullis_guard::PolicyRule;
use serde::Serialize;

#[derive(Serialize)]
pub struct PolicyListing<'a> {
    timezone: String,
    rules: Vec<RuleListing<'a>>,
    defaults: Vec<DefaultListing>,
    servers: Vec<ServerDecisionListing<'a>>,
}

#[derive(Serialize)]
struct RuleListing<'a> {
    name: &'a str,
    decision: &'static str,
    tools: &'a [String],
    clients: &'a [String],
    origins: Option<Vec<&'static str>>,
    effects: Option<Vec<&'static str>>,
    reach: Option<&'static str>,
    labels: Option<Vec<&'static str>>,
    hours: Option<String>,
    days: Option<String>,
    until: Option<Timestamp>,
    place: Option<String>,
    in_force: bool,
}

#[derive(Serialize)]
struct DefaultListing {
    name: &'static str,
    decision: &'static str,
    about: Vec<String>,
}

#[derive(Serialize)]
struct ServerDecisionListing<'a> {
    name: &'a str,
    decision: &'static str,
}

impl PolicyListing<'_> {
    pub fn of<'a>(rules: &'a PolicyRules, factory: Option<&ServerFactory>) -> PolicyListing<'a> {
        let listed = rules.policy.rules.iter().zip(&rules.in_force).enumerate();
        let defaults = policy_defaults().into_iter().map(|default| DefaultListing {
            name: default.name,
            decision: default.decision.as_str(),
            about: default.about,
        });
        let servers = rules.loaded.config.mcp.iter().map(|server| ServerDecisionListing {
            name: &server.name,
            decision: server_policy(server, factory).decision,
        });
        PolicyListing {
            timezone: rules.zone_name().to_owned(),
            rules: listed.map(|(at, (rule, in_force))| listing(rule, rules.place(at), *in_force)).collect(),
            defaults: defaults.collect(),
            servers: servers.collect(),
        }
    }
}

fn listing(rule: &PolicyRule, place: Option<String>, in_force: bool) -> RuleListing<'_> {
    RuleListing {
        name: &rule.name,
        decision: rule.decision.as_str(),
        tools: rule.tools.globs(),
        clients: rule.clients.globs(),
        origins: rule.origins.as_ref().map(|of| of.iter().map(|origin| origin.as_str()).collect()),
        effects: rule.effects.map(effect_names),
        reach: rule.reach.map(Reach::as_str),
        labels: rule.labels.map(Labels::names),
        hours: rule.when.hours.map(|hours| hours.to_string()),
        days: rule.when.days.map(|days| days.to_string()),
        until: rule.when.until,
        place,
        in_force,
    }
}
