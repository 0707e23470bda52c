//! Writing a rule into the configuration, and leaving everything else in it as it is.

use super::read::{self, Source};
use super::{Config, ConfigErrors, Environment};
use crate::replace::replace;
use portcullis_core::{Effect, Origin, Reach};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const NEW_FILE: &str = "portcullis.toml";
const PRIVATE_FILE: u32 = 0o600;

/// A rule that allows one client one thing.
#[derive(Debug, Clone)]
pub struct AllowRule {
    pub client: String,
    pub name: String,
    pub origin: Origin,
    /// The rule ends where the tool begins to do something else, or to reach further.
    pub effect: Effect,
    pub reach: Reach,
    /// Where the rule came from, for whoever reads the file.
    pub comment: String,
}

/// Why a rule could not be written.
#[derive(Debug, thiserror::Error)]
pub enum AddRuleError {
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    #[error("`{0}` could mean more than one name in a rule; write the rule by hand")]
    Glob(String),
    #[error(
        "{name} cannot be changed for you; add this where it comes before other rules for `{tool}`:\n{rule}"
    )]
    ByHand { name: String, tool: String, rule: String },
    #[error("{0} was changed at the same moment; try again")]
    Changed(String),
    #[error("cannot write `{path}`: {source}")]
    Io { path: String, source: std::io::Error },
}

impl AllowRule {
    fn written(&self) -> String {
        let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
        format!(
            "# {}\n[[policy]]\ntools = [{}]\nclients = [{}]\norigins = [{}]\neffects = [{}]\nreach = {}\ndecision = \"allow\"\n",
            self.comment.replace(char::is_control, " "),
            quoted(&self.name),
            quoted(&self.client),
            quoted(self.origin.as_str()),
            quoted(self.effect.as_str()),
            quoted(self.reach.as_str()),
        )
    }

    fn meant(&self) -> serde_json::Value {
        json!({
            "tools": [self.name], "clients": [self.client], "origins": [self.origin.as_str()],
            "effects": [self.effect.as_str()], "reach": self.reach.as_str(), "decision": "allow",
        })
    }
}

/// Writes a rule before the rule `before`, or after all others. Returns the file.
///
/// What was written is read again first: unless everything else means what it meant, nothing is changed.
pub fn add_rule(
    home: &Path,
    env: Environment<'_>,
    rule: &AllowRule,
    before: Option<usize>,
) -> Result<PathBuf, AddRuleError> {
    if rule.name.contains(['*', '?', '[', ']', '{', '}', '\\', '!']) {
        return Err(AddRuleError::Glob(rule.name.clone()));
    }
    let old = Config::load(home, env)?.config;
    let new_file =
        || Source { path: home.join(NEW_FILE), name: NEW_FILE, text: String::new(), writable_by_all: false };
    let source = read::find(home)?.unwrap_or_else(new_file);
    let by_hand = || AddRuleError::ByHand {
        name: source.name.to_owned(),
        tool: rule.name.clone(),
        rule: rule.written(),
    };
    if !source.name.ends_with(".toml") {
        return Err(by_hand());
    }
    let at = before.filter(|at| *at < old.policy.len()).unwrap_or(old.policy.len());
    let text = inserted(&source.text, &rule.written(), at, old.policy.len()).ok_or_else(by_hand)?;
    let document = read::parse(source.name, &text).map_err(|_| by_hand())?;
    let (new, _) = Config::of(source.name, &document, home, env).map_err(|_| by_hand())?;
    let mut expected = json!(old.written);
    if let Some(rules) = expected["policy"].as_array_mut() {
        rules.insert(at, rule.meant());
    }
    if json!(new.written) != expected {
        return Err(by_hand());
    }
    let failed =
        |source_error| AddRuleError::Io { path: source.path.display().to_string(), source: source_error };
    // Whoever else changed it meanwhile is not overwritten.
    if read::find(home)?.map_or_else(String::new, |now| now.text) != source.text {
        return Err(AddRuleError::Changed(source.name.to_owned()));
    }
    // Where the file is a link, what it points to is the file.
    let path = std::fs::canonicalize(&source.path).unwrap_or_else(|_| source.path.clone());
    let mode =
        std::fs::metadata(&path).map_or(PRIVATE_FILE, |metadata| metadata.permissions().mode() & 0o777);
    replace(&path, &text, mode).map_err(failed)?;
    Ok(source.path)
}

/// Returns the text with the rule before the rule number `at` of `count`; at the end if that is the last.
fn inserted(text: &str, rule: &str, at: usize, count: usize) -> Option<String> {
    if at == count {
        let gap = match text {
            "" => "",
            text if text.ends_with("\n\n") => "",
            text if text.ends_with('\n') => "\n",
            _ => "\n\n",
        };
        return Some(format!("{text}{gap}{rule}"));
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let is_head = |line: &str| {
        let line: String = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        line == "[[policy]]"
    };
    let heads: Vec<usize> = (0..lines.len()).filter(|at| is_head(lines[*at])).collect();
    let mut line = *heads.get(at).filter(|_| heads.len() == count)?;
    // What stands right above a rule speaks of it.
    while line > 0 && lines[line - 1].trim_start().starts_with('#') {
        line -= 1;
    }
    Some(format!("{}{rule}\n{}", lines[..line].concat(), lines[line..].concat()))
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
        let path = add_rule(home.path(), &|_| None, &rule(), at)?;
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1, "nothing is left beside it");
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
        let at_end = check(Some(text), None).unwrap();
        assert!(at_end.starts_with(text) && at_end.ends_with("decision = \"allow\"\n"), "{at_end}");
    }

    #[test]
    fn what_cannot_be_changed_safely_is_left_to_a_person() {
        for text in [
            "policy = [{ decision = 'ask' }]\n",
            "[[policy]]\ndecision='ask'\ntools=['''\n[[policy]]\n''']\n",
        ] {
            let error = check(Some(text), Some(0)).unwrap_err().to_string();
            assert!(error.contains("cannot be changed for you") && error.contains("[[policy]]"), "{error}");
        }
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("portcullis.yaml"), "memory:\n  enabled: true\n").unwrap();
        assert!(matches!(add_rule(home.path(), &|_| None, &rule(), None), Err(AddRuleError::ByHand { .. })));
        let glob = AllowRule { name: "chat_*".to_owned(), ..rule() };
        assert!(matches!(add_rule(home.path(), &|_| None, &glob, None), Err(AddRuleError::Glob(_))));
    }
}
