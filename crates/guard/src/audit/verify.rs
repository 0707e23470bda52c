//! Checks the whole log: every code, every number, every file, and the anchors.
//!
//! The log is read once, from the oldest record on, with memory for one line. It may be written to meanwhile.

use super::AuditSettings;
use super::anchor::{Anchor, Anchors, Why};
use super::chain::{ChainKey, KeyError, Link, Sealed, hex};
use super::lines::{CURRENT, Ended, Lines, LogFiles};
use super::record::Opening;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// What a log holds in which nothing was changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    pub files: u64,
    pub records: u64,
    pub anchors: u64,
    /// How many times a line was cut off, and marked when the log was next opened.
    pub torn: u64,
    /// The bytes of a line that is being written, or was when the machine went down.
    pub unfinished_bytes: u64,
}

/// The first thing that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{file}, line {line}{}: {problem}", seq.map(|seq| format!(" (record {seq})")).unwrap_or_default())]
pub struct Fault {
    pub file: String,
    pub line: u64,
    /// The number that the record has, or should have.
    pub seq: Option<u64>,
    pub problem: String,
}

/// Why a log is not verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("{path}: {source}", path = .path.display())]
    Io { path: PathBuf, source: io::Error },
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> VerifyError {
    move |source| VerifyError::Io { path: path.to_owned(), source }
}

/// Checks that the log is as it was written.
pub fn verify(settings: &AuditSettings) -> Result<Verified, VerifyError> {
    // Before the log: what is anchored from now on may be beyond what is read of it.
    let anchors = Anchors::open(&settings.anchors_file).map_err(unreadable(&settings.anchors_file))?;
    let files = LogFiles::open(&settings.dir).map_err(unreadable(&settings.dir))?;
    let anchors_path = &settings.anchors_file;
    // A hub that was killed on its first start may have come no further than an empty file.
    let current_bytes = files.current.as_ref().map(File::metadata).transpose();
    let current_bytes = current_bytes.map_err(unreadable(&settings.dir))?.map_or(0, |current| current.len());
    let key = match ChainKey::read(&settings.key_file) {
        Ok(key) => key,
        Err(KeyError::Missing(_)) if files.closed.is_empty() && current_bytes == 0 && anchors.is_empty() => {
            return Ok(Verified::default());
        }
        Err(error) => return Err(error.into()),
    };
    let mut check = Check {
        end: key.start(),
        key,
        totals: Verified::default(),
        anchors,
        next_anchor: None,
        last_anchor: None,
        anchors_path,
        previous: None,
        place: Place { file: CURRENT.to_owned(), line: 0 },
    };
    check.read_anchor()?;
    check.pass_anchors()?;
    for path in &files.closed {
        let file = File::open(path).map_err(unreadable(path))?;
        check.file(path, file, Writing::Closed)?;
    }
    if let Some(file) = files.current {
        check.file(&settings.dir.join(CURRENT), file, Writing::GoesOn)?;
    }
    check.finish()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Writing {
    Closed,
    GoesOn,
}

struct Place {
    file: String,
    line: u64,
}

struct Check<'a> {
    key: ChainKey,
    /// The last good record.
    end: Link,
    totals: Verified,
    anchors: Anchors,
    next_anchor: Option<Anchor>,
    last_anchor: Option<Anchor>,
    anchors_path: &'a Path,
    /// The name of the file before.
    previous: Option<String>,
    place: Place,
}

/// Lines that are no records. If they were torn, a record that says so comes after them.
struct Tear {
    fault: Fault,
    bytes: u64,
    hash: Sha256,
}

impl Tear {
    fn add(mut self, line: &[u8]) -> Tear {
        self.bytes += line.len() as u64;
        self.hash.update(line);
        self
    }
}

