//! The audit log: records every call, before any layer can refuse it, with the outcome that the caller got.
//!
//! A call has two records in `audit.jsonl`, one when it begins and one when it ends, whatever the outcome. A begin without
//! an end is a call during which the machine crashed. Arguments and extra parameters are recorded as a keyed digest and a
//! short redacted preview.
//!
//! The records of a read are handed to the writer before its response leaves: they survive the end of the process, and after
//! a second a crash of the machine. The begin record of a call with side effects is on disk before the call runs (write-ahead);
//! the layer `commit` waits for that. While the log cannot be written, reads go on and [`AuditHandle::health`] says why.
//!
//! The records form an HMAC chain, and the head of the chain is anchored in a second file: [`verify()`] detects tampering
//! and names the first record that was changed.

mod anchor;
mod chain;
mod event;
mod journal;
mod log_lines;
mod log_reader;
mod preview;
mod record;
mod search;
mod sink;
mod spool;
mod verify;
mod writer;

pub use chain::ChainKeyError;
pub use event::{ChangeLog, OpenChange};
pub use log_reader::{LogFollower, each_line, last_lines};
pub use search::{
    AuditMatches, AuditQuery, CallMatches, LAST_CALLS_RECORDS_MAX, RecordedCall, each_match, last_calls,
    newest_ends, records_of_call, search, search_calls,
};
pub use spool::{SpoolReader, SpooledChange};
pub use verify::{LogDefect, VerifyError, VerifyReport, verify};

use crate::live::{LiveCall, LiveCalls};
use crate::outcome_kind::OutcomeKind;
use crate::redact::Redactor;
use journal::{AuditQueueFull, Journal, QueueBounds};
use portcullis_core::{
    BoxFuture, Call, CallId, Clock, ErrorKind, Event, Layer, Next, Outcome, Output, ToolError,
};
pub(crate) use record::AuditSubject;
use record::JournalRecord;
use sink::FileLogSink;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Size at which the log rotates: about 150,000 records, read in a moment.
pub const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The paths of the log.
#[derive(Debug, Clone)]
pub struct AuditSettings {
    /// The folder of `audit.jsonl` and the rotated files.
    pub dir: PathBuf,
    /// The HMAC key. Outside `dir`, so that a copy of the log does not include it.
    pub key_file: PathBuf,
    /// The anchors. Best on another disk.
    pub anchors_file: PathBuf,
    pub file_bytes_max: u64,
}

impl AuditSettings {
    /// Returns the default paths in the hub's data folder.
    pub fn in_folder(secure: &Path) -> AuditSettings {
        AuditSettings {
            dir: secure.join("audit"),
            key_file: secure.join("audit.key"),
            anchors_file: secure.join("anchors").join("audit.anchors"),
            file_bytes_max: FILE_BYTES_MAX,
        }
    }
}

/// Handle of the audit log. Clones share the journal; dropping the last one flushes it.
#[derive(Clone)]
pub struct AuditHandle {
    journal: Arc<Journal>,
}

impl AuditHandle {
    /// Starts the writer. Creates missing folders, files and the key; but an existing log without its key cannot be written.
    ///
    /// A log that cannot be written is no error here: the behaviour at startup is the same as later.
    pub(crate) fn open(settings: AuditSettings, clock: Arc<dyn Clock>) -> io::Result<AuditHandle> {
        AuditHandle::write_to(FileLogSink::new(settings), clock)
    }

    pub(crate) fn write_to(
        sink: impl sink::LogSink + 'static,
        clock: Arc<dyn Clock>,
    ) -> io::Result<AuditHandle> {
        AuditHandle::bounded(sink, clock, QueueBounds::default())
    }

    fn bounded(
        sink: impl sink::LogSink + 'static,
        clock: Arc<dyn Clock>,
        bounds: QueueBounds,
    ) -> io::Result<AuditHandle> {
        Ok(AuditHandle { journal: Arc::new(Journal::start(Box::new(sink), clock, bounds)?) })
    }

    /// Returns why the log cannot be written, if it cannot.
    pub fn health(&self) -> Result<(), String> {
        self.journal.health()
    }

