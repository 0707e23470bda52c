//! Verification of the audit log: every MAC, sequence number and file, and the anchors.
//!
//! Reads the log once, oldest record first, with memory for one line. The hub may write to it meanwhile.

use super::AuditSettings;
use super::anchor::{Anchor, AnchorReader, AnchorReason};
use super::chain::{ChainKey, ChainKeyError, ChainLink, UnverifiedLine};
use super::log_lines::{CURRENT, LineEnd, LogFiles, LogLineReader};
use super::record::OpeningRecord;
use data_encoding::HEXLOWER;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Statistics of an intact log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    pub files: u64,
    pub records: u64,
    pub anchors: u64,
    /// How many torn lines were marked when the log was reopened.
    pub torn: u64,
    /// The bytes of an incomplete last line, from a write in progress or a crash.
    pub unfinished_bytes: u64,
}

/// The first defect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{file}, line {line}{}: {problem}", seq.map(|seq| format!(" (record {seq})")).unwrap_or_default())]
pub struct LogDefect {
    pub file: String,
    pub line: u64,
    /// The sequence number that the record has, or should have.
    pub seq: Option<u64>,
    pub problem: String,
}

/// Why verification failed.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error(transparent)]
    Fault(#[from] LogDefect),
    #[error(transparent)]
    Key(#[from] ChainKeyError),
    #[error("{path}: {source}", path = .path.display())]
    Io { path: PathBuf, source: io::Error },
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> VerifyError {
    move |source| VerifyError::Io { path: path.to_owned(), source }
}

/// Verifies that the log is intact.
pub fn verify(settings: &AuditSettings) -> Result<VerifyReport, VerifyError> {
    // Opened before the log: later anchors may be beyond what is read of it.
    let anchors = AnchorReader::open(&settings.anchors_file).map_err(unreadable(&settings.anchors_file))?;
    let files = LogFiles::open(&settings.dir).map_err(unreadable(&settings.dir))?;
    let anchors_path = &settings.anchors_file;
    // A crash at the first start may leave an empty file without a key.
    let current_bytes = files.current.as_ref().map(File::metadata).transpose();
    let current_bytes = current_bytes.map_err(unreadable(&settings.dir))?.map_or(0, |current| current.len());
    let key = match ChainKey::read(&settings.key_file) {
        Ok(key) => key,
        Err(ChainKeyError::Missing(_))
            if files.closed.is_empty() && current_bytes == 0 && anchors.is_empty() =>
        {
            return Ok(VerifyReport::default());
        }
        Err(error) => return Err(error.into()),
    };
    let mut check = LogVerifier {
        end: key.start(),
        key,
        totals: VerifyReport::default(),
        anchors,
        next_anchor: None,
        last_anchor: None,
        anchors_path,
        previous: None,
        place: LogPosition { file: CURRENT.to_owned(), line: 0 },
    };
    check.read_anchor()?;
    check.pass_anchors()?;
    for path in &files.closed {
        let file = File::open(path).map_err(unreadable(path))?;
        check.file(path, file, LogFileState::Closed)?;
    }
    if let Some(file) = files.current {
        check.file(&settings.dir.join(CURRENT), file, LogFileState::GoesOn)?;
    }
    check.finish()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LogFileState {
    Closed,
    GoesOn,
}

struct LogPosition {
    file: String,
    line: u64,
}

struct LogVerifier<'a> {
    key: ChainKey,
    /// The last valid record.
    end: ChainLink,
    totals: VerifyReport,
    anchors: AnchorReader,
    next_anchor: Option<Anchor>,
    last_anchor: Option<Anchor>,
    anchors_path: &'a Path,
    /// The name of the previous file.
    previous: Option<String>,
    place: LogPosition,
}

/// Lines that are not records. If a crash tore them, the next record says so.
struct TornLines {
    fault: LogDefect,
    bytes: u64,
    hash: Sha256,
}

impl TornLines {
    fn add(mut self, line: &[u8]) -> TornLines {
        self.bytes += line.len() as u64;
        self.hash.update(line);
        self
    }
}

impl LogVerifier<'_> {
    fn fault(&self, seq: Option<u64>, problem: impl Into<String>) -> LogDefect {
        LogDefect { file: self.place.file.clone(), line: self.place.line, seq, problem: problem.into() }
    }

    fn file(&mut self, path: &Path, file: File, writing: LogFileState) -> Result<(), VerifyError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.place = LogPosition { file: name.clone(), line: 0 };
        self.totals.files += 1;
        let mut lines = LogLineReader::new(file);
        let (mut line, mut tear, mut begins_file) = (Vec::new(), None::<TornLines>, true);
        while let Some(ended) = lines.next(&mut line).map_err(unreadable(path))? {
            self.place.line += 1;
            let (begins, text) = (begins_file, line.strip_suffix(b"\n").unwrap_or(&line));
            if let Some(torn) = tear.take() {
                match self.closes(&torn, text, begins).filter(|_| ended == LineEnd::Whole) {
                    Some(link) => {
                        self.accept(link)?;
                        (self.totals.torn, begins_file) = (self.totals.torn + 1, false);
                    }
                    None => tear = Some(torn.add(&line)),
                }
                continue;
            }
            let marked = self.record(text, begins).and_then(|link| match marks_torn(text) {
                true => {
                    Err(self.fault(Some(link.seq), "the torn line that this record describes is missing"))
                }
                false => Ok(link),
            });
            match marked {
                Ok(link) if ended == LineEnd::Whole => {
                    self.accept(link)?;
                    begins_file = false;
                }
                _ if ended == LineEnd::Unfinished && writing == LogFileState::GoesOn => {
                    self.totals.unfinished_bytes = line.len() as u64;
                }
                Ok(_) => return Err(self.fault(None, "the line has no end").into()),
                Err(fault) => {
                    tear = Some(TornLines { fault, bytes: 0, hash: Sha256::new() }.add(&line));
                }
            }
        }
        self.previous = Some(name);
        match tear {
            Some(tear) => Err(tear.fault.into()),
            None => Ok(()),
        }
    }

    /// Verifies one line.
    fn record(&self, line: &[u8], begins_file: bool) -> Result<ChainLink, LogDefect> {
        let expected = self.end.seq + 1;
        let Some(sealed) = UnverifiedLine::of(line) else {
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
        serde_json::from_slice::<OpeningRecord>(line).ok()?.previous
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

    /// Returns the link of a record that describes exactly these lines as torn.
    fn closes(&self, tear: &TornLines, line: &[u8], begins_file: bool) -> Option<ChainLink> {
        let opening: OpeningRecord = serde_json::from_slice(line).ok()?;
        let torn = opening.torn.filter(|_| !self.is_closed_here())?;
        let link = self.record(line, begins_file).ok()?;
        let same = torn.torn_bytes == tear.bytes
            && torn.torn_sha256.to_hex() == HEXLOWER.encode(&tear.hash.clone().finalize());
        same.then_some(link)
    }

    /// Returns whether a hub closed the log here, and none reopened it.
    fn is_closed_here(&self) -> bool {
        let closed = |anchor: &Anchor| anchor.why == AnchorReason::Close && anchor.seq == self.end.seq;
        self.last_anchor.as_ref().is_some_and(closed)
    }

    fn accept(&mut self, link: ChainLink) -> Result<(), VerifyError> {
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

    fn anchor_fault(&self, seq: Option<u64>, problem: &str) -> LogDefect {
        let name = self.anchors_path.file_name().unwrap_or_default().to_string_lossy();
        LogDefect { file: name.into_owned(), line: self.anchors.number, seq, problem: problem.to_owned() }
    }

    /// Checks the anchors up to here against the log.
    fn pass_anchors(&mut self) -> Result<(), VerifyError> {
        while let Some(anchor) = self.next_anchor.take() {
            if anchor.seq > self.end.seq {
                self.next_anchor = Some(anchor);
                break;
            }
            if anchor.link() != self.end {
                let problem = format!("the record does not match the anchor of {}", anchor.time);
                return Err(self.fault(Some(anchor.seq), problem).into());
            }
            self.last_anchor = Some(anchor);
            self.read_anchor()?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<VerifyReport, VerifyError> {
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
            let problem = "there is no anchor, so the end of the log cannot be verified";
            return Err(self.anchor_fault(None, problem).into());
        }
        if self.totals.unfinished_bytes > 0 && self.is_closed_here() {
            return Err(self.fault(next, "the log was closed before this line").into());
        }
        Ok(self.totals)
    }
}

/// Returns whether a valid record describes a torn line before it. That is its last field.
fn marks_torn(line: &[u8]) -> bool {
    const FIELD: &[u8] = b"\"torn_sha256\":\"";
    const MAC_CHARS: usize = 64;
    let body = UnverifiedLine::of(line).map_or(&b""[..], |sealed| sealed.body);
    let before = body.len().checked_sub(MAC_CHARS + 1).and_then(|end| body.get(..end));
    before.is_some_and(|before| before.ends_with(FIELD))
}

fn missing(expected: u64, found: u64) -> String {
    match found - expected {
        1 => format!("record {expected} is missing before this one"),
        _ => format!("records {expected} to {} are missing before this one", found - 1),
    }
}
