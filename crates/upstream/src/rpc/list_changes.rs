//! Change detection for lists: how often the server announced a change, and up to which announcement they were read.

use super::list_kind::ListKind;
use super::pending_notifications::PendingNotifications;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Clone, Copy, Default)]
struct ListChangeCounters {
    announced: u64,
    read: u64,
}

pub(crate) struct ListChanges {
    counters: watch::Sender<ListChangeCounters>,
    /// What the supervisor takes the announcements from.
    pub(super) notifications: Arc<PendingNotifications>,
}

impl ListChanges {
    pub(super) fn new(notifications: Arc<PendingNotifications>) -> ListChanges {
        ListChanges { counters: watch::Sender::default(), notifications }
    }

    /// Takes note of an announcement. Returns whether it was new.
    pub(super) fn announced(&self, list: ListKind) -> bool {
        // First: a reader of the counter finds the announcement.
        let is_needed = self.notifications.changed(list);
        if list != ListKind::Resources {
            // At once: a call that comes after this must not be made by the definitions before it.
            self.count();
        }
        is_needed
    }

    /// Takes note of a gap in the notifications. These watched resources, and every list, may have changed.
    pub(super) fn missed(&self, watched: impl IntoIterator<Item = String>) {
        for uri in watched {
            self.notifications.updated(uri);
        }
        self.notifications.missed();
        self.count();
    }

    fn count(&self) {
        self.counters.send_modify(|counters| counters.announced += 1);
    }

    /// Returns how many announcements there were, for [`ListChanges::set_read`].
    pub(crate) fn announcements(&self) -> u64 {
        self.counters.borrow().announced
    }

    /// Takes note that the lists were read after so many announcements.
    pub(crate) fn set_read(&self, announcements: u64) {
        self.counters.send_modify(|counters| counters.read = announcements);
    }

    /// Returns whether the lists were read since the last announcement, as they nearly always were.
    pub(crate) fn is_up_to_date(&self) -> bool {
        let now = *self.counters.borrow();
        now.read >= now.announced
    }

    /// Waits until the lists are read, as long as that may happen. Returns whether they were.
    pub(crate) async fn up_to_date(&self, within: Duration, retired: &CancellationToken) -> bool {
        let mut counters = self.counters.subscribe();
        let announced = counters.borrow().announced;
        let read = counters.wait_for(|counters| counters.read >= announced);
        tokio::select! {
            biased;
            read = tokio::time::timeout(within, read) => matches!(read, Ok(Ok(_))),
            () = retired.cancelled() => false,
        }
    }
}
