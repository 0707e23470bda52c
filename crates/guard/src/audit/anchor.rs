//! The second place: where the log had come to, and when.
//!
//! A chain shows every change but one: that its end was cut off. So the number and the code of the newest durable
//! record are also written elsewhere, at most a second after it. An anchor beyond the end of the log is a log
//! that was cut.

use super::chain::{Link, Mac};
use super::lines::{Ended, Lines};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// How far back the newest anchor is looked for. An anchor has about 170 bytes.
const TAIL_BYTES_MAX: u64 = 4096;

/// Why an anchor was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Why {
    /// A hub began to write.
    Open,
    Time,
    Rotate,
    /// A hub ended in good order: nothing comes after this record until another one begins.
    Close,
}

/// One line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Anchor {
    pub(crate) time: String,
    pub(crate) file: String,
    pub(crate) seq: u64,
    pub(crate) mac: Mac,
    pub(crate) why: Why,
}

impl Anchor {
    pub(crate) fn link(&self) -> Link {
        Link { seq: self.seq, mac: self.mac }
    }
}

/// Adds an anchor and returns when it is durable.
pub(crate) fn write(path: &Path, anchor: &Anchor) -> io::Result<()> {
    let mut line = serde_json::to_vec(anchor)?;
    line.push(b'\n');
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut file = open(path, dir)?;
    let bytes = file.metadata()?.len();
    let whole_bytes = end_of_whole_lines(&mut file)?;
    if whole_bytes < bytes {
        // Half an anchor says nothing, and another one is coming: unlike in the log it is taken away.
        file.set_len(whole_bytes)?;
    }
    file.write_all(&line)?;
    // Half durable it would be worse than none, and another one is coming.
    file.sync_data().inspect_err(|_| drop(file.set_len(whole_bytes)))?;
    if whole_bytes == 0 { File::open(dir)?.sync_all() } else { Ok(()) }
}

fn open(path: &Path, dir: &Path) -> io::Result<File> {
    portcullis_core::folder::make(dir)?;
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

/// The anchors as they were when this was opened, in order. What a hub adds meanwhile is not looked at: the log
/// that is held against them may have been read before.
pub(crate) struct Anchors {
    lines: Option<Lines<io::Take<File>>>,
    line: Vec<u8>,
    /// The number of the line that was read last.
    pub(crate) number: u64,
}

impl Anchors {
    pub(crate) fn open(path: &Path) -> io::Result<Anchors> {
        let lines = match File::open(path) {
            Ok(file) => {
                let bytes = file.metadata()?.len();
                Some(Lines::new(file.take(bytes)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Anchors { lines, line: Vec::new(), number: 0 })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_none()
    }

    /// Returns the next anchor: `Some(None)` for a line that is none.
    pub(crate) fn next(&mut self) -> io::Result<Option<Option<Anchor>>> {
        let Some(lines) = &mut self.lines else { return Ok(None) };
        self.number += 1;
        match lines.next(&mut self.line)? {
            // An anchor that was being written when the machine went down.
            None | Some(Ended::Unfinished) => Ok(None),
            Some(Ended::Whole | Ended::TooLong) => Ok(Some(serde_json::from_slice(&self.line).ok())),
        }
    }
}
