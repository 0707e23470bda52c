//! Redaction of large outcomes on the blocking pool, so that no async worker is blocked.
//!
//! Fairness: the share of each client is smaller than the pool, so a client that reads costly texts queues behind its own, and
//! others find a free permit.

use parking_lot::Mutex;
use portcullis_core::{Client, INLINE_SCRUB_BYTES_MAX, Limit, ToolError, blocking};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// Above this number, unused shares are dropped.
const SHARES_KEPT_MAX: usize = 256;
/// Minimum wait for a permit. A call that ended just before its deadline has had its effect, and its result should not be
/// lost to a queue.
const WAIT_MIN: Duration = Duration::from_secs(5);

/// The part of the blocking pool that redaction may use.
pub(super) struct ScrubPool {
    all: Arc<Semaphore>,
    /// By client name.
    shares: Mutex<HashMap<String, Arc<Semaphore>>>,
    share: usize,
    inline_bytes_max: usize,
}

/// The client of a redaction, and its deadline.
pub(super) struct ScrubRequester {
    pub(super) client: Arc<Client>,
    pub(super) deadline: Duration,
    /// When the deadline passes.
    pub(super) due: Instant,
    pub(super) cancel: CancellationToken,
}

impl Default for ScrubPool {
    /// One permit per core, half of them for one client.
    fn default() -> ScrubPool {
        let places = std::thread::available_parallelism().map_or(2, usize::from).max(2);
        ScrubPool::new(places, places / 2, INLINE_SCRUB_BYTES_MAX)
    }
}

impl ScrubPool {
    pub(super) fn new(places: usize, share: usize, inline_bytes_max: usize) -> ScrubPool {
        ScrubPool { all: Arc::new(Semaphore::new(places)), shares: Mutex::default(), share, inline_bytes_max }
    }

    /// Runs small work inline, other work on the blocking pool when the client gets a permit.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        waiter: &ScrubRequester,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ToolError> {
        if bytes <= self.inline_bytes_max || Handle::try_current().is_err() {
            return Ok(work());
        }
        let until = waiter.due.max(Instant::now() + WAIT_MIN);
        let permits = tokio::select! {
            biased;
            permits = timeout_at(until, self.permits(&waiter.client.name)) => permits,
            () = waiter.cancel.cancelled() => return Err(ToolError::cancelled()),
        };
        let permits = permits.map_err(|_| {
            Limit::CallTime.hit();
            ToolError::timeout(waiter.deadline).hint(
                "the result was ready, but too many large results had to be checked for secrets before it; the call \
                 has taken effect",
            )
        })?;
        // The permit is held until the work is done, also if the call is cancelled.
        blocking(move || {
            let result = work();
            drop(permits);
            Ok(result)
        })
        .await
    }

    /// Acquires the client's share first, so that one client never queues more than that for the pool.
    pub(super) async fn permits(
        &self,
        client: &str,
    ) -> (Option<OwnedSemaphorePermit>, Option<OwnedSemaphorePermit>) {
        let share = self.share_of(client);
        // The semaphores are never closed.
        let own = share.acquire_owned().await.ok();
        (own, self.all.clone().acquire_owned().await.ok())
    }

    fn share_of(&self, client: &str) -> Arc<Semaphore> {
        let mut shares = self.shares.lock();
        if let Some(share) = shares.get(client) {
            return share.clone();
        }
        if shares.len() >= SHARES_KEPT_MAX {
            // A held permit also holds its share.
            shares.retain(|_, share| Arc::strong_count(share) > 1);
        }
        shares.entry(client.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.share))).clone()
    }
}
