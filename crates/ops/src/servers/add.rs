//! Adding a server to the configuration.

use crate::Problem;
use crate::config::{Config, EditError, NewServer, add_servers, preview_servers};
use crate::config_file::ServerEditError;
use crate::context::Operations;
use crate::home::environment;
use portcullis_core::json::printable;
use portcullis_interop::import;
use portcullis_store::pins::ServerSnapshot;
use std::path::PathBuf;

/// What a person has seen of a server that is added.
pub enum AddedServer<'a> {
    /// Nothing: it is disabled until its review.
    Unreviewed,
    /// Its command line or URL: it is enabled, and its tools are hidden until it is trusted.
    Untrusted,
    /// All that it provides.
    Trusted { seen: &'a ServerSnapshot, by: &'a str },
}

impl Operations {
    /// Validates the configuration with a server added. Writes nothing.
    pub fn preview_server(&self, new: &NewServer) -> Result<Config, EditError> {
        preview_servers(self.home.path(), &environment, std::slice::from_ref(new))
    }

    /// Writes a server to the configuration. Returns the file.
    pub fn add_server(&self, new: NewServer, added: AddedServer<'_>) -> Result<PathBuf, ServerEditError> {
        // Validated before anything is stored, so that a failure leaves nothing half done.
        self.preview_server(&new)?;
        let (factory, name) = (self.server_factory()?, new.name.clone());
        let write = || add_servers(self.home.path(), &environment, &[new]);
        // An earlier server of that name is another one: its trust and its switch are not for this one.
        let path = match added {
            AddedServer::Unreviewed => {
                self.quarantine_server(&name)?;
                write()?
            }
            AddedServer::Untrusted | AddedServer::Trusted { .. } => {
                let path = write()?;
                // A hub that has not reloaded yet would apply this to the removed one.
                if !factory.toggles.of(&name).removed {
                    factory.toggles.forget(&name).map_err(anyhow::Error::from)?;
                }
                factory.pins.revoke(&name).map_err(anyhow::Error::from)?;
                path
            }
        };
        if let AddedServer::Trusted { seen, by } = added {
            factory.pins.trust(&name, seen.clone(), by).map_err(anyhow::Error::from)?;
        }
        Ok(path)
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
