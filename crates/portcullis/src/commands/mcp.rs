//! `portcullis mcp`: upstream servers.

mod add;
mod import;
mod probe;
mod status;
mod trust;

use super::{block_on, block_on_watched, open_operations, this_user};
use crate::cli::{McpArgs, McpCommand};
use crate::commands::mcp_auth::{self, Browser};
use crate::config::secret_detection::ValueDisplay;
use crate::config::{Config, EditError, McpServerSettings};
use crate::mcp::ServerFactory;
use crate::{BadUsage, bad_name, print};
use anyhow::{Context, Result};
use portcullis_ops::listing::server_listing;
use portcullis_ops::servers::login::{logout_listing, logout_sentence};
use portcullis_ops::servers::{RestartOutcome, reached};
use portcullis_ops::{Operations, ShutdownWatch};
use portcullis_server::local;
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// What follows a change without a hub.
const AT_NEXT_START: &str = " No hub is running; it takes effect at the next start.";

pub(crate) fn run(home: Option<&Path>, args: McpArgs, as_json: bool) -> Result<ExitCode> {
    let ops = open_operations(home)?;
    let desk = McpCommandContext { config: ops.config(), ops, as_json };
    let ran = match args.command.unwrap_or(McpCommand::List) {
        McpCommand::List => desk.list(),
        McpCommand::Add(args) => desk.add(&args),
        McpCommand::Remove { name } => desk.remove(&name),
        McpCommand::Test { name } => desk.test(&name),
        McpCommand::Status { name } => desk.status(name.as_deref()),
        McpCommand::Reload { name } => desk.reload(&name),
        McpCommand::Enable { name } => desk.switch(&name, true),
        McpCommand::Disable { name } => desk.switch(&name, false),
        McpCommand::Import(args) => desk.import(&args),
        McpCommand::Trust(args) => desk.trust(&args),
        McpCommand::Auth { name, open } => {
            let browser = if open { Browser::Open } else { Browser::Leave };
            mcp_auth::auth(&desk.ops, &name, browser, as_json)
        }
        McpCommand::Logout { name } => mcp_auth::logout(&desk.ops, &name, as_json),
    };
    // An unknown name is bad usage.
    ran.map_err(|error| error.downcast().map_or_else(|other| other, bad_name))
}

/// Maps an error to bad usage or failure.
fn explained(error: EditError) -> anyhow::Error {
    match error {
        EditError::Taken(_) | EditError::Unknown(_) | EditError::Unfit { .. } | EditError::ByHand { .. } => {
            BadUsage(error.to_string()).into()
        }
        EditError::Config(errors) => errors.into(),
        other => other.into(),
    }
}

struct McpCommandContext {
    ops: Operations,
    config: Arc<Config>,
    as_json: bool,
}

impl McpCommandContext {
    fn list(&self) -> Result<ExitCode> {
        let makers = self.ops.server_factory()?;
        if self.as_json {
            let servers = self.config.mcp.iter().map(|server| server_listing(server, makers));
            print::configured_json(&Value::Array(servers.collect()));
            return Ok(ExitCode::SUCCESS);
        }
        let mut rows = vec![["SERVER", "ENABLED", "TRUSTED", "TRANSPORT"].map(str::to_owned).to_vec()];
        for server in &self.config.mcp {
            let used = if makers.is_wanted(server) { "yes" } else { "no" };
            rows.push(vec![
                server.name.clone(),
                used.to_owned(),
                trust_words(server, makers),
                reached(server, ValueDisplay::Row),
            ]);
        }
        print::configured(print::table(&rows));
        if self.config.mcp.is_empty() {
            print::note(
                "No servers yet. Add one: portcullis mcp add NAME -- COMMAND. Or import: portcullis mcp import",
            );
        }
        Ok(ExitCode::SUCCESS)
    }

    fn remove(&self, name: &str) -> Result<ExitCode> {
        let server = self.config.mcp.iter().find(|server| server.name == name);
        let removed = self.ops.remove_server(name, &this_user())?;
        if let Err(error) = self.forget_removed(name) {
            // The next hub retries.
            tracing::debug!(target: "upstream", server = name, %error, "state of a removed server not cleared yet");
        }
        let ended = removed.login.as_ref().map(|login| self.block_on(login.end())).transpose()?;
        // A local command has a login only by mistake.
        if let Some(error) = removed.unchecked_login.as_ref()
            && server.is_some_and(|server| !server.is_local())
        {
            print::note(format!(
                "Could not check for a login of `{name}`: {error}. To log out: portcullis mcp logout {name}"
            ));
        }
        if self.as_json {
            let mut said =
                json!({ "removed": name, "was_trusted": removed.was_trusted, "file": removed.path });
            if let Some(ended) = ended {
                said["login"] = logout_listing(&ended);
            }
            print::json(&said);
        } else {
            print::line(removed.sentence(name));
            ended.and_then(|ended| logout_sentence(name, &ended)).into_iter().for_each(print::line);
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Clears the state of a removed server, if no hub runs. A running hub does so after its reload.
    fn forget_removed(&self, name: &str) -> Result<()> {
        // Held meanwhile: a hub that starts later reads the current configuration.
        let claim = local::claim(self.ops.home.path()).context("the lock of the home folder")?;
        if claim.is_some() {
            self.ops.server_factory()?.toggles.forget_removed(name)?;
        }
        Ok(())
    }

    fn reload(&self, name: &str) -> Result<ExitCode> {
        let outcome = self.ops.restart_server(name, &this_user())?;
        let (running, restarts) = (self.hub_runs()?, outcome == RestartOutcome::Restarting);
        let value = json!({ "reload": restarts, "enabled": restarts });
        let said = outcome.sentence(name);
        match outcome.advice(name) {
            // There is nothing that could take effect later.
            Some(advice) => self.report(name, value, running, &format!("{said} {advice}"), ""),
            None => self.report(name, value, running, &said, AT_NEXT_START),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn switch(&self, name: &str, on: bool) -> Result<ExitCode> {
        let switched = self.ops.switch_server(name, on, &this_user())?;
        self.report(name, json!({ "enabled": on }), self.hub_runs()?, &switched.sentence(), AT_NEXT_START);
        Ok(ExitCode::SUCCESS)
    }

    fn report(&self, name: &str, mut value: Value, running: bool, said: &str, without_hub: &str) {
        value["server"] = name.into();
        value["hub_running"] = running.into();
        print::either(self.as_json, &value, format!("{said}{}", if running { "" } else { without_hub }));
    }

    /// Runs a future that may start servers.
    fn block_on<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        block_on_watched(&ShutdownWatch::of(self.ops.server_shutdown()), work)
    }

    fn hub_runs(&self) -> Result<bool> {
        block_on(local::connect(self.ops.home.path())).map(|connected| connected.is_ok())
    }
}

fn trust_words(server: &McpServerSettings, makers: &ServerFactory) -> String {
    if server.always_trusted {
        return "always".to_owned();
    }
    match makers.pins.of(&server.name) {
        Some(trusted) => format!("since {:.0}", trusted.since),
        None => "no".to_owned(),
    }
}
