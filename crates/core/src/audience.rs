//! The clients that are there, for a provider that has something to say or to ask while no call is under way.

use crate::context::{Answer, LogMessage};
use futures::future::BoxFuture;
use serde_json::{Map, Value};
use std::sync::{Arc, OnceLock, Weak};
use tokio::sync::broadcast;

/// How many clients may say that their folders changed before whoever cares has to look at all of them.
const ROOTS_QUEUED_MAX: usize = 64;

/// Those who know the clients. What goes to a client loses its secrets there.
pub trait Clients: Send + Sync {
    /// Asks a client for its folders, for a provider: the one of that name, or else the only one that offers to be asked, of
    /// those that see something of the provider. `None` where nobody can be asked, or nobody answers.
    fn roots<'a>(&'a self, provider: &'a str, of: Option<&'a str>) -> BoxFuture<'a, Option<Answer>>;

    /// Tells what a provider logs: to the client of that name, or else to all that see something of the provider.
    fn log(&self, provider: &str, to: Option<&str>, message: &LogMessage);

    /// Tells that a resource changed, in the words of whoever says so: to the client of that name, or else to all that
    /// watch one of `watched`, which the resource is itself or a part of.
    fn updated(&self, to: Option<&str>, uri: &str, watched: Vec<String>, said: Map<String, Value>);
}

/// Where providers meet the clients. Cheap to clone; every clone is the same. Until somebody knows the clients there are none.
#[derive(Clone)]
pub struct Audience(Arc<Inner>);

struct Inner {
    clients: OnceLock<Weak<dyn Clients>>,
    roots: broadcast::Sender<Arc<str>>,
}

impl Default for Audience {
    fn default() -> Audience {
        let (roots, _) = broadcast::channel(ROOTS_QUEUED_MAX);
        Audience(Arc::new(Inner { clients: OnceLock::new(), roots }))
    }
}

impl Audience {
    /// Says who knows the clients. Only the first counts.
    pub fn is_known_by(&self, clients: Weak<dyn Clients>) {
        let _ = self.0.clients.set(clients);
    }

    pub fn clients(&self) -> Option<Arc<dyn Clients>> {
        self.0.clients.get().and_then(Weak::upgrade)
    }

    /// Hears that a client has other folders than before.
    pub fn roots_changed(&self, client: &str) {
        // No listener is no fault.
        let _ = self.0.roots.send(client.into());
    }

    /// Returns where the names of such clients come.
    pub fn changed_roots(&self) -> broadcast::Receiver<Arc<str>> {
        self.0.roots.subscribe()
    }
}
