//! Unverified reading of the audit log: all records, the last ones, and new ones (tail -f).

use super::AuditSettings;
use super::log_lines::{CURRENT, LineEnd, LogFiles, LogLineReader};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Visits every complete line, oldest first, until `visit` breaks.
pub fn each_line(
    settings: &AuditSettings,
    visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
) -> io::Result<()> {
    let files = LogFiles::open(&settings.dir)?;
    for path in &files.closed {
        if each_of(File::open(path)?, visit)?.is_break() {
            return Ok(());
        }
    }
    match files.current {
        Some(file) => each_of(file, visit).map(drop),
        None => Ok(()),
    }
}

fn each_of(file: impl Read, visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> io::Result<ControlFlow<()>> {
    let (mut lines, mut line) = (LogLineReader::new(file), Vec::new());
    while let Some(ended) = lines.next(&mut line)? {
        if ended == LineEnd::Whole && visit(line.trim_ascii_end()).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Returns the last `count` lines, oldest first, and a follower for later ones.
pub fn last_lines(settings: &AuditSettings, count: usize) -> io::Result<(Vec<Vec<u8>>, LogFollower)> {
    let files = LogFiles::open(&settings.dir)?;
    let mut found: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut left = count;
    let mut follow = LogFollower { path: settings.dir.join(CURRENT), file: None, bytes: 0 };
    if let Some(file) = files.current {
        let bytes = whole_bytes(&file)?;
        found.push(last_of((&file).take(bytes), left)?);
        (follow.file, follow.bytes) = (Some(file), bytes);
    }
    for path in files.closed.iter().rev() {
        left -= found.last().map_or(0, Vec::len);
        if left == 0 {
            break;
        }
        found.push(last_of(File::open(path)?, left)?);
    }
    Ok((found.into_iter().rev().flatten().collect(), follow))
}

fn last_of(file: impl Read, count: usize) -> io::Result<Vec<Vec<u8>>> {
    let mut last = VecDeque::new();
    let _ = each_of(file, &mut |line| {
        if last.len() == count {
            last.pop_front();
        }
        if count > 0 {
            last.push_back(line.to_vec());
        }
        ControlFlow::Continue(())
    })?;
    Ok(last.into())
}

/// Returns the end of the last complete line.
fn whole_bytes(file: &File) -> io::Result<u64> {
    use std::os::unix::fs::FileExt;
    let bytes = file.metadata()?.len();
    let window = bytes.min(super::log_lines::LINE_BYTES_MAX as u64);
    let mut tail = vec![0; usize::try_from(window).map_err(io::Error::other)?];
    file.read_exact_at(&mut tail, bytes - window)?;
    let after = tail.iter().rev().take_while(|byte| **byte != b'\n').count();
    Ok(bytes - after as u64)
}

/// Continues where [`last_lines`] ended.
pub struct LogFollower {
    path: PathBuf,
    file: Option<File>,
    bytes: u64,
}

impl LogFollower {
    /// Visits the lines added since the last poll.
    pub fn poll(&mut self, visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> io::Result<ControlFlow<()>> {
        if let Some(file) = &mut self.file {
            let bytes = whole_bytes(file)?;
            if bytes > self.bytes {
                file.seek(SeekFrom::Start(self.bytes))?;
                let flow = each_of(file.take(bytes - self.bytes), visit)?;
                self.bytes = bytes;
                return Ok(flow);
            }
        }
        // No new lines: the log may have been rotated.
        if self.is_replaced()? {
            (self.file, self.bytes) = (Some(File::open(&self.path)?), 0);
        }
        Ok(ControlFlow::Continue(()))
    }

    fn is_replaced(&self) -> io::Result<bool> {
        let id = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        let held = self.file.as_ref().map(File::metadata).transpose()?.map(id);
        Ok(metadata(&self.path)?.map(id).is_some_and(|now| Some(now) != held))
    }
}

fn metadata(path: &Path) -> io::Result<Option<std::fs::Metadata>> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
