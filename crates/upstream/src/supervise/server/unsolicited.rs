//! Messages outside of calls: logs, updates and roots requests of a server, and changed roots of its clients.

use super::UpstreamServer;
use crate::rpc::UnsolicitedHandler;
use portcullis_core::{BoxFuture, ClientBridge, ConnectedClients, InputResponse, LogMessage};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

    pub(in crate::supervise) fn roots_changed(&self) {
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
