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
use anyhow::Result;
use portcullis_ops::desk::SwitchServer;
use portcullis_ops::listing::server_listing;
use portcullis_ops::servers::{RestartOutcome, reached};
use portcullis_ops::{Operations, ShutdownWatch};
use portcullis_server::local;
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// What follows a change without a hub.
const AT_NEXT_START: &str = " No hub is running; it takes effect at the next start.";

const NO_SERVERS: &str =
    "No servers yet. Add one: portcullis mcp add NAME -- COMMAND. Or import: portcullis mcp import";

pub(crate) fn run(home: Option<&Path>, args: McpArgs, as_json: bool) -> Result<ExitCode> {
    let ops = open_operations(home)?;
    let desk = McpCommandContext { config: ops.config(), ops, as_json };
    let ran = match args.command.unwrap_or(McpCommand::List) {
        McpCommand::List => desk.list(),
        McpCommand::Add(args) => desk.add(&args),
        McpCommand::Remove { name } => desk.remove(&name),
        McpCommand::Test { name } => desk.test(&name),
        McpCommand::Status { name } => desk.status(name.as_deref()),
        McpCommand::Reload { name } => desk.reload(name.as_deref()),
        McpCommand::Enable { name } => desk.switch(&name, SwitchServer { enabled: true }),
        McpCommand::Disable { name } => desk.switch(&name, SwitchServer { enabled: false }),
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
            print::note(NO_SERVERS);
        }
        Ok(ExitCode::SUCCESS)
    }

    fn remove(&self, name: &str) -> Result<ExitCode> {
        let removed = self.ops.remove_server(name, &this_user())?;
        let removal = self.block_on(removed.end_login())?;
        removal.note().into_iter().for_each(print::note);
        print::either(self.as_json, &removal.listing(), removal.sentences().join("\n"));
        Ok(ExitCode::SUCCESS)
    }

    fn reload(&self, name: Option<&str>) -> Result<ExitCode> {
        let Some(name) = name else { return self.reload_all() };
        let outcome = self.ops.restart_server(name, &this_user())?;
        let running = self.hub_runs()?;
        print::either(
            self.as_json,
            &restart_listing(name, outcome, running),
            restart_text(name, outcome, running),
        );
        Ok(ExitCode::SUCCESS)
    }

    fn reload_all(&self) -> Result<ExitCode> {
        let running = self.hub_runs()?;
        let mut listed = Vec::new();
        for server in &self.config.mcp {
            let outcome = self.ops.restart_server(&server.name, &this_user())?;
            if !self.as_json {
                print::line(restart_text(&server.name, outcome, running));
            }
            listed.push(restart_listing(&server.name, outcome, running));
        }
        if self.as_json {
            print::json(&Value::Array(listed));
        } else if listed.is_empty() {
            print::note(NO_SERVERS);
        }
        Ok(ExitCode::SUCCESS)
    }

    fn switch(&self, name: &str, switch: SwitchServer) -> Result<ExitCode> {
        let switched = self.ops.switch_server(name, &switch, &this_user())?;
        self.report(
            name,
            json!({ "enabled": switch.enabled }),
            self.hub_runs()?,
            &switched.sentence(),
            AT_NEXT_START,
        );
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

fn restart_listing(name: &str, outcome: RestartOutcome, hub_running: bool) -> Value {
    let restarts = outcome == RestartOutcome::Restarting;
    json!({ "server": name, "reload": restarts, "enabled": restarts, "hub_running": hub_running })
}

fn restart_text(name: &str, outcome: RestartOutcome, hub_running: bool) -> String {
    let said = outcome.sentence(name);
    match outcome.advice(name) {
        // There is nothing that could take effect later.
        Some(advice) => format!("{said} {advice}"),
        None => format!("{said}{}", if hub_running { "" } else { AT_NEXT_START }),
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
