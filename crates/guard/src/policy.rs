//! Rules on who may do what.
//!
//! A client's own scope comes first and cannot be widened by a rule. Then the rules, first match wins. What no
//! rule speaks of is decided by what the tool does to the world: looking and local work are allowed, and a person
//! is asked about everything that reaches other people or cannot be taken back.

use portcullis_core::{Caller, Decision, Effect, EffectSet, Listing, Origin, Pattern, Reach};

/// What a rule says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    Ask,
    Deny,
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
    pub decision: Verdict,
}

impl Rule {
    fn matches(&self, caller: &Caller, listing: &Listing<'_>) -> bool {
        self.tools.matches(listing.name)
            && self.clients.matches(&caller.client.name)
            && self.origins.as_ref().is_none_or(|origins| origins.contains(&caller.origin))
            && self.effects.is_none_or(|effects| effects.contains(listing.effect))
            && self.reach.is_none_or(|reach| reach == listing.reach)
    }
}

/// All rules, in order.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    pub rules: Vec<Rule>,
}

impl Policy {
    /// Decides about something that exists. The only place where that happens: lists and calls both ask here.
    ///
    /// A resource and a prompt are in a client's scope if its `allow` globs match their address or name and its
    /// effects hold `read`, so a client that is limited to `notes_*` does not see the rest of the hub's prompts.
    pub fn decide(&self, caller: &Caller, listing: &Listing<'_>) -> Decision {
        if !caller.client.scope.covers(listing.name, listing.effect) {
            return Decision::Deny { rule: "scope".to_owned() };
        }
        if let Some(rule) = self.rules.iter().find(|rule| rule.matches(caller, listing)) {
            return decision(rule.decision, &rule.name);
        }
        let (verdict, rule) = match (listing.effect, listing.reach) {
            (Effect::Read, _) => (Verdict::Allow, "default:read"),
            (Effect::Destroy, _) => (Verdict::Ask, "default:destroy"),
            (Effect::Create | Effect::Write, Reach::Outside) => (Verdict::Ask, "default:outside"),
            (Effect::Create | Effect::Write, Reach::Local) => (Verdict::Allow, "default:local-write"),
        };
        decision(verdict, rule)
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
