//! Async file access within a root. Every write is [`blocking`], because writes call fsync.

use portcullis_core::root::{RootError, RootedPath};
use portcullis_core::{FileContents, Root, ToolError, blocking};

/// The largest file for one call: as much text as models accept.
pub(crate) const FILE_BYTES_MAX: usize = 1024 * 1024;
/// Smaller files are read inline, because moving the read to another thread takes longer.
const INLINE_BYTES_MAX: u64 = 64 * 1024;

/// Returns the contents of a file.
pub(crate) async fn read(root: &Root, path: &RootedPath) -> Result<Vec<u8>, RootError> {
    let file = root.open_file(path)?;
    if file.size() <= INLINE_BYTES_MAX {
        return file.read(FILE_BYTES_MAX);
    }
    blocking(move || file.read(FILE_BYTES_MAX)).await
}

/// Returns the content as UTF-8 text.
pub(crate) fn text(path: &RootedPath, content: Vec<u8>) -> Result<String, ToolError> {
    String::from_utf8(content).map_err(|error| {
        let bytes = error.as_bytes().len();
        ToolError::invalid_args(format!(
            "file `{path}` is not text ({bytes} bytes); only UTF-8 text can be read"
        ))
        .caused_by(error.utf8_error())
    })
}

/// Returns the text of a file as a result.
pub(crate) fn contents(path: &RootedPath, text: String) -> FileContents {
    FileContents { if_empty: format!("{path} is empty."), text }
}

/// Refuses content over the read limit.
pub(crate) fn check_size(content: &str) -> Result<(), ToolError> {
    if content.len() <= FILE_BYTES_MAX {
        return Ok(());
    }
    let error = ToolError::too_large("`content`", content.len(), FILE_BYTES_MAX);
    Err(error.hint("split it into several files"))
}

/// Removes temporary files of interrupted writes. A failure is only logged.
pub(crate) fn tidy(root: &Root) {
    match root.sweep() {
        Ok(0) => {}
        Ok(count) => tracing::info!(count, "removed temporary files of unfinished writes"),
        Err(error) => tracing::warn!(%error, "could not look for unfinished writes"),
    }
}
