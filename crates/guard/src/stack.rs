//! The order of the guards. Meant to be read aloud.

use crate::approve::{ApprovalDesk, ApprovalTimes, Approve};
use crate::audit::{Audit, AuditHandle, AuditSettings};
use crate::authorize::Authorize;
use crate::commit::Commit;
use crate::contain::Contain;
use crate::live::LiveCalls;
use crate::metrics::Metrics;
use crate::policy::Policy;
use crate::rate::{Rate, RateSettings};
use crate::redact::{Redact, RedactError, Redactor};
use crate::validate::Validate;
use portcullis_core::{Clock, Gate, Limits, Registry, Secret};
use std::path::PathBuf;
use std::sync::Arc;

/// What the guards need to know.
pub struct GuardSettings {
    pub rate: RateSettings,
    pub policy: Policy,
    /// Values that must not leave, by the name that is shown in their place.
    pub secrets: Vec<(String, Secret<String>)>,
    pub audit: AuditSettings,
    /// The folder where approvals are kept.
    pub approvals_dir: PathBuf,
    pub approval_times: ApprovalTimes,
    /// What no call may go beyond, whatever its tool declares.
    pub ceiling: Limits,
}

/// Why the guards cannot take up their posts.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    #[error(transparent)]
    Redact(#[from] RedactError),
    #[error("the audit writer cannot start: {0}")]
    Audit(#[source] std::io::Error),
}

/// What the rest of the hub holds of the guards.
#[derive(Clone)]
pub struct Handles {
    pub metrics: Metrics,
    pub audit: AuditHandle,
    pub policy: Authorize,
    pub rate: Rate,
    pub redactor: Redactor,
    pub approvals: ApprovalDesk,
    pub live: LiveCalls,
}

impl Handles {
    /// Puts new settings in force, for every call that begins from now on.
    pub fn apply(&self, rate: RateSettings, policy: Policy, approval_times: ApprovalTimes) {
        self.rate.configure(rate);
        self.approvals.configure(approval_times);
        self.policy.replace(policy);
    }
}

/// Builds the gate with all guards before the registry. Nothing else outside tests builds one.
pub fn stack(
    registry: Registry,
    settings: GuardSettings,
    clock: Arc<dyn Clock>,
) -> Result<(Gate, Handles), GuardError> {
    let redactor = Redactor::new(&settings.secrets)?;
    let audit = AuditHandle::open(settings.audit, clock.clone()).map_err(GuardError::Audit)?;
    let approvals = ApprovalDesk::open(&settings.approvals_dir, settings.approval_times, clock.clone());
    let (metrics, live) = (Metrics::new(), LiveCalls::default());
    let rate = Rate::new(settings.rate, metrics.clone());
    let policy = Authorize::new(settings.policy, clock.clone());
    let gate = Gate::new(
        registry,
        vec![
            // Outermost: a refused call is still a recorded call, and the record holds what the caller really got.
            Box::new(Audit::new(audit.clone(), clock, redactor.clone(), live.clone())),
            // Counts every ending, refusals and timeouts included. Only the record is further out.
            Box::new(metrics.clone()),
            // Everything below may hold secrets, nothing above may. Errors of all guards below pass here too.
            Box::new(Redact::new(redactor.clone(), settings.ceiling)),
            // Around everything that can hang or panic, so that a person who never answers ends as a timeout.
            Box::new(Contain::new(settings.ceiling)),
            // The cheapest refusal comes first. Names that nobody registered cost as much as any other.
            Box::new(rate.clone()),
            // Before anything that knows the tool speaks: whoever may not see it must not hear of its schema.
            Box::new(policy.clone()),
            // Before approval: never ask a person about a call that cannot run.
            Box::new(Validate::default()),
            // Nor about one that may not run, because nobody could say afterwards that it did. Not further out:
            // only what was allowed may make the disk work, and a refusal must not depend on the disk.
            Box::new(Commit::new(audit.clone())),
            // Innermost: what was approved is what runs, and nothing between can change it.
            Box::new(Approve::new(approvals.clone(), policy.clone(), redactor.clone())),
        ],
    );
    Ok((gate, Handles { metrics, audit, policy, rate, redactor, approvals, live }))
}

#[cfg(test)]
#[path = "stack_tests.rs"]
mod tests;
