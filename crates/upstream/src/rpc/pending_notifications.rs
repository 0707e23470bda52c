//! Pending notifications, coalesced: changed lists and resources that the supervisor has not handled yet.
//!
//! A storm of the same notification takes the room of one, and displaces no other.

use crate::rpc::ListKind;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use tokio::sync::Notify;

/// How much room the URIs of changed resources may take. Far more than any supervisor leaves pending.
const UPDATED_BYTES_MAX: usize = 1024 * 1024;
/// The overhead of one URI.
const UPDATED_BYTES_EACH: usize = 64;
/// How many announcements of changed lists count as useful between two reads.
const OFTEN_MAX: usize = 64;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NotificationBatch {
    /// The lists that changed.
    pub(crate) lists: BTreeSet<ListKind>,
    /// How often that was announced.
    pub(crate) often: usize,
    /// The URIs of changed resources.
    pub(crate) updated: BTreeSet<String>,
    updated_bytes: usize,
    /// Whether notifications were interrupted, so that any list may have changed.
    pub(crate) missed: bool,
}

impl NotificationBatch {
    fn is_empty(&self) -> bool {
        self.lists.is_empty() && self.updated.is_empty() && !self.missed
    }
}

/// Filled by the demultiplexer, taken by the supervisor.
#[derive(Default)]
pub(crate) struct PendingNotifications {
    batch: Mutex<NotificationBatch>,
    news: Notify,
}

impl PendingNotifications {
    /// Adds a changed list. Returns whether that was useful.
    pub(crate) fn changed(&self, list: ListKind) -> bool {
        let mut batch = self.batch.lock();
        let is_news = batch.lists.insert(list);
        batch.often = batch.often.saturating_add(1);
        let is_needed = is_news || batch.often <= OFTEN_MAX;
        drop(batch);
        self.news.notify_one();
        is_needed
    }

    /// Adds a changed resource. Returns whether that was useful.
    pub(crate) fn updated(&self, uri: String) -> bool {
        let mut batch = self.batch.lock();
        let bytes = batch.updated_bytes + uri.len() + UPDATED_BYTES_EACH;
        if batch.updated.contains(&uri) {
            return false;
        }
        if bytes > UPDATED_BYTES_MAX {
            tracing::debug!(target: "upstream", "too many changed resources; update dropped");
            return false;
        }
        batch.updated_bytes = bytes;
        batch.updated.insert(uri);
        drop(batch);
        self.news.notify_one();
        true
    }

    /// Takes note that notifications were interrupted.
    pub(crate) fn missed(&self) {
        self.batch.lock().missed = true;
        self.news.notify_one();
    }

    /// Returns whether lists have to be read.
    pub(crate) fn waits_for_lists(&self) -> bool {
        let batch = self.batch.lock();
        !batch.lists.is_empty() || batch.missed
    }

    /// Waits until there is something to take.
    pub(crate) async fn news(&self) {
        while self.batch.lock().is_empty() {
            self.news.notified().await;
        }
    }

    pub(crate) fn take(&self) -> NotificationBatch {
        std::mem::take(&mut *self.batch.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_storm_hides_nothing_that_differs() {
        let pending = PendingNotifications::default();
        for number in 0..1_000 {
            assert!(pending.updated(format!("x://{number}")));
            pending.changed(ListKind::Tools);
        }
        assert!(!pending.updated("x://7".to_owned()) && !pending.changed(ListKind::Tools));
        assert!(pending.changed(ListKind::Resources));
        pending.news().await;
        let taken = pending.take();
        assert_eq!(taken.lists, BTreeSet::from([ListKind::Tools, ListKind::Resources]));
        assert_eq!((taken.updated.len(), taken.often), (1_000, 1_002));
        assert_eq!(pending.take(), NotificationBatch::default());
        // Once taken, it is news again.
        assert!(pending.updated("x://7".to_owned()));
    }

    #[test]
    fn addresses_take_no_more_room_than_they_may() {
        let pending = PendingNotifications::default();
        let long = "x".repeat(UPDATED_BYTES_MAX / 4);
        let batch = (0..10).filter(|number| pending.updated(format!("{number}{long}"))).count();
        assert_eq!(batch, 3);
        assert!(!pending.updated("x".repeat(UPDATED_BYTES_MAX)));
        pending.take();
        assert!(pending.updated(long));
    }
}
