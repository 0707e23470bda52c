//! Owners: the clients on whose behalf the hub acts, looked up for every call.
//!
//! A schedule, a conversation or a waiting call outlives the moment in which its client was authenticated. What the client may do
//! now is known only to the directory of clients, so nothing that lasts holds a scope of its own.

use crate::call::Client;
use std::sync::Arc;

/// Names one client: a name that was revoked and issued again has another token, and is another owner. Small, and made of
/// what a table can hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnerId {
    pub name: String,
    /// As [`Client::token`]; `None` for the local client.
    pub token: Option<u64>,
}

impl OwnerId {
    pub fn of(client: &Client) -> OwnerId {
        OwnerId { name: client.name.clone(), token: client.token }
    }

    /// Returns whether this is the client of that name and token.
    pub fn is(&self, client: &Client) -> bool {
        self.name == client.name && self.token == client.token
    }
}

/// The clients that may act now.
pub trait Owners: Send + Sync {
    /// Returns the owner with its present scope; `None` if it was revoked, has expired, or cannot be looked up.
    ///
    /// Called for every call of the hub's own, so it answers from memory.
    fn current(&self, owner: &OwnerId) -> Option<Arc<Client>>;
}

/// One client that never changes, for a hub that has only this one.
impl Owners for Arc<Client> {
    fn current(&self, owner: &OwnerId) -> Option<Arc<Client>> {
        owner.is(self).then(|| self.clone())
    }
}

/// No owners: what a gate has that was given none.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoOwners;

impl Owners for NoOwners {
    fn current(&self, _: &OwnerId) -> Option<Arc<Client>> {
        None
    }
}
