//! Clients as the directory knows them now: their authentication, and on whose behalf the hub calls.

use portcullis_core::{Client, OwnerId, Owners};
use portcullis_server::{Authenticate, ClientsUnavailable, LocalClient};
use portcullis_store::clients::ClientDirectory;
use std::collections::HashMap;
use std::sync::Arc;

/// The owners of calls: the clients of the directory and the local one, as they are now.
pub struct LiveOwners {
    pub directory: Arc<ClientDirectory>,
    pub local: LocalClient,
}

impl Owners for LiveOwners {
    fn current(&self, owner: &OwnerId) -> Option<Arc<Client>> {
        // Only the local client has no token.
        if owner.token.is_none() { self.local.load().current(owner) } else { self.directory.current(owner) }
    }
}

/// Authenticates clients by the directory.
pub struct DirectoryAuthenticator(pub Arc<ClientDirectory>);

impl Authenticate for DirectoryAuthenticator {
    fn authenticate(&self, token: Option<&str>) -> Result<Option<Arc<Client>>, ClientsUnavailable> {
        token.map_or(Ok(None), |token| self.0.authenticate(token)).map_err(|_| ClientsUnavailable)
    }

    fn named(&self, name: &str) -> Result<Option<Arc<Client>>, ClientsUnavailable> {
        self.0.named(name).map_err(|_| ClientsUnavailable)
    }

    fn admitted(&self) -> Option<HashMap<String, Arc<Client>>> {
        self.0.admitted()
    }
}
