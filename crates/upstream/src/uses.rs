//! Whether anybody needs a server now, and since when nobody has.

use crate::server::Server;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) struct Uses {
    under_way: AtomicUsize,
    /// How many there ever were.
    ever: AtomicU64,
    last: Mutex<Instant>,
    /// Whether its client has no session any more. Means something only for a server of one client's own.
    left: AtomicBool,
    /// Whether its client ever came without a session. Then nobody can tell when it has gone.
    sessionless: AtomicBool,
    /// Told when the first one comes, when the last one goes, and when the client has left.
    pub(crate) changed: Notify,
}

impl Default for Uses {
    fn default() -> Uses {
        Uses {
            under_way: AtomicUsize::new(0),
            ever: AtomicU64::new(0),
            last: Mutex::new(Instant::now()),
            left: AtomicBool::new(false),
            sessionless: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }
}

impl Uses {
    pub(crate) fn any(&self) -> bool {
        self.under_way.load(Ordering::Acquire) > 0
    }

    pub(crate) fn ever(&self) -> u64 {
        self.ever.load(Ordering::Acquire)
    }

    pub(crate) fn last(&self) -> Instant {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touch(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Waits until somebody needs the server.
    pub(crate) async fn needed(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on nobody comes unheard.
            changed.as_mut().enable();
            if self.any() {
                return;
            }
            changed.await;
        }
    }

    /// Hears that the client came without a session.
    pub(crate) fn without_session(&self) {
        self.sessionless.store(true, Ordering::Release);
    }

    /// Hears that the client has closed its last session.
    pub(crate) fn leaves(&self) {
        self.left.store(!self.sessionless.load(Ordering::Acquire), Ordering::Release);
        self.changed.notify_waiters();
    }

    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }
}

/// Somebody needs the server as long as this is held.
pub(crate) struct Use(Arc<Server>);

impl Use {
    pub(crate) fn of(server: &Arc<Server>) -> Use {
        let uses = &server.uses;
        uses.ever.fetch_add(1, Ordering::AcqRel);
        uses.left.store(false, Ordering::Release);
        // One more or less of several is no news.
        if uses.under_way.fetch_add(1, Ordering::AcqRel) == 0 {
            uses.changed.notify_waiters();
        }
        Use(server.clone())
    }
}

impl Deref for Use {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let uses = &self.0.uses;
        uses.touch();
        if uses.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            uses.changed.notify_waiters();
        }
    }
}
