//! Removing a server from the configuration, with all that the hub keeps about it.

use super::action;
use super::login::{EndingLogin, LogoutResult, logout_listing, logout_sentence};
use crate::config::{McpServerSettings, remove_server};
use crate::config_file::ServerEditError;
use crate::context::Operations;
use crate::home::environment;
use crate::login::{self, ServerLogin};
use crate::secret_store::PassphrasePrompt;
use crate::{Actor, Problem};
use anyhow::Context;
use portcullis_server::local;
use portcullis_store::secrets::SecretError;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

/// A server that was removed. Its login is still to be ended.
#[must_use = "its login is still to be ended"]
pub struct RemovedServer {
    name: String,
    /// The configuration file.
    path: PathBuf,
    was_trusted: bool,
    /// Why it is not known whether it had a login, if so.
    unchecked_login: Option<SecretError>,
    /// The login to end now.
    login: Option<EndingLogin>,
}

/// What the removal of a server did.
pub struct ServerRemoval {
    name: String,
    path: PathBuf,
    was_trusted: bool,
    unchecked_login: Option<SecretError>,
    logout: Option<LogoutResult>,
}

impl Operations {
    /// Removes a server and revokes its trust. Its login is still to be ended.
    pub fn remove_server(&self, name: &str, by: &Actor) -> Result<RemovedServer, Problem> {
        self.record(by, action::REMOVE, json!({ "name": name }), || Ok(self.remove_from_config(name)?))
    }

    fn remove_from_config(&self, name: &str) -> Result<RemovedServer, ServerEditError> {
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
        // A local command has a login only by mistake.
        let unchecked_login = unchecked_login.filter(|_| server.is_some_and(|server| !server.is_local()));
        if self.live.is_none()
            && let Err(error) = self.clear_removal(name)
        {
            // The next hub retries.
            tracing::debug!(target: "upstream", server = name, %error, "state of a removed server not cleared yet");
        }
        Ok(RemovedServer { name: name.to_owned(), path, was_trusted, unchecked_login, login })
    }

    /// Clears the state of a removed server, if no hub runs. A running hub does so after its reload.
    pub(super) fn clear_removal(&self, name: &str) -> anyhow::Result<()> {
        // Held meanwhile: a hub that starts later reads the current configuration.
        let claim = local::claim(self.home.path()).context("the lock of the home folder")?;
        if claim.is_some() {
            self.server_factory()?.toggles.forget_removed(name)?;
        }
        Ok(())
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
    /// Logs out, and revokes the tokens where possible.
    pub async fn end_login(self) -> ServerRemoval {
        let RemovedServer { name, path, was_trusted, unchecked_login, login } = self;
        let logout = match login {
            Some(login) => Some(login.end().await),
            None => None,
        };
        ServerRemoval { name, path, was_trusted, unchecked_login, logout }
    }
}

impl ServerRemoval {
    /// Returns what was done, in whole sentences.
    pub fn sentences(&self) -> Vec<String> {
        let (name, path) = (&self.name, self.path.display());
        let removed = format!("Removed server `{name}` from {path} and revoked its trust.");
        let logout = self.logout.as_ref().and_then(|logout| logout_sentence(name, logout));
        [Some(removed), logout].into_iter().flatten().collect()
    }

    /// Returns what is left to do, if it is not known whether the server had a login.
    pub fn note(&self) -> Option<String> {
        let (name, error) = (&self.name, self.unchecked_login.as_ref()?);
        Some(format!(
            "Could not check for a login of `{name}`: {error}. To log out: portcullis mcp logout {name}"
        ))
    }

    /// Returns the removal as `--json` prints it.
    pub fn listing(&self) -> Value {
        let mut value = json!({ "removed": self.name, "was_trusted": self.was_trusted, "file": self.path });
        if let Some(logout) = &self.logout {
            value["login"] = logout_listing(logout);
        }
        value
    }
}
