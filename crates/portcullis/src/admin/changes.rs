//! Puts what administrators change on the record, before they change it.

use portcullis_admin::desk::Actor;
use portcullis_admin::{Code, Problem};
use portcullis_core::{ErrorKind, Event};
use portcullis_guard::audit::ChangeLog;
use serde_json::Value;

/// A change that an administrator is about to make.
pub(super) struct Change {
    log: ChangeLog,
    event: Event,
}

impl Change {
    pub(super) fn new(log: &ChangeLog, actor: &Actor, action: &'static str, details: Value) -> Change {
        Change { log: log.clone(), event: Event::change(format!("admin:{}", actor.name), action, details) }
    }

    /// Makes it, once its record is on disk, and records how that ended. Where there can be no record nothing is changed.
    pub(super) async fn made<T>(self, work: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
        let begun = self.log.begin(&self.event).await;
        let open = begun.map_err(|reason| {
            tracing::error!(target: "admin", %reason, "A change was refused: it cannot be recorded.");
            Problem::unavailable("the audit log cannot be written, so nothing was changed")
                .hint("the log of the hub says why; `portcullis doctor` looks at it")
        })?;
        let done = work.await;
        open.end(done.as_ref().map(|_| ()).map_err(|problem| kind(problem.code)));
        done
    }
}

fn kind(code: Code) -> ErrorKind {
    match code {
        Code::Invalid => ErrorKind::InvalidArgs,
        Code::SignInNeeded | Code::Forbidden | Code::Conflict | Code::Changed => ErrorKind::Denied,
        Code::NotFound => ErrorKind::NotFound,
        Code::TooLarge => ErrorKind::TooLarge,
        Code::TooMany => ErrorKind::RateLimited,
        Code::Unavailable => ErrorKind::Unavailable,
        Code::Internal => ErrorKind::Internal,
    }
}
