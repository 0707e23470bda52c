//! Rules on who may do what, and when.
//!
//! A client's own scope comes first and cannot be widened by a rule. Then the rules, first match wins. What no
//! rule speaks of is decided by what the tool does to the world: looking and local work are allowed, and a person
//! is asked about everything that reaches other people or cannot be taken back.

mod watch;
mod when;

pub use watch::announce_windows;
pub use when::{Days, Hours, When};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use portcullis_core::{
    Caller, Decision, Effect, EffectSet, Labels, Listing, Origin, Pattern, Reach, Unruled,
};
use when::Moment;

/// What a rule says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    Ask,
    Deny,
}

impl Verdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Allow => "allow",
            Verdict::Ask => "ask",
            Verdict::Deny => "deny",
        }
    }
}

/// One rule. What is `None` matches everything.
#[derive(Debug, Clone)]
pub struct Rule {
    /// How the audit record names it, for example `policy[2]`.
    pub name: String,
    pub clients: Pattern,
    /// Matches the names of tools, and likewise the addresses of resources and the names of prompts.
    pub tools: Pattern,
    pub origins: Option<Vec<Origin>>,
    pub effects: Option<EffectSet>,
    pub reach: Option<Reach>,
    /// Matches what has any of them.
    pub labels: Option<Labels>,
    pub when: When,
    pub decision: Verdict,
}

/// What of a rule, or of a client's scope, did not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
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

impl Part {
    /// Returns the key of the configuration that says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Part::Tools => "tools",
            Part::Clients => "clients",
            Part::Origins => "origins",
            Part::Effects => "effects",
            Part::Reach => "reach",
            Part::Labels => "labels",
            Part::Until => "until",
            Part::Hours => "hours",
            Part::Days => "days",
        }
    }
}

impl Rule {
    /// Returns the first part that does not match; `None` if the rule matches. The time comes last: it costs most.
    fn mismatch(&self, caller: &Caller, listing: &Listing<'_>, moment: &Moment<'_>) -> Option<Part> {
        // What allows a name allows no other tool that had to make way for it.
        let speaks_against = self.decision != Verdict::Allow;
        let also = speaks_against && listing.also().is_some_and(|also| self.tools.matches(&also));
        if !also && !self.tools.matches(listing.name) {
            return Some(Part::Tools);
        }
        if !self.clients.matches(&caller.client.name) {
            return Some(Part::Clients);
        }
        if self.origins.as_ref().is_some_and(|origins| !origins.contains(&caller.origin)) {
            return Some(Part::Origins);
        }
        if self.effects.is_some_and(|effects| !effects.contains(listing.effect)) {
            return Some(Part::Effects);
        }
        if self.reach.is_some_and(|reach| reach != listing.reach) {
            return Some(Part::Reach);
        }
        if self.labels.is_some_and(|labels| !labels.meets(listing.labels)) {
            return Some(Part::Labels);
        }
        self.when.mismatch(moment)
    }
}

/// All rules, in order.
#[derive(Debug, Clone)]
pub struct Policy {
    pub rules: Vec<Rule>,
    /// Whose clock `hours` and `days` are read from.
    pub zone: TimeZone,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy { rules: Vec::new(), zone: TimeZone::UTC }
    }
}

/// How a decision came about.
#[derive(Debug, Clone)]
pub struct Explanation<'p> {
    /// What of the client's scope does not cover this. Then no rule is looked at.
    pub out_of_scope: Option<Part>,
    /// The rules that were looked at, in order, each with the first part that did not match. The last one matched if
    /// it has none; those after it were not looked at.
    pub considered: Vec<(&'p Rule, Option<Part>)>,
    pub decision: Decision,
}

