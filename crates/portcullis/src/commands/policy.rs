//! `portcullis policy`: list rules and defaults, explain a decision.

mod test;

use super::{LoadedHome, USER, open, open_operations_for_reading, this_user};
use crate::cli::{PolicyAddArgs, PolicyArgs, PolicyCommand};
use crate::config::Config;
use crate::database;
use crate::home::Home;
use crate::mcp::ServerFactory;
use crate::print;
use anyhow::Result;
use portcullis_core::{EffectSet, Origin};
use portcullis_guard::PolicyRule;
use portcullis_ops::Operations;
use portcullis_ops::desk::{AddRule, MoveRule, RemoveRule, RuleText};
use portcullis_ops::listing::PolicyListing;
use portcullis_ops::policy::{
    PolicyRules, ServerPolicy, effect_names, policy_defaults, policy_rules, server_policy,
};
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(home: Option<&Path>, args: PolicyArgs, as_json: bool) -> Result<ExitCode> {
    let LoadedHome { home, loaded, .. } = open(home)?;
    match args.command.unwrap_or(PolicyCommand::List) {
        PolicyCommand::List => {
            let rules = policy_rules(&home)?;
            // What was chosen in reviews is in the database, which need not exist yet.
            let ops = open_operations_for_reading(home, loaded.config).ok();
            list(&rules, ops.as_ref().and_then(|ops| ops.server_factory().ok()), as_json)
        }
        PolicyCommand::Test(args) => {
            test::run(&open_operations_for_reading(home, loaded.config)?, args, as_json)
        }
        PolicyCommand::Add(args) => add(&operations(home, loaded.config)?, *args, as_json),
        PolicyCommand::Remove { rule } => remove(&operations(home, loaded.config)?, rule, as_json),
        PolicyCommand::Move { rule, to } => move_rule(&operations(home, loaded.config)?, rule, to, as_json),
    }
}

fn operations(home: Home, config: Config) -> Result<Operations> {
    let database = database::open(&home, &config)?;
    Ok(Operations::in_command(home, config, database, USER))
}

fn add(ops: &Operations, args: PolicyAddArgs, as_json: bool) -> Result<ExitCode> {
    let seen = policy_rules(&ops.home)?;
    let at = args.before.unwrap_or(seen.policy.rules.len());
    let names = |names: &[&'static str]| names.iter().map(|name| (*name).to_owned()).collect();
    let rule = RuleText {
        decision: args.decision,
        tools: args.tools,
        clients: args.clients,
        origins: names(&args.origins.iter().map(|origin| origin.as_str()).collect::<Vec<_>>()),
        effects: names(&args.effects.iter().map(|effect| effect.as_str()).collect::<Vec<_>>()),
        reach: args.reach,
        hours: args.hours,
        days: args.days,
        until: args.until,
    };
    let new = AddRule { rule, before: args.before, version: seen.version };
    let rules = ops.add_rule(new, &this_user())?;
    tell(ops, &rules, "Added", at, at, as_json)
}

fn remove(ops: &Operations, at: usize, as_json: bool) -> Result<ExitCode> {
    let seen = policy_rules(&ops.home)?;
    let removed = seen.policy.rules.get(at).map(|_| shown_rule(&seen, at));
    let rules = ops.remove_rule(&RemoveRule { at, version: seen.version.clone() }, &this_user())?;
    if as_json {
        print::json(&json!(PolicyListing::of(&rules, ops.server_factory().ok())));
    } else {
        // Shown, so that it can be added again.
        print::out(format!("Removed this rule:\n\n{}", removed.unwrap_or_default()));
    }
    Ok(ExitCode::SUCCESS)
}

fn move_rule(ops: &Operations, from: usize, to: usize, as_json: bool) -> Result<ExitCode> {
    let seen = policy_rules(&ops.home)?;
    let rules = ops.move_rule(&MoveRule { from, to, version: seen.version }, &this_user())?;
    tell(ops, &rules, "Moved", to, from.min(to), as_json)
}

/// Tells of a rule that is at its place now. A running hub follows by itself.
fn tell(
    ops: &Operations,
    rules: &PolicyRules,
    verb: &str,
    at: usize,
    first_renumbered: usize,
    as_json: bool,
) -> Result<ExitCode> {
    if as_json {
        print::json(&json!(PolicyListing::of(rules, ops.server_factory().ok())));
        return Ok(ExitCode::SUCCESS);
    }
    print::out(format!("{verb} this rule; a running hub follows at once:\n\n{}", shown_rule(rules, at)));
    if rules.policy.rules.len() > first_renumbered + 1 {
        print::line("\nOther rules may have new numbers: portcullis policy list");
    }
    Ok(ExitCode::SUCCESS)
}

fn shown_rule(rules: &PolicyRules, at: usize) -> String {
    let mut all = rows(rules);
    let heading = all.remove(0);
    print::table(&std::iter::once(heading).chain(all.into_iter().skip(at).take(1)).collect::<Vec<_>>())
}

fn list(rules: &PolicyRules, factory: Option<&ServerFactory>, as_json: bool) -> Result<ExitCode> {
    if as_json {
        print::json(&json!(PolicyListing::of(rules, factory)));
        return Ok(ExitCode::SUCCESS);
    }
    if rules.policy.rules.is_empty() {
        print::line("No rules yet. Add one: portcullis policy add ask --tool 'git_*'");
    } else {
        print::table_out(&rows(rules));
        if rules.policy.rules.iter().any(|rule| !rule.when.is_always()) {
            print::line(format!("\nHours and days are in {}.", rules.zone_name()));
        }
    }
    let mut rows = vec![["DEFAULT", "DECISION", "APPLIES TO"].map(str::to_owned).to_vec()];
    for default in policy_defaults() {
        let decision = default.decision.as_str().to_owned();
        rows.push(vec![default.name.to_owned(), decision, default.about.join(", ")]);
    }
    for server in &rules.loaded.config.mcp {
        let ServerPolicy { decision, source } = server_policy(server, factory);
        let about = format!("trusted tools of server `{}` ({source})", server.name);
        // As in the audit record, where it is one decision for all tools.
        let default =
            if decision == "ask-changes" { "server".to_owned() } else { format!("server:{decision}") };
        rows.push(vec![default, decision.to_owned(), about]);
    }
    print::line("");
    print::table_out(&rows);
    print::line(
        "\nDefaults apply if no rule matches. Upstream tools use `mcp.NAME.decision` instead, or the policy chosen in the server's review: with ask-changes, reads are allowed and other calls ask.",
    );
    print::line("Calls outside a client's scope and unknown tools are denied before any rule.");
    Ok(ExitCode::SUCCESS)
}

fn rows(rules: &PolicyRules) -> Vec<Vec<String>> {
    let heading = ["RULE", "SOURCE", "DECISION", "TOOLS", "CLIENTS", "CONDITIONS", "NOW"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for (at, (rule, in_force)) in rules.policy.rules.iter().zip(&rules.in_force).enumerate() {
        rows.push(vec![
            rule.name.clone(),
            rules.place(at).unwrap_or_default(),
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
    parts.extend(rule.effects.filter(|of| *of != EffectSet::ALL).map(|of| effect_names(of).join(",")));
    parts.extend(rule.reach.map(|reach| reach.as_str().to_owned()));
    parts.extend(rule.labels.map(|labels| labels.names().join(",")));
    parts.extend(rule.when.days.map(|days| days.to_string()));
    parts.extend(rule.when.hours.map(|hours| hours.to_string()));
    parts.extend(rule.when.until.map(|until| format!("until {until}")));
    if parts.is_empty() { "-".to_owned() } else { parts.join("; ") }
}
