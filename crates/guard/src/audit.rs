//! Records every call, before anything can refuse it and with what the caller really got.
//!
//! A call has two records in `audit.jsonl`: one when it begins and one when it ends, however it ends. A begin
//! without an end is a call during which the machine went down. Arguments are never written; their digest is.
//!
//! The records of a call that only reads are handed to the writer before its reply leaves, and survive the end of
//! the process, not of the machine. The begin record of a call with side effects is on disk before the call acts;
//! waiting for that is the layer `commit`'s job. While the file cannot be written, reads go on and
//! [`AuditHandle::health`] says why.

mod journal;
mod record;
mod sink;

use crate::ending::Ending;
use crate::redact::Redactor;
use journal::Journal;
use portcullis_core::{BoxFuture, Call, CallId, Clock, Layer, Next, Outcome, Output, ToolError};
use record::{Record, Subject};
use sink::FileSink;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::time::Instant;

/// The audit log, seen from outside. Cheap to clone; when the last clone goes, everything is on disk.
#[derive(Clone)]
pub struct AuditHandle {
    journal: Arc<Journal>,
}

impl AuditHandle {
    /// Starts writing to `audit.jsonl` in `dir`, which is made if it is missing.
    ///
    /// A file that cannot be written is no error here: the rule is the same at the start as later on.
    pub(crate) fn open(dir: &Path) -> io::Result<AuditHandle> {
        AuditHandle::write_to(FileSink::new(dir))
    }

    pub(crate) fn write_to(sink: impl sink::Sink + 'static) -> io::Result<AuditHandle> {
        Ok(AuditHandle { journal: Arc::new(Journal::start(Box::new(sink))?) })
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
}

impl Audit {
    pub(crate) fn new(handle: AuditHandle, clock: Arc<dyn Clock>, redactor: Redactor) -> Audit {
        Audit { handle, clock, redactor }
    }

    async fn begin(&self, call: &Call) -> OpenRecord<'_> {
        let subject = Arc::new(Subject::of(call, &self.redactor));
        let record = Record::Begin { at: self.clock.now(), subject: subject.clone() };
        self.handle.journal.begin(record).await;
        OpenRecord { audit: self, subject, started: Instant::now(), got: None }
    }
}

impl Layer for Audit {
    fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let mut record = self.begin(&call).await;
            let outcome = next.run(call).await;
            record.got = Some((Ending::of(&outcome), bytes_of(&outcome)));
            outcome
        })
    }
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
    started: Instant,
    got: Option<(Ending, usize)>,
}

impl Drop for OpenRecord<'_> {
    fn drop(&mut self) {
        let (ending, bytes) = self.got.unwrap_or_else(|| (Ending::without_outcome(), 0));
        self.audit.handle.journal.end(Record::End {
            at: self.audit.clock.now(),
            subject: self.subject.clone(),
            ending,
            bytes,
            duration: self.started.elapsed(),
        });
    }
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;
