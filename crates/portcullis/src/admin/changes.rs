//! Write-ahead audit records of administrators' changes.

use portcullis_core::{ErrorKind, Event};
use portcullis_guard::audit::ChangeLog;
use portcullis_ops::{Actor, Problem, ProblemCode};
use serde_json::Value;

/// A change to be recorded, then applied.
pub(super) struct Change {
    log: ChangeLog,
    event: Event,
}

impl Change {
    pub(super) fn new(log: &ChangeLog, actor: &Actor, action: &'static str, details: Value) -> Change {
        Change { log: log.clone(), event: Event::change(actor.principal(), action, details) }
    }

    /// Applies the change once its record is durable, and records the outcome. Without a record nothing is changed.
    pub(super) async fn made<T>(self, work: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
        let begun = self.log.begin(&self.event).await;
        let open = begun.map_err(|reason| {
            tracing::error!(target: "admin", %reason, "change refused: audit log not writable");
            Problem::unavailable("the audit log cannot be written, so nothing was changed")
                .hint("see the hub's log for the cause, or run `portcullis doctor`")
        })?;
        let done = work.await;
        open.end(done.as_ref().map(|_| ()).map_err(|problem| kind(problem.code)));
        done
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
