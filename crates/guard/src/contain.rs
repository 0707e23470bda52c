//! Keeps one call's trouble to that call.
//!
//! A panic becomes an error, a call that hangs is ended at its deadline, a call that nobody waits for is ended at
//! once, and a reply that is too large does not leave. Time in which the client is asked something does not count
//! towards the deadline: a person who has to approve reads slower than a tool works.

use futures::FutureExt;
use portcullis_core::{
    Answers, AskKind, AskRefused, BoxFuture, Call, Layer, Limit, Limits, Listing, LogMessage, Next, Outcome,
    Peer, Progress, Question, ToolError, Trail, Unruled, Waits,
};
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// What a resource, a prompt and a completion of the hub's own may use. They declare nothing themselves.
const OTHER_LIMITS: Limits = Limits::DEFAULT;
/// What they may use where another server answers. How long that takes is `timeout_ms` of the server, as for its tools.
const OUTSIDE_LIMITS: Limits = Limits { deadline_ms: u64::MAX, ..Limits::DEFAULT };
/// How long all questions of one call may wait for their answers together. Long enough to fetch a coffee first.
const ANSWERS_WAIT_MAX: Duration = Duration::from_secs(15 * 60);
/// How often it is looked whether a question that outlived the deadline has been answered.
const ANSWERS_LOOK_MIN: Duration = Duration::from_millis(100);

/// The layer.
pub(crate) struct Contain {
    /// What no call may go beyond, whatever its tool declares.
    ceiling: Limits,
}

impl Contain {
    pub(crate) fn new(ceiling: Limits) -> Contain {
        Contain { ceiling }
    }
}

impl Layer for Contain {
    fn call<'a>(&'a self, mut call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        let limits = declared(&call).at_most(self.ceiling);
        let caller_gave_up = call.ctx.cancel.clone();
        // The tool hears of the deadline as it hears of the caller; the caller's own token stays the caller's.
        let stop = CancellationToken::child_token(&caller_gave_up);
        call.ctx.cancel = stop.clone();
        call.ctx.peer = Arc::new(Asking { peer: call.ctx.peer, trail: call.trail.clone() });
        let trail = call.trail.clone();
        Box::pin(async move {
            // If this future is dropped, whatever the tool has spawned hears of it too.
            let stop = stop.drop_guard();
            // Inside the async block, so that a layer that panics before its first await is caught as well.
            let run = AssertUnwindSafe(async move { next.run(call).await }).catch_unwind();
            if caller_gave_up.is_cancelled() {
                return Err(ToolError::cancelled());
            }
            // The call first: for one that is done at once nobody has to be waited for.
            let outcome = tokio::select! {
                biased;
                outcome = run => outcome,
                () = caller_gave_up.cancelled() => return Err(ToolError::cancelled()),
                () = expire(limits.deadline(), &trail.waits) => {
                    Limit::CallTime.hit();
                    return Err(ToolError::timeout(limits.deadline())
                        .hint("ask for less at once, or try again later; what was begun may have happened"));
                }
            };
            let output = outcome.unwrap_or_else(|panic| Err(ToolError::internal(panic_text(&*panic))))?;
            stop.disarm();
            let bytes = output.size();
            if bytes > limits.output_bytes_max {
                Limit::ResultBytes.hit();
                return Err(ToolError::too_large("the reply", bytes, limits.output_bytes_max)
                    .hint("ask for less: a smaller part, a narrower search, a lower limit"));
            }
            Ok(output)
        })
    }
}

/// Returns what a call may use, before the ceiling.
pub(crate) fn declared(call: &Call) -> Limits {
    match call.tool() {
        Some(tool) => tool.limits,
        // A server has a say of its own in who may read; the hub's own families leave that to the effect.
        None if Listing::of_call(call).unruled != Unruled::ByEffect => OUTSIDE_LIMITS,
        None => OTHER_LIMITS,
    }
}

/// Returns when the call has used up its time, not counting the time in which the client was asked.
async fn expire(deadline: Duration, waits: &Waits) {
    let started = Instant::now();
    let mut now = started;
    loop {
        let due = started + deadline + waits.total().min(ANSWERS_WAIT_MAX);
        if due <= now {
            return;
        }
        sleep_until(due.max(now + ANSWERS_LOOK_MIN.min(deadline))).await;
        now = Instant::now();
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("with something that is not text"))
}

/// The other end of the call, with a record of how long it has been asked.
struct Asking {
    peer: Arc<dyn Peer>,
    trail: Arc<Trail>,
}

impl Peer for Asking {
    fn behind(&self) -> Option<&dyn Peer> {
        Some(&*self.peer)
    }

    fn progress(&self, progress: Progress) {
        self.peer.progress(progress);
    }

    fn log(&self, message: LogMessage) {
        self.peer.log(message);
    }

    fn ask(&self, questions: Vec<Question>) -> BoxFuture<'_, Result<Answers, AskRefused>> {
        Box::pin(async move {
            let _waiting = self.trail.waits.begin();
            self.peer.ask(questions).await
        })
    }

    fn offers(&self, kind: AskKind) -> bool {
        self.peer.offers(kind)
    }
}

#[cfg(test)]
#[path = "contain_tests.rs"]
mod tests;
