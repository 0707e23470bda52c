//! Changed roots of clients: the servers concerned are notified, debounced.

use super::per_client::PerClientServers;
use super::server::UpstreamServer;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// Changes within this time are debounced into one.
const DEBOUNCE: Duration = Duration::from_millis(200);

/// Notifies a server, or the per-client servers concerned, of changed roots until it is no longer wanted.
pub(crate) async fn watch_roots(
    shared: Arc<UpstreamServer>,
    own: Option<Arc<PerClientServers>>,
    mut changed: broadcast::Receiver<Arc<str>>,
) {
    loop {
        let first = tokio::select! {
            first = changed.recv() => first,
            () = shared.stop.cancelled() => return,
        };
        let (mut clients, mut missed) = (BTreeSet::new(), false);
        match first {
            Ok(client) => drop(clients.insert(client)),
            Err(RecvError::Lagged(_)) => missed = true,
            Err(RecvError::Closed) => return,
        }
        tokio::time::sleep(DEBOUNCE).await;
        loop {
            match changed.try_recv() {
                Ok(client) => drop(clients.insert(client)),
                Err(TryRecvError::Lagged(_)) => missed = true,
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        match &own {
            None => shared.roots_changed(),
            Some(own) if missed => own.all().iter().for_each(|server| server.roots_changed()),
            Some(own) => {
                let concerned = clients.iter().filter_map(|client| own.running(client));
                concerned.for_each(|server| server.roots_changed());
            }
        }
    }
}
