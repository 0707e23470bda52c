//! Reading and writing files from a runtime.

use portcullis_core::root::{RootError, RootedPath};
use portcullis_core::{Root, ToolError};

/// The largest file that is read or written in one call: as much text as any model takes in.
pub(crate) const FILE_BYTES_MAX: usize = 1024 * 1024;
/// Up to here a file is read where the call runs. Handing it to another thread takes longer than reading it.
const INLINE_BYTES_MAX: u64 = 64 * 1024;

/// Returns the contents of a file.
pub(crate) async fn read(root: &Root, path: &RootedPath) -> Result<Vec<u8>, RootError> {
    let file = root.open_file(path)?;
    if file.size() <= INLINE_BYTES_MAX {
        return file.read(FILE_BYTES_MAX);
    }
    blocking(move || file.read(FILE_BYTES_MAX)).await
}

/// Runs what blocks on a thread that may. A write waits for the disk, so every write comes this way.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RootError> + Send + 'static,
) -> Result<T, RootError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(RootError::Io(std::io::Error::other(error))))
}

/// Returns the contents as text, which is all that a tool returns.
pub(crate) fn text(path: &RootedPath, content: Vec<u8>) -> Result<String, ToolError> {
    String::from_utf8(content).map_err(|error| {
        let bytes = error.as_bytes().len();
        ToolError::invalid_args(format!(
            "file `{path}` is not text ({bytes} bytes); only UTF-8 text can be read"
        ))
        .caused_by(error.utf8_error())
    })
}

/// Refuses content that could not be read again.
pub(crate) fn check_size(content: &str) -> Result<(), ToolError> {
    if content.len() <= FILE_BYTES_MAX {
        return Ok(());
    }
    let error = ToolError::too_large("`content`", content.len(), FILE_BYTES_MAX);
    Err(error.hint("split it into several files"))
}

/// Removes what a crash left behind. Nobody waits for it, so a failure is only worth a line in the log.
pub(crate) fn tidy(root: &Root) {
    match root.sweep() {
        Ok(0) => {}
        Ok(count) => tracing::info!(count, "Removed what unfinished writes left in the workspace."),
        Err(error) => tracing::warn!(%error, "Could not look for unfinished writes in the workspace."),
    }
}
