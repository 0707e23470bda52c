//! Policy: rules and defaults, and edits with optimistic concurrency.

use crate::config::{
    ConfigEditLock, ConfiguredDecision, LoadedConfig, McpServerSettings, NewRule, RuleEdit, edit_rules,
    version,
};
use crate::config_file::{edit_problem, load};
use crate::context::Operations;
use crate::desk::{AddRule, MoveRule, RemoveRule, RuleText};
use crate::home::{Home, environment};
use crate::known_tools::tool_rules;
use crate::mcp::ServerFactory;
use crate::{Actor, Problem, guard_settings};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use portcullis_core::{Clock, DefaultDecision, Effect, EffectSet, Reach, SystemClock};
use portcullis_guard::{Policy, RuleAction, default_action};
use serde_json::{Value, json};
use std::path::Path;

/// The rules of the configuration file.
pub struct PolicyRules {
    /// Version of the file. A change must repeat it.
    pub version: String,
    pub loaded: LoadedConfig,
    pub policy: Policy,
    /// Whether hours, days and expiry make a rule active now, by rule.
    pub in_force: Vec<bool>,
}

/// A decision where no rule matches.
pub struct PolicyDefault {
    pub name: &'static str,
    pub decision: RuleAction,
    pub about: Vec<String>,
}

/// Reads the rules of the configuration file.
pub fn policy_rules(home: &Home) -> Result<PolicyRules, Problem> {
    // Read first: of a file that changes meanwhile, no newer version is claimed.
    let version = version(home.path());
    let loaded = load(home)?;
    let policy = guard_settings::policy(&loaded.config);
    let in_force = policy.in_force(now()?);
    Ok(PolicyRules { version, loaded, policy, in_force })
}

impl Operations {
    pub fn add_rule(&self, new: AddRule, by: &Actor) -> Result<PolicyRules, Problem> {
        let AddRule { rule, before, version } = new;
        let details = json!({ "rule": rule, "before": before });
        let comment = format!("Added by {by}.");
        self.edit_rules(by, ("policy.add", details), &version, |count| RuleEdit::Add {
            at: before.unwrap_or(count),
            rule: Box::new(new_rule(rule, comment)),
        })
    }

    pub fn remove_rule(&self, rule: &RemoveRule, by: &Actor) -> Result<PolicyRules, Problem> {
        let RemoveRule { at, version } = rule;
        let details = json!({ "at": at, "version": version });
        self.edit_rules(by, ("policy.remove", details), version, |_| RuleEdit::Remove { at: *at })
    }

    pub fn move_rule(&self, rule: &MoveRule, by: &Actor) -> Result<PolicyRules, Problem> {
        let &MoveRule { from, to, ref version } = rule;
        let details = json!({ "from": from, "to": to, "version": version });
        self.edit_rules(by, ("policy.move", details), version, |_| RuleEdit::Move { from, to })
    }

    /// Edits the file, if its version is the one that was reviewed.
    fn edit_rules(
        &self,
        by: &Actor,
        (action, details): (&'static str, Value),
        seen: &str,
        edit: impl FnOnce(usize) -> RuleEdit,
    ) -> Result<PolicyRules, Problem> {
        self.record(by, action, details, || {
            let editing = ConfigEditLock::of(self.home.path()).map_err(edit_problem)?;
            let count = load(&self.home)?.config.policy.len();
            if version(self.home.path()) != seen {
                return Err(
                    Problem::changed("the configuration changed meanwhile").hint("review the rules again")
                );
            }
            let edit = edit(count);
            let place = match &edit {
                RuleEdit::Add { at, .. } => at.checked_sub(1).unwrap_or_default(),
                RuleEdit::Remove { at } => *at,
                RuleEdit::Move { from, to } => *from.max(to),
            };
            if place >= count && !(count == 0 && matches!(edit, RuleEdit::Add { at: 0, .. })) {
                return Err(Problem::not_found(format!("no such rule: there are {count}, numbered from 0")));
            }
            edit_rules(&editing, &environment, &edit).map_err(edit_problem)?;
            policy_rules(&self.home)
        })
    }
}

fn new_rule(rule: RuleText, comment: String) -> NewRule {
    let some = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
    NewRule {
        tools: rule.tools,
        clients: rule.clients,
        origins: rule.origins,
        effects: rule.effects,
        reach: some(rule.reach),
        hours: some(rule.hours),
        days: rule.days,
        until: some(rule.until),
        decision: rule.decision,
        comment,
    }
}

impl PolicyRules {
    /// Returns file and line of a rule.
    pub fn place(&self, at: usize) -> Option<String> {
        place(&self.loaded, at)
    }

