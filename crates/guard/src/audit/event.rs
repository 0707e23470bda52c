//! Audit records of events: subscriptions and administrative changes. Like calls, they have a begin and an end.

use super::record::{AuditSubject, JournalRecord};
use super::{AuditHandle, Journal};
use crate::outcome_kind::OutcomeKind;
use crate::redact::Redactor;
use portcullis_core::{Clock, ErrorKind, Event};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// Records administrative changes. Clones share the journal.
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

    /// Resolves when the begin record is on disk, or with the reason why it is not: then the change must not be made.
    pub async fn begin(&self, event: &Event) -> Result<OpenChange, String> {
        let subject = Arc::new(AuditSubject::of_event(event, &self.redactor));
        let at = self.clock.now();
        let begin = JournalRecord::Begin { at, subject: subject.clone() };
        self.handle.journal.begin(begin).await.map_err(|full| full.to_string())?;
        let (journal, clock) = (self.handle.journal.clone(), self.clock.clone());
        let open = OpenChange { journal, clock, subject, started: Instant::now(), ended: None };
        self.handle.committed(open.subject.call).await?;
        Ok(open)
    }

    /// Records an event from another process, with its own time. Reserves no place in the queue for an end.
    pub(super) async fn hand_over(
        &self,
        at: SystemTime,
        subject: Arc<AuditSubject>,
        ended: Option<EventOutcome>,
    ) {
        let record = match ended {
            None => JournalRecord::Begin { at, subject },
            Some(EventOutcome { ending, duration }) => {
                JournalRecord::End { at, subject, ending, bytes: 0, duration }
            }
        };
        self.handle.journal.note(record).await;
    }

    pub(super) fn subject(&self, event: &Event) -> Arc<AuditSubject> {
        Arc::new(AuditSubject::of_event(event, &self.redactor))
    }

    /// Resolves when all records so far are on disk.
    pub(super) async fn flush(&self) -> Result<(), String> {
        self.handle.flush().await
    }
}

/// The outcome and duration of an event.
pub(super) struct EventOutcome {
    pub(super) ending: OutcomeKind,
    pub(super) duration: Duration,
}

impl EventOutcome {
    pub(super) fn of(outcome: Result<(), ErrorKind>, duration: Duration) -> EventOutcome {
        EventOutcome { ending: outcome.map_or_else(OutcomeKind::Failed, |()| OutcomeKind::Ok), duration }
    }
}

/// Records the end of a change when dropped.
#[must_use]
pub struct OpenChange {
    journal: Arc<Journal>,
    clock: Arc<dyn Clock>,
    subject: Arc<AuditSubject>,
    started: Instant,
    ended: Option<Result<(), ErrorKind>>,
}

impl OpenChange {
    /// Sets the outcome.
    pub fn end(mut self, outcome: Result<(), ErrorKind>) {
        self.ended = Some(outcome);
    }
}

impl Drop for OpenChange {
    fn drop(&mut self) {
        let duration = self.started.elapsed();
        let ending = match self.ended {
            Some(outcome) => EventOutcome::of(outcome, duration).ending,
            None => OutcomeKind::without_outcome(),
        };
        let (at, subject) = (self.clock.now(), self.subject.clone());
        self.journal.end(JournalRecord::End { at, subject, ending, bytes: 0, duration });
    }
}
