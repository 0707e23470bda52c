//! Graceful shutdown: what has to finish before the process exits, such as stopping child processes and closing sessions.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

/// The servers of one hub or command, to be stopped together. Every clone is the same one.
#[derive(Clone, Default)]
pub struct Shutdown(Arc<State>);

#[derive(Default)]
struct State {
    running: TaskTracker,
    ending: watch::Sender<bool>,
    /// How often it was requested.
    requests: AtomicU64,
}

impl fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shutdown")
    }
}

impl Shutdown {
    /// Stops every child process and closes every session, and returns when none is left. Each gets the grace period that
    /// it has whenever it is stopped; none is started meanwhile.
    pub async fn run(&self) {
        self.0.requests.fetch_add(1, Ordering::AcqRel);
        self.0.ending.send_replace(true);
        self.0.running.close();
        self.0.running.wait().await;
        self.0.ending.send_replace(false);
    }

    pub(crate) fn is_running(&self) -> bool {
        *self.0.ending.borrow()
    }

    /// Runs work that has to finish before the process exits. It has to end soon after [`Shutdown::requested`].
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.0.running.spawn(work)
    }

    /// Returns how often shutdown was requested, for a caller that may miss the whole of one.
    pub(crate) fn requests(&self) -> u64 {
        self.0.requests.load(Ordering::Acquire)
    }

    /// Resolves when shutdown is requested.
    pub(crate) async fn requested(&self) {
        // The sender is part of this value, so it cannot be gone.
        let _ = self.0.ending.subscribe().wait_for(|ending| *ending).await.is_ok();
    }
}