    pub fn zone_name(&self) -> &str {
        zone_name(&self.loaded.config.time.zone)
    }

    /// Returns why the rules cannot be edited, if so.
    pub fn read_only(&self) -> Option<String> {
        let is_toml = |path: &Path| path.extension().is_some_and(|extension| extension == "toml");
        let path = self.loaded.path.as_deref().filter(|path| !is_toml(path))?;
        Some(format!("only TOML files can be edited here, and this is {}", path.display()))
    }
}

pub(crate) fn now() -> Result<Timestamp, Problem> {
    Timestamp::try_from(SystemClock.now()).map_err(|error| Problem::internal(format!("the clock: {error}")))
}

/// Returns file and line of a rule.
pub(crate) fn place(loaded: &LoadedConfig, at: usize) -> Option<String> {
    let name = loaded.path.as_ref()?.file_name()?.to_string_lossy().into_owned();
    Some(match loaded.config.policy.get(at)?.line {
        Some(line) => format!("{name}:{line}"),
        None => name,
    })
}

pub fn zone_name(zone: &TimeZone) -> &str {
    zone.iana_name().unwrap_or("the machine's time zone")
}

pub fn effect_names(effects: EffectSet) -> Vec<&'static str> {
    effects.iter().map(Effect::as_str).collect()
}

/// Returns the decisions where no rule matches.
pub fn policy_defaults() -> Vec<PolicyDefault> {
    let mut defaults: Vec<PolicyDefault> = Vec::new();
    for effect in Effect::ALL {
        for reach in [Reach::Local, Reach::Outside] {
            let (decision, name) = default_action(effect, reach, DefaultDecision::ByEffect);
            let what = format!("{effect} {}", reach.as_str());
            match defaults.iter_mut().find(|known| known.name == name) {
                Some(known) => known.about.push(what),
                None => defaults.push(PolicyDefault { name, decision, about: vec![what] }),
            }
        }
    }
    defaults
}

/// The decisions on the trusted tools of a server where no rule matches.
pub struct ServerPolicy {
    /// The same for all its tools, or the policy that was chosen in its review.
    pub decision: &'static str,
    /// What sets it.
    pub source: String,
}

/// Returns the decisions on the trusted tools of a server where no rule matches.
pub fn server_policy(server: &McpServerSettings, factory: Option<&ServerFactory>) -> ServerPolicy {
    let name = &server.name;
    let trusted = factory.and_then(|factory| factory.trusted(server));
    let rules = tool_rules(server, trusted.as_deref());
    match (server.decision, rules.review()) {
        (Some(decision), _) => {
            let decision = match decision {
                ConfiguredDecision::Allow => RuleAction::Allow,
                ConfiguredDecision::Ask => RuleAction::Ask,
                ConfiguredDecision::Deny => RuleAction::Deny,
            };
            ServerPolicy { decision: decision.as_str(), source: format!("`mcp.{name}.decision`") }
        }
        (None, Some(review)) => ServerPolicy {
            decision: review.policy.as_str(),
            source: format!("{}, chosen in its review", review.policy.label()),
        },
        (None, None) => {
            let source = match (server.always_trusted, trusted.is_some()) {
                (true, _) => format!("`mcp.{name}.trust` is always"),
                (false, true) => {
                    format!("trusted before effects were chosen; run `portcullis mcp trust {name}`")
                }
                (false, false) => "not trusted, so it has no tools".to_owned(),
            };
            ServerPolicy { decision: RuleAction::Allow.as_str(), source }
        }
    }
}
