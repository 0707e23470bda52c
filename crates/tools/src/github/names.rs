//! Validated names on GitHub, safe to use in a URL path.

use portcullis_core::ToolError;
use portcullis_core::json::printable;
use std::fmt;

/// A user or an organization.
const OWNER_CHARS_MAX: usize = 39;
const REPOSITORY_CHARS_MAX: usize = 100;

/// A repository, by owner and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RepositoryName {
    pub(super) owner: String,
    pub(super) name: String,
}

impl RepositoryName {
    pub(super) fn parse(owner: &str, name: &str) -> Result<RepositoryName, ToolError> {
        if !is_owner(owner) {
            let message = format!(
                "invalid arguments: `owner` is `{}`, expected letters, digits and single hyphens, at most {OWNER_CHARS_MAX}",
                printable(owner)
            );
            return Err(ToolError::invalid_args(message)
                .hint("pass `owner` and `repo` separately, like `octocat` and `hello-world`"));
        }
        if !is_repository(name) {
            let message = format!(
                "invalid arguments: `repo` is `{}`, expected letters, digits, `-`, `_` and `.`, at most {REPOSITORY_CHARS_MAX}",
                printable(name)
            );
            return Err(ToolError::invalid_args(message)
                .hint("pass `owner` and `repo` separately, like `octocat` and `hello-world`"));
        }
        Ok(RepositoryName { owner: owner.to_owned(), name: name.to_owned() })
    }

    /// Returns whether `pattern` (`owner/name` or `owner/*`) matches. GitHub ignores case.
    pub(super) fn matches_pattern(&self, pattern: &str) -> bool {
        let Some((owner, name)) = pattern.split_once('/') else { return false };
        owner.eq_ignore_ascii_case(&self.owner) && (name == "*" || name.eq_ignore_ascii_case(&self.name))
    }
}

impl fmt::Display for RepositoryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

/// Returns whether a text is a user or organization name. Managed users end with `_` and the company's short code.
pub(super) fn is_owner(text: &str) -> bool {
    let (name, company) = match text.split_once('_') {
        Some((name, company)) => (name, Some(company)),
        None => (text, None),
    };
    let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    // No hyphen at the ends, and no two in a row.
    text.len() <= OWNER_CHARS_MAX && name.split('-').all(is_plain) && company.is_none_or(is_plain)
}

fn is_repository(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=REPOSITORY_CHARS_MAX).contains(&text.len())
        && text.bytes().all(plain)
        && !matches!(text, "." | "..")
        && !text.to_ascii_lowercase().ends_with(".git")
}

/// Returns whether a text is a valid entry of the repository allowlist: `owner/name` or `owner/*`.
pub(super) fn is_repository_pattern(text: &str) -> bool {
    text.split_once('/').is_some_and(|(owner, name)| is_owner(owner) && (name == "*" || is_repository(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_github_has() {
        for owner in ["a", "octocat", "my-org", "A1-b2", "octocat_acme", &"a".repeat(39)] {
            assert!(is_owner(owner), "{owner}");
        }
        for owner in [
            "",
            "-a",
            "a-",
            "a--b",
            "a/b",
            "a.b",
            "..",
            "a b",
            "ä",
            "_a",
            "a_",
            "a_b_c",
            "a%2fb",
            &"a".repeat(40),
        ] {
            assert!(!is_owner(owner), "{owner}");
        }
        for name in ["a", ".github", "hello-world", "a.b_c", "...", &"a".repeat(100)] {
            assert!(is_repository(name), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "a.git",
            "A.GIT",
            "a?b",
            "a#b",
            "a b",
            "ä",
            "a%2fb",
            "a\\b",
            &"a".repeat(101),
        ] {
            assert!(!is_repository(name), "{name}");
        }
        let repository = RepositoryName::parse("Octocat", "Hello").unwrap();
        for (pattern, meant) in [
            ("octocat/hello", true),
            ("octocat/*", true),
            ("octocat/hell", false),
            ("octo/*", false),
            ("*/*", false),
        ] {
            assert_eq!(repository.matches_pattern(pattern), meant, "{pattern}");
        }
        for (pattern, good) in
            [("a/b", true), ("a/*", true), ("*/b", false), ("a", false), ("a/b/c", false), ("a/b*", false)]
        {
            assert_eq!(is_repository_pattern(pattern), good, "{pattern}");
        }
    }
}
