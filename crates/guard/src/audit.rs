//! Records every call, before anything can refuse it and with what the caller really got.
//!
//! A call has two records in `audit.jsonl`: one when it begins and one when it ends, however it ends. A begin
//! without an end is a call during which the machine went down. Of the arguments, and of what stands beside them, a
//! keyed digest is written and a short preview without secrets.
//!
//! The records of a call that only reads are handed to the writer before its reply leaves: they survive the end of
//! the process, and after a second that of the machine. The begin record of a call with side effects is on disk
//! before the call acts; waiting for that is the layer `commit`'s job. While the log cannot be written, reads go on
//! and [`AuditHandle::health`] says why.
//!
//! The records are chained, and the end of the chain is anchored in a second place: [`verify()`] finds what was
//! changed, and names the first record that is not as it was written.

mod anchor;
mod chain;
mod event;
mod journal;
mod lines;
mod preview;
mod read;
mod record;
mod search;
mod sink;
mod spool;
mod verify;
mod writer;

pub use chain::KeyError;
pub use event::{ChangeLog, OpenChange};
pub use read::{Follow, each_line, last_lines};
pub use search::{AuditQuery, Found, LAST_CALLS_RECORDS_MAX, last_calls, search, story};
pub use spool::{SpoolReader, SpooledChange};
pub use verify::{Fault, Verified, VerifyError, verify};

use crate::ending::Ending;
use crate::live::{LiveCall, LiveCalls};
use crate::redact::Redactor;
use journal::{Journal, QueueBounds, QueueFull};
use portcullis_core::{
    BoxFuture, Call, CallId, Clock, ErrorKind, Event, Layer, Next, Outcome, Output, ToolError,
};
use record::Record;
pub(crate) use record::Subject;
use sink::FileSink;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How large a file grows before the next one is begun: about 150,000 records, read in a moment.
pub const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Where the log is.
#[derive(Debug, Clone)]
pub struct AuditSettings {
    /// The folder of `audit.jsonl` and of the files before it.
    pub dir: PathBuf,
    /// The key of the chain. Not in `dir`, so that a copy of the log does not carry it.
    pub key_file: PathBuf,
    /// The second place. Best on another disk.
    pub anchors_file: PathBuf,
    pub file_bytes_max: u64,
}

impl AuditSettings {
    /// The usual places in a hub's own folder.
    pub fn in_folder(secure: &Path) -> AuditSettings {
        AuditSettings {
            dir: secure.join("audit"),
            key_file: secure.join("audit.key"),
            anchors_file: secure.join("anchors").join("audit.anchors"),
            file_bytes_max: FILE_BYTES_MAX,
        }
    }
}

/// The audit log, seen from outside. Cheap to clone; when the last clone goes, everything is on disk.
#[derive(Clone)]
pub struct AuditHandle {
    journal: Arc<Journal>,
}

impl AuditHandle {
    /// Starts writing. Folders, files and the key are made where they are missing; but a log without its key is
    /// one that cannot be written.
    ///
    /// A log that cannot be written is no error here: the rule is the same at the start as later on.
    pub(crate) fn open(settings: AuditSettings, clock: Arc<dyn Clock>) -> io::Result<AuditHandle> {
        AuditHandle::write_to(FileSink::new(settings), clock)
    }

    pub(crate) fn write_to(
        sink: impl sink::Sink + 'static,
        clock: Arc<dyn Clock>,
    ) -> io::Result<AuditHandle> {
        AuditHandle::bounded(sink, clock, QueueBounds::default())
    }

    fn bounded(
        sink: impl sink::Sink + 'static,
        clock: Arc<dyn Clock>,
        bounds: QueueBounds,
    ) -> io::Result<AuditHandle> {
        Ok(AuditHandle { journal: Arc::new(Journal::start(Box::new(sink), clock, bounds)?) })
    }

    /// Returns why the log cannot be written, if it cannot.
    pub fn health(&self) -> Result<(), String> {
        self.journal.health()
    }

    /// Returns when all records so far are on disk, or why they are not.
    pub async fn flush(&self) -> Result<(), String> {
        self.journal.flush().await
    }

    /// Returns when the begin record of this call is on disk, or why it is not.
    pub(crate) async fn committed(&self, call: CallId) -> Result<(), String> {
        self.journal.commit(call).await
    }
}

/// The layer.
pub(crate) struct Audit {
    handle: AuditHandle,
    clock: Arc<dyn Clock>,
    redactor: Redactor,
    live: LiveCalls,
}

impl Audit {
    pub(crate) fn new(
        handle: AuditHandle,
        clock: Arc<dyn Clock>,
        redactor: Redactor,
        live: LiveCalls,
    ) -> Audit {
        Audit { handle, clock, redactor, live }
    }

    async fn begin(&self, call: &Call) -> Result<OpenRecord<'_>, ToolError> {
        let subject = Arc::new(Subject::of(call, &self.redactor));
        let at = self.clock.now();
        self.handle
            .journal
            .begin(Record::Begin { at, subject: subject.clone() })
            .await
            .map_err(not_recorded)?;
        let live = self.live.opened(at, subject.clone());
        Ok(OpenRecord { audit: self, subject, live, started: Instant::now(), got: None })
    }
}

impl Layer for Audit {
    fn call<'a>(&'a self, call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let mut record = self.begin(&call).await?;
            let outcome = next.run(call).await;
            record.got = Some((Ending::of(&outcome), bytes_of(&outcome)));
            outcome
        })
    }

    fn record<'a>(
        &'a self,
        event: &'a Event,
        ended: Result<(), ErrorKind>,
    ) -> BoxFuture<'a, Result<(), ToolError>> {
        Box::pin(async move {
            let subject = Arc::new(Subject::of_event(event, &self.redactor));
            let (at, duration) = (self.clock.now(), Duration::ZERO);
            let ending = ended.map_or_else(Ending::Failed, |()| Ending::Ok);
            let begin = Record::Begin { at, subject: subject.clone() };
            let end = Record::End { at, subject, ending, bytes: 0, duration };
            self.handle.journal.note_both(begin, end).await.map_err(not_recorded)
        })
    }
}

/// What cannot be recorded is not done.
fn not_recorded(full: QueueFull) -> ToolError {
    ToolError::unavailable("too much of this client's waits to be recorded, so this was not done")
        .hint("try again in a moment, with fewer calls at once")
        .caused_by(full)
}

/// About how much the caller gets to read.
fn bytes_of(outcome: &Outcome) -> usize {
    match outcome {
        Ok(output) => Output::size(output),
        Err(ToolError { message, hints, .. }) => message.len() + hints.iter().map(String::len).sum::<usize>(),
    }
}

/// A call whose end is recorded when this is dropped. If nothing was got by then, the caller went away.
struct OpenRecord<'a> {
    audit: &'a Audit,
    subject: Arc<Subject>,
    live: Arc<LiveCall>,
    started: Instant,
    got: Option<(Ending, usize)>,
}

impl Drop for OpenRecord<'_> {
    fn drop(&mut self) {
        let (ending, bytes) = self.got.unwrap_or_else(|| (Ending::without_outcome(), 0));
        let (at, duration) = (self.audit.clock.now(), self.started.elapsed());
        let subject = self.subject.clone();
        self.audit.handle.journal.end(Record::End { at, subject, ending, bytes, duration });
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
