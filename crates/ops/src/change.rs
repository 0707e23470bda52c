//! Write-ahead audit records of changes.
//!
//! A change is recorded before it is made, and its outcome afterwards. What cannot be recorded is not made.

use crate::{Actor, Problem, ProblemCode};
use portcullis_core::{Clock, ErrorKind, Event, SystemClock};
use portcullis_guard::AuditSettings;
use portcullis_guard::audit::{ChangeLog, OpenChange, SpooledChange};
use portcullis_store::database::wait;
use serde_json::Value;

/// Where changes are recorded.
pub enum ChangeRecorder {
    /// The audit log, in the process of a hub.
    AuditLog(ChangeLog),
    /// The spool, in the process of a command. A hub moves its records to the audit log.
    Spool {
        settings: AuditSettings,
        /// Tells the user that an outcome was not recorded.
        warn: fn(&str),
    },
}

/// A recorded change whose outcome is open.
#[must_use]
pub enum RecordedChange {
    AuditLog(OpenChange),
    Spool { change: SpooledChange, warn: fn(&str) },
}

impl ChangeRecorder {
    /// Resolves when the record is durable. On error the change must not be made.
    pub async fn begin(
        &self,
        by: &Actor,
        action: &'static str,
        details: Value,
    ) -> Result<RecordedChange, Problem> {
        const NOT_MADE: &str = "the change was not made, because it cannot be recorded";
        match self {
            ChangeRecorder::AuditLog(log) => {
                let begun = log.begin(&Event::change(by.principal(), action, details)).await;
                begun.map(RecordedChange::AuditLog).map_err(|reason| {
                    tracing::error!(target: "admin", %reason, "change refused: audit log not writable");
                    Problem::unavailable(NOT_MADE)
                        .hint("see the hub's log for the cause, or run `portcullis doctor`")
                })
            }
            ChangeRecorder::Spool { settings, warn } => {
                let begun =
                    SpooledChange::begin(settings, by.principal(), action, details, SystemClock.now());
                begun
                    .map(|change| RecordedChange::Spool { change, warn: *warn })
                    .map_err(|error| Problem::unavailable(format!("{NOT_MADE}: {error}")))
            }
        }
    }

    /// Makes a change that is recorded. Blocks.
    pub fn record<T>(
        &self,
        by: &Actor,
        action: &'static str,
        details: Value,
        make: impl FnOnce() -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let about = subject(&details);
        let change = wait(self.begin(by, action, details))?;
        let made = make();
        ended(change, by, action, &about, &made);
        made
    }

    /// As [`record`](Self::record), for a change that takes more than disk access.
    pub async fn record_async<T>(
        &self,
        by: &Actor,
        action: &'static str,
        details: Value,
        make: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        let about = subject(&details);
        let change = self.begin(by, action, details).await?;
        let made = make.await;
        ended(change, by, action, &about, &made);
        made
    }
}

/// What the change is about, for the log: a name or an id.
fn subject(details: &Value) -> String {
    let named = details["name"].as_str().or(details["id"].as_str());
    named.unwrap_or_default().to_owned()
}

fn ended<T>(
    change: RecordedChange,
    by: &Actor,
    action: &'static str,
    about: &str,
    made: &Result<T, Problem>,
) {
    if made.is_ok() {
        tracing::info!(target: "admin", %by, action, about, "change made");
    }
    change.end(made.as_ref().map(|_| ()).map_err(|problem| kind(problem.code)));
}

impl RecordedChange {
    /// Records the outcome.
    pub fn end(self, outcome: Result<(), ErrorKind>) {
        match self {
            RecordedChange::AuditLog(open) => open.end(outcome),
            RecordedChange::Spool { change, warn } => {
                if let Err(error) = change.end(outcome, SystemClock.now()) {
                    warn(&format!("warning: the outcome could not be recorded: {error}"));
                }
            }
        }
    }
}

fn kind(code: ProblemCode) -> ErrorKind {
    match code {
        ProblemCode::Invalid => ErrorKind::InvalidArgs,
        ProblemCode::SignInNeeded | ProblemCode::Forbidden | ProblemCode::Conflict | ProblemCode::Changed => {
            ErrorKind::Denied
        }
        ProblemCode::NotFound => ErrorKind::NotFound,
        ProblemCode::TooLarge => ErrorKind::TooLarge,
        ProblemCode::TooMany => ErrorKind::RateLimited,
        ProblemCode::Unavailable => ErrorKind::Unavailable,
        ProblemCode::Internal => ErrorKind::Internal,
    }
}
