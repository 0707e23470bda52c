//! Scrubs large outcomes on the blocking pool, so that no async worker is held up by one text.
//!
//! Each client has a share of the pool that is smaller than the pool: a client that reads costly texts waits for its own
//! earlier ones, and others find a free place.

use portcullis_core::{Client, INLINE_SCRUB_BYTES_MAX, Limit, ToolError};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// After so many, the shares that are not in use are dropped.
const SHARES_KEPT_MAX: usize = 256;
/// A call that ended just before its deadline may wait so long for its turn: what it did is done, and its result should not
/// be lost to a queue.
const WAIT_MIN: Duration = Duration::from_secs(5);

/// The part of the blocking pool that redaction may use.
pub(super) struct ScrubPool {
    all: Arc<Semaphore>,
    /// By the name of the client.
    shares: Mutex<HashMap<String, Arc<Semaphore>>>,
    share: usize,
    inline_bytes_max: usize,
}

/// For whom something is scrubbed, and until when it may wait for its turn.
pub(super) struct Waiter {
    pub(super) client: Arc<Client>,
    pub(super) deadline: Duration,
    /// When the deadline passes.
    pub(super) due: Instant,
    pub(super) cancel: CancellationToken,
}

impl Default for ScrubPool {
    /// As many places as there are cores, and half of them for one client.
    fn default() -> ScrubPool {
        let places = std::thread::available_parallelism().map_or(2, usize::from).max(2);
        ScrubPool::new(places, places / 2, INLINE_SCRUB_BYTES_MAX)
    }
}

impl ScrubPool {
    pub(super) fn new(places: usize, share: usize, inline_bytes_max: usize) -> ScrubPool {
        ScrubPool { all: Arc::new(Semaphore::new(places)), shares: Mutex::default(), share, inline_bytes_max }
    }

    /// Does the work where it is if it is small, otherwise on the blocking pool when it is the client's turn.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        waiter: &Waiter,
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
                "the reply was ready, but too many large ones had to be checked for secrets before it; what was begun \
                 has happened",
            )
        })?;
        // The place is held until the work is done, also if nobody waits for it any more.
        let done = tokio::task::spawn_blocking(move || {
            let result = work();
            drop(permits);
            result
        });
        done.await.map_err(ToolError::internal)
    }

    /// Waits for the client's own share first: one client never has more than that queued for the places of all.
    pub(super) async fn permits(
        &self,
        client: &str,
    ) -> (Option<OwnedSemaphorePermit>, Option<OwnedSemaphorePermit>) {
        let share = self.share_of(client);
        // Neither is ever closed.
        let own = share.acquire_owned().await.ok();
        (own, self.all.clone().acquire_owned().await.ok())
    }

    fn share_of(&self, client: &str) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(client) {
            return share.clone();
        }
        if shares.len() >= SHARES_KEPT_MAX {
            // A permit that is held holds the share, too.
            shares.retain(|_, share| Arc::strong_count(share) > 1);
        }
        shares.entry(client.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.share))).clone()
    }
}
