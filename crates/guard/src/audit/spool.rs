//! The spool: changes that commands make, until a hub puts them on the record.
//!
//! Only one process writes the chained log. A command appends what it is about to do to a file beside it, and how that
//! ended; the hub, the one that runs or the next, takes the lines over in their order and at their own time.
//! After a crash of the hub a line may be taken over twice, never not at all.

use super::AuditSettings;
use super::event::{ChangeLog, Ended};
use super::record::Subject;
use jiff::Timestamp;
use portcullis_core::{ErrorKind, Event};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const FILE: &str = "changes.spool";
/// How much waits for a hub at most. At 300 bytes a line, thousands of commands.
const SPOOL_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// How many commands may be under way. The end of one that was forgotten is recorded without the number of its begin.
const OPEN_MAX: usize = 1_024;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Line {
    /// The same at begin and end.
    id: String,
    time: Timestamp,
    actor: String,
    action: String,
    details: Value,
    /// Missing at the begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    #[serde(default)]
    duration_us: u64,
}

/// A change that a command is about to make, written down before it is made.
#[derive(Debug)]
#[must_use]
pub struct SpooledChange {
    path: PathBuf,
    begun: Line,
}

impl SpooledChange {
    /// Writes it down. Where that fails, the change must not be made.
    pub fn begin(
        settings: &AuditSettings,
        actor: String,
        action: &str,
        details: Value,
        now: SystemTime,
    ) -> io::Result<SpooledChange> {
        let time = Timestamp::try_from(now).map_err(io::Error::other)?;
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let id = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let action = action.to_owned();
        let begun = Line { id, time, actor, action, details, outcome: None, duration_us: 0 };
        portcullis_core::folder::make(&settings.dir)?;
        let change = SpooledChange { path: settings.dir.join(FILE), begun };
        change.append(&change.begun)?;
        Ok(change)
    }

    /// Writes down how it ended.
    pub fn end(self, outcome: Result<(), ErrorKind>, now: SystemTime) -> io::Result<()> {
        let time = Timestamp::try_from(now).map_err(io::Error::other)?;
        let took = time.duration_since(self.begun.time).as_micros();
        let outcome = Some(outcome.map_or_else(ErrorKind::code, |()| "ok").to_owned());
        let duration_us = u64::try_from(took).unwrap_or_default();
        self.append(&Line { time, outcome, duration_us, ..self.begun.clone() })
    }

    fn append(&self, line: &Line) -> io::Result<()> {
        let mut file = open(&self.path)?;
        file.lock()?;
        if file.metadata()?.len() >= SPOOL_BYTES_MAX {
            return Err(io::Error::other(format!(
                "{} holds {SPOOL_BYTES_MAX} bytes that no hub has put on the record; start one",
                self.path.display()
            )));
        }
        // A command that was killed may have left half a line; this one is not part of it.
        let mut bytes = if ends_a_line(&file)? { Vec::new() } else { vec![b'\n'] };
        serde_json::to_writer(&mut bytes, line)?;
        bytes.push(b'\n');
        file.write_all(&bytes)?;
        file.sync_all()
    }
}

fn ends_a_line(file: &File) -> io::Result<bool> {
    use std::os::unix::fs::FileExt;
    let Some(last) = file.metadata()?.len().checked_sub(1) else { return Ok(true) };
    let mut byte = [0];
    file.read_exact_at(&mut byte, last)?;
    Ok(byte == [b'\n'])
}

fn open(path: &std::path::Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)
}

/// Takes over what commands wrote down.
pub struct SpoolReader {
    path: PathBuf,
    log: ChangeLog,
    /// How much of the file was handed over already.
    handed: u64,
    /// Commands that have not ended.
    open: HashMap<String, Arc<Subject>>,
}

impl SpoolReader {
    pub fn new(settings: &AuditSettings, log: ChangeLog) -> SpoolReader {
        SpoolReader { path: settings.dir.join(FILE), log, handed: 0, open: HashMap::new() }
    }

    /// Puts every whole line on the record, and empties the file once they are on disk.
    pub async fn take_over(&mut self) -> Result<(), String> {
        let lines = self.unread().map_err(|error| format!("{FILE}: {error}"))?;
        if lines.is_empty() {
            return Ok(());
        }
        for line in lines {
            self.hand_over(line).await;
        }
        self.log.flush().await?;
        self.empty().map_err(|error| format!("{FILE}: {error}"))
    }

    /// Returns the lines that were not handed over yet.
    fn unread(&mut self) -> io::Result<Vec<Line>> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let bytes = file.metadata()?.len();
        if bytes < self.handed {
            // Somebody else emptied it.
            self.handed = 0;
        }
        if bytes == self.handed {
            return Ok(Vec::new());
        }
        // A command that is writing has the lock, so what is read ends with a line, or where a command was killed.
        file.lock_shared()?;
        file.seek(SeekFrom::Start(self.handed))?;
        let mut text = Vec::new();
        self.handed += file.take(SPOOL_BYTES_MAX * 2).read_to_end(&mut text)? as u64;
        let parse = |line: &[u8]| {
            let parsed = serde_json::from_slice(line);
            if parsed.is_err() {
                tracing::error!(target: "audit", "A change that a command wrote down cannot be read.");
            }
            parsed.ok()
        };
        Ok(text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).filter_map(parse).collect())
    }

    async fn hand_over(&mut self, line: Line) {
        let begun = self.open.remove(&line.id);
        let subject =
            begun.unwrap_or_else(|| self.log.subject(&Event::change(line.actor, line.action, line.details)));
        let ended = line.outcome.map(|outcome| {
            let failed = ErrorKind::ALL.into_iter().find(|kind| kind.code() == outcome);
            let outcome = failed.map_or(Ok(()), Err);
            Ended::of(outcome, Duration::from_micros(line.duration_us))
        });
        if ended.is_none() {
            if self.open.len() >= OPEN_MAX {
                self.open.clear();
            }
            self.open.insert(line.id, subject.clone());
        }
        self.log.hand_over(line.time.into(), subject, ended).await;
    }

    fn empty(&mut self) -> io::Result<()> {
        let file = open(&self.path)?;
        file.lock()?;
        // What came meanwhile is taken over with the next look.
        if file.metadata()?.len() == self.handed {
            file.set_len(0)?;
            file.sync_all()?;
            self.handed = 0;
        }
        Ok(())
    }
}
