//! Vault paths: hidden files are out of reach, and links are not followed.
//!
//! A name with a leading dot is refused: `.git` with its hooks and configuration, `.obsidian` with plugins that run
//! when the vault is opened, `.gitattributes` and `.gitmodules`, `.trash`. Symbolic links are not followed, because
//! one with a harmless name could lead to these.

use super::note::is_note_extension;
use portcullis_core::ToolError;
use portcullis_core::json::printable;
use portcullis_core::root::{RootError, RootedPath};

/// Returns whether a name is visible.
pub(super) fn is_visible(name: &str) -> bool {
    !name.starts_with('.') && !is_short_name_of_git(name)
}

/// A path in a vault without hidden components.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VaultPath(RootedPath);

impl VaultPath {
    /// Validates a path from a caller. `what` is the kind of item for errors.
    pub(super) fn parse(text: &str, what: &str) -> Result<VaultPath, ToolError> {
        // A model may put the vault's name in front.
        let below = text.strip_prefix("/vault").filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let meant = match below.map(|rest| rest.trim_start_matches('/')) {
            Some("") => ".",
            Some(below) => below,
            None => text,
        };
        let path = RootedPath::parse(meant).map_err(|error| vault_path_error(error, what, text))?;
        VaultPath::of(path).ok_or_else(|| {
            ToolError::denied(format!("`{}` is hidden, and out of reach", printable(text)))
                .hint("names that begin with a dot belong to programs; use another name")
        })
    }

    /// Returns the vault path, unless a component is hidden.
    pub(super) fn of(path: RootedPath) -> Option<VaultPath> {
        let visible = path.names().all(is_visible);
        visible.then_some(VaultPath(path))
    }

    pub(super) fn path(&self) -> &RootedPath {
        &self.0
    }
}

/// Returns whether a path is a note, by its Markdown extension.
pub(super) fn is_note(path: &RootedPath) -> bool {
    path.extension().is_some_and(is_note_extension)
}

pub(super) fn vault_path_error(error: RootError, what: &str, path: &str) -> ToolError {
    error.into_tool_error(what, path, "vault_list")
}

/// Windows short names (8.3) of `.git` and similar, because a synced vault may end up on Windows.
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
            assert!(VaultPath::parse(path, "note").is_err(), "{path}");
        }
        for (path, meant) in [
            ("a.md", "a.md"),
            ("/vault/a.md", "a.md"),
            ("/vault", "."),
            ("a/b c.md", "a/b c.md"),
            ("git/x", "git/x"),
        ] {
            assert_eq!(VaultPath::parse(path, "note").unwrap().path().as_str(), meant, "{path}");
        }
    }
}
