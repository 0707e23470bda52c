//! Anchors: the head of the audit chain over time, in a second file.
//!
//! The chain detects every change but truncation. So the sequence number and MAC of the newest durable record are also
//! written elsewhere, at most a second later. An anchor beyond the end of the log proves that the log was truncated.

use super::chain::{ChainLink, Mac};
use super::log_lines::{LineEnd, LogLineReader};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// How far from the end the newest anchor is searched. An anchor has about 170 bytes.
const TAIL_BYTES_MAX: u64 = 4096;

/// Why an anchor was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AnchorReason {
    /// A hub opened the log.
    Open,
    Time,
    Rotate,
    /// A hub closed the log: no record follows until another hub opens it.
    Close,
}

/// One line of the anchors file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Anchor {
    pub(crate) time: String,
    pub(crate) file: String,
    pub(crate) seq: u64,
    pub(crate) mac: Mac,
    pub(crate) why: AnchorReason,
}

impl Anchor {
    pub(crate) fn link(&self) -> ChainLink {
        ChainLink { seq: self.seq, mac: self.mac }
    }
}

/// Appends an anchor and fsyncs.
pub(crate) fn write(path: &Path, anchor: &Anchor) -> io::Result<()> {
    let mut line = serde_json::to_vec(anchor)?;
    line.push(b'\n');
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut file = open(path, dir)?;
    let bytes = file.metadata()?.len();
    let whole_bytes = end_of_whole_lines(&mut file)?;
    if whole_bytes < bytes {
        // Unlike in the log, a torn line is removed: it proves nothing, and another anchor follows.
        file.set_len(whole_bytes)?;
    }
    file.write_all(&line)?;
    // Removed if the fsync fails: a torn anchor would be worse than none.
    file.sync_data().inspect_err(|_| drop(file.set_len(whole_bytes)))?;
    if whole_bytes == 0 { File::open(dir)?.sync_all() } else { Ok(()) }
}

fn open(path: &Path, dir: &Path) -> io::Result<File> {
    portcullis_core::durable_dir::create_all(dir)?;
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)
}

fn end_of_whole_lines(file: &mut File) -> io::Result<u64> {
    let (tail, bytes) = tail(file)?;
    let torn = tail.iter().rev().take_while(|byte| **byte != b'\n').count();
    Ok(bytes - torn as u64)
}

fn tail(file: &mut File) -> io::Result<(Vec<u8>, u64)> {
    let bytes = file.metadata()?.len();
    file.seek(SeekFrom::Start(bytes.saturating_sub(TAIL_BYTES_MAX)))?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES_MAX).read_to_end(&mut tail)?;
    Ok((tail, bytes))
}

/// Returns the newest anchor, if there is one.
pub(crate) fn newest(path: &Path) -> io::Result<Option<Anchor>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let (tail, _) = tail(&mut file)?;
    Ok(tail.split_inclusive(|byte| *byte == b'\n').rev().find_map(|line| serde_json::from_slice(line).ok()))
}

/// Reads the anchors present at opening, in order. Later ones are ignored, because the log may have been read before.
pub(crate) struct AnchorReader {
    lines: Option<LogLineReader<io::Take<File>>>,
    line: Vec<u8>,
    /// The number of the last line read.
    pub(crate) number: u64,
}

impl AnchorReader {
    pub(crate) fn open(path: &Path) -> io::Result<AnchorReader> {
        let lines = match File::open(path) {
            Ok(file) => {
                let bytes = file.metadata()?.len();
                Some(LogLineReader::new(file.take(bytes)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(AnchorReader { lines, line: Vec::new(), number: 0 })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_none()
    }

    /// Returns the next anchor: `Some(None)` for a malformed line.
    pub(crate) fn next(&mut self) -> io::Result<Option<Option<Anchor>>> {
        let Some(lines) = &mut self.lines else { return Ok(None) };
        self.number += 1;
        match lines.next(&mut self.line)? {
            // A crash during the write of an anchor.
            None | Some(LineEnd::Unfinished) => Ok(None),
            Some(LineEnd::Whole | LineEnd::TooLong) => Ok(Some(serde_json::from_slice(&self.line).ok())),
        }
    }
}
