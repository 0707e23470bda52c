//! Records of events: subscriptions, and changes that people make. They have a begin and an end like those of calls.

use super::record::{Record, Subject};
use super::{AuditHandle, Journal};
use crate::ending::Ending;
use crate::redact::Redactor;
use portcullis_core::{Clock, ErrorKind, Event};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// What records the changes that administrators make. Cheap to clone.
#[derive(Clone)]
pub struct ChangeLog {
    handle: AuditHandle,
    clock: Arc<dyn Clock>,
    redactor: Redactor,
}

impl ChangeLog {
    pub fn new(handle: AuditHandle, clock: Arc<dyn Clock>, redactor: Redactor) -> ChangeLog {
        ChangeLog { handle, clock, redactor }
    }

    /// Returns when the begin record of a change is on disk, or why it is not: then the change must not be made.
    pub async fn begin(&self, event: &Event) -> Result<OpenChange, String> {
        let subject = Arc::new(Subject::of_event(event, &self.redactor));
        let at = self.clock.now();
        let begin = Record::Begin { at, subject: subject.clone() };
        self.handle.journal.begin(begin).await.map_err(|full| full.to_string())?;
        let (journal, clock) = (self.handle.journal.clone(), self.clock.clone());
        let open = OpenChange { journal, clock, subject, started: Instant::now(), ended: None };
        self.handle.committed(open.subject.call).await?;
        Ok(open)
    }

    /// Hands over what began or ended elsewhere, at another time. It keeps no place in the queue for an end.
    pub(super) async fn hand_over(&self, at: SystemTime, subject: Arc<Subject>, ended: Option<Ended>) {
        let record = match ended {
            None => Record::Begin { at, subject },
            Some(Ended { ending, duration }) => Record::End { at, subject, ending, bytes: 0, duration },
        };
        self.handle.journal.note(record).await;
    }

    pub(super) fn subject(&self, event: &Event) -> Arc<Subject> {
        Arc::new(Subject::of_event(event, &self.redactor))
    }

    /// Returns when all that was handed over is on disk.
    pub(super) async fn flush(&self) -> Result<(), String> {
        self.handle.flush().await
    }
}

/// How something ended, and how long it took.
pub(super) struct Ended {
    pub(super) ending: Ending,
    pub(super) duration: Duration,
}

impl Ended {
    pub(super) fn of(outcome: Result<(), ErrorKind>, duration: Duration) -> Ended {
        Ended { ending: outcome.map_or_else(Ending::Failed, |()| Ending::Ok), duration }
    }
}

/// A change whose end is recorded when this is dropped.
#[must_use]
pub struct OpenChange {
    journal: Arc<Journal>,
    clock: Arc<dyn Clock>,
    subject: Arc<Subject>,
    started: Instant,
    ended: Option<Result<(), ErrorKind>>,
}

impl OpenChange {
    /// Says how it ended.
    pub fn end(mut self, outcome: Result<(), ErrorKind>) {
        self.ended = Some(outcome);
    }
}

impl Drop for OpenChange {
    fn drop(&mut self) {
        let duration = self.started.elapsed();
        let ending = match self.ended {
            Some(outcome) => Ended::of(outcome, duration).ending,
            None => Ending::without_outcome(),
        };
        let (at, subject) = (self.clock.now(), self.subject.clone());
        self.journal.end(Record::End { at, subject, ending, bytes: 0, duration });
    }
}
