//! The current connection of a server, read without a lock, and awaited by calls.

use crate::rpc::Connection;
use arc_swap::ArcSwapOption;
use std::sync::Arc;
use tokio::sync::watch;

#[derive(Default)]
pub(crate) struct LiveConnection {
    now: ArcSwapOption<Connection>,
    /// Notified after every change. Calls read `now` alone, which costs them no lock.
    changed: watch::Sender<()>,
}

impl LiveConnection {
    pub(crate) fn get(&self) -> Option<Arc<Connection>> {
        self.now.load_full()
    }

    pub(crate) fn is_there(&self) -> bool {
        self.now.load().is_some()
    }

    pub(crate) fn put(&self, connection: &Arc<Connection>) {
        self.now.store(Some(connection.clone()));
        self.changed.send_replace(());
    }

    pub(crate) fn clear(&self) {
        self.now.store(None);
        self.changed.send_replace(());
    }

    /// Drops this connection, unless another has replaced it. Returns whether it was the current one.
    pub(crate) fn give_up(&self, connection: &Arc<Connection>) -> bool {
        let current = Some(connection.clone());
        let before = self.now.compare_and_swap(&current, None);
        let was_it = before.as_ref().is_some_and(|before| Arc::ptr_eq(before, connection));
        if was_it {
            self.changed.send_replace(());
        }
        was_it
    }

    /// Returns a receiver of every change from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::Demux;
    use crate::transport::test_link::NullLink;

    fn connection() -> Arc<Connection> {
        Arc::new(Connection::new(Arc::new(NullLink), Demux::new().0))
    }

    #[test]
    fn an_old_connection_does_not_take_a_new_one_with_it() {
        let (live, old, new) = (LiveConnection::default(), connection(), connection());
        live.put(&old);
        let changes = live.watch();
        // Another task reconnects between a look at the old one and its end.
        live.put(&new);
        assert!(!live.give_up(&old));
        assert!(live.get().is_some_and(|now| Arc::ptr_eq(&now, &new)));
        assert!(live.give_up(&new) && !live.is_there() && !live.give_up(&new));
        assert!(changes.has_changed().unwrap());
    }
}
