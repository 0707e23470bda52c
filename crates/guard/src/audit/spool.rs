//! The spool: changes made by CLI commands, until a hub moves them to the audit log.
//!
//! Only one process writes the chained log. A command appends the begin and the end of its change to a spool file; the
//! running hub, or the next one, records the lines in order and with their own time. Delivery is at least once: after a crash
//! of the hub a line may be recorded twice.

use super::AuditSettings;
use super::event::{ChangeLog, EventOutcome};
use super::record::AuditSubject;
use data_encoding::HEXLOWER;
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
/// Bound on the spool. At 300 bytes a line, thousands of commands.
const SPOOL_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Bound on open changes. Beyond it, an end is recorded without the number of its begin.
const OPEN_MAX: usize = 1_024;

/// One line of the spool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Line {
    /// Correlates begin and end.
    id: String,
    time: Timestamp,
    actor: String,
    action: String,
    details: Value,
    /// Absent at the begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    #[serde(default)]
    duration_us: u64,
}

/// A change by a command, spooled before it is made.
#[derive(Debug)]
#[must_use]
pub struct SpooledChange {
    path: PathBuf,
    begun: Line,
}

impl SpooledChange {
    /// Spools the begin. On error the change must not be made.
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
        let id = HEXLOWER.encode(&random);
        let action = action.to_owned();
        let begun = Line { id, time, actor, action, details, outcome: None, duration_us: 0 };
        portcullis_core::durable_dir::create_all(&settings.dir)?;
        let change = SpooledChange { path: settings.dir.join(FILE), begun };
        change.append(&change.begun)?;
        Ok(change)
    }

    /// Spools the end.
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
                "{} holds {SPOOL_BYTES_MAX} bytes that are not in the audit log yet; start the hub to record them",
                self.path.display()
            )));
        }
        // A killed command may have left a torn line; this one starts on a new line.
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

/// Moves spooled changes to the audit log.
pub struct SpoolReader {
    path: PathBuf,
    log: ChangeLog,
    /// How much of the file was recorded.
    handed: u64,
    /// Changes that have not ended.
    open: HashMap<String, Arc<AuditSubject>>,
}

impl SpoolReader {
    pub fn new(settings: &AuditSettings, log: ChangeLog) -> SpoolReader {
        SpoolReader { path: settings.dir.join(FILE), log, handed: 0, open: HashMap::new() }
    }

    /// Records every complete line, and truncates the file once they are on disk.
    pub async fn take_over(&mut self) -> Result<(), String> {
        let lines = self.unread().map_err(|error| format!("{FILE}: {error}"))?;
        // Lines that were recorded and not flushed, or not truncated, are still in the file.
        if self.handed == 0 {
            return Ok(());
        }
        for line in lines {
            self.hand_over(line).await;
        }
        self.log.flush().await?;
        self.empty().map_err(|error| format!("{FILE}: {error}"))
    }

    /// Returns the lines that were not recorded yet.
    fn unread(&mut self) -> io::Result<Vec<Line>> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.handed = 0;
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        let bytes = file.metadata()?.len();
        if bytes < self.handed {
            // Another process truncated it.
            self.handed = 0;
        }
        if bytes == self.handed {
            return Ok(Vec::new());
        }
        // Writers hold the lock, so the content ends with a newline, or where a command was killed.
        file.lock_shared()?;
        file.seek(SeekFrom::Start(self.handed))?;
        let mut text = Vec::new();
        self.handed += file.take(SPOOL_BYTES_MAX * 2).read_to_end(&mut text)? as u64;
        let parse = |line: &[u8]| {
            let parsed = serde_json::from_slice(line);
            if parsed.is_err() {
                tracing::error!(target: "audit", "spooled change cannot be parsed");
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
            EventOutcome::of(outcome, Duration::from_micros(line.duration_us))
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
        // Lines added meanwhile are recorded at the next poll.
        if file.metadata()?.len() == self.handed {
            file.set_len(0)?;
            // Before the flush, which may fail: the lines are gone from the file.
            self.handed = 0;
            file.sync_all()?;
        }
        Ok(())
    }
}
