//! What holds for the tools of one server: the configuration first, then what a person chose in the review.

use portcullis_core::{DefaultDecision, Effect, Pattern};
use portcullis_store::pins::{ToolReview, TrustPolicy, TrustedServer};

/// Effects and decisions of one server's tools. The only place that combines configuration and review.
#[derive(Debug, Clone, Copy)]
pub struct ToolRules<'a> {
    /// The configured effects; first match wins.
    pub effects: &'a [(Pattern, Effect)],
    /// The configured decision.
    pub decision: Option<DefaultDecision>,
    /// The pins; `None` for a server that is trusted without review, or not at all.
    pub trusted: Option<&'a TrustedServer>,
}

impl<'a> ToolRules<'a> {
    /// Returns what a person decided; `None` also for a server that was trusted before there were such decisions. All its
    /// tools stay allowed, with the worst effect, until it is reviewed again.
    pub fn review(&self) -> Option<&'a ToolReview> {
        self.trusted.and_then(|trusted| trusted.review.as_ref())
    }

    /// Returns the effect of a tool that is configured or was chosen, by its own name.
    pub fn stated_effect(&self, tool: &str) -> Option<Effect> {
        let chosen = || self.trusted.and_then(|trusted| trusted.reviewed_effect(tool));
        let configured =
            self.effects.iter().find(|(tools, _)| tools.matches(tool)).map(|(_, effect)| *effect);
        configured.or_else(chosen)
    }

    /// Returns the effect of a tool. Without a stated one it is the worst.
    pub fn effect(&self, tool: &str) -> Effect {
        self.stated_effect(tool).unwrap_or(Effect::Destroy)
    }

    /// Returns the decision about a tool where no rule matches.
    pub fn decision(&self, tool: &str) -> DefaultDecision {
        let reviewed = || self.review().map(|review| review.policy.decision(self.effect(tool)));
        self.decision.or_else(reviewed).unwrap_or(DefaultDecision::Allow)
    }

    /// Returns the decision about its prompts and resources, which are read.
    pub fn read_decision(&self) -> DefaultDecision {
        let policy = self.review().map_or(TrustPolicy::Allow, |review| review.policy);
        self.decision.unwrap_or_else(|| policy.decision(Effect::Read))
    }
}
