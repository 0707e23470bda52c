//! Adds, removes and moves policy rules in the configuration file, preserving everything else, including comments.

use super::edit_servers::{ConfigChange, ConfigEditLock, ConfigFormat, EditError, edit};
use super::read;
use super::{Config, Environment};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// A rule to add. Empty and `None` fields are not written and match everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewRule {
    pub tools: Vec<String>,
    pub clients: Vec<String>,
    pub origins: Vec<String>,
    pub effects: Vec<String>,
    pub reach: Option<String>,
    pub hours: Option<String>,
    pub days: Vec<String>,
    pub until: Option<String>,
    pub decision: String,
    /// Comment in the file: where it came from.
    pub comment: String,
}

/// An edit. Rules are indexed from zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleEdit {
    Add { at: usize, rule: Box<NewRule> },
    Remove { at: usize },
    Move { from: usize, to: usize },
}

impl NewRule {
    fn written(&self) -> String {
        let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
        let list = |all: &[String]| all.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", ");
        // Writing to a string does not fail.
        let mut text = format!("# {}\n[[policy]]\n", self.comment.replace(char::is_control, " "));
        for (key, all) in [
            ("tools", &self.tools),
            ("clients", &self.clients),
            ("origins", &self.origins),
            ("effects", &self.effects),
            ("days", &self.days),
        ] {
            if !all.is_empty() {
                let _ = writeln!(text, "{key} = [{}]", list(all));
            }
        }
        for (key, value) in [("reach", &self.reach), ("hours", &self.hours), ("until", &self.until)] {
            if let Some(value) = value {
                let _ = writeln!(text, "{key} = {}", quoted(value));
            }
        }
        let _ = writeln!(text, "decision = {}", quoted(&self.decision));
        text
    }
}

impl RuleEdit {
    /// Returns whether this edit is the only difference between two parsed files. `meant` is the resolved new rule.
    pub(super) fn is_all(&self, meant: &Value, before: &mut Value, after: &mut Value) -> bool {
        let (Some(old), Some(new)) = (before["policy"].as_array_mut(), after["policy"].as_array_mut()) else {
            return false;
        };
        match self {
            RuleEdit::Add { at, .. } if *at < new.len() => return new.remove(*at) == *meant,
            RuleEdit::Remove { at } if *at < old.len() => drop(old.remove(*at)),
            RuleEdit::Move { from, to } if *from < old.len() && *to < old.len() => {
                let moved = old.remove(*from);
                old.insert(*to, moved);
            }
            _ => return false,
        }
        // The caller compares the rest.
        true
    }
}

