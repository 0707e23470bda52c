//! Removing a server from the configuration, with all that the hub keeps about it.

use super::action;
use super::login::EndingLogin;
use crate::config::{McpServerSettings, remove_server};
use crate::config_file::ServerEditError;
use crate::context::Operations;
use crate::home::environment;
use crate::login::{self, ServerLogin};
use crate::secret_store::PassphrasePrompt;
use crate::{Actor, Problem};
use portcullis_store::secrets::SecretError;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

/// A server that was removed.
pub struct RemovedServer {
    /// The configuration file.
    pub path: PathBuf,
    pub was_trusted: bool,
    /// Why it is not known whether it had a login, if so.
    pub unchecked_login: Option<SecretError>,
    /// The login to end now.
    pub login: Option<EndingLogin>,
}

impl Operations {
    /// Removes a server and revokes its trust. Its login is still to be ended.
    pub fn remove_server(&self, name: &str, by: &Actor) -> Result<RemovedServer, Problem> {
        self.record(by, action::REMOVE, json!({ "name": name }), || Ok(self.take_out(name)?))
    }

    fn take_out(&self, name: &str) -> Result<RemovedServer, ServerEditError> {
        let config = self.config();
        let server = config.mcp.iter().find(|server| server.name == name);
        // Found first: afterwards the configuration knows nothing of it.
        let login = server.map(|server| self.login_of_removed(server)).transpose()?.flatten();
        let path = remove_server(self.home.path(), &environment, name)?;
        let factory = self.server_factory()?;
        let was_trusted = factory.forget(name)?;
        // A locked store keeps its tokens; that does not prevent the removal.
        let mut unchecked_login = None;
        let orphaned = || match login::forget_orphaned(&factory.secrets, name) {
            Ok(had) => had.then_some(EndingLogin::Orphaned),
            Err(error) => {
                unchecked_login = Some(error);
                None
            }
        };
        let login = login.map(EndingLogin::Known).or_else(orphaned);
        Ok(RemovedServer { path, was_trusted, unchecked_login, login })
    }

    /// Returns the login of a configured server, also of one that needs none any more.
    fn login_of_removed(
        &self,
        server: &McpServerSettings,
    ) -> Result<Option<Arc<ServerLogin>>, ServerEditError> {
        let to_end = |secrets| {
            login::to_end(server, &self.config(), secrets, self.server_shutdown().clone()).map(Arc::new)
        };
        if let Some(live) = &self.live {
            // A disabled server may have a login too.
            let running = live.servers.login(&server.name);
            return Ok(running.or_else(|| to_end(live.servers.makers.secrets.clone())));
        }
        if server.oauth.is_some() {
            return Ok(Some(Arc::new(self.open_login(&self.config(), server, PassphrasePrompt::ToOpen)?)));
        }
        Ok(to_end(self.server_factory()?.secrets.clone()))
    }
}

impl RemovedServer {
    /// Returns what was done, in one sentence.
    pub fn sentence(&self, name: &str) -> String {
        format!("Removed server `{name}` from {} and revoked its trust.", self.path.display())
    }
}
