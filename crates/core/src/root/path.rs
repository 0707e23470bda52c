//! Validated relative paths.
//!
//! A path is validated once, where it enters. Everything else takes a [`RootedPath`] and needs no checks.

use super::error::RootError;
use crate::hidden_chars::is_invisible;
use std::fmt;

/// The longest path. Linux allows 4,096 bytes including the NUL.
pub const PATH_BYTES_MAX: usize = 4_095;
/// The longest file name on common file systems.
pub const NAME_BYTES_MAX: usize = 255;
/// Maximum depth of a path. Deeper than real trees, and it bounds every walk.
pub const DEPTH_MAX: usize = 64;

/// A prefix that models use for paths in the workspace. It means the root.
const WORKSPACE: &str = "workspace";

/// A path below a [`Root`](super::Root): names joined by `/`, without `.`, `..` or invisible characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RootedPath {
    /// `.` for the root itself, so that the kernel accepts the text.
    text: String,
}

impl RootedPath {
    /// Returns the root itself.
    pub fn root() -> RootedPath {
        RootedPath { text: ".".to_owned() }
    }

    /// Validates an untrusted path.
    ///
    /// `..` is refused rather than resolved: after a symbolic link the text does not say where it leads. Percent signs,
    /// backslashes and look-alike dots are ordinary characters, because no later step decodes a name.
    pub fn parse(text: &str) -> Result<RootedPath, RootError> {
        if text.is_empty() {
            return Err(RootError::BadName { reason: "a path must not be empty" });
        }
        if text.len() > PATH_BYTES_MAX {
            return Err(RootError::BadName { reason: "a path has at most 4095 bytes" });
        }
        if text.chars().any(|c| c.is_control() || is_invisible(c)) {
            return Err(RootError::BadName {
                reason: "a path must not hold control or invisible characters",
            });
        }
        let relative = match text.strip_prefix('/') {
            None => text,
            Some(absolute) => below_workspace(absolute).ok_or(RootError::Outside)?,
        };
        let mut names: Vec<&str> = Vec::new();
        for name in relative.split('/') {
            match name {
                "" | "." => {}
                ".." if names.is_empty() => return Err(RootError::Outside),
                ".." => return Err(RootError::BadName { reason: "`..` is not allowed in a path" }),
                _ if name.len() > NAME_BYTES_MAX => {
                    return Err(RootError::BadName { reason: "a name has at most 255 bytes" });
                }
                _ => names.push(name),
            }
        }
        if names.len() > DEPTH_MAX {
            return Err(RootError::BadName { reason: "a path has at most 64 names" });
        }
        Ok(if names.is_empty() { RootedPath::root() } else { RootedPath { text: names.join("/") } })
    }

    /// Returns the path as text; `.` for the root itself.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn is_root(&self) -> bool {
        self.text == "."
    }

    /// Returns the last name; `None` for the root.
    pub fn name(&self) -> Option<&str> {
        match self.text.rsplit_once('/') {
            Some((_, name)) => Some(name),
            None if self.is_root() => None,
            None => Some(&self.text),
        }
    }

    /// Returns the file extension, such as `md`.
    pub fn extension(&self) -> Option<&str> {
        let (stem, extension) = self.name()?.rsplit_once('.')?;
        (!stem.is_empty()).then_some(extension)
    }

    /// Returns the parent folder; `.` if that is the root.
    pub fn folder(&self) -> &str {
        self.text.rsplit_once('/').map_or(".", |(folder, _)| folder)
    }

    /// Returns the components; none for the root.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.text.split('/').filter(|name| *name != ".")
    }
}

impl fmt::Display for RootedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Strips the workspace prefix; `None` for any other absolute path.
fn below_workspace(absolute: &str) -> Option<&str> {
    if absolute.is_empty() {
        return Some("");
    }
    let rest = absolute.strip_prefix(WORKSPACE)?;
    // `/workspace-evil` is not below `/workspace`.
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the normal form of a path, or the error.
    fn check(text: &str) -> String {
        match RootedPath::parse(text) {
            Ok(path) => path.to_string(),
            Err(error) => format!("refused: {error}"),
        }
    }

    #[test]
    fn paths_have_one_form() {
        for (given, meant) in [
            ("notes.md", "notes.md"),
            ("notes/todo.md", "notes/todo.md"),
            ("./notes//todo.md/", "notes/todo.md"),
            (".", "."),
            ("/", "."),
            ("//", "refused: the path leads outside"),
            ("/workspace", "."),
            ("/workspace/", "."),
            ("/workspace/notes.md", "notes.md"),
            ("/workspace//notes.md", "notes.md"),
            ("workspace/notes.md", "workspace/notes.md"),
            ("/workspace-evil/notes.md", "refused: the path leads outside"),
            ("/etc/passwd", "refused: the path leads outside"),
            ("///etc/passwd", "refused: the path leads outside"),
            ("../secure", "refused: the path leads outside"),
            ("/workspace/../secure", "refused: the path leads outside"),
            ("a/../b", "refused: `..` is not allowed in a path"),
            ("a/../../b", "refused: `..` is not allowed in a path"),
            ("", "refused: a path must not be empty"),
            // All ordinary characters.
            ("..\\..\\secure", "..\\..\\secure"),
            ("%2e%2e/secure", "%2e%2e/secure"),
            ("\u{ff0e}\u{ff0e}/secure", "\u{ff0e}\u{ff0e}/secure"),
            ("...", "..."),
            ("~root/.ssh", "~root/.ssh"),
            ("a\0b", "refused: a path must not hold control or invisible characters"),
            ("a\u{202e}b", "refused: a path must not hold control or invisible characters"),
            ("a\nb", "refused: a path must not hold control or invisible characters"),
        ] {
            assert_eq!(check(given), meant, "{given:?}");
        }
    }

    #[test]
    fn paths_have_bounds() {
        assert!(RootedPath::parse(&"x".repeat(NAME_BYTES_MAX)).is_ok());
        assert!(RootedPath::parse(&"x".repeat(NAME_BYTES_MAX + 1)).is_err());
        assert!(RootedPath::parse(&vec!["d"; DEPTH_MAX].join("/")).is_ok());
        assert!(RootedPath::parse(&vec!["d"; DEPTH_MAX + 1].join("/")).is_err());
        assert!(RootedPath::parse(&"./".repeat(PATH_BYTES_MAX / 2 + 1)).is_err());
    }

    #[test]
    fn a_path_knows_its_parts() {
        let path = RootedPath::parse("a/b/c.tar.gz").unwrap();
        assert_eq!((path.folder(), path.name(), path.extension()), ("a/b", Some("c.tar.gz"), Some("gz")));
        assert_eq!(RootedPath::root().name(), None);
        assert_eq!(RootedPath::parse(".profile").unwrap().extension(), None);
        assert_eq!(RootedPath::root().names().count(), 0);
    }

    proptest! {
        #[test]
        fn what_is_accepted_stays_accepted_and_holds_no_way_up(text in "[a./\\\\%~ \u{0}\u{202e}workspce]{0,40}") {
            if let Ok(path) = RootedPath::parse(&text) {
                prop_assert_eq!(&RootedPath::parse(path.as_str()).unwrap(), &path);
                prop_assert!(!path.as_str().starts_with('/'));
                prop_assert!(path.names().all(|name| !matches!(name, "" | "." | "..")));
            }
        }

        #[test]
        fn any_text_is_taken_or_refused_without_a_panic(text in any::<String>()) {
            let _ = RootedPath::parse(&text);
        }
    }
}
