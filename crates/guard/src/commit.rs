//! Write-ahead: delays a call with side effects until its audit record is on disk.
//!
//! `audit`, the outermost layer, opens the record before anything can refuse. The wait belongs further in. If `audit`
//! waited, a hidden tool that writes would respond later than an unregistered name, and differently with a broken disk
//! (an oracle); and a client over its rate limit could still keep the disk busy.

use crate::audit::AuditHandle;
use portcullis_core::{BoxFuture, Call, Layer, Next, Outcome, ToolError};

/// The commit layer.
pub(crate) struct CommitLayer {
    audit: AuditHandle,
}

impl CommitLayer {
    pub(crate) fn new(audit: AuditHandle) -> CommitLayer {
        CommitLayer { audit }
    }
}

impl Layer for CommitLayer {
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
