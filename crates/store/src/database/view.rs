//! Views: what a topic means, in memory.

use super::engine::Shared;
use super::{Topic, Transaction, wait};
use arc_swap::{ArcSwap, Guard};
use futures::future::BoxFuture;
use std::sync::Arc;
use tokio::sync::watch;

/// Reads what a topic means. An error is told in words, and nobody goes by the topic until it is mended.
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

    /// Returns the snapshot. No I/O, unless the process was stopped for longer than a snapshot is good for.
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

    fn refresh(&self, transaction: &mut Transaction<'_>, version: i64);
}

pub(super) struct CachedTopic<T> {
    topic: Topic,
    load: Load<T>,
    snapshot: ArcSwap<Snapshot<T>>,
    changed: watch::Sender<()>,
}

impl<T> CachedTopic<T> {
    pub(super) fn new(topic: Topic, load: Load<T>) -> CachedTopic<T> {
        let unread = Snapshot { version: 0, known: Err("the database was not read yet".to_owned()) };
        CachedTopic { topic, load, snapshot: ArcSwap::from_pointee(unread), changed: watch::Sender::new(()) }
    }
}

impl<T: Send + Sync> Refresh for CachedTopic<T> {
    fn topic(&self) -> Topic {
        self.topic
    }

    fn refresh(&self, transaction: &mut Transaction<'_>, version: i64) {
        let known = wait((self.load)(transaction));
        self.snapshot.store(Arc::new(Snapshot { version, known }));
        self.changed.send_replace(());
    }
}
