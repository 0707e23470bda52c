//! Views: what a topic means, in memory.

use super::engine::Shared;
use super::{Topic, Transaction, wait};
use arc_swap::{ArcSwap, Guard};
use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// When a topic that could not be read is tried again: after half a second, and twice as late each time, up to a minute.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_DOUBLINGS: u32 = 7;

/// Reads what a topic means. An error is kept in words, and readers refuse until it is repaired.
pub type Load<T> =
    Box<dyn for<'t> Fn(&'t mut Transaction<'_>) -> BoxFuture<'t, Result<T, String>> + Send + Sync>;

/// What a topic meant when it was last read.
pub struct Snapshot<T> {
    /// Raised by each change; 0 if there never was one.
    pub version: i64,
    /// What the rows mean, or why they mean nothing.
    pub known: Result<T, String>,
}

/// A topic in memory, as fresh as the last change that any process of this machine was told is done.
pub struct View<T> {
    cached: Arc<CachedTopic<T>>,
    shared: Arc<Shared>,
}

impl<T: Send + Sync + 'static> View<T> {
    pub(super) fn new(cached: Arc<CachedTopic<T>>, shared: Arc<Shared>) -> View<T> {
        View { cached, shared }
    }

    /// Returns a receiver that is notified whenever the snapshot is replaced.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.cached.changed.subscribe()
    }

    /// Returns the snapshot. No I/O. After the process was stopped for longer than a snapshot is good for, this waits a
    /// moment until it was read again; where it cannot be read, the snapshot says why.
    pub fn current(&self) -> Guard<Arc<Snapshot<T>>> {
        if self.shared.is_fresh() {
            return self.cached.snapshot.load();
        }
        match self.shared.wait_until_fresh() {
            Ok(()) => self.cached.snapshot.load(),
            Err(why) => Guard::from_inner(Arc::new(Snapshot { version: 0, known: Err(why.to_string()) })),
        }
    }
}

/// What the engine refreshes.
pub(super) trait Refresh: Send + Sync {
    fn topic(&self) -> Topic;

    /// Returns the version that was last read; `None` if none was.
    fn version(&self) -> Option<i64>;

    /// Returns whether it could not be read, and it is time to try again.
    fn is_due(&self, now: Instant) -> bool;

    fn refresh(&self, transaction: &mut Transaction<'_>, version: i64);
}

pub(super) struct CachedTopic<T> {
    topic: Topic,
    load: Load<T>,
    snapshot: ArcSwap<Snapshot<T>>,
    changed: watch::Sender<()>,
    progress: Mutex<LoadProgress>,
}

#[derive(Default)]
struct LoadProgress {
    version: Option<i64>,
    /// How often it could not be read, and when to try again. An error may pass without a change of the topic.
    failures: u32,
    retry_at: Option<Instant>,
}

impl<T> CachedTopic<T> {
    pub(super) fn new(topic: Topic, load: Load<T>) -> CachedTopic<T> {
        let unread = Snapshot { version: 0, known: Err("the database was not read yet".to_owned()) };
        let (snapshot, changed) = (ArcSwap::from_pointee(unread), watch::Sender::new(()));
        CachedTopic { topic, load, snapshot, changed, progress: Mutex::default() }
    }

    fn progress(&self) -> MutexGuard<'_, LoadProgress> {
        self.progress.lock()
    }
}

impl<T: Send + Sync> Refresh for CachedTopic<T> {
    fn topic(&self) -> Topic {
        self.topic
    }

    fn version(&self) -> Option<i64> {
        self.progress().version
    }

    fn is_due(&self, now: Instant) -> bool {
        let progress = self.progress();
        progress.version.is_none() || progress.retry_at.is_some_and(|at| at <= now)
    }

    fn refresh(&self, transaction: &mut Transaction<'_>, version: i64) {
        let loaded = catch_unwind(AssertUnwindSafe(|| wait((self.load)(transaction))));
        let known = loaded.unwrap_or_else(|_| Err("reading the database failed unexpectedly".to_owned()));
        let mut progress = self.progress();
        progress.version = Some(version);
        (progress.failures, progress.retry_at) = match &known {
            Ok(_) => (0, None),
            Err(_) => {
                let wait = RETRY_MIN.saturating_mul(1 << progress.failures.min(RETRY_DOUBLINGS));
                (progress.failures + 1, Some(Instant::now() + wait))
            }
        };
        drop(progress);
        let before = self.snapshot.load();
        let is_same =
            before.version == version && matches!((&before.known, &known), (Err(a), Err(b)) if a == b);
        if !is_same {
            self.snapshot.store(Arc::new(Snapshot { version, known }));
            self.changed.send_replace(());
        }
    }
}
