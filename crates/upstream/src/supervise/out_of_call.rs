//! Messages outside of calls: logs, updates and roots requests of a server, and changed roots of its clients.

use super::per_client::PerClientServers;
use super::server::UpstreamServer;
use crate::rpc::UnsolicitedHandler;
use portcullis_core::{BoxFuture, ClientBridge, ConnectedClients, InputResponse, LogMessage};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// Changes within this time are debounced into one.
const DEBOUNCE: Duration = Duration::from_millis(200);

/// The clients that a server speaks to outside of calls.
pub(crate) struct Audience {
    pub(crate) clients: ClientBridge,
    /// Whether a client has other roots, and the server does not know yet.
    roots_changed: AtomicBool,
}

impl Audience {
    pub(crate) fn new(clients: ClientBridge) -> Audience {
        Audience { clients, roots_changed: AtomicBool::new(false) }
    }
}

impl UpstreamServer {
    /// Returns the clients that get its messages; of a per-client server only that one. A server that is not trusted has
    /// none, nor has the shared one whose clients each have their own.
    fn recipients(&self) -> Option<(Arc<dyn ConnectedClients>, Option<&str>)> {
        if self.spec.per_client.is_some() || !self.catalog.is_trusted(&self.spec) {
            return None;
        }
        Some((self.audience.clients.clients()?, self.client.as_deref()))
    }

    fn roots_changed(&self) {
        // First: the supervisor checks it after connecting.
        self.audience.roots_changed.store(true, Ordering::SeqCst);
        self.announce_roots();
    }

    /// Notifies the server of changed roots, as soon as it is connected.
    pub(crate) fn announce_roots(&self) {
        let Some(connection) = self.reach.live.get() else { return };
        // The newer era asks when it needs to know.
        if self.audience.roots_changed.swap(false, Ordering::SeqCst)
            && connection.dialect().notifies_of_roots()
        {
            connection.notify("notifications/roots/list_changed", &json!({}));
        }
    }
}

impl UnsolicitedHandler for UpstreamServer {
    fn watched(&self) -> BTreeSet<String> {
        self.subscriptions.uris()
    }

    fn watched_of(&self, uri: &str) -> Vec<String> {
        self.subscriptions.watched_of(uri)
    }

    fn log(&self, message: &LogMessage) {
        if let Some((clients, to)) = self.recipients() {
            clients.log(&self.spec.name, to, message);
        }
    }

    fn updated(&self, uri: &str, watched: Vec<String>, params: Map<String, Value>) -> bool {
        let Some((clients, to)) = self.recipients() else { return false };
        clients.updated(to, uri, watched, params);
        true
    }

    fn roots(self: Arc<Self>) -> BoxFuture<'static, Option<InputResponse>> {
        Box::pin(async move {
            let (clients, of) = self.recipients()?;
            clients.roots(&self.spec.name, of).await
        })
    }
}

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
