//! Which file a call of a writing tool would change, for a person who decides about the call.

use crate::{memory, vault, workspace};
use portcullis_core::root::RootedPath;
use serde_json::Value;

/// The argument of every writing tool that has the new text.
pub const CONTENT_ARGUMENT: &str = "content";

/// The folder that a file is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrittenFolder {
    Workspace,
    /// Links are not followed there.
    Vault,
}

/// A file that a call would change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenFile {
    pub folder: WrittenFolder,
    pub path: RootedPath,
    /// Whether the text is added to the end, instead of replacing the file.
    pub appends: bool,
}

/// Returns the file that a call would change; `None` for other tools, and for arguments that the tool refuses.
pub fn written_file(tool: &str, arguments: &Value) -> Option<WrittenFile> {
    let text = |name: &str| arguments[name].as_str();
    let (folder, path) = match tool {
        workspace::WRITE_NAME => (WrittenFolder::Workspace, RootedPath::parse(text("path")?).ok()?),
        memory::WRITE_NAME => (WrittenFolder::Workspace, memory::named_file(text("file"))?),
        vault::WRITE_NAME => (WrittenFolder::Vault, vault::note_path(text("path")?)?),
        _ => return None,
    };
    let appends = tool == memory::WRITE_NAME && arguments["append"] == true;
    Some(WrittenFile { folder, path, appends })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_file_of_each_writing_tool_is_known() {
        let found = |tool, arguments: Value| {
            let file = written_file(tool, &arguments)?;
            Some((file.folder, file.path.to_string(), file.appends))
        };
        let (workspace, vault) = (WrittenFolder::Workspace, WrittenFolder::Vault);
        assert_eq!(
            found("workspace_write", json!({ "path": "/workspace/a.md", "content": "" })),
            Some((workspace, "a.md".to_owned(), false))
        );
        assert_eq!(
            found("memory_write", json!({ "content": "", "append": true })),
            Some((workspace, "MEMORY.md".to_owned(), true))
        );
        assert_eq!(
            found("memory_write", json!({ "content": "", "file": "2024-01-15" })),
            Some((workspace, "memory/2024-01-15.md".to_owned(), false))
        );
        assert_eq!(
            found("vault_write", json!({ "path": "/vault/a.md" })),
            Some((vault, "a.md".to_owned(), false))
        );
        for (tool, arguments) in [
            ("workspace_read", json!({ "path": "a.md" })),
            ("workspace_write", json!({ "path": "../a.md" })),
            ("vault_write", json!({ "path": ".git/config" })),
            ("memory_write", json!({ "file": "notes/todo.md" })),
        ] {
            assert_eq!(found(tool, arguments), None, "{tool}");
        }
    }
}
