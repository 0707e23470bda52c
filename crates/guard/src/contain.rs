//! Containment: panics, deadlines, cancellation and result size of each call.
//!
//! A panic becomes an error, a call is ended at its deadline or when the client cancels, and an oversized result is replaced
//! by an error. Time spent waiting for the client or for the call's turn (rate limit) does not count towards the deadline: a
//! person reads slower than a tool works.

use futures::FutureExt;
use portcullis_core::{
    BoxFuture, Call, CallLimits, DefaultDecision, HumanWait, InputRefusal, InputRequestKind, InputResponses,
    KeyedInputRequest, Layer, Limit, LogMessage, Next, Outcome, Peer, PolicySubject, Progress, ToolError,
    Trail,
};
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Limits of native resources, prompts and completions, which declare none.
const OTHER_LIMITS: CallLimits = CallLimits::DEFAULT;
/// Limits of upstream ones. Their deadline is the server's `timeout_ms`, as for its tools.
const OUTSIDE_LIMITS: CallLimits = CallLimits { deadline_ms: u64::MAX, ..CallLimits::DEFAULT };
/// Bound on the total time that a call may wait for its client. Long enough for a person who is away for a moment.
const CLIENT_WAIT_MAX: Duration = Duration::from_secs(15 * 60);
/// Poll interval for a response that is pending at the deadline.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// The containment layer.
pub(crate) struct ContainmentLayer {
    /// The upper bound on all calls, whatever their tools declare.
    ceiling: CallLimits,
}

impl ContainmentLayer {
    pub(crate) fn new(ceiling: CallLimits) -> ContainmentLayer {
        ContainmentLayer { ceiling }
    }
}

impl Layer for ContainmentLayer {
    fn call<'a>(&'a self, mut call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        let limits = declared(&call).at_most(self.ceiling);
        let caller_gave_up = call.ctx.cancel.clone();
        // The tool sees the deadline and the client's cancellation as one token; the client's own token stays untouched.
        let stop = CancellationToken::child_token(&caller_gave_up);
        call.ctx.cancel = stop.clone();
        call.ctx.peer = Arc::new(WaitTrackingPeer { peer: call.ctx.peer, trail: call.trail.clone() });
        let trail = call.trail.clone();
        Box::pin(async move {
            // Also cancels tasks that the tool spawned, if this future is dropped.
            let stop = stop.drop_guard();
            // Inside the async block, so that a layer that panics before its first await is caught as well.
            let run = AssertUnwindSafe(async move { next.run(call).await }).catch_unwind();
            if caller_gave_up.is_cancelled() {
                return Err(ToolError::cancelled());
            }
            // `biased`, call first: a call that completes at once needs no timer.
            let outcome = tokio::select! {
                biased;
                outcome = run => outcome,
                () = caller_gave_up.cancelled() => return Err(ToolError::cancelled()),
                () = expire(limits.deadline(), &trail.waits) => {
                    Limit::CallTime.hit();
                    return Err(ToolError::timeout(limits.deadline())
                        .hint("request less, or retry later; side effects may have happened"));
                }
            };
            let output = outcome.unwrap_or_else(|panic| Err(ToolError::internal(panic_text(&*panic))))?;
            stop.disarm();
            let bytes = output.size();
            if bytes > limits.output_bytes_max {
                Limit::ResultBytes.hit();
                return Err(ToolError::too_large("the result", bytes, limits.output_bytes_max)
                    .hint("ask for less: a smaller part, a narrower search, a lower limit"));
            }
            Ok(output)
        })
    }
}

/// Returns the declared limits of a call, before the ceiling.
pub(crate) fn declared(call: &Call) -> CallLimits {
    match call.tool() {
        Some(tool) => tool.limits,
        // An explicit default decision means an upstream server; native families use `ByEffect`.
        None if PolicySubject::of_call(call).default_decision != DefaultDecision::ByEffect => OUTSIDE_LIMITS,
        None => OTHER_LIMITS,
    }
}

/// Resolves when the deadline has passed, not counting time spent waiting for the client.
async fn expire(deadline: Duration, waits: &HumanWait) {
    let started = Instant::now();
    let mut now = started;
    loop {
        let due = started + deadline + waits.total().min(CLIENT_WAIT_MAX);
        if due <= now {
            return;
        }
        sleep_until(due.max(now + POLL_INTERVAL_MIN.min(deadline))).await;
        now = Instant::now();
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("with a payload that is not text"))
}

/// The client end of the call, with the time spent waiting for it.
struct WaitTrackingPeer {
    peer: Arc<dyn Peer>,
    trail: Arc<Trail>,
}

impl Peer for WaitTrackingPeer {
    fn behind(&self) -> Option<&dyn Peer> {
        Some(&*self.peer)
    }

    fn progress(&self, progress: Progress) {
        self.peer.progress(progress);
    }

    fn log(&self, message: LogMessage) {
        self.peer.log(message);
    }

    fn ask(&self, questions: Vec<KeyedInputRequest>) -> BoxFuture<'_, Result<InputResponses, InputRefusal>> {
        Box::pin(async move {
            let _waiting = self.trail.waits.begin();
            self.peer.ask(questions).await
        })
    }

    fn offers(&self, kind: InputRequestKind) -> bool {
        self.peer.offers(kind)
    }
}

#[cfg(test)]
#[path = "contain_tests.rs"]
mod tests;
