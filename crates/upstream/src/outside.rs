//! What a server tells and asks while no call is under way, and how it hears that clients have other folders.

use crate::own::Own;
use crate::server::Server;
use portcullis_core::{Answer, Clients, LogMessage};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// Changes that come closer together are told as one.
const DAMPED: Duration = Duration::from_millis(200);

impl Server {
    /// Returns those who hear it, and which of them if it is one client's own. Nobody hears one that no person has let in, nor
    /// one that only says what those of the clients are to offer.
    fn heard_by(&self) -> Option<(Arc<dyn Clients>, Option<&str>)> {
        if self.spec.per_client.is_some() || !self.is_trusted() {
            return None;
        }
        Some((self.audience.clients()?, self.client.as_deref()))
    }

    /// Asks for the folders of its client.
    pub(crate) async fn roots(&self) -> Option<Answer> {
        let (clients, of) = self.heard_by()?;
        clients.roots(&self.spec.name, of).await
    }

    pub(crate) fn log(&self, message: &LogMessage) {
        if let Some((clients, to)) = self.heard_by() {
            clients.log(&self.spec.name, to, message);
        }
    }

    /// Tells of a resource in the server's own words. Returns whether somebody could be told.
    pub(crate) fn updated(&self, uri: &str, watched: Vec<String>, said: Map<String, Value>) -> bool {
        let Some((clients, to)) = self.heard_by() else { return false };
        clients.updated(to, uri, watched, said);
        true
    }

    fn roots_changed(&self) {
        // First: whoever connects it looks afterwards.
        self.roots_news.store(true, Ordering::SeqCst);
        self.tell_roots();
    }

    /// Tells that a client has other folders, as soon as there is somebody to tell.
    pub(crate) fn tell_roots(&self) {
        let Some(connection) = self.live.get() else { return };
        // The newer era asks when it needs to know.
        if self.roots_news.swap(false, Ordering::SeqCst) && !connection.is_modern() {
            connection.notify("notifications/roots/list_changed", &json!({}));
        }
    }
}

/// Tells a server, or those of the clients that it concerns, when clients have other folders. Until it is no longer wanted.
pub(crate) async fn tell_roots(
    shared: Arc<Server>,
    own: Option<Arc<Own>>,
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
        tokio::time::sleep(DAMPED).await;
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
