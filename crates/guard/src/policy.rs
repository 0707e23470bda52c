//! Policy: rules on which client may use what, and when.
//!
//! The client's scope comes first and no rule can widen it. Then the rules, first match wins. Without a match the effect of
//! the tool decides: reads and local writes are allowed; anything that reaches others or is irreversible needs an approval.

mod schedule;
mod schedule_watch;

pub use schedule::{Days, Hours, RuleSchedule};
pub use schedule_watch::announce_windows;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use portcullis_core::{
    Caller, Decision, DefaultDecision, Effect, EffectSet, Labels, Origin, Pattern, PolicySubject, Reach,
};
use schedule::DecisionTime;

/// The decision of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleAction {
    Allow,
    Ask,
    Deny,
}

impl RuleAction {
    pub fn as_str(self) -> &'static str {
        match self {
            RuleAction::Allow => "allow",
            RuleAction::Ask => "ask",
            RuleAction::Deny => "deny",
        }
    }
}

/// One rule. `None` matches everything.
#[derive(Debug, Clone)]
pub struct PolicyRule {
    /// Its name in the audit record, for example `policy[2]`.
    pub name: String,
    pub clients: Pattern,
    /// Matches tool names, resource URIs and prompt names.
    pub tools: Pattern,
    /// For a rule that denies or asks, also those of the calls that a call is nested in.
    pub origins: Option<Vec<Origin>>,
    pub effects: Option<EffectSet>,
    pub reach: Option<Reach>,
    /// Matches any of these labels.
    pub labels: Option<Labels>,
    pub when: RuleSchedule,
    pub decision: RuleAction,
}

/// The condition of a rule, or of a client's scope, that did not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleCondition {
    Tools,
    Clients,
    Origins,
    Effects,
    Reach,
    Labels,
    Until,
    Hours,
    Days,
}

impl RuleCondition {
    /// Returns the configuration key of the condition.
    pub fn as_str(self) -> &'static str {
        match self {
            RuleCondition::Tools => "tools",
            RuleCondition::Clients => "clients",
            RuleCondition::Origins => "origins",
            RuleCondition::Effects => "effects",
            RuleCondition::Reach => "reach",
            RuleCondition::Labels => "labels",
            RuleCondition::Until => "until",
            RuleCondition::Hours => "hours",
            RuleCondition::Days => "days",
        }
    }
}

impl PolicyRule {
    /// Returns the first condition that does not match; `None` if the rule matches. The time comes last: it costs most.
    fn mismatch(
        &self,
        caller: &Caller,
        listing: &PolicySubject<'_>,
        moment: &DecisionTime<'_>,
    ) -> Option<RuleCondition> {
        // The second name counts only against a tool: an allow for a taken name does not extend to the tool renamed for it.
        let speaks_against = self.decision != RuleAction::Allow;
        let also = speaks_against && listing.also().is_some_and(|also| self.tools.matches(&also));
        if !also && !self.tools.matches(listing.name) {
            return Some(RuleCondition::Tools);
        }
        if !self.clients.matches(&caller.client.name) {
            return Some(RuleCondition::Clients);
        }
        if self.origins.as_ref().is_some_and(|origins| !self.is_from(origins, caller)) {
            return Some(RuleCondition::Origins);
        }
        if self.effects.is_some_and(|effects| !effects.contains(listing.effect)) {
            return Some(RuleCondition::Effects);
        }
        if self.reach.is_some_and(|reach| reach != listing.reach) {
            return Some(RuleCondition::Reach);
        }
        if self.labels.is_some_and(|labels| !labels.meets(listing.labels)) {
            return Some(RuleCondition::Labels);
        }
        self.when.mismatch(moment)
    }
}

impl PolicyRule {
    /// Returns whether one of these origins counts for a call. A rule that restricts also counts for what is nested in such a
    /// call: what a schedule may not do, a script that it runs may not either. An allow is for the call itself, so it does not
    /// reach further than what a person saw.
    fn is_from(&self, origins: &[Origin], caller: &Caller) -> bool {
        match self.decision {
            RuleAction::Allow => origins.contains(&caller.origin),
            RuleAction::Ask | RuleAction::Deny => origins.iter().any(|origin| caller.comes_from(*origin)),
        }
    }
}

/// All rules, in order.
#[derive(Debug, Clone)]
pub struct Policy {
    pub rules: Vec<PolicyRule>,
    /// The time zone of `hours` and `days`.
    pub zone: TimeZone,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy { rules: Vec::new(), zone: TimeZone::UTC }
    }
}