impl Check<'_> {
    fn fault(&self, seq: Option<u64>, problem: impl Into<String>) -> Fault {
        Fault { file: self.place.file.clone(), line: self.place.line, seq, problem: problem.into() }
    }

    fn file(&mut self, path: &Path, file: File, writing: Writing) -> Result<(), VerifyError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.place = Place { file: name.clone(), line: 0 };
        self.totals.files += 1;
        let mut lines = Lines::new(file);
        let (mut line, mut tear, mut begins_file) = (Vec::new(), None::<Tear>, true);
        while let Some(ended) = lines.next(&mut line).map_err(unreadable(path))? {
            self.place.line += 1;
            let (begins, text) = (begins_file, line.strip_suffix(b"\n").unwrap_or(&line));
            if let Some(torn) = tear.take() {
                match self.closes(&torn, text, begins).filter(|_| ended == Ended::Whole) {
                    Some(link) => {
                        self.accept(link)?;
                        (self.totals.torn, begins_file) = (self.totals.torn + 1, false);
                    }
                    None => tear = Some(torn.add(&line)),
                }
                continue;
            }
            let marked = self.record(text, begins).and_then(|link| match marks_torn(text) {
                true => Err(self.fault(Some(link.seq), "what this record says was torn is not there")),
                false => Ok(link),
            });
            match marked {
                Ok(link) if ended == Ended::Whole => {
                    self.accept(link)?;
                    begins_file = false;
                }
                _ if ended == Ended::Unfinished && writing == Writing::GoesOn => {
                    self.totals.unfinished_bytes = line.len() as u64;
                }
                Ok(_) => return Err(self.fault(None, "the line has no end").into()),
                Err(fault) => {
                    tear = Some(Tear { fault, bytes: 0, hash: Sha256::new() }.add(&line));
                }
            }
        }
        self.previous = Some(name);
        match tear {
            Some(tear) => Err(tear.fault.into()),
            None => Ok(()),
        }
    }

    /// Checks one line.
    fn record(&self, line: &[u8], begins_file: bool) -> Result<Link, Fault> {
        let expected = self.end.seq + 1;
        let Some(sealed) = Sealed::of(line) else {
            return Err(self.fault(Some(expected), "this is not a record"));
        };
        let seq = sealed.link.seq;
        if !sealed.follows(&self.key, self.end.mac) {
            return Err(self.fault(Some(seq), self.what_is_wrong(seq, line, begins_file)));
        }
        if seq != expected {
            return Err(self.fault(Some(seq), missing(expected, seq)));
        }
        if begins_file && self.totals.files > 1 && self.named_before(line) != self.previous {
            return Err(self.fault(Some(seq), "the file before is not the one that this record names"));
        }
        Ok(sealed.link)
    }

    fn named_before(&self, line: &[u8]) -> Option<String> {
        serde_json::from_slice::<Opening>(line).ok()?.previous
    }

    fn what_is_wrong(&self, seq: u64, line: &[u8], begins_file: bool) -> String {
        let expected = self.end.seq + 1;
        let named = self.named_before(line).filter(|_| begins_file);
        match named {
            Some(named) if seq > expected && self.previous.as_ref() != Some(&named) => {
                format!("the file before it, `{}`, is missing", portcullis_core::json::printable(&named))
            }
            _ if seq > expected => missing(expected, seq),
            _ if seq < expected => {
                format!("record {expected} is expected here; this one was put in or moved")
            }
            _ => "the record was changed".to_owned(),
        }
    }

    /// Returns the link of a record that says, of exactly these lines, that they were torn.
    fn closes(&self, tear: &Tear, line: &[u8], begins_file: bool) -> Option<Link> {
        let opening: Opening = serde_json::from_slice(line).ok()?;
        let torn = opening.torn.filter(|_| !self.is_closed_here())?;
        let link = self.record(line, begins_file).ok()?;
        let same =
            torn.torn_bytes == tear.bytes && torn.torn_sha256.to_hex() == hex(&tear.hash.clone().finalize());
        same.then_some(link)
    }

    /// Returns whether a hub ended in good order here, and none had begun again.
    fn is_closed_here(&self) -> bool {
        let closed = |anchor: &Anchor| anchor.why == Why::Close && anchor.seq == self.end.seq;
        self.last_anchor.as_ref().is_some_and(closed)
    }

    fn accept(&mut self, link: Link) -> Result<(), VerifyError> {
        self.end = link;
        self.totals.records += 1;
        self.pass_anchors()
    }

    fn read_anchor(&mut self) -> Result<(), VerifyError> {
        self.next_anchor = match self.anchors.next().map_err(unreadable(self.anchors_path))? {
            None => None,
            Some(Some(anchor)) => {
                self.totals.anchors += 1;
                Some(anchor)
            }
            Some(None) => return Err(self.anchor_fault(None, "this is not an anchor").into()),
        };
        Ok(())
    }

    fn anchor_fault(&self, seq: Option<u64>, problem: &str) -> Fault {
        let name = self.anchors_path.file_name().unwrap_or_default().to_string_lossy();
        Fault { file: name.into_owned(), line: self.anchors.number, seq, problem: problem.to_owned() }
    }

    /// Holds the anchors up to here against the log.
    fn pass_anchors(&mut self) -> Result<(), VerifyError> {
        while let Some(anchor) = self.next_anchor.take() {
            if anchor.seq > self.end.seq {
                self.next_anchor = Some(anchor);
                break;
            }
            if anchor.link() != self.end {
                let problem = format!("the anchor of {} says that it was another record", anchor.time);
                return Err(self.fault(Some(anchor.seq), problem).into());
            }
            self.last_anchor = Some(anchor);
            self.read_anchor()?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Verified, VerifyError> {
        if self.totals.unfinished_bytes == 0 {
            self.place.line += 1;
        }
        let next = Some(self.end.seq + 1);
        if let Some(anchor) = &self.next_anchor {
            let problem = format!(
                "the log was cut off: it ends with record {}, and the anchor of {} says that there was record {}",
                self.end.seq, anchor.time, anchor.seq
            );
            return Err(self.fault(next, problem).into());
        }
        if self.last_anchor.is_none() && self.totals.records > 0 {
            let problem = "there is no anchor, so nobody can say where the log ended";
            return Err(self.anchor_fault(None, problem).into());
        }
        if self.totals.unfinished_bytes > 0 && self.is_closed_here() {
            return Err(self.fault(next, "the log was closed before this line").into());
        }
        Ok(self.totals)
    }
}

/// Returns whether a record, one of ours, says that there is something torn before it. That is the last it says.
fn marks_torn(line: &[u8]) -> bool {
    const FIELD: &[u8] = b"\"torn_sha256\":\"";
    const MAC_CHARS: usize = 64;
    let body = Sealed::of(line).map_or(&b""[..], |sealed| sealed.body);
    let before = body.len().checked_sub(MAC_CHARS + 1).and_then(|end| body.get(..end));
    before.is_some_and(|before| before.ends_with(FIELD))
}

fn missing(expected: u64, found: u64) -> String {
    match found - expected {
        1 => format!("record {expected} is missing before this one"),
        _ => format!("records {expected} to {} are missing before this one", found - 1),
    }
}
