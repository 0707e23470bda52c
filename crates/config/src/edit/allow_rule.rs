//! The allow rule of an "always" approval. [`edit_rules`] writes it.

use super::{ConfigEditLock, EditError, NewRule, RuleEdit, edit_rules};
use crate::{Config, ConfigErrors, Environment};
use portcullis_core::{Effect, Origin, Reach};
use std::path::PathBuf;

/// A rule that allows one client one thing.
#[derive(Debug, Clone)]
pub struct AllowRule {
    pub client: String,
    pub name: String,
    pub origin: Origin,
    /// The rule stops matching if the tool's effect or reach changes.
    pub effect: Effect,
    pub reach: Reach,
    /// Comment in the file: where the rule came from.
    pub comment: String,
}

/// Why a rule could not be written.
#[derive(Debug, thiserror::Error)]
pub enum AddRuleError {
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    #[error("`{0}` would match more than one name as a glob; write the rule yourself")]
    Glob(String),
    #[error("cannot edit {name}; add this before other rules for `{tool}`:\n{rule}")]
    ByHand { name: String, tool: String, rule: String },
    #[error(transparent)]
    Edit(EditError),
}

impl AllowRule {
    fn written(&self) -> NewRule {
        NewRule {
            tools: vec![self.name.clone()],
            clients: vec![self.client.clone()],
            origins: vec![self.origin.as_str().to_owned()],
            effects: vec![self.effect.as_str().to_owned()],
            reach: Some(self.reach.as_str().to_owned()),
            decision: "allow".to_owned(),
            comment: self.comment.clone(),
            ..NewRule::default()
        }
    }
}

/// Inserts a rule before the rule `before`, or appends it. Returns the file.
pub fn add_rule(
    editing: &ConfigEditLock,
    env: Environment<'_>,
    rule: &AllowRule,
    before: Option<usize>,
) -> Result<PathBuf, AddRuleError> {
    if rule.name.contains(['*', '?', '[', ']', '{', '}', '\\', '!']) {
        return Err(AddRuleError::Glob(rule.name.clone()));
    }
    let count = Config::load(editing.home(), env)?.config.policy.len();
    let at = before.filter(|at| *at < count).unwrap_or(count);
    edit_rules(editing, env, &RuleEdit::Add { at, rule: Box::new(rule.written()) }).map_err(|error| {
        match error {
            EditError::ByHand { name, entry, .. } => {
                AddRuleError::ByHand { name, tool: rule.name.clone(), rule: entry }
            }
            other => AddRuleError::Edit(other),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> AllowRule {
        AllowRule {
            client: "laptop".to_owned(),
            name: "chat_send".to_owned(),
            origin: Origin::Client,
            effect: Effect::Create,
            reach: Reach::Outside,
            comment: "approved\nas x".to_owned(),
        }
    }

    /// Returns the file after the rule was added to `before`.
    fn check(before: Option<&str>, at: Option<usize>) -> Result<String, AddRuleError> {
        let home = tempfile::tempdir().unwrap();
        if let Some(text) = before {
            std::fs::write(home.path().join("portcullis.toml"), text).unwrap();
        }
        let editing = ConfigEditLock::of(home.path()).unwrap();
        let path = add_rule(&editing, &|_| None, &rule(), at)?;
        let beside = std::fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let beside = beside.filter(|name| name != "portcullis.lock").count();
        assert_eq!(beside, 1, "nothing is left beside it");
        Ok(std::fs::read_to_string(path).unwrap())
    }

    #[test]
    fn a_rule_comes_before_the_one_that_asked_and_nothing_else_changes() {
        insta::assert_snapshot!(check(None, None).unwrap(), @r#"
        # approved as x
        [[policy]]
        tools = ["chat_send"]
        clients = ["laptop"]
        origins = ["client"]
        effects = ["create"]
        reach = "outside"
        decision = "allow"
        "#);
        let text = "# mine\n[limits]\nsessions_max = 5000 # many\n\n[[policy]]\ntools=['a_*']\ndecision='deny'\n\n# asks\n  [[ policy ]] # here\ndecision='ask'";
        insta::assert_snapshot!(check(Some(text), Some(1)).unwrap(), @r#"
        # mine
        [limits]
        sessions_max = 5000 # many

        [[policy]]
        tools=['a_*']
        decision='deny'

        # approved as x
        [[policy]]
        tools = ["chat_send"]
        clients = ["laptop"]
        origins = ["client"]
        effects = ["create"]
        reach = "outside"
        decision = "allow"

        # asks
          [[ policy ]] # here
        decision='ask'
        "#);
        // What looks like a rule in a text is none.
        let text_of_one = "# mine\n[[policy]]\ndecision='ask'\ntools=['''\n[[policy]]\n''']\n";
        let before_it = check(Some(text_of_one), Some(0)).unwrap();
        assert!(before_it.ends_with(&format!("decision = \"allow\"\n\n{text_of_one}")), "{before_it}");
        let at_end = check(Some(text), None).unwrap();
        assert!(at_end.starts_with(text) && at_end.ends_with("decision = \"allow\"\n"), "{at_end}");
    }

    #[test]
    fn what_cannot_be_changed_safely_is_left_to_a_person() {
        let error = check(Some("policy = [{ decision = 'ask' }]\n"), Some(0)).unwrap_err().to_string();
        assert!(error.contains("cannot edit") && error.contains("[[policy]]"), "{error}");
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("portcullis.yaml"), "memory:\n  enabled: true\n").unwrap();
        let editing = ConfigEditLock::of(home.path()).unwrap();
        assert!(matches!(add_rule(&editing, &|_| None, &rule(), None), Err(AddRuleError::ByHand { .. })));
        let glob = AllowRule { name: "chat_*".to_owned(), ..rule() };
        assert!(matches!(add_rule(&editing, &|_| None, &glob, None), Err(AddRuleError::Glob(_))));
    }
}
