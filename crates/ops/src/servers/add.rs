//! Adding a server to the configuration.

use super::action;
use crate::config::{Config, EditError, NewServer, add_servers, preview_servers};
use crate::config_file::ServerEditError;
use crate::context::Operations;
use crate::home::environment;
use crate::{Actor, Problem};
use portcullis_core::json::printable;
use portcullis_interop::import;
use portcullis_store::pins::{ServerSnapshot, ToolReview};
use serde_json::json;
use std::path::PathBuf;

/// What a person has seen of a server that is added.
pub enum AddedServer<'a> {
    /// Nothing: it is disabled until its review.
    Unreviewed,
    /// Its command line or URL: it is enabled, and its tools are hidden until it is trusted.
    Untrusted,
    /// All that it provides, with the choices about its tools.
    Trusted(&'a ServerSnapshot, ToolReview),
}

/// A server that was added.
#[derive(Debug)]
pub struct ServerAddition {
    pub name: String,
    /// The configuration file.
    pub path: PathBuf,
    pub standing: ServerStanding,
}

/// What a server that was added may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerStanding {
    Disabled,
    Hidden,
    Trusted,
}

impl ServerAddition {
    /// Returns what was done, and what is left to do.
    pub fn sentence(&self) -> String {
        let (name, path) = (&self.name, self.path.display());
        match self.standing {
            ServerStanding::Disabled => {
                format!("Added server `{name}` to {path}, disabled until you trust it.")
            }
            ServerStanding::Hidden => format!(
                "Added server `{name}` to {path}. Its tools stay hidden until you trust it: portcullis mcp trust {name}"
            ),
            ServerStanding::Trusted => {
                format!("Added server `{name}` to {path}. It is trusted; later changes need review.")
            }
        }
    }
}

impl Operations {
    /// Validates the configuration with a server added. Writes nothing.
    pub fn preview_server(&self, new: &NewServer) -> Result<Config, EditError> {
        preview_servers(self.home.path(), &environment, std::slice::from_ref(new))
    }

    /// Writes a server to the configuration.
    pub fn add_server(
        &self,
        new: NewServer,
        added: AddedServer<'_>,
        by: &Actor,
    ) -> Result<ServerAddition, Problem> {
        // Arguments and headers may contain unregistered secrets, so they are no part of the record.
        let details = json!({ "name": new.name });
        self.record(by, action::ADD, details, || Ok(self.write_server(new, added, by)?))
    }

    fn write_server(
        &self,
        new: NewServer,
        added: AddedServer<'_>,
        by: &Actor,
    ) -> Result<ServerAddition, ServerEditError> {
        // Validated before anything is stored, so that a failure leaves nothing half done.
        self.preview_server(&new)?;
        let (factory, name) = (self.server_factory()?, new.name.clone());
        let write = || add_servers(self.home.path(), &environment, &[new]);
        // An earlier server of that name is another one: its trust and its switch are not for this one.
        let path = match &added {
            AddedServer::Unreviewed => {
                self.quarantine_server(&name)?;
                write()?
            }
            AddedServer::Untrusted | AddedServer::Trusted(..) => {
                let path = write()?;
                // A hub that has not reloaded yet would apply this to the removed one.
                if factory.toggles.of(&name).removed {
                    self.clear_removal(&name)?;
                } else {
                    factory.toggles.forget(&name).map_err(anyhow::Error::from)?;
                }
                factory.pins.revoke(&name).map_err(anyhow::Error::from)?;
                path
            }
        };
        let standing = match added {
            AddedServer::Unreviewed => ServerStanding::Disabled,
            AddedServer::Untrusted => ServerStanding::Hidden,
            AddedServer::Trusted(seen, chosen) => {
                factory
                    .pins
                    .trust(&name, seen.clone(), chosen, &by.to_string())
                    .map_err(anyhow::Error::from)?;
                ServerStanding::Trusted
            }
        };
        Ok(ServerAddition { name, path, standing })
    }

    /// Disables a server until its review. Comes before its configuration: a running hub must not start it in between.
    pub(super) fn quarantine_server(&self, name: &str) -> Result<(), Problem> {
        let factory = self.server_factory()?;
        factory.pins.revoke(name).map_err(anyhow::Error::from)?;
        factory.toggles.quarantine(name).map_err(anyhow::Error::from)?;
        Ok(())
    }
}

/// Warns about values in plain text, with the command to make them secrets.
pub fn plain_text_warnings(new: &NewServer) -> Vec<String> {
    let name = &new.name;
    let host = new.url.as_deref().map(import::host_of).unwrap_or_default();
    let env = new.env.iter().map(|pair| (pair, "env", format!("mcp.{name}:env")));
    let headers = new.headers.iter().map(|pair| {
        let grant = format!("{host}:{}", pair.0.to_ascii_lowercase());
        (pair, "headers", grant)
    });
    let all = env.chain(headers).filter(|((key, value), ..)| import::is_secret(key, value));
    let notes = all.map(|((key, value), place, grant)| {
        let scheme = if value.to_ascii_lowercase().starts_with("bearer ") { "Bearer " } else { "" };
        format!(
            "`{}` is in the configuration in plain text. To move it to the secret store: \
             portcullis secrets set NAME --grant '{grant}', then in `mcp.{name}.{place}`: {} = \"{scheme}secret:NAME\"",
            printable(key),
            printable(key)
        )
    });
    let mut notes: Vec<String> = notes.collect();
    // A URL with a password was refused before.
    let _ = import::in_clear(name, &new.args, new.url.as_deref(), &mut notes);
    notes
}
