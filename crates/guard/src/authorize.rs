//! Decides whether a call may go on, and keeps what may not be seen out of the lists.
//!
//! A refusal has the same bytes as the answer to a name that nobody registered: whoever may not use a tool does
//! not learn that it exists. Asking a person is `approve`'s job; this layer only decides that it is needed.

use crate::policy::Policy;
use arc_swap::ArcSwap;
use portcullis_core::{BoxFuture, Call, Caller, Decision, Layer, Listing, Next, Outcome, ToolError};
use std::sync::Arc;

/// The policy in force. Cheap to clone; every clone is the same policy.
#[derive(Clone)]
pub struct Authorize {
    policy: Arc<ArcSwap<Policy>>,
}

impl Authorize {
    pub fn new(policy: Policy) -> Authorize {
        Authorize { policy: Arc::new(ArcSwap::from_pointee(policy)) }
    }

    /// Puts another policy in force. Calls that were decided already go on as they were.
    pub fn replace(&self, policy: Policy) {
        self.policy.store(Arc::new(policy));
    }

    /// Decides by the policy in force.
    pub fn decide(&self, caller: &Caller, listing: &Listing<'_>) -> Decision {
        self.policy.load().decide(caller, listing)
    }
}

impl Layer for Authorize {
    fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        let decision = if call.is_known() {
            self.decide(&call.caller, &Listing::of_call(&call))
        } else {
            Decision::Deny { rule: "unknown".to_owned() }
        };
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

    fn shows(&self, caller: &Caller, listing: &Listing<'_>) -> bool {
        !matches!(self.decide(caller, listing), Decision::Deny { .. })
    }
}

#[cfg(test)]
#[path = "authorize_tests.rs"]
mod tests;
