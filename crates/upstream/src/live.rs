//! The connection that a server has now, for those who use it and those who wait for it.

use crate::connection::Connection;
use arc_swap::ArcSwapOption;
use std::sync::Arc;
use tokio::sync::watch;

#[derive(Default)]
pub(crate) struct Live {
    now: ArcSwapOption<Connection>,
    /// Told after every change. Calls read `now` alone, which costs them no lock.
    changed: watch::Sender<()>,
}

impl Live {
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

    /// Lets go of this connection, unless another has taken its place already. Returns whether it was the one.
    pub(crate) fn give_up(&self, connection: &Arc<Connection>) -> bool {
        let current = Some(connection.clone());
        let before = self.now.compare_and_swap(&current, None);
        let was_it = before.as_ref().is_some_and(|before| Arc::ptr_eq(before, connection));
        if was_it {
            self.changed.send_replace(());
        }
        was_it
    }

    /// Returns what is told after every change from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::RequestError;
    use crate::inbox::Inbox;
    use crate::link::{Link, Outgoing};
    use futures::future::BoxFuture;

    struct Nowhere;

    impl Link for Nowhere {
        fn send<'a>(&'a self, _: Outgoing<'a>) -> BoxFuture<'a, Result<(), RequestError>> {
            Box::pin(async { Ok(()) })
        }
    }

    fn connection() -> Arc<Connection> {
        Arc::new(Connection::new(Arc::new(Nowhere), Inbox::new().0))
    }

    #[test]
    fn an_old_connection_does_not_take_a_new_one_with_it() {
        let (live, old, new) = (Live::default(), connection(), connection());
        live.put(&old);
        let told = live.watch();
        // What another task does between a look at the old one and the word that it is over.
        live.put(&new);
        assert!(!live.give_up(&old));
        assert!(live.get().is_some_and(|now| Arc::ptr_eq(&now, &new)));
        assert!(live.give_up(&new) && !live.is_there() && !live.give_up(&new));
        assert!(told.has_changed().unwrap());
    }
}
