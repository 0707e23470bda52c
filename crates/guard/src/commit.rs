//! Holds a call with side effects until its audit record is on disk.
//!
//! The record is opened by `audit`, outermost, before anything can refuse. Waiting for it belongs further in:
//! if `audit` itself waited, a hidden tool that writes would answer later than a name nobody registered, and with
//! a broken disk with other words; and a client over its rate limit could still keep the disk busy.

use crate::audit::AuditHandle;
use portcullis_core::{BoxFuture, Call, Layer, Next, Outcome, ToolError};

/// The layer.
pub(crate) struct Commit {
    audit: AuditHandle,
}

impl Commit {
    pub(crate) fn new(audit: AuditHandle) -> Commit {
        Commit { audit }
    }
}

impl Layer for Commit {
    fn call<'a>(&'a self, call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        if !call.effect().has_side_effects() {
            return next.run(call);
        }
        Box::pin(async move {
            self.audit.committed(call.id).await.map_err(|reason| {
                ToolError::unavailable("the audit log cannot be written, so nothing is changed")
                    .hint("reading still works; an administrator finds the reason at `/readyz`")
                    .caused_by(reason)
            })?;
            next.run(call).await
        })
    }
}
