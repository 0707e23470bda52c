//! Policy, as the page shows it.

use super::HubDesk;
use crate::desk::{
    DefaultRule, EffectiveRule, PolicyExplanation, PolicyStep, PolicyView, RuleText, RuleView, TestPolicy,
};
use crate::effective_policy::EffectiveDecision;
use crate::policy::{PolicyRules, effect_names, policy_defaults};
use crate::policy_test::PolicyTestReport;
use crate::{Operations, Problem};

impl HubDesk {
    /// Runs an operation that returns the rules.
    pub(super) async fn show_policy(
        &self,
        operation: impl FnOnce(&Operations) -> Result<PolicyRules, Problem> + Send + 'static,
    ) -> Result<PolicyView, Problem> {
        let tools = self.live.registry.tools();
        self.run(move |ops| {
            let rules = operation(ops)?;
            let client = rules.loaded.config.stdio.client.clone();
            let decided = ops.effective_policy(&rules, &client, &tools)?;
            Ok(shown(&rules, client, decided))
        })
        .await
    }

    pub(super) async fn show_explanation(&self, question: TestPolicy) -> Result<PolicyExplanation, Problem> {
        self.run(move |ops| ops.explain_policy(&question, explanation)).await
    }
}

fn shown(rules: &PolicyRules, client: String, decided: Vec<EffectiveDecision>) -> PolicyView {
    let texts = |globs: &[String]| globs.to_vec();
    let views = rules.policy.rules.iter().zip(&rules.in_force).enumerate().map(|(at, (rule, in_force))| {
        let origins = rule.origins.iter().flatten().map(|origin| origin.as_str().to_owned());
        let days = rule.when.days.map(|days| days.to_string());
        RuleView {
            name: rule.name.clone(),
            place: rules.place(at),
            rule: RuleText {
                decision: rule.decision.as_str().to_owned(),
                tools: texts(rule.tools.globs()),
                clients: texts(rule.clients.globs()),
                origins: origins.collect(),
                effects: owned(rule.effects.map(effect_names).unwrap_or_default()),
                reach: rule.reach.map(|reach| reach.as_str().to_owned()),
                hours: rule.when.hours.map(|hours| hours.to_string()),
                days: days.iter().flat_map(|days| days.split(", ")).map(str::to_owned).collect(),
                until: rule.when.until.map(|until| until.to_string()),
            },
            in_force: *in_force,
        }
    });
    let defaults = policy_defaults().into_iter().map(|default| DefaultRule {
        name: default.name.to_owned(),
        decision: default.decision.as_str().to_owned(),
        about: default.about,
    });
    let effective = decided.into_iter().map(|one| EffectiveRule {
        tool: one.tool,
        server: one.server,
        effect: one.effect.as_str().to_owned(),
        decision: one.decision.as_str().to_owned(),
        rule: one.decision.rule().to_owned(),
    });
    PolicyView {
        effective_for: client,
        effective: effective.collect(),
        version: rules.version.clone(),
        timezone: rules.zone_name().to_owned(),
        rules: views.collect(),
        defaults: defaults.collect(),
        read_only: rules.read_only(),
    }
}

fn owned(names: Vec<&str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
}

fn explanation(report: &PolicyTestReport<'_>) -> PolicyExplanation {
    let considered = report.explained.iter().flat_map(|explained| explained.considered.iter().enumerate());
    let steps = considered.map(|(at, (rule, mismatch))| PolicyStep {
        rule: rule.name.clone(),
        place: report.place_of(at),
        matches: mismatch.is_none(),
        why: mismatch.map(|part| report.why(rule, part)).unwrap_or_default(),
    });
    PolicyExplanation {
        decision: report.decision.as_str().to_owned(),
        rule: report.decision.rule().to_owned(),
        place: report.place(),
        why: report.next().to_owned(),
        steps: steps.collect(),
        arguments_problem: report.arguments.clone().and_then(Result::err),
        nearest: report.nearest.clone(),
    }
}
