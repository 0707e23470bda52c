//! Bounded reading of a client application's file.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Large because Claude Code keeps its history in its file.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Why such a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientFileError {
    #[error("it is not a regular file")]
    NotRegular,
    #[error("it is larger than {FILE_BYTES_MAX} bytes")]
    TooLarge,
    #[error(transparent)]
    Io(#[from] io::Error),
}

pub(crate) fn read(path: &Path) -> Result<String, ClientFileError> {
    // Before it is opened: opening a FIFO would block.
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(ClientFileError::NotRegular);
    }
    let mut text = String::new();
    let mut bytes = metadata.len();
    if bytes <= FILE_BYTES_MAX {
        // It may have grown.
        bytes = File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)? as u64;
    }
    if bytes > FILE_BYTES_MAX { Err(ClientFileError::TooLarge) } else { Ok(text) }
}
