//! Public names of a server's tools.
//!
//! `<prefix><tool>` in the characters that every client and model accepts, at most 64 of them. A name that had to be
//! changed ends in a hash of the original. Names depend on what is offered and configured, never on the order of the
//! list.

use data_encoding::HEXLOWER;
use portcullis_core::{NAME_CHARS_MAX, NAME_HASH_CHARS};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Returns the public name of each, no two the same. An item whose every possible name is taken, which needs intent,
/// has none.
pub(crate) fn public_names<'a>(
    prefix: &str,
    rename: &[(String, String)],
    all: impl Iterator<Item = &'a str>,
) -> HashMap<&'a str, String> {
    let (mut names, mut taken, mut changed) = (HashMap::new(), HashSet::new(), Vec::new());
    for own in all {
        let wanted = rename.iter().find(|(known, _)| known == own).map_or(own, |(_, other)| other);
        // A configured name is reserved for its tool, even while the server does not offer it.
        let holder = rename.iter().find(|(_, other)| other == wanted).map_or(wanted, |(known, _)| known);
        let joined = format!("{prefix}{wanted}");
        let cleaned = legal(prefix, &joined);
        if holder == own && cleaned == joined && !joined.is_empty() && joined.len() <= NAME_CHARS_MAX {
            taken.insert(joined.clone());
            names.insert(own, joined);
        } else {
            changed.push((own, cleaned));
        }
    }
    for chars in NAME_HASH_CHARS {
        let mut wanted: BTreeMap<String, Vec<(&str, String)>> = BTreeMap::new();
        for (own, cleaned) in changed.drain(..) {
            wanted.entry(hashed(prefix, own, &cleaned, chars)).or_default().push((own, cleaned));
        }
        for (name, mut who) in wanted {
            match who.pop() {
                Some((own, _)) if who.is_empty() && taken.insert(name.clone()) => {
                    names.insert(own, name);
                }
                last => changed.extend(who.into_iter().chain(last)),
            }
        }
    }
    names
}

/// Replaces characters that not every client accepts with `_`. Models accept no dots; a server without a prefix
/// keeps those that the protocol allows.
fn legal(prefix: &str, name: &str) -> String {
    let legal =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-') || (c == '.' && prefix.is_empty());
    name.chars().map(|c| if legal(c) { c } else { '_' }).collect()
}

fn hashed(prefix: &str, own: &str, cleaned: &str, chars: usize) -> String {
    let digest = Sha256::new().chain_update(prefix).chain_update(own).finalize();
    let mut name: String = cleaned.chars().take(NAME_CHARS_MAX - chars - 1).collect();
    name.push('_');
    HEXLOWER.encode_append(&digest[..chars / 2], &mut name);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(prefix: &str, rename: &[(&str, &str)], tools: &[&str]) -> Vec<String> {
        let rename: Vec<_> =
            rename.iter().map(|(own, other)| ((*own).to_owned(), (*other).to_owned())).collect();
        let names = public_names(prefix, &rename, tools.iter().copied());
        let backwards = public_names(prefix, &rename, tools.iter().rev().copied());
        assert_eq!(names, backwards, "whatever the order");
        let unique: HashSet<&String> = names.values().collect();
        assert_eq!(unique.len(), tools.len());
        for name in &unique {
            assert!(name.len() <= NAME_CHARS_MAX && name.is_ascii(), "{name}");
        }
        tools.iter().map(|tool| names[tool].clone()).collect()
    }

    #[test]
    fn names_are_legal_short_unique_and_always_the_same() {
        let long = "x".repeat(100);
        let named = names("git_", &[], &["status", "git log", "git_log", "näme", "a.b", &long]);
        assert_eq!((named[0].as_str(), named[2].as_str()), ("git_status", "git_git_log"));
        assert!(named[1].starts_with("git_git_log_") && named[4].starts_with("git_a_b_"), "{named:?}");
        assert_eq!(names("", &[], &["status", "a.b"]), ["status", "a.b"]);
    }

    #[test]
    fn a_name_that_looks_like_a_changed_one_takes_nobodys_place() {
        let changed = &names("", &[], &["sp ace"])[0];
        assert_eq!(changed, "sp_ace_ed7f8c63");
        let both = names("", &[], &[changed, "sp ace"]);
        assert_eq!(both[0], *changed);
        assert!(both[1].starts_with("sp_ace_ed7f8c63") && both[1].len() > changed.len(), "{both:?}");
        // A server that takes both takes them from its own tools only.
        let owns = ["sp ace", both[0].as_str(), both[1].as_str()];
        let all = public_names("", &[], owns.into_iter());
        assert_eq!((all.len(), all.get("sp ace")), (2, None));
    }

    #[test]
    fn a_name_that_a_person_gave_stays_with_what_it_was_given_to() {
        let rename = [("x1", "x2")];
        let both = names("", &rename, &["x1", "x2"]);
        assert!(both[0] == "x2" && both[1].starts_with("x2_"), "{both:?}");
        assert_eq!(names("", &rename, &["x2"]), both[1..]);
        // Two tools may swap names.
        assert_eq!(names("a_", &[("x", "y"), ("y", "x")], &["x", "y"]), ["a_y", "a_x"]);
    }
}