    /// Resolves when all records so far are on disk, or with the reason why they are not.
    pub async fn flush(&self) -> Result<(), String> {
        self.journal.flush().await
    }

    /// Resolves when the begin record of this call is on disk, or with the reason why it is not.
    pub(crate) async fn committed(&self, call: CallId) -> Result<(), String> {
        self.journal.commit(call).await
    }
}

/// The audit layer.
pub(crate) struct AuditLayer {
    handle: AuditHandle,
    clock: Arc<dyn Clock>,
    redactor: Redactor,
    live: LiveCalls,
}

impl AuditLayer {
    pub(crate) fn new(
        handle: AuditHandle,
        clock: Arc<dyn Clock>,
        redactor: Redactor,
        live: LiveCalls,
    ) -> AuditLayer {
        AuditLayer { handle, clock, redactor, live }
    }

    async fn begin(&self, call: &Call) -> Result<OpenRecord<'_>, ToolError> {
        let subject = Arc::new(AuditSubject::of(call, &self.redactor));
        let at = self.clock.now();
        self.handle
            .journal
            .begin(JournalRecord::Begin { at, subject: subject.clone() })
            .await
            .map_err(not_recorded)?;
        let live = self.live.opened(at, subject.clone());
        Ok(OpenRecord { audit: self, subject, live, started: Instant::now(), outcome: None })
    }
}

impl Layer for AuditLayer {
    fn call<'a>(&'a self, call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let mut record = self.begin(&call).await?;
            let outcome = next.run(call).await;
            record.outcome = Some((OutcomeKind::of(&outcome), bytes_of(&outcome)));
            outcome
        })
    }

    fn record<'a>(
        &'a self,
        event: &'a Event,
        ended: Result<(), ErrorKind>,
    ) -> BoxFuture<'a, Result<(), ToolError>> {
        Box::pin(async move {
            let subject = Arc::new(AuditSubject::of_event(event, &self.redactor));
            let (at, duration) = (self.clock.now(), Duration::ZERO);
            let ending = ended.map_or_else(OutcomeKind::Failed, |()| OutcomeKind::Ok);
            let begin = JournalRecord::Begin { at, subject: subject.clone() };
            let end = JournalRecord::End { at, subject, ending, bytes: 0, duration };
            self.handle.journal.note_both(begin, end).await.map_err(not_recorded)
        })
    }
}

/// The error for a call that cannot be recorded, and therefore does not run.
fn not_recorded(full: AuditQueueFull) -> ToolError {
    ToolError::unavailable(
        "too many records of this client are waiting for the audit log, so this was not done",
    )
    .hint("try again in a moment, with fewer calls at once")
    .caused_by(full)
}

/// Returns the approximate size of the response.
fn bytes_of(outcome: &Outcome) -> usize {
    match outcome {
        Ok(output) => Output::size(output),
        Err(ToolError { message, hints, .. }) => message.len() + hints.iter().map(String::len).sum::<usize>(),
    }
}

/// Records the end of a call when dropped. Without an outcome by then, the caller disconnected.
struct OpenRecord<'a> {
    audit: &'a AuditLayer,
    subject: Arc<AuditSubject>,
    live: Arc<LiveCall>,
    started: Instant,
    outcome: Option<(OutcomeKind, usize)>,
}

impl Drop for OpenRecord<'_> {
    fn drop(&mut self) {
        let (ending, bytes) = self.outcome.unwrap_or_else(|| (OutcomeKind::without_outcome(), 0));
        let (at, duration) = (self.audit.clock.now(), self.started.elapsed());
        let subject = self.subject.clone();
        self.audit.handle.journal.end(JournalRecord::End { at, subject, ending, bytes, duration });
        self.audit.live.closed(&self.live, at, ending, bytes, duration);
    }
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "audit_flood_tests.rs"]
mod flood_tests;

#[cfg(test)]
#[path = "audit_hidden_text_tests.rs"]
mod hidden_text_tests;

#[cfg(test)]
#[path = "audit_tamper_tests.rs"]
mod tamper_tests;