/// How a decision was made.
#[derive(Debug, Clone)]
pub struct Explanation<'p> {
    /// The condition of the client's scope that fails. Then no rule is evaluated.
    pub out_of_scope: Option<RuleCondition>,
    /// The evaluated rules in order, each with the first condition that failed. If the last one has none, it matched, and
    /// later rules were not evaluated.
    pub considered: Vec<(&'p PolicyRule, Option<RuleCondition>)>,
    pub decision: Decision,
}

impl Policy {
    /// Decides about an existing subject. The only place for decisions: lists and calls both use it.
    ///
    /// A resource or prompt is in a client's scope if the `allow` globs match its URI or name and the effects include `read`,
    /// so a client limited to `notes_*` does not see the hub's other prompts.
    pub fn decide(&self, caller: &Caller, listing: &PolicySubject<'_>, now: Timestamp) -> Decision {
        self.consider(caller, listing, now, |_, _| {})
    }

    /// Decides like [`Policy::decide`], and explains how.
    pub fn explain(&self, caller: &Caller, listing: &PolicySubject<'_>, now: Timestamp) -> Explanation<'_> {
        let mut considered = Vec::new();
        let decision =
            self.consider(caller, listing, now, |rule, mismatch| considered.push((rule, mismatch)));
        let out_of_scope = (!in_scope(caller, listing))
            .then(|| if is_named(caller, listing) { RuleCondition::Effects } else { RuleCondition::Tools });
        Explanation { out_of_scope, considered, decision }
    }

    fn consider<'p>(
        &'p self,
        caller: &Caller,
        listing: &PolicySubject<'_>,
        now: Timestamp,
        mut on_rule: impl FnMut(&'p PolicyRule, Option<RuleCondition>),
    ) -> Decision {
        if !in_scope(caller, listing) {
            return Decision::Deny { rule: "scope".to_owned() };
        }
        let moment = DecisionTime::new(now, &self.zone);
        for rule in &self.rules {
            let mismatch = rule.mismatch(caller, listing, &moment);
            on_rule(rule, mismatch);
            if mismatch.is_none() {
                return decision(rule.decision, &rule.name);
            }
        }
        let (verdict, rule) = default_action(listing.effect, listing.reach, listing.default_decision);
        decision(verdict, rule)
    }

    /// Returns when a schedule next changes which rules are in force, if ever.
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        self.rules.iter().filter_map(|rule| rule.when.next_change(now, &self.zone)).min()
    }

    /// Returns which rules are in force at this time by their schedules.
    pub fn in_force(&self, now: Timestamp) -> Vec<bool> {
        let moment = DecisionTime::new(now, &self.zone);
        self.rules.iter().map(|rule| rule.when.mismatch(&moment).is_none()).collect()
    }
}

fn in_scope(caller: &Caller, listing: &PolicySubject<'_>) -> bool {
    let effects = caller.client.scope.effects;
    is_named(caller, listing) && (listing.in_every_scope || effects.contains(listing.effect))
}

/// Returns whether a client's scope includes a subject by name, for any effect.
fn is_named(caller: &Caller, listing: &PolicySubject<'_>) -> bool {
    let scope = &caller.client.scope;
    if listing.also().is_some_and(|also| scope.denies(&also)) {
        return false;
    }
    if listing.in_every_scope { !scope.denies(listing.name) } else { scope.names(listing.name) }
}

/// Returns the decision if no rule matches, and its name.
pub fn default_action(
    effect: Effect,
    reach: Reach,
    default_decision: DefaultDecision,
) -> (RuleAction, &'static str) {
    match default_decision {
        DefaultDecision::ByEffect => {}
        DefaultDecision::Reviewed => return (RuleAction::Allow, "default:reviewed"),
        DefaultDecision::Allow => return (RuleAction::Allow, "server:allow"),
        DefaultDecision::Ask => return (RuleAction::Ask, "server:ask"),
        DefaultDecision::Deny => return (RuleAction::Deny, "server:deny"),
    }
    match (effect, reach) {
        (Effect::Read, _) => (RuleAction::Allow, "default:read"),
        (Effect::Destroy, _) => (RuleAction::Ask, "default:destroy"),
        (Effect::Create | Effect::Write, Reach::Outside) => (RuleAction::Ask, "default:outside"),
        (Effect::Create | Effect::Write, Reach::Local) => (RuleAction::Allow, "default:local-write"),
    }
}

fn decision(verdict: RuleAction, rule: &str) -> Decision {
    let rule = rule.to_owned();
    match verdict {
        RuleAction::Allow => Decision::Allow { rule },
        RuleAction::Ask => Decision::Ask { rule },
        RuleAction::Deny => Decision::Deny { rule },
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
