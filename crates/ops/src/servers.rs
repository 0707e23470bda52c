//! Upstream servers: enable, disable, restart, revoke trust; each other operation has its own module.
//!
//! Every operation records itself. What a person is asked before is no part of the record.

mod action;
pub mod add;
mod cleared_environment;
pub mod import;
mod invocation;
pub mod login;
pub mod probe;
pub mod remove;
mod review_choices;
mod status;
pub mod trial;
pub mod trust;

pub use cleared_environment::{EnvRemedy, cleared_environment_hint};
pub use invocation::{reached, runs_with};
pub use review_choices::ReviewChoices;
pub use status::{ServerStatusReport, sign_in_hint, status_label, unchosen_effects};

use crate::config::{Config, EditError, McpServerSettings};
use crate::config_file::edit_problem;
use crate::context::Operations;
use crate::desk::SwitchServer;
use crate::mcp::ServerFactory;
use crate::{Actor, Problem, with_causes};
use serde_json::json;

/// What revoking trust changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RevokedTrust {
    pub was_trusted: bool,
    /// Whether the configuration still trusts the server.
    pub always_trusted: bool,
}

impl RevokedTrust {
    /// Returns what was done, in one sentence.
    pub fn sentence(self, name: &str) -> String {
        if self.was_trusted {
            format!("Revoked trust in `{name}`: its tools are hidden from agents.")
        } else {
            format!("Server `{name}` was not trusted.")
        }
    }

    /// Returns why the server is trusted all the same, if so.
    pub fn note(self, name: &str) -> Option<String> {
        let note = || format!("The configuration still trusts it: `mcp.{name}.trust` is \"always\".");
        self.always_trusted.then(note)
    }
}

/// A server that was enabled or disabled.
#[derive(Debug)]
pub struct SwitchedServer {
    pub name: String,
    pub enabled: bool,
}

impl SwitchedServer {
    /// Returns what was done, in one sentence.
    pub fn sentence(&self) -> String {
        format!("{} server `{}`.", if self.enabled { "Enabled" } else { "Disabled" }, self.name)
    }
}

/// What became of a request to restart a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartOutcome {
    Restarting,
    /// It is disabled, so it does not connect.
    Disabled,
    /// It was imported and not reviewed yet, so it does not connect.
    Unreviewed,
}

impl RestartOutcome {
    /// Returns what was done, in one sentence.
    pub fn sentence(self, name: &str) -> String {
        match self {
            RestartOutcome::Restarting => format!("Restarting server `{name}`."),
            RestartOutcome::Disabled | RestartOutcome::Unreviewed => {
                format!("Server `{name}` is disabled, so it does not connect.")
            }
        }
    }

    /// Returns the command that makes it connect, if it does not.
    pub fn advice(self, name: &str) -> Option<String> {
        let how = match self {
            RestartOutcome::Restarting => return None,
            RestartOutcome::Disabled => "enable",
            RestartOutcome::Unreviewed => "trust",
        };
        Some(format!("To enable it: portcullis mcp {how} {name}"))
    }
}

impl Operations {
    /// Enables or disables a server, whatever the configuration says.
    pub fn switch_server(
        &self,
        name: &str,
        switch: &SwitchServer,
        by: &Actor,
    ) -> Result<SwitchedServer, Problem> {
        let enabled = switch.enabled;
        let action = if enabled { action::ENABLE } else { action::DISABLE };
        self.record(by, action, json!({ "name": name }), || {
            let (config, factory) = (self.config(), self.server_factory()?);
            let server = find_server(&config, name)?;
            if enabled {
                may_run(server, factory)?;
            }
            // No override if it equals the configuration.
            let wish = (server.enabled != enabled).then_some(enabled);
            factory.toggles.set(name, wish).map_err(unavailable)?;
            Ok(SwitchedServer { name: name.to_owned(), enabled })
        })
    }

    pub fn restart_server(&self, name: &str, by: &Actor) -> Result<RestartOutcome, Problem> {
        self.record(by, action::RESTART, json!({ "name": name }), || {
            let (config, factory) = (self.config(), self.server_factory()?);
            let server = find_server(&config, name)?;
            if !factory.is_wanted(server) {
                let unreviewed = factory.is_unreviewed(server);
                return Ok(if unreviewed { RestartOutcome::Unreviewed } else { RestartOutcome::Disabled });
            }
            if server.is_local() {
                // The program may have been installed since; if not, the hub reports it.
                let _ = factory.find_program(server);
            }
            factory.toggles.reload(name).map_err(unavailable)?;
            Ok(RestartOutcome::Restarting)
        })
    }

    /// Revokes the trust in a server, also in one that is no longer configured.
    pub fn revoke_trust(&self, name: &str, by: &Actor) -> Result<RevokedTrust, Problem> {
        self.record(by, action::DISTRUST, json!({ "name": name }), || {
            let config = self.config();
            let was_trusted = self.server_factory()?.pins.revoke(name).map_err(unavailable)?;
            let server = find_server(&config, name);
            if !was_trusted {
                server.as_ref().map_err(Clone::clone)?;
            }
            let always_trusted = server.is_ok_and(|server| server.always_trusted);
            Ok(RevokedTrust { was_trusted, always_trusted })
        })
    }

    /// Returns why the server that a tool belongs to by its name offers none of its tools, if so, and what to do about it.
    pub fn absence_of(&self, tool: &str) -> Result<Option<String>, Problem> {
        let config = self.config();
        let is_owner = |server: &&McpServerSettings| {
            !server.prefix.is_empty() && tool.starts_with(server.prefix.as_str())
        };
        let owner = config.mcp.iter().filter(is_owner).max_by_key(|server| server.prefix.len());
        let Some(server) = owner else { return Ok(None) };
        let (name, factory) = (&server.name, self.server_factory()?);
        let is_trusted = server.always_trusted || factory.pins.of(name).is_some();
        Ok(if factory.is_wanted(server) && is_trusted {
            None
        } else if is_trusted || (!factory.is_unreviewed(server) && !factory.is_wanted(server)) {
            Some(format!(
                "server `{name}` is disabled, so its tools are not available; to enable it: portcullis mcp enable {name}"
            ))
        } else {
            Some(format!(
                "server `{name}` is not trusted yet, so its tools are hidden; to review them: portcullis mcp trust {name}"
            ))
        })
    }

    /// Returns the stores about servers: those of the running hub, or the command's own.
    pub fn server_factory(&self) -> Result<&ServerFactory, Problem> {
        match &self.live {
            Some(live) => Ok(&live.servers.makers),
            None => self.own_server_factory(),
        }
    }
}

/// Returns a configured server.
pub fn find_server<'c>(config: &'c Config, name: &str) -> Result<&'c McpServerSettings, Problem> {
    let found = config.mcp.iter().find(|server| server.name == name);
    found.ok_or_else(|| edit_problem(EditError::Unknown(name.to_owned())))
}

/// Refuses to start an imported server before its review.
pub fn may_run(server: &McpServerSettings, factory: &ServerFactory) -> Result<(), Problem> {
    let name = &server.name;
    if !factory.is_unreviewed(server) {
        return Ok(());
    }
    Err(Problem::conflict(format!(
        "server `{name}` was imported and not reviewed yet. To review and trust it: portcullis mcp trust {name}"
    )))
}

fn unavailable(error: impl Into<anyhow::Error>) -> Problem {
    Problem::unavailable(with_causes(&error.into()))
}