/// Returns the version (digest) of the file.
pub fn version(home: &Path) -> String {
    let text = read::find(home).ok().flatten().map(|source| source.text).unwrap_or_default();
    Sha256::digest(text.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Edits the rules. Returns the file.
///
/// The result is parsed before it is written: unless everything else is unchanged, nothing is written.
pub fn edit_rules(
    editing: &ConfigEditLock,
    env: Environment<'_>,
    change: &RuleEdit,
) -> Result<PathBuf, EditError> {
    let home = editing.home();
    let (entry, meant) = match change {
        RuleEdit::Add { rule, .. } => {
            let text = rule.written();
            // Validated by itself, for clear errors.
            let document = read::parse("rule.toml", &text)?;
            let (alone, _) = Config::of("rule.toml", &document, home, env)?;
            (text, json!(alone.written)["policy"][0].take())
        }
        RuleEdit::Remove { at } => (format!("remove rule {at} (numbered from 0)\n"), Value::Null),
        RuleEdit::Move { from, to } => {
            (format!("move rule {from} to position {to} (numbered from 0)\n"), Value::Null)
        }
    };
    let edited = edit(home, env, &|_| entry.clone(), |old, form, text| {
        if form != ConfigFormat::Toml {
            return Err(EditError::Form("rules can be edited in TOML files only".to_owned()));
        }
        let count = old["policy"].as_array().map_or(0, Vec::len);
        let not_understood = || EditError::ByHand {
            name: "the configuration".to_owned(),
            why: "its rules are not `[[policy]]` tables".to_owned(),
            entry: entry.clone(),
        };
        let blocks =
            Blocks::of(text).filter(|blocks| blocks.rules.len() == count).ok_or_else(not_understood)?;
        let text = blocks.changed(change, &entry).ok_or_else(not_understood)?;
        Ok((text, ConfigChange::Rules { edit: change.clone(), meant }))
    })?;
    edited.write(editing)
}

/// The text of a file, split into rules and the text between them.
struct Blocks<'t> {
    /// The text before each rule, and after the last.
    between: Vec<&'t str>,
    /// Each with the comment right above it.
    rules: Vec<&'t str>,
}

impl<'t> Blocks<'t> {
    fn of(text: &'t str) -> Option<Blocks<'t>> {
        let (mut between, mut rules) = (Vec::new(), Vec::new());
        // Start of the current part, and whether it is a rule.
        let (mut began, mut in_rule) = (0, false);
        // Start of the comment right above the current line.
        let (mut at, mut comment) = (0, None);
        for line in text.split_inclusive('\n') {
            let bare: String = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            if bare.starts_with('[') && bare.ends_with(']') {
                let from = comment.unwrap_or(at);
                let is_rule = bare == "[[policy]]";
                if in_rule {
                    rules.push(text.get(began..from)?);
                    if is_rule {
                        between.push("");
                    }
                } else if is_rule {
                    between.push(text.get(began..from)?);
                }
                if in_rule || is_rule {
                    began = from;
                }
                in_rule = is_rule;
            }
            comment = if line.trim_start().starts_with('#') { comment.or(Some(at)) } else { None };
            at += line.len();
        }
        if in_rule {
            rules.push(text.get(began..)?);
            between.push("");
        } else {
            between.push(text.get(began..)?);
        }
        Some(Blocks { between, rules })
    }

    /// Returns the edited text. Removing a rule keeps the text between rules.
    fn changed(&self, change: &RuleEdit, entry: &str) -> Option<String> {
        let mut rules: Vec<String> = self.rules.iter().map(|rule| (*rule).to_owned()).collect();
        let mut between: Vec<String> = self.between.iter().map(|text| (*text).to_owned()).collect();
        match change {
            RuleEdit::Add { at, .. } if *at <= rules.len() => {
                let mut text = entry.to_owned();
                let (is_first, is_last) = (rules.is_empty(), *at == rules.len());
                if !is_last || (!is_first && between.last().is_some_and(|after| !after.is_empty())) {
                    text.push('\n');
                }
                rules.insert(*at, text);
                // The first rule of a file is appended; a new last rule goes before the text after the previous last.
                let place = if is_last && !is_first { *at } else { *at + 1 };
                between.insert(place, String::new());
                if is_last {
                    separate(&mut rules, &mut between, *at);
                }
            }
            RuleEdit::Remove { at } if *at < rules.len() => {
                rules.remove(*at);
                let after = between.remove(*at + 1);
                between.get_mut(*at)?.push_str(&after);
            }
            RuleEdit::Move { from, to } if *from < rules.len() && *to < rules.len() => {
                let mut moved = rules.remove(*from);
                if !moved.ends_with('\n') {
                    moved.push('\n');
                }
                rules.insert(*to, moved);
                let last = rules.len() - 1;
                for rule in rules.iter_mut().take(last).filter(|rule| !rule.ends_with("\n\n")) {
                    rule.push('\n');
                }
            }
            _ => return None,
        }
        let mut text = String::new();
        for (at, between) in between.iter().enumerate() {
            text.push_str(between);
            text.push_str(rules.get(at).map_or("", String::as_str));
        }
        Some(text)
    }
}

/// Separates an appended rule by an empty line.
fn separate(rules: &mut [String], between: &mut [String], at: usize) {
    let before = match between.get(at).filter(|text| !text.is_empty()) {
        Some(text) => text.clone(),
        None => at.checked_sub(1).and_then(|last| rules.get(last)).cloned().unwrap_or_default(),
    };
    let gap = match before.as_str() {
        "" => "",
        text if text.ends_with("\n\n") => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    if let Some(text) = between.get_mut(at) {
        text.push_str(gap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# mine\n[limits]\nsessions_max = 5000 # many\n\n# first\n[[policy]]\ntools=['a_*']\ndecision='deny'\n\n[[policy]]\ntools=['b_*']\ndecision='ask'\n\n# after\n[memory]\nenabled = true\n";

    fn changed(text: &str, change: &RuleEdit) -> Result<String, EditError> {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("portcullis.toml"), text).unwrap();
        let path = edit_rules(&ConfigEditLock::of(home.path())?, &|_| None, change)?;
        Ok(std::fs::read_to_string(path).unwrap())
    }

    fn rule() -> NewRule {
        NewRule {
            tools: vec!["c_*".to_owned()],
            decision: "allow".to_owned(),
            comment: "by ann".to_owned(),
            ..NewRule::default()
        }
    }

    #[test]
    fn rules_are_added_removed_and_moved_and_nothing_else_changes() {
        let add = |at| changed(FILE, &RuleEdit::Add { at, rule: Box::new(rule()) }).unwrap();
        let new = "# by ann\n[[policy]]\ntools = [\"c_*\"]\ndecision = \"allow\"\n";
        assert_eq!(add(0), FILE.replace("# first", &format!("{new}\n# first")));
        assert_eq!(
            add(1),
            FILE.replace("[[policy]]\ntools=['b_*']", &format!("{new}\n[[policy]]\ntools=['b_*']"))
        );
        assert_eq!(add(2), FILE.replace("# after", &format!("{new}\n# after")));
        let remove = |at| changed(FILE, &RuleEdit::Remove { at }).unwrap();
        assert_eq!(remove(0), FILE.replace("# first\n[[policy]]\ntools=['a_*']\ndecision='deny'\n\n", ""));
        assert_eq!(remove(1), FILE.replace("[[policy]]\ntools=['b_*']\ndecision='ask'\n\n", ""));
        let moved = changed(FILE, &RuleEdit::Move { from: 1, to: 0 }).unwrap();
        assert!(moved.find("b_*") < moved.find("# first") && moved.contains("# after\n[memory]"), "{moved}");
        assert_eq!(changed(&moved, &RuleEdit::Move { from: 0, to: 1 }).unwrap(), FILE);
    }

    #[test]
    fn a_first_rule_comes_after_everything() {
        for text in ["", "[memory]\nenabled = true", "# only a comment\n"] {
            let text = changed(text, &RuleEdit::Add { at: 0, rule: Box::new(rule()) }).unwrap();
            assert!(text.ends_with("decision = \"allow\"\n"), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_or_not_understood_changes_nothing() {
        let bad = NewRule { decision: "perhaps".to_owned(), ..rule() };
        let error = changed(FILE, &RuleEdit::Add { at: 0, rule: Box::new(bad) }).unwrap_err();
        assert!(matches!(error, EditError::Config(_)), "{error}");
        for (text, change) in [
            ("policy = [{ decision = 'ask' }]\n", RuleEdit::Remove { at: 0 }),
            (FILE, RuleEdit::Remove { at: 2 }),
            (FILE, RuleEdit::Move { from: 0, to: 2 }),
            (FILE, RuleEdit::Add { at: 3, rule: Box::new(rule()) }),
            ("[[policy]]\ndecision='ask'\ntools=['''\n[[policy]]\n''']\n", RuleEdit::Remove { at: 0 }),
        ] {
            assert!(matches!(changed(text, &change), Err(EditError::ByHand { .. })), "{text}");
        }
    }
}
