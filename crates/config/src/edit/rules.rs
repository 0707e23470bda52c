//! Adds, removes and moves policy rules.

use super::{ConfigChange, ConfigEditLock, ConfigFormat, EditError, edit, entry_text, toml_spans};
use crate::{Config, Environment, read};
use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::ops::Range;
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
        let lists = [
            ("tools", &self.tools),
            ("clients", &self.clients),
            ("origins", &self.origins),
            ("effects", &self.effects),
            ("days", &self.days),
        ];
        let texts = [("reach", &self.reach), ("hours", &self.hours), ("until", &self.until)];
        let lists = lists.into_iter().filter(|(_, all)| !all.is_empty()).map(|(key, all)| (key, json!(all)));
        let texts = texts.into_iter().filter_map(|(key, text)| Some((key, json!(text.as_ref()?))));
        let members = lists.chain(texts).chain([("decision", json!(self.decision))]);
        let members = members.map(|(key, value)| (key.to_owned(), value)).collect();
        entry_text::section(Some(&self.comment), "[[policy]]", &members)
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
    HEXLOWER.encode(&Sha256::digest(text.as_bytes())[..16])
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
            (text, alone.written.value()["policy"][0].take())
        }
        RuleEdit::Remove { at } => (format!("remove rule {at} (numbered from 0)\n"), Value::Null),
        RuleEdit::Move { from, to } => {
            (format!("move rule {from} to position {to} (numbered from 0)\n"), Value::Null)
        }
    };
    let edited = edit(home, env, &|_| entry.clone(), |_, form, text| {
        if form != ConfigFormat::Toml {
            return Err(EditError::Form("rules can be edited in TOML files only".to_owned()));
        }
        let not_understood = || EditError::ByHand {
            name: "the configuration".to_owned(),
            why: "its rules are not `[[policy]]` tables".to_owned(),
            entry: entry.clone(),
        };
        let rules = toml_spans::rules(text).ok_or_else(not_understood)?;
        let text = changed(text, &rules, change, &entry).ok_or_else(not_understood)?;
        Ok((text, ConfigChange::Rules { edit: change.clone(), meant }))
    })?;
    edited.write(editing)
}

/// Returns the edited text. `rules` are the places of the rules. Removing a rule keeps the text between rules.
fn changed(text: &str, rules: &[Range<usize>], change: &RuleEdit, entry: &str) -> Option<String> {
    let mut edited = text.to_owned();
    match change {
        RuleEdit::Add { at, .. } if *at < rules.len() => {
            edited.insert_str(rules.get(*at)?.start, &format!("{entry}\n"));
        }
        // The first rule of a file is appended; a new last rule goes before the text after the previous last.
        RuleEdit::Add { at, .. } if *at == rules.len() => {
            let end = rules.last().map_or(text.len(), |rule| rule.end);
            let before = match text.get(..end)? {
                "" => "",
                text if text.ends_with("\n\n") => "",
                text if text.ends_with('\n') => "\n",
                _ => "\n\n",
            };
            let after = if end < text.len() { "\n" } else { "" };
            edited.insert_str(end, &format!("{before}{entry}{after}"));
        }
        RuleEdit::Remove { at } => edited.replace_range(rules.get(*at)?.clone(), ""),
        RuleEdit::Move { from, to } if *from < rules.len() && *to < rules.len() => {
            let mut texts: Vec<String> =
                rules.iter().map(|rule| text.get(rule.clone()).map(str::to_owned)).collect::<Option<_>>()?;
            let mut moved = texts.remove(*from);
            if !moved.ends_with('\n') {
                moved.push('\n');
            }
            texts.insert(*to, moved);
            let last = texts.len() - 1;
            for rule in texts.iter_mut().take(last).filter(|rule| !rule.ends_with("\n\n")) {
                rule.push('\n');
            }
            for (place, text) in rules.iter().zip(&texts).rev() {
                edited.replace_range(place.clone(), text);
            }
        }
        RuleEdit::Add { .. } | RuleEdit::Move { .. } => return None,
    }
    Some(edited)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# mine\n[limits]\nsessions_max = 5000 # many\n\n# first\n[[policy]]\ntools=['a_*']\ndecision='deny'\n\n[[policy]]\ntools=['b_*']\ndecision='ask'\n\n# after\n[memory]\nenabled = true\n";

    fn edited(text: &str, change: &RuleEdit) -> Result<String, EditError> {
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
        let add = |at| edited(FILE, &RuleEdit::Add { at, rule: Box::new(rule()) }).unwrap();
        let new = "# by ann\n[[policy]]\ntools = [\"c_*\"]\ndecision = \"allow\"\n";
        assert_eq!(add(0), FILE.replace("# first", &format!("{new}\n# first")));
        assert_eq!(
            add(1),
            FILE.replace("[[policy]]\ntools=['b_*']", &format!("{new}\n[[policy]]\ntools=['b_*']"))
        );
        assert_eq!(add(2), FILE.replace("# after", &format!("{new}\n# after")));
        let remove = |at| edited(FILE, &RuleEdit::Remove { at }).unwrap();
        assert_eq!(remove(0), FILE.replace("# first\n[[policy]]\ntools=['a_*']\ndecision='deny'\n\n", ""));
        assert_eq!(remove(1), FILE.replace("[[policy]]\ntools=['b_*']\ndecision='ask'\n\n", ""));
        let moved = edited(FILE, &RuleEdit::Move { from: 1, to: 0 }).unwrap();
        assert!(moved.find("b_*") < moved.find("# first") && moved.contains("# after\n[memory]"), "{moved}");
        assert_eq!(edited(&moved, &RuleEdit::Move { from: 0, to: 1 }).unwrap(), FILE);
        // What looks like a rule in a text is none.
        let text_of_one =
            "# one\n[[policy]]\ndecision='ask'\ntools=['''\n[[policy]]\n''']\n# mine\n[memory]\n";
        assert_eq!(edited(text_of_one, &RuleEdit::Remove { at: 0 }).unwrap(), "# mine\n[memory]\n");
    }

    #[test]
    fn a_first_rule_comes_after_everything() {
        for text in ["", "[memory]\nenabled = true", "# only a comment\n"] {
            let text = edited(text, &RuleEdit::Add { at: 0, rule: Box::new(rule()) }).unwrap();
            assert!(text.ends_with("decision = \"allow\"\n"), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_or_not_understood_changes_nothing() {
        let bad = NewRule { decision: "perhaps".to_owned(), ..rule() };
        let error = edited(FILE, &RuleEdit::Add { at: 0, rule: Box::new(bad) }).unwrap_err();
        assert!(matches!(error, EditError::Config(_)), "{error}");
        for (text, change) in [
            ("policy = [{ decision = 'ask' }]\n", RuleEdit::Remove { at: 0 }),
            (FILE, RuleEdit::Remove { at: 2 }),
            (FILE, RuleEdit::Move { from: 0, to: 2 }),
            (FILE, RuleEdit::Add { at: 3, rule: Box::new(rule()) }),
        ] {
            assert!(matches!(edited(text, &change), Err(EditError::ByHand { .. })), "{text}");
        }
    }
}
