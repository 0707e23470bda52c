//! Placeholder of a stopped server: keeps its resource subscriptions.
//!
//! It owns only the subscribed URIs, for the subscribed clients, so that unsubscribes are handled and the next instance
//! gets the remaining subscriptions.

use parking_lot::Mutex;
use portcullis_core::{
    BoxFuture, Call, Catalog, DefaultDecision, Outcome, Permit, Provider, ResourceClaim, ToolError,
    WatchState,
};
use portcullis_upstream::{StatusKind, Upstream};
use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Clone)]
pub(super) struct AbsentServer {
    name: Arc<str>,
    prefix: Arc<str>,
    default_decision: DefaultDecision,
    /// URIs and their subscribers.
    watched: Arc<Mutex<BTreeSet<(String, String)>>>,
}

impl AbsentServer {
    pub(super) fn of(server: &Upstream) -> AbsentServer {
        AbsentServer {
            name: server.name().into(),
            prefix: server.prefix().unwrap_or_default().into(),
            default_decision: server.default_decision(),
            watched: Arc::new(Mutex::new(server.watched())),
        }
    }

    pub(super) fn watched(&self) -> BTreeSet<(String, String)> {
        self.watched.lock().clone()
    }
}

impl Provider for AbsentServer {
    fn name(&self) -> &str {
        &self.name
    }

    fn catalog(&self) -> Catalog {
        Catalog::default()
    }

    fn prefix(&self) -> Option<&str> {
        // Same rank as the server itself.
        Some(&self.prefix)
    }

    fn is_known(&self) -> bool {
        // Says nothing about what the server will provide.
        false
    }

    fn owns_resource(&self, uri: &str, client: &str) -> ResourceClaim {
        if self.watched.lock().contains(&(uri.to_owned(), client.to_owned())) {
            ResourceClaim::Listed
        } else {
            ResourceClaim::Not
        }
    }

    fn default_decision(&self) -> DefaultDecision {
        self.default_decision
    }

    fn watch(&self, uri: &str, client: &str, state: WatchState) {
        let one = (uri.to_owned(), client.to_owned());
        let mut watched = self.watched.lock();
        match state {
            WatchState::Wanted => watched.insert(one),
            WatchState::Ended => watched.remove(&one),
        };
    }

    fn call(&self, _: Permit, _: Box<Call>) -> BoxFuture<'_, Outcome> {
        Box::pin(async {
            Err(ToolError::unavailable(format!(
                "server `{}` {}",
                self.name,
                StatusKind::Disabled.predicate()
            )))
        })
    }
}
