//! A server that does not run now, for the clients that had asked to be told of changes there.
//!
//! It owns just those addresses, and only for those clients: so somebody hears when they want no more, and the server that
//! runs next is told of the others.

use portcullis_core::{BoxFuture, Call, Catalog, Outcome, Owns, Permit, Provider, ToolError, Unruled};
use portcullis_upstream::Upstream;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Clone)]
pub(super) struct Absent {
    name: Arc<str>,
    prefix: Arc<str>,
    unruled: Unruled,
    /// Addresses, and clients.
    watched: Arc<Mutex<BTreeSet<(String, String)>>>,
}

impl Absent {
    pub(super) fn of(server: &Upstream) -> Absent {
        Absent {
            name: server.name().into(),
            prefix: server.prefix().unwrap_or_default().into(),
            unruled: server.unruled(),
            watched: Arc::new(Mutex::new(server.watched())),
        }
    }

    pub(super) fn watched(&self) -> BTreeSet<(String, String)> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<(String, String)>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Provider for Absent {
    fn name(&self) -> &str {
        &self.name
    }

    fn catalog(&self) -> Catalog {
        Catalog::default()
    }

    fn prefix(&self) -> Option<&str> {
        // What is kept for the server is kept in the server's own rank.
        Some(&self.prefix)
    }

    fn is_known(&self) -> bool {
        // What the server itself will offer is not known from this.
        false
    }

    fn owns_resource(&self, uri: &str, client: &str) -> Owns {
        if self.lock().contains(&(uri.to_owned(), client.to_owned())) { Owns::Listed } else { Owns::Not }
    }

    fn unruled(&self) -> Unruled {
        self.unruled
    }

    fn watch(&self, uri: &str, client: &str, wanted: bool) {
        let one = (uri.to_owned(), client.to_owned());
        let mut watched = self.lock();
        if wanted {
            watched.insert(one);
        } else {
            watched.remove(&one);
        }
    }

    fn call(&self, _: Permit, _: Box<Call>) -> BoxFuture<'_, Outcome> {
        Box::pin(async { Err(ToolError::unavailable(format!("server `{}` is disabled", self.name))) })
    }
}
