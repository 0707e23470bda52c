//! `portcullis policy`: list rules and defaults, explain a decision.

pub(crate) mod test;

use super::{LoadedHome, open};
use crate::cli::{PolicyArgs, PolicyCommand};
use crate::config::{self, Config, LoadedConfig, McpServerSettings};
use crate::print;
use anyhow::Result;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use portcullis_core::{Clock, DefaultDecision, Effect, EffectSet, Labels, Origin, Reach, SystemClock};
use portcullis_guard::{Policy, PolicyRule, RuleAction, default_action};
use portcullis_ops::guard_settings;
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(home: Option<&Path>, args: PolicyArgs, as_json: bool) -> Result<ExitCode> {
    let LoadedHome { home, loaded, .. } = open(home)?;
    match args.command.unwrap_or(PolicyCommand::List) {
        PolicyCommand::List => list(&loaded, as_json),
        PolicyCommand::Test(args) => test::run(&home, &loaded, args, as_json),
    }
}

fn now() -> Result<Timestamp> {
    Ok(Timestamp::try_from(SystemClock.now())?)
}

/// Returns file and line of a rule.
fn place(loaded: &LoadedConfig, at: usize) -> Option<String> {
    let name = loaded.path.as_ref()?.file_name()?.to_string_lossy().into_owned();
    Some(match loaded.config.policy.get(at)?.line {
        Some(line) => format!("{name}:{line}"),
        None => name,
    })
}

fn zone_name(zone: &TimeZone) -> &str {
    zone.iana_name().unwrap_or("the machine's time zone")
}

fn effects(effects: EffectSet) -> Vec<&'static str> {
    effects.iter().map(Effect::as_str).collect()
}

/// Default decisions: name, decision, scope.
fn defaults() -> Vec<(&'static str, RuleAction, Vec<String>)> {
    let mut defaults: Vec<(&str, RuleAction, Vec<String>)> = Vec::new();
    for effect in Effect::ALL {
        for reach in [Reach::Local, Reach::Outside] {
            let ((verdict, name), what) = (
                default_action(effect, reach, DefaultDecision::ByEffect),
                format!("{effect} {}", reach.as_str()),
            );
            match defaults.iter_mut().find(|(known, ..)| *known == name) {
                Some((.., about)) => about.push(what),
                None => defaults.push((name, verdict, vec![what])),
            }
        }
    }
    defaults
}

fn server_decision(server: &McpServerSettings) -> RuleAction {
    match server.decision {
        config::ConfiguredDecision::Allow => RuleAction::Allow,
        config::ConfiguredDecision::Ask => RuleAction::Ask,
        config::ConfiguredDecision::Deny => RuleAction::Deny,
    }
}

/// Returns the rules and defaults as JSON.
pub(crate) fn listed(loaded: &LoadedConfig) -> Result<Value> {
    let policy = guard_settings::policy(&loaded.config);
    let in_force = policy.in_force(now()?);
    Ok(json!({
        "timezone": zone_name(&loaded.config.time.zone),
        "rules": policy.rules.iter().zip(in_force).enumerate().map(|(at, (rule, in_force))| {
            let mut shown = shown(rule);
            shown["place"] = json!(place(loaded, at));
            shown["in_force"] = json!(in_force);
            shown
        }).collect::<Vec<_>>(),
        "defaults": defaults().into_iter().map(|(name, verdict, about)| {
            json!({ "name": name, "decision": verdict.as_str(), "about": about })
        }).collect::<Vec<_>>(),
        "servers": loaded.config.mcp.iter().map(|server| {
            json!({ "name": server.name, "decision": server_decision(server).as_str() })
        }).collect::<Vec<_>>(),
    }))
}

fn list(loaded: &LoadedConfig, as_json: bool) -> Result<ExitCode> {
    let Config { time, .. } = &loaded.config;
    let policy = guard_settings::policy(&loaded.config);
    if as_json {
        print::json(&listed(loaded)?);
        return Ok(ExitCode::SUCCESS);
    }
    let in_force = policy.in_force(now()?);
    if policy.rules.is_empty() {
        print::line("No rules yet. Add `[[policy]]` to the configuration.");
    } else {
        print::out(print::table(&rows(loaded, &policy, &in_force)));
        if policy.rules.iter().any(|rule| !rule.when.is_always()) {
            print::line(format!("\nHours and days are in {}.", zone_name(&time.zone)));
        }
    }
    let mut rows = vec![["DEFAULT", "DECISION", "APPLIES TO"].map(str::to_owned).to_vec()];
    for (name, verdict, about) in defaults() {
        rows.push(vec![name.to_owned(), verdict.as_str().to_owned(), about.join(", ")]);
    }
    for server in &loaded.config.mcp {
        let verdict = server_decision(server).as_str();
        let about = format!("trusted tools of server `{0}` (`mcp.{0}.decision`)", server.name);
        rows.push(vec![format!("server:{verdict}"), verdict.to_owned(), about]);
    }
    print::out(format!("\n{}", print::table(&rows)));
    print::line(
        "\nDefaults apply if no rule matches. Upstream tools use `mcp.NAME.decision` instead: allow by default, once the server is trusted.",
    );
    print::line("Calls outside a client's scope and unknown tools are denied before any rule.");
    Ok(ExitCode::SUCCESS)
}

fn rows(loaded: &LoadedConfig, policy: &Policy, in_force: &[bool]) -> Vec<Vec<String>> {
    let heading = ["RULE", "SOURCE", "DECISION", "TOOLS", "CLIENTS", "CONDITIONS", "NOW"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for (at, (rule, in_force)) in policy.rules.iter().zip(in_force).enumerate() {
        rows.push(vec![
            rule.name.clone(),
            place(loaded, at).unwrap_or_default(),
            rule.decision.as_str().to_owned(),
            rule.tools.globs().join(" "),
            rule.clients.globs().join(" "),
            only(rule),
            if *in_force { "active" } else { "inactive" }.to_owned(),
        ]);
    }
    rows
}

/// Returns the conditions of a rule besides names.
fn only(rule: &PolicyRule) -> String {
    let mut parts: Vec<String> = Vec::new();
    if let Some(origins) = rule.origins.as_ref().filter(|origins| origins.len() < Origin::ALL.len()) {
        parts.push(origins.iter().map(|origin| origin.as_str()).collect::<Vec<_>>().join(","));
    }
    parts.extend(rule.effects.filter(|of| *of != EffectSet::ALL).map(|of| effects(of).join(",")));
    parts.extend(rule.reach.map(|reach| reach.as_str().to_owned()));
    parts.extend(rule.labels.map(|labels| labels.names().join(",")));
    parts.extend(rule.when.days.map(|days| days.to_string()));
    parts.extend(rule.when.hours.map(|hours| hours.to_string()));
    parts.extend(rule.when.until.map(|until| format!("until {until}")));
    if parts.is_empty() { "-".to_owned() } else { parts.join("; ") }
}

fn shown(rule: &PolicyRule) -> Value {
    json!({
        "name": rule.name,
        "decision": rule.decision.as_str(),
        "tools": rule.tools.globs(),
        "clients": rule.clients.globs(),
        "origins": rule.origins.as_ref().map(|of| of.iter().map(|origin| origin.as_str()).collect::<Vec<_>>()),
        "effects": rule.effects.map(effects),
        "reach": rule.reach.map(Reach::as_str),
        "labels": rule.labels.map(Labels::names),
        "hours": rule.when.hours.map(|hours| hours.to_string()),
        "days": rule.when.days.map(|days| days.to_string()),
        "until": rule.when.until.map(|until| until.to_string()),
    })
}
