//! Under which names a server's tools appear.
//!
//! `<prefix>_<tool>` in the letters that every client takes, at most 64 of them. A name that had to be changed ends
//! in a hash of the original, so it is the same after every start and no two tools share one.

use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fmt::Write;

/// The longest name that common clients and models take.
const NAME_CHARS_MAX: usize = 64;
const HASH_CHARS: usize = 8;

/// Returns the name under which a tool appears, which none of `taken` is; it is taken then.
pub(crate) fn public_name(prefix: &str, tool: &str, taken: &mut HashSet<String>) -> String {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let joined = if prefix.is_empty() { tool.to_owned() } else { format!("{prefix}_{tool}") };
    let cleaned: String = joined.chars().map(|c| if legal(c) { c } else { '_' }).collect();
    let as_it_is = cleaned == joined && !cleaned.is_empty() && cleaned.len() <= NAME_CHARS_MAX;
    let name = if as_it_is && !taken.contains(&cleaned) {
        cleaned
    } else {
        let digest = Sha256::digest(joined.as_bytes());
        let mut hash = String::new();
        for byte in &digest[..HASH_CHARS / 2] {
            // Writing to a text does not fail.
            let _ = write!(hash, "{byte:02x}");
        }
        let kept: String = cleaned.chars().take(NAME_CHARS_MAX - HASH_CHARS - 1).collect();
        format!("{kept}_{hash}")
    };
    taken.insert(name.clone());
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(prefix: &str, tools: &[&str]) -> Vec<String> {
        let mut taken = HashSet::from(["git_taken".to_owned()]);
        tools.iter().map(|tool| public_name(prefix, tool, &mut taken)).collect()
    }

    #[test]
    fn names_are_legal_short_unique_and_always_the_same() {
        let long = "x".repeat(100);
        let tools = ["status", "git log", "git_log", "taken", "", "näme", &long];
        let first = names("git", &tools);
        assert_eq!(first, names("git", &tools));
        assert_eq!(first[0], "git_status");
        assert_eq!(first[2], "git_git_log");
        assert!(first[1].starts_with("git_git_log_") && first[3].starts_with("git_taken_"), "{first:?}");
        let unique: HashSet<&String> = first.iter().collect();
        assert_eq!(unique.len(), tools.len());
        for name in &first {
            assert!(name.len() <= NAME_CHARS_MAX && name.is_ascii(), "{name}");
        }
        assert_eq!(names("", &["status"]), ["status"]);
    }
}
