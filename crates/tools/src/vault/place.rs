//! Which paths of a vault are notes, and which are nobody's business here.
//!
//! Whatever begins with a dot is out of reach: `.git` with its hooks and configuration, `.obsidian` with plugins that run as
//! soon as somebody opens the vault, `.gitattributes` and `.gitmodules`, `.trash`. No link is followed either: a link
//! with a harmless name could lead to one of these.

use super::note::is_note_extension;
use portcullis_core::ToolError;
use portcullis_core::json::printable;
use portcullis_core::root::{RootError, RootedPath};

/// Returns whether a name may be seen and used.
pub(super) fn is_visible(name: &str) -> bool {
    !name.starts_with('.') && !is_short_name_of_git(name)
}

/// A path below a vault that holds nothing hidden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place(RootedPath);

impl Place {
    /// Checks a path that a caller wrote. `what` is what the caller asked for.
    pub(super) fn parse(text: &str, what: &str) -> Result<Place, ToolError> {
        // A model that was told of a vault may put its name in front.
        let below = text.strip_prefix("/vault").filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let meant = match below.map(|rest| rest.trim_start_matches('/')) {
            Some("") => ".",
            Some(below) => below,
            None => text,
        };
        let path = RootedPath::parse(meant).map_err(|error| told(error, what, text))?;
        Place::of(path).ok_or_else(|| {
            ToolError::denied(format!("`{}` is hidden, and out of reach", printable(text)))
                .hint("names that begin with a dot belong to programs; use another name")
        })
    }

    /// Returns the place of a path, unless something in it is hidden.
    pub(super) fn of(path: RootedPath) -> Option<Place> {
        let visible = path.names().all(is_visible);
        visible.then_some(Place(path))
    }

    pub(super) fn path(&self) -> &RootedPath {
        &self.0
    }
}

/// Returns whether a path is that of a note: of text in Markdown.
pub(super) fn is_note(path: &RootedPath) -> bool {
    path.extension().is_some_and(is_note_extension)
}

pub(super) fn told(error: RootError, what: &str, path: &str) -> ToolError {
    error.into_tool_error(what, path, "vault_list")
}

/// `.git` and its like by the short names that Windows would give them, where a synced vault may end up.
fn is_short_name_of_git(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let numbered = |stem: &str| {
        name.strip_prefix(stem).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    // Of `.git`, `.gitmodules` and `.gitattributes`.
    ["git~", "gitmod~", "gi7eba~", "gitatt~", "gi7d29~"].into_iter().any(numbered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_out_of_reach() {
        for path in [
            ".git",
            ".git/config",
            "./.git/hooks/post-commit",
            "notes/.git/config",
            ".GIT/config",
            ".obsidian/plugins/x/main.js",
            ".obsidian",
            ".gitattributes",
            "sub/.gitattributes",
            ".gitmodules",
            ".trash/old.md",
            "GIT~1/config",
            "/workspace/.git/config",
            "/vault/.git/config",
            "..\u{200b}/x",
            "../x",
        ] {
            assert!(Place::parse(path, "note").is_err(), "{path}");
        }
        for (path, meant) in [
            ("a.md", "a.md"),
            ("/vault/a.md", "a.md"),
            ("/vault", "."),
            ("a/b c.md", "a/b c.md"),
            ("git/x", "git/x"),
        ] {
            assert_eq!(Place::parse(path, "note").unwrap().path().as_str(), meant, "{path}");
        }
    }
}
