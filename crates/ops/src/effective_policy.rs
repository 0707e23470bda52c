//! Effective policy: the decision on a call to every tool, by the function that decides calls.

use crate::Problem;
use crate::context::Operations;
use crate::policy::PolicyRules;
use crate::policy::now;
use portcullis_core::{Caller, Decision, Effect, Origin, PolicySubject, ToolDef};
use std::sync::Arc;

/// The decision on a call to one tool.
pub struct EffectiveDecision {
    pub tool: String,
    /// The server that it comes from; `None` for the hub's own.
    pub server: Option<String>,
    pub effect: Effect,
    pub decision: Decision,
}

impl Operations {
    /// Returns the decision on each of these tools for a client, by the rules of the file. What depends on arguments or on
    /// what a call is nested in is for a test of one call.
    pub fn effective_policy(
        &self,
        rules: &PolicyRules,
        client: &str,
        tools: &[Arc<ToolDef>],
    ) -> Result<Vec<EffectiveDecision>, Problem> {
        let now = now()?;
        let who = self.tested_client(&rules.loaded.config, client, now)?;
        let Some(client) = who.client() else {
            return Err(Problem::not_found(format!("no such client: `{client}`")));
        };
        let caller = Caller::new(client.clone(), Origin::Client);
        let offered = tools.iter().filter(|tool| tool.view.is_none() && tool.withheld.is_none());
        let decided = offered.map(|tool| EffectiveDecision {
            tool: tool.name.clone(),
            server: tool.server.clone(),
            effect: tool.effect,
            decision: rules.policy.decide(&caller, &PolicySubject::of_tool(tool), now),
        });
        Ok(decided.collect())
    }
}