impl Policy {
    /// Decides about something that exists. The only place where that happens: lists and calls both ask here.
    ///
    /// A resource and a prompt are in a client's scope if its `allow` globs match their address or name and its
    /// effects hold `read`, so a client that is limited to `notes_*` does not see the rest of the hub's prompts.
    pub fn decide(&self, caller: &Caller, listing: &Listing<'_>, now: Timestamp) -> Decision {
        self.consider(caller, listing, now, |_, _| {})
    }

    /// Decides as [`Policy::decide`] does, and tells how.
    pub fn explain(&self, caller: &Caller, listing: &Listing<'_>, now: Timestamp) -> Explanation<'_> {
        let mut considered = Vec::new();
        let decision =
            self.consider(caller, listing, now, |rule, mismatch| considered.push((rule, mismatch)));
        let out_of_scope = (!in_scope(caller, listing))
            .then(|| if is_named(caller, listing) { Part::Effects } else { Part::Tools });
        Explanation { out_of_scope, considered, decision }
    }

    fn consider<'p>(
        &'p self,
        caller: &Caller,
        listing: &Listing<'_>,
        now: Timestamp,
        mut tell: impl FnMut(&'p Rule, Option<Part>),
    ) -> Decision {
        if !in_scope(caller, listing) {
            return Decision::Deny { rule: "scope".to_owned() };
        }
        let moment = Moment::new(now, &self.zone);
        for rule in &self.rules {
            let mismatch = rule.mismatch(caller, listing, &moment);
            tell(rule, mismatch);
            if mismatch.is_none() {
                return decision(rule.decision, &rule.name);
            }
        }
        let (verdict, rule) = default_for(listing.effect, listing.reach, listing.unruled);
        decision(verdict, rule)
    }

    /// Returns when the time next makes a rule begin or cease to hold, if it ever does.
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        self.rules.iter().filter_map(|rule| rule.when.next_change(now, &self.zone)).min()
    }

    /// Returns which of the rules hold at this time, as far as the time is concerned.
    pub fn in_force(&self, now: Timestamp) -> Vec<bool> {
        let moment = Moment::new(now, &self.zone);
        self.rules.iter().map(|rule| rule.when.mismatch(&moment).is_none()).collect()
    }
}

fn in_scope(caller: &Caller, listing: &Listing<'_>) -> bool {
    let effects = caller.client.scope.effects;
    is_named(caller, listing) && (listing.in_every_scope || effects.contains(listing.effect))
}

/// Returns whether something is in the scope of a client by its name, whatever is done by it.
fn is_named(caller: &Caller, listing: &Listing<'_>) -> bool {
    let scope = &caller.client.scope;
    if listing.also().is_some_and(|also| scope.denies(&also)) {
        return false;
    }
    if listing.in_every_scope { !scope.denies(listing.name) } else { scope.names(listing.name) }
}

/// Returns what holds where no rule matches, and its name.
pub fn default_for(effect: Effect, reach: Reach, unruled: Unruled) -> (Verdict, &'static str) {
    match unruled {
        Unruled::ByEffect => {}
        Unruled::Reviewed => return (Verdict::Allow, "default:reviewed"),
        Unruled::Allow => return (Verdict::Allow, "server:allow"),
        Unruled::Ask => return (Verdict::Ask, "server:ask"),
        Unruled::Deny => return (Verdict::Deny, "server:deny"),
    }
    match (effect, reach) {
        (Effect::Read, _) => (Verdict::Allow, "default:read"),
        (Effect::Destroy, _) => (Verdict::Ask, "default:destroy"),
        (Effect::Create | Effect::Write, Reach::Outside) => (Verdict::Ask, "default:outside"),
        (Effect::Create | Effect::Write, Reach::Local) => (Verdict::Allow, "default:local-write"),
    }
}

fn decision(verdict: Verdict, rule: &str) -> Decision {
    let rule = rule.to_owned();
    match verdict {
        Verdict::Allow => Decision::Allow { rule },
        Verdict::Ask => Decision::Ask { rule },
        Verdict::Deny => Decision::Deny { rule },
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
