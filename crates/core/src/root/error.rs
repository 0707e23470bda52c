//! Errors of file access, mapped to tool errors that a caller can act on.

use super::FileKind;
use crate::error::{ErrorKind, ToolError};
use crate::json::printable;
use rustix::io::Errno;
use tokio::task::JoinError;

#[derive(Debug, thiserror::Error)]
pub enum RootError {
    #[error("not found")]
    NotFound,
    #[error("the path leads outside")]
    Outside,
    #[error("{reason}")]
    BadName { reason: &'static str },
    #[error("a symbolic link in the path is not followed here")]
    Link,
    #[error("it is a {}, not a file", kind.as_str())]
    NotAFile { kind: FileKind },
    #[error("it is a folder")]
    IsDirectory,
    #[error("it is not a folder")]
    NotADirectory,
    #[error("the file is a hard link")]
    HardLink,
    #[error("{bytes} bytes, at most {bytes_max} are allowed")]
    TooLarge { bytes: u64, bytes_max: u64 },
    #[error("no space is left")]
    NoSpace,
    #[error("the operating system does not permit it")]
    NotPermitted(#[source] std::io::Error),
    /// `openat2` kept returning `EAGAIN`, because parts of the path are being renamed.
    #[error("the tree changes too fast")]
    Busy,
    #[error("the file system failed")]
    Io(#[source] std::io::Error),
}

impl From<JoinError> for RootError {
    fn from(panic: JoinError) -> RootError {
        RootError::Io(std::io::Error::other(panic))
    }
}

impl From<Errno> for RootError {
    fn from(errno: Errno) -> RootError {
        match errno {
            Errno::NOENT => RootError::NotFound,
            // `RESOLVE_BENEATH` reports `EXDEV` for a path that leaves the root.
            Errno::XDEV => RootError::Outside,
            Errno::LOOP => RootError::Link,
            Errno::ISDIR => RootError::IsDirectory,
            Errno::NOTDIR => RootError::NotADirectory,
            Errno::NAMETOOLONG => RootError::BadName { reason: "a name has at most 255 bytes" },
            Errno::NOSPC | Errno::DQUOT => RootError::NoSpace,
            // Opening a socket.
            Errno::NXIO => RootError::NotAFile { kind: FileKind::Other },
            Errno::AGAIN => RootError::Busy,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => RootError::NotPermitted(errno.into()),
            other => RootError::Io(other.into()),
        }
    }
}

impl RootError {
    /// Returns the caller's error: what happened to `path` and what to do. The cause goes to the log. Host paths never
    /// appear.
    ///
    /// `what` is the kind of object (`file`, `note`, …), `list_tool` the tool that lists existing ones.
    pub fn into_tool_error(self, what: &str, path: &str, list_tool: &str) -> ToolError {
        let shown = printable(path);
        let relative = "paths are relative, like `notes/todo.md`, and `..` is not allowed";
        match self {
            RootError::NotFound => {
                ToolError::not_found(what, path).hint(format!("`{list_tool}` shows what exists"))
            }
            RootError::Outside => {
                ToolError::denied(format!("path `{shown}` leads outside the folder of this tool"))
                    .hint(relative)
            }
            RootError::BadName { reason } => {
                ToolError::invalid_args(format!("invalid path `{shown}`: {reason}")).hint(relative)
            }
            RootError::Link => {
                ToolError::denied(format!("path `{shown}` goes through a symbolic link that is not followed"))
                    .hint("use the path of the file itself")
            }
            RootError::NotAFile { kind } => {
                ToolError::invalid_args(format!("`{shown}` is a {}, not a file", kind.as_str()))
                    .hint(format!("`{list_tool}` shows which entries are files"))
            }
            RootError::IsDirectory => ToolError::invalid_args(format!("`{shown}` is a folder, not a file"))
                .hint(format!("`{list_tool}` shows what is in it")),
            RootError::NotADirectory => {
                ToolError::invalid_args(format!("a part of `{shown}` is a file, not a folder"))
                    .hint(format!("`{list_tool}` shows which entries are folders"))
            }
            RootError::HardLink => ToolError::denied(format!(
                "`{shown}` is a hard link, so it may belong to something outside the folder of this tool"
            ))
            .hint("copy the file, and use the copy"),
            RootError::TooLarge { bytes, bytes_max } => ToolError::new(
                ErrorKind::TooLarge,
                format!("{what} `{shown}` has {bytes} bytes, at most {bytes_max} are allowed"),
            )
            .hint("split it into smaller files"),
            RootError::NoSpace => {
                ToolError::unavailable(format!("no space is left on the disk; `{shown}` is unchanged"))
                    .hint("free some space and try again")
            }
            RootError::NotPermitted(error) => {
                ToolError::denied(format!("the hub has no permission for `{shown}`"))
                    .hint("the administrator of the hub can change the file's permissions")
                    .caused_by(error)
            }
            RootError::Busy => ToolError::unavailable(format!("`{shown}` is being moved")).hint("try again"),
            RootError::Io(error) => ToolError::internal(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;

    #[test]
    fn the_caller_reads_what_happened_and_the_log_reads_why() {
        let error = RootError::from(Errno::NOENT).into_tool_error("file", "gone.md", "workspace_list");
        assert_eq!(error.to_string(), "not_found: file `gone.md` not found");
        assert_eq!(error.hints, ["`workspace_list` shows what exists"]);

        let error = RootError::from(Errno::IO).into_tool_error("file", "bad.md", "workspace_list");
        assert_eq!(error.to_string(), "internal: something went wrong in the hub");
        assert!(error.source().unwrap().to_string().contains("os error 5"));
    }

    #[test]
    fn a_stranger_s_path_is_made_visible_in_the_message() {
        let error = RootError::BadName { reason: "no" }.into_tool_error("file", "a\u{202e}\u{1b}", "x_list");
        assert_eq!(error.to_string(), "invalid_args: invalid path `a\\u{202e}\\u{1b}`: no");
    }
}
