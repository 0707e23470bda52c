//! Policy: list, explain, edit with optimistic concurrency.

use super::{HubDesk, blocking, edit_problem, explained, load};
use crate::cli::PolicyTestArgs;
use crate::commands::environment;
use crate::commands::policy::{listed, test};
use crate::config::{ConfigEditLock, NewRule, RuleEdit, edit_rules, version};
use crate::home::Home;
use portcullis_core::Origin;
use portcullis_ops::desk::{
    AddRule, DefaultRule, MoveRule, PolicyExplanation, PolicyStep, PolicyView, RemoveRule, RuleText,
    RuleView, TestPolicy,
};
use portcullis_ops::{Actor, Problem};
use serde_json::Value;
use std::path::Path;

impl HubDesk {
    pub(super) async fn show_policy(&self) -> Result<PolicyView, Problem> {
        let home = self.ops.home.clone();
        blocking(move || shown(&home)).await
    }

    pub(super) async fn explain_policy(&self, question: TestPolicy) -> Result<PolicyExplanation, Problem> {
        let home = self.ops.home.clone();
        blocking(move || {
            let wanted = question.origin.as_deref().unwrap_or(Origin::Client.as_str());
            let origin = Origin::ALL.into_iter().find(|origin| origin.as_str() == wanted);
            let origin = origin.ok_or_else(|| {
                Problem::invalid("invalid `origin`: expected client, schedule, script, chat or admin")
            })?;
            if question.arguments.as_ref().is_some_and(|arguments| !arguments.is_object()) {
                return Err(Problem::invalid("`arguments` must be a JSON object"));
            }
            let args = PolicyTestArgs {
                client: question.client,
                tool: question.tool,
                arguments: question.arguments.map(|arguments| arguments.to_string()),
                origin,
                at: question.at.filter(|at| !at.trim().is_empty()),
            };
            let answer = test::answer_json(&home, &load(&home)?, &args).map_err(explained)?;
            Ok(answered(&answer))
        })
        .await
    }

    pub(super) async fn write_rule(&self, new: AddRule, actor: Actor) -> Result<PolicyView, Problem> {
        let AddRule { rule, before, version } = new;
        let comment = format!("Added by {actor}.");
        self.edit(version, actor, move |count| RuleEdit::Add {
            at: before.unwrap_or(count),
            rule: Box::new(written(rule, comment)),
        })
        .await
    }

    pub(super) async fn take_rule_out(&self, rule: RemoveRule, actor: Actor) -> Result<PolicyView, Problem> {
        self.edit(rule.version, actor, move |_| RuleEdit::Remove { at: rule.at }).await
    }

    pub(super) async fn move_rule_to(&self, rule: MoveRule, actor: Actor) -> Result<PolicyView, Problem> {
        let MoveRule { from, to, version } = rule;
        self.edit(version, actor, move |_| RuleEdit::Move { from, to }).await
    }

    /// Edits the file, if its version is the one that was reviewed.
    async fn edit(
        &self,
        seen: String,
        actor: Actor,
        change: impl FnOnce(usize) -> RuleEdit + Send + 'static,
    ) -> Result<PolicyView, Problem> {
        let home = self.ops.home.clone();
        blocking(move || {
            let editing = ConfigEditLock::of(home.path()).map_err(edit_problem)?;
            let count = load(&home)?.config.policy.len();
            if version(home.path()) != seen {
                return Err(
                    Problem::changed("the configuration changed meanwhile").hint("review the rules again")
                );
            }
            let change = change(count);
            let place = match &change {
                RuleEdit::Add { at, .. } => at.checked_sub(1).unwrap_or_default(),
                RuleEdit::Remove { at } => *at,
                RuleEdit::Move { from, to } => *from.max(to),
            };
            if place >= count && !(count == 0 && matches!(change, RuleEdit::Add { at: 0, .. })) {
                return Err(Problem::not_found(format!("no such rule: there are {count}, numbered from 0")));
            }
            edit_rules(&editing, &environment, &change).map_err(edit_problem)?;
            tracing::info!(target: "admin", by = %actor, "policy rules changed");
            shown(&home)
        })
        .await
    }
}

fn written(rule: RuleText, comment: String) -> NewRule {
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

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}

fn shown(home: &Home) -> Result<PolicyView, Problem> {
    let (version, loaded) = (version(home.path()), load(home)?);
    let list = listed(&loaded).map_err(explained)?;
    let rule = |rule: &Value| RuleView {
        name: text(&rule["name"]),
        place: rule["place"].as_str().map(str::to_owned),
        rule: RuleText {
            decision: text(&rule["decision"]),
            tools: texts(&rule["tools"]),
            clients: texts(&rule["clients"]),
            origins: texts(&rule["origins"]),
            effects: texts(&rule["effects"]),
            reach: rule["reach"].as_str().map(str::to_owned),
            hours: rule["hours"].as_str().map(str::to_owned),
            days: rule["days"]
                .as_str()
                .into_iter()
                .flat_map(|days| days.split(", "))
                .map(str::to_owned)
                .collect(),
            until: rule["until"].as_str().map(str::to_owned),
        },
        in_force: rule["in_force"].as_bool().unwrap_or(false),
    };
    let default = |default: &Value| DefaultRule {
        name: text(&default["name"]),
        decision: text(&default["decision"]),
        about: texts(&default["about"]),
    };
    let is_toml = |path: &Path| path.extension().is_some_and(|extension| extension == "toml");
    let read_only = loaded.path.as_deref().filter(|path| !is_toml(path));
    Ok(PolicyView {
        version,
        timezone: text(&list["timezone"]),
        rules: list["rules"].as_array().into_iter().flatten().map(rule).collect(),
        defaults: list["defaults"].as_array().into_iter().flatten().map(default).collect(),
        read_only: read_only
            .map(|path| format!("only TOML files can be edited here, and this is {}", path.display())),
    })
}

fn answered(answer: &Value) -> PolicyExplanation {
    let step = |rule: &Value| {
        let matches = rule["matched"].as_bool()?;
        Some(PolicyStep {
            rule: text(&rule["name"]),
            place: rule["place"].as_str().map(str::to_owned),
            matches,
            why: text(&rule["why"]),
        })
    };
    PolicyExplanation {
        decision: text(&answer["decision"]),
        rule: text(&answer["rule"]),
        place: answer["place"].as_str().map(str::to_owned),
        why: text(&answer["next"]),
        steps: answer["rules"].as_array().into_iter().flatten().filter_map(step).collect(),
        arguments_problem: answer["arguments"]["problem"].as_str().map(str::to_owned),
        nearest: texts(&answer["tool"]["nearest"]),
    }
}
