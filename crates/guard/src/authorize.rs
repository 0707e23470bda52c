//! Decides whether a call may go on, and keeps what may not be seen out of the lists.
//!
//! A refusal has the same bytes as the answer to a name that nobody registered: whoever may not use a tool does
//! not learn that it exists. Asking a person is `approve`'s job; this layer only decides that it is needed.

use crate::policy::Policy;
use arc_swap::ArcSwap;
use jiff::Timestamp;
use portcullis_core::{
    BoxFuture, Call, Caller, Clock, Decision, Layer, Listing, Next, Outcome, Shows, Target, TaskAsk,
    ToolError,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The policy in force. Cheap to clone; every clone is the same policy.
#[derive(Clone)]
pub struct Authorize {
    policy: Arc<ArcSwap<Policy>>,
    replaced: Arc<Notify>,
    clock: Arc<dyn Clock>,
}

impl Authorize {
    pub fn new(policy: Policy, clock: Arc<dyn Clock>) -> Authorize {
        Authorize { policy: Arc::new(ArcSwap::from_pointee(policy)), replaced: Arc::default(), clock }
    }

    /// Puts another policy in force. Calls that were decided already go on as they were.
    pub fn replace(&self, policy: Policy) {
        self.policy.store(Arc::new(policy));
        self.replaced.notify_one();
    }

    /// Decides by the policy in force.
    pub fn decide(&self, caller: &Caller, listing: &Listing<'_>) -> Decision {
        self.policy.load().decide(caller, listing, self.now())
    }

    fn decide_call(&self, call: &Call) -> Decision {
        match &call.target {
            // Ended it can be in any case, by whoever began it.
            Target::Task(TaskAsk::Cancel, _) => Decision::Allow { rule: "cancel".to_owned() },
            _ if !call.is_known() => Decision::Deny { rule: "unknown".to_owned() },
            Target::Task(TaskAsk::Get | TaskAsk::Update, _) => {
                match self.decide(&call.caller, &Listing::of_call(call)) {
                    // Whoever had to be asked was asked about the call, and one yes covers a call to its end.
                    Decision::Ask { rule } => Decision::Allow { rule },
                    decided => decided,
                }
            }
            _ => self.decide(&call.caller, &Listing::of_call(call)),
        }
    }

    /// Returns which rules hold now, as far as the time is concerned.
    pub(crate) fn in_force(&self) -> Vec<bool> {
        self.policy.load().in_force(self.now())
    }

    /// Returns how long it takes until the time makes a rule begin or cease to hold.
    pub(crate) fn until_change(&self) -> Option<Duration> {
        let now = self.now();
        let change = self.policy.load().next_change(now)?;
        Some(change.duration_since(now).unsigned_abs())
    }

    /// Resolves when the policy was replaced. For one listener.
    pub(crate) async fn replaced(&self) {
        self.replaced.notified().await;
    }

    /// A clock that stands outside of the years 1 to 9999 counts as one that stands at the end of them: what was
    /// allowed for a while is not allowed any more.
    fn now(&self) -> Timestamp {
        Timestamp::try_from(self.clock.now()).unwrap_or(Timestamp::MAX)
    }
}

impl Layer for Authorize {
    fn call<'a>(&'a self, call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        let decision = self.decide_call(&call);
        let denied = matches!(decision, Decision::Deny { .. });
        // Whatever a decision stood there before, it was not made here.
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

    fn shows<'a>(&'a self, caller: &'a Caller) -> Shows<'a> {
        let (policy, now) = (self.policy.load_full(), self.now());
        Box::new(move |listing| !matches!(policy.decide(caller, listing, now), Decision::Deny { .. }))
    }

    fn lets<'a>(&'a self, caller: &'a Caller) -> Shows<'a> {
        let (policy, now) = (self.policy.load_full(), self.now());
        Box::new(move |listing| matches!(policy.decide(caller, listing, now), Decision::Allow { .. }))
    }
}

#[cfg(test)]
#[path = "authorize_tests.rs"]
mod tests;
