//! The newest runs of each script.
//!
//! For people only; the audit log is the record. Lines are appended without fsync.

use super::ScriptName;
use crate::locked_file::FileError;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

/// Size at which a file is truncated, and how much of its end stays: some hundred runs.
const FILE_BYTES_MAX: u64 = 128 * 1024;
const KEPT_BYTES: u64 = 64 * 1024;
/// Runs that are shown.
const SHOWN_MAX: usize = 200;

/// One run of a script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptRunRecord {
    pub at: Timestamp,
    pub sha256: String,
    pub client: String,
    pub duration_ms: u64,
    /// `ok`, or the error code.
    pub outcome: String,
}

pub(super) struct ScriptRunLog {
    dir: PathBuf,
}

impl ScriptRunLog {
    pub(super) fn new(dir: PathBuf) -> ScriptRunLog {
        ScriptRunLog { dir }
    }

    pub(super) fn add(&self, name: &ScriptName, run: &ScriptRunRecord) -> Result<(), FileError> {
        let path = self.path(name);
        let failed = |error| FileError::new("write", &path, error);
        let open = || OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
        let file = open().or_else(|_| {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
            open()
        });
        let mut file = file.map_err(failed)?;
        let mut line = serde_json::to_string(run).map_err(|error| failed(error.into()))?;
        line.push('\n');
        file.write_all(line.as_bytes()).map_err(failed)?;
        if file.metadata().is_ok_and(|metadata| metadata.len() > FILE_BYTES_MAX) {
            let end = self.end(name);
            // The first line of the rest was cut in the middle.
            let end = end.split_once('\n').map_or("", |(_, rest)| rest);
            let new_path = path.with_extension("new");
            std::fs::write(&new_path, end)
                .and_then(|()| std::fs::rename(&new_path, &path))
                .map_err(failed)?;
        }
        Ok(())
    }

    pub(super) fn of(&self, name: &ScriptName) -> Vec<ScriptRunRecord> {
        let end = self.end(name);
        let runs = end.lines().rev().filter_map(|line| serde_json::from_str(line).ok());
        runs.take(SHOWN_MAX).collect()
    }

    fn path(&self, name: &ScriptName) -> PathBuf {
        self.dir.join(format!("{name}.jsonl"))
    }

    fn end(&self, name: &ScriptName) -> String {
        let Ok(mut file) = std::fs::File::open(self.path(name)) else { return String::new() };
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let mut bytes = Vec::new();
        let read = file.seek(SeekFrom::Start(length.saturating_sub(KEPT_BYTES)));
        let read = read.and_then(|_| file.take(KEPT_BYTES).read_to_end(&mut bytes));
        read.map(|_| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }
}
