//! Access to the connected clients for providers, outside of any call.

use crate::context::{InputResponse, LogMessage};
use futures::future::BoxFuture;
use serde_json::{Map, Value};
use std::sync::{Arc, OnceLock, Weak};
use tokio::sync::broadcast;

/// Queued "roots changed" events. A receiver that falls behind must refresh the roots of all clients.
const ROOTS_QUEUED_MAX: usize = 64;

/// The connected clients. Implementations redact secrets from everything they send.
pub trait ConnectedClients: Send + Sync {
    /// Requests `roots/list` from the named client, or else from the only capable client that sees something of the
    /// provider. `None` if no such client exists or it does not respond.
    fn roots<'a>(&'a self, provider: &'a str, of: Option<&'a str>) -> BoxFuture<'a, Option<InputResponse>>;

    /// Sends a provider's log message to the named client, or else to all that see something of the provider.
    fn log(&self, provider: &str, to: Option<&str>, message: &LogMessage);

    /// Sends `notifications/resources/updated` with `params` as the upstream server sent them: to the named client, or else
    /// to all with a subscription on one of `watched` (the resource itself or a parent of it).
    fn updated(&self, to: Option<&str>, uri: &str, watched: Vec<String>, params: Map<String, Value>);
}

/// Connects providers to the clients. Clones share state. Until [`ClientBridge::attach`] there are no clients.
#[derive(Clone)]
pub struct ClientBridge(Arc<Inner>);

struct Inner {
    clients: OnceLock<Weak<dyn ConnectedClients>>,
    roots: broadcast::Sender<Arc<str>>,
}

impl Default for ClientBridge {
    fn default() -> ClientBridge {
        let (roots, _) = broadcast::channel(ROOTS_QUEUED_MAX);
        ClientBridge(Arc::new(Inner { clients: OnceLock::new(), roots }))
    }
}

impl ClientBridge {
    /// Sets the source of clients. Only the first call counts.
    pub fn attach(&self, clients: Weak<dyn ConnectedClients>) {
        let _ = self.0.clients.set(clients);
    }

    pub fn clients(&self) -> Option<Arc<dyn ConnectedClients>> {
        self.0.clients.get().and_then(Weak::upgrade)
    }

    /// Reports that a client's roots changed.
    pub fn roots_changed(&self, client: &str) {
        // It is fine if nothing is subscribed.
        let _ = self.0.roots.send(client.into());
    }

    /// Subscribes to the names of clients whose roots changed.
    pub fn changed_roots(&self) -> broadcast::Receiver<Arc<str>> {
        self.0.roots.subscribe()
    }
}
