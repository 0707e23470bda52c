//! Authorization: decides calls by policy, and filters lists by the same decision.
//!
//! Invariant: a refusal has the same bytes as the response for an unregistered name, so a client without access does not
//! learn that a tool exists. Asking a person is the job of `approve`; this layer only decides that it is needed.

use crate::policy::Policy;
use arc_swap::ArcSwap;
use jiff::Timestamp;
use portcullis_core::{
    BoxFuture, Call, Caller, Clock, Decision, Layer, Next, Outcome, PolicySubject, Target, TaskOperation,
    ToolError, VisibilityFilter,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The active policy. Clones share state.
#[derive(Clone)]
pub struct ActivePolicy {
    policy: Arc<ArcSwap<Policy>>,
    replaced: Arc<Notify>,
    clock: Arc<dyn Clock>,
}

impl ActivePolicy {
    pub fn new(policy: Policy, clock: Arc<dyn Clock>) -> ActivePolicy {
        ActivePolicy { policy: Arc::new(ArcSwap::from_pointee(policy)), replaced: Arc::default(), clock }
    }

    /// Replaces the policy. Calls already decided are not affected.
    pub fn replace(&self, policy: Policy) {
        self.policy.store(Arc::new(policy));
        self.replaced.notify_one();
    }

    /// Decides by the active policy.
    pub fn decide(&self, caller: &Caller, listing: &PolicySubject<'_>) -> Decision {
        self.policy.load().decide(caller, listing, self.now())
    }

    fn decide_call(&self, call: &Call) -> Decision {
        match &call.target {
            // Cancelling one's own task is always allowed.
            Target::Task(TaskOperation::Cancel, _) => Decision::Allow { rule: "cancel".to_owned() },
            _ if !call.is_known() => Decision::Deny { rule: "unknown".to_owned() },
            Target::Task(TaskOperation::Get | TaskOperation::Update, _) => {
                match self.decide(call.caller(), &PolicySubject::of_call(call)) {
                    // The approval of the call covers its task.
                    Decision::Ask { rule } => Decision::Allow { rule },
                    decided => decided,
                }
            }
            _ => self.decide(call.caller(), &PolicySubject::of_call(call)),
        }
    }

    /// Returns which rules are in force now by their schedules.
    pub(crate) fn in_force(&self) -> Vec<bool> {
        self.policy.load().in_force(self.now())
    }

    /// Returns the time until a schedule changes which rules are in force.
    pub(crate) fn until_change(&self) -> Option<Duration> {
        let now = self.now();
        let change = self.policy.load().next_change(now)?;
        Some(change.duration_since(now).unsigned_abs())
    }

    /// Resolves when the policy was replaced. For one listener.
    pub(crate) async fn replaced(&self) {
        self.replaced.notified().await;
    }

    /// A system clock outside the years 1 to 9999 counts as the end of them: temporary permissions have expired.
    fn now(&self) -> Timestamp {
        Timestamp::try_from(self.clock.now()).unwrap_or(Timestamp::MAX)
    }
}

impl Layer for ActivePolicy {
    fn call<'a>(&'a self, call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        let decision = self.decide_call(&call);
        let denied = matches!(decision, Decision::Deny { .. });
        // A decision set before this layer would not be ours; it is an error below.
        let already_decided = call.trail.decision.set(decision).is_err();
        if denied {
            let unknown = ToolError::unknown(call.target.kind(), call.target.name());
            return Box::pin(async move { Err(unknown) });
        }
        if already_decided {
            return Box::pin(async { Err(ToolError::internal("the call came with a decision of its own")) });
        }
        next.run(call)
    }

    fn visibility_filter<'a>(&'a self, caller: &'a Caller) -> VisibilityFilter<'a> {
        let (policy, now) = (self.policy.load_full(), self.now());
        Box::new(move |listing| !matches!(policy.decide(caller, listing, now), Decision::Deny { .. }))
    }

    fn unattended_filter<'a>(&'a self, caller: &'a Caller) -> VisibilityFilter<'a> {
        let (policy, now) = (self.policy.load_full(), self.now());
        Box::new(move |listing| matches!(policy.decide(caller, listing, now), Decision::Allow { .. }))
    }
}

#[cfg(test)]
#[path = "authorize_tests.rs"]
mod tests;
