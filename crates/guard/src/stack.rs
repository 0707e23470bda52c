//! The order of the layers, with the reason for each position.

use crate::approve::{ApprovalDesk, ApprovalLayer, ApprovalTimes};
use crate::audit::{AuditHandle, AuditLayer, AuditSettings};
use crate::authorize::ActivePolicy;
use crate::commit::CommitLayer;
use crate::contain::ContainmentLayer;
use crate::live::LiveCalls;
use crate::metrics::Metrics;
use crate::policy::Policy;
use crate::rate::{ClientRateLimiter, RateSettings};
use crate::redact::{RedactError, RedactionLayer, Redactor};
use crate::validate::ValidationLayer;
use portcullis_core::{CallLimits, Clock, Gate, Owners, Registry, Secret};
use portcullis_store::database::Database;
use std::sync::Arc;

/// The settings of all layers.
pub struct GuardSettings {
    pub rate: RateSettings,
    pub policy: Policy,
    /// Secrets to redact, by the name shown in their place.
    pub secrets: Vec<(String, Secret<String>)>,
    pub audit: AuditSettings,
    /// Holds the approvals.
    pub database: Database,
    /// The clients that calls are made for, as they are now.
    pub owners: Arc<dyn Owners>,
    pub approval_times: ApprovalTimes,
    /// The upper bound on all calls, whatever their tools declare.
    pub ceiling: CallLimits,
}

/// Why the layers cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    #[error(transparent)]
    Redact(#[from] RedactError),
    #[error("the audit writer cannot start: {0}")]
    Audit(#[source] std::io::Error),
}

/// Handles of the layers for the rest of the hub.
#[derive(Clone)]
pub struct GuardHandles {
    pub metrics: Metrics,
    pub audit: AuditHandle,
    pub policy: ActivePolicy,
    pub rate: ClientRateLimiter,
    pub redactor: Redactor,
    pub approvals: ApprovalDesk,
    pub live: LiveCalls,
}

impl GuardHandles {
    /// Applies new settings, for every call that begins from now on.
    pub fn apply(&self, rate: RateSettings, policy: Policy, approval_times: ApprovalTimes) {
        self.rate.configure(rate);
        self.approvals.configure(approval_times);
        self.policy.replace(policy);
    }
}

/// Builds the gate with all layers in front of the registry. Nothing else outside tests builds one.
pub fn stack(
    registry: Registry,
    settings: GuardSettings,
    clock: Arc<dyn Clock>,
) -> Result<(Gate, GuardHandles), GuardError> {
    let redactor = Redactor::new(&settings.secrets)?;
    let audit = AuditHandle::open(settings.audit, clock.clone()).map_err(GuardError::Audit)?;
    let approvals = ApprovalDesk::open(&settings.database, settings.approval_times, clock.clone());
    let (metrics, live) = (Metrics::new(), LiveCalls::default());
    let rate = ClientRateLimiter::new(settings.rate, metrics.clone());
    let policy = ActivePolicy::new(settings.policy, clock.clone());
    let gate = Gate::new(
        registry,
        vec![
            // Outermost: a refused call is still recorded, and the record holds what the caller really got.
            Box::new(AuditLayer::new(audit.clone(), clock, redactor.clone(), live.clone())),
            // Counts every outcome, refusals and timeouts included.
            Box::new(metrics.clone()),
            // Everything below may hold secrets, nothing above may. Errors of all layers below pass here too.
            Box::new(RedactionLayer::new(redactor.clone(), settings.ceiling)),
            // Around everything that can hang or panic, so that a person who never answers ends as a timeout.
            Box::new(ContainmentLayer::new(settings.ceiling)),
            // The cheapest refusal comes first. Unregistered names cost as much as any other. Inside containment, so that a
            // call that waits its turn can be cancelled.
            Box::new(rate.clone()),
            // Before any layer that reveals the tool: a client that may not see it must not learn its schema.
            Box::new(policy.clone()),
            // Before approval: never ask a person about a call that cannot run.
            Box::new(ValidationLayer::default()),
            // Nor about one that may not run because it could not be recorded. Not further out: only allowed calls may
            // cause disk writes, and a refusal must not depend on the disk.
            Box::new(CommitLayer::new(audit.clone())),
            // Innermost: the approved call is the call that runs, and no layer between can change it.
            Box::new(ApprovalLayer::new(
                approvals.clone(),
                policy.clone(),
                settings.owners.clone(),
                redactor.clone(),
            )),
        ],
    )
    .with_owners(settings.owners);
    Ok((gate, GuardHandles { metrics, audit, policy, rate, redactor, approvals, live }))
}

#[cfg(test)]
#[path = "stack_tests.rs"]
mod tests;
