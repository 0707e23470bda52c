//! `portcullis mcp`: upstream servers.

mod add;
pub(crate) mod import;
pub(crate) mod probe;
mod status;
pub(crate) mod trust;

use super::{LoadedHome, block_on, open, this_user};
use crate::cli::{McpArgs, McpCommand};
use crate::commands::mcp_auth::{self, Browser};
use crate::config::{Config, EditError, McpServerSettings, remove_server};
use crate::database;
use crate::home::{Home, make_private};
use crate::mcp::ServerFactory;
use crate::passphrase::PassphrasePrompt;
use crate::secret_detection::{Extent, shortened};
use crate::{BadUsage, print, secret_detection};
use anyhow::{Context, Result};
use portcullis_core::SystemClock;
use portcullis_ops::Operations;
use portcullis_ops::servers::RestartOutcome;
use portcullis_server::local;
use portcullis_store::secrets::SecretStore;
use portcullis_upstream::LogoutReport;
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn run(home: Option<&Path>, args: McpArgs, as_json: bool) -> Result<ExitCode> {
    match &args.command {
        Some(McpCommand::Auth { name, open }) => {
            let browser = if *open { Browser::Open } else { Browser::Leave };
            return mcp_auth::auth(home, name, browser, as_json);
        }
        Some(McpCommand::Logout { name }) => return mcp_auth::logout(home, name, as_json),
        _ => {}
    }
    let LoadedHome { home, loaded, .. } = open(home)?;
    make_private(&loaded.config.workspace.secure_dir())?;
    let desk = McpCommandContext { home, config: loaded.config, as_json };
    match args.command.unwrap_or(McpCommand::List) {
        McpCommand::List | McpCommand::Auth { .. } | McpCommand::Logout { .. } => desk.list(),
        McpCommand::Add(args) => desk.add(&args),
        McpCommand::Remove { name } => desk.remove(&name),
        McpCommand::Test { name } => desk.test(&name),
        McpCommand::Status { name } => desk.status(name.as_deref()),
        McpCommand::Reload { name } => desk.reload(&name),
        McpCommand::Enable { name } => desk.switch(&name, true),
        McpCommand::Disable { name } => desk.switch(&name, false),
        McpCommand::Import(args) => desk.import(&args),
        McpCommand::Trust(args) => desk.trust(&args),
    }
}

/// Maps an error to bad usage or failure.
pub(crate) fn explained(error: EditError) -> anyhow::Error {
    match error {
        EditError::Taken(_) | EditError::Unknown(_) | EditError::Unfit { .. } | EditError::ByHand { .. } => {
            BadUsage(error.to_string()).into()
        }
        EditError::Config(errors) => errors.into(),
        other => other.into(),
    }
}

pub(crate) struct McpCommandContext {
    pub(crate) home: Home,
    pub(crate) config: Config,
    pub(crate) as_json: bool,
}

impl McpCommandContext {
    /// Opens the server factory. The secret store is unlocked only for a server that needs it.
    fn makers(&self, needs_secrets: bool) -> Result<ServerFactory> {
        let clock = Arc::new(SystemClock);
        let asking = if needs_secrets { PassphrasePrompt::ToOpen } else { PassphrasePrompt::Never };
        let database = database::open(&self.config)?;
        let store =
            crate::passphrase::open_secrets(&self.home, &self.config, &database, clock.clone(), asking)?;
        ServerFactory::open(&self.config.workspace.secure_dir(), &database, Arc::new(store), clock)
    }

    fn operations(&self) -> Result<Operations> {
        let (home, config, database) = (&self.home, &self.config, database::open(&self.config)?);
        Ok(Operations::in_command(home.clone(), config.clone(), database, |warning| print::note(warning)))
    }

    fn server(&self, name: &str) -> Result<&McpServerSettings> {
        let found = self.config.mcp.iter().find(|server| server.name == name);
        found.ok_or_else(|| explained(EditError::Unknown(name.to_owned())))
    }

    fn list(&self) -> Result<ExitCode> {
        let makers = self.makers(false)?;
        if self.as_json {
            let servers = self.config.mcp.iter().map(|server| listed(server, &makers));
            print::configured_json(&Value::Array(servers.collect()));
            return Ok(ExitCode::SUCCESS);
        }
        let mut rows = vec![["SERVER", "ENABLED", "TRUSTED", "TRANSPORT"].map(str::to_owned).to_vec()];
        for server in &self.config.mcp {
            let used = if makers.is_wanted(server) { "yes" } else { "no" };
            rows.push(vec![
                server.name.clone(),
                used.to_owned(),
                trust_words(server, &makers),
                reached(server, Extent::Row),
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
        // Built first, from the configuration: afterwards the login could not be ended.
        let server = self.config.mcp.iter().find(|server| server.name == name);
        let login = server.filter(|server| server.oauth.is_some());
        let login = login
            .map(|server| mcp_auth::login_of(&self.home, &self.config, server, PassphrasePrompt::ToOpen));
        let login = login.transpose()?;
        let path = remove_server(self.home.path(), &super::environment, name).map_err(explained)?;
        let makers = self.makers(false)?;
        let was_trusted = makers.forget(name)?;
        if let Err(error) = self.forget_removed(name, &makers) {
            // The next hub retries.
            tracing::debug!(target: "upstream", server = name, %error, "state of a removed server not cleared yet");
        }
        let ended = match login {
            Some(login) => Some(block_on(async { login.oauth().log_out().await })?),
            None => self.end_left(name, makers.secrets.clone()).map(Ok),
        };
        if self.as_json {
            let mut said = json!({ "removed": name, "was_trusted": was_trusted, "file": path });
            if let Some(ended) = ended {
                said["login"] = mcp_auth::ended_json(&ended);
            }
            print::json(&said);
        } else {
            print::line(format!("Removed server `{name}` from {} and revoked its trust.", path.display()));
            if let Some(said) = ended.and_then(|ended| mcp_auth::ended(name, ended)) {
                print::line(said);
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Clears the state of a removed server, if no hub runs. A running hub does so after its reload.
    fn forget_removed(&self, name: &str, makers: &ServerFactory) -> Result<()> {
        // Held meanwhile: a hub that starts later reads the current configuration.
        let claim = local::claim(self.home.path()).context("the lock of the home folder")?;
        if claim.is_some() {
            makers.toggles.forget_removed(name)?;
        }
        Ok(())
    }

    /// Ends a login that is no longer configured. Does not prompt for a passphrase: few servers have a login.
    fn end_left(&self, name: &str, store: Arc<SecretStore>) -> Option<LogoutReport> {
        mcp_auth::end_left(&self.config, name, store).unwrap_or_else(|error| {
            // A local command has a login only by mistake.
            if self.server(name).is_ok_and(|server| server.place.is_some()) {
                print::note(format!(
                    "Could not check for a login of `{name}`: {error:#}. To log out: portcullis mcp logout {name}"
                ));
            }
            None
        })
    }

    fn reload(&self, name: &str) -> Result<ExitCode> {
        let outcome = self.operations()?.restart_server(name, &this_user())?;
        let running = self.hub_runs()?;
        let how = match outcome {
            RestartOutcome::Restarting => {
                self.report(name, json!({ "reload": true, "enabled": true }), running, "is restarting");
                return Ok(ExitCode::SUCCESS);
            }
            RestartOutcome::Disabled => "enable",
            RestartOutcome::Unreviewed => "trust",
        };
        if self.as_json {
            print::json(
                &json!({ "server": name, "reload": false, "enabled": false, "hub_running": running }),
            );
        } else {
            print::line(format!(
                "Server `{name}` is disabled, so it does not connect. To enable it: portcullis mcp {how} {name}"
            ));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn switch(&self, name: &str, on: bool) -> Result<ExitCode> {
        self.operations()?.switch_server(name, on, &this_user())?;
        let running = self.hub_runs()?;
        self.report(name, json!({ "enabled": on }), running, if on { "is enabled" } else { "is disabled" });
        Ok(ExitCode::SUCCESS)
    }

    fn report(&self, name: &str, mut value: Value, running: bool, what: &str) {
        if self.as_json {
            value["server"] = name.into();
            value["hub_running"] = running.into();
            print::json(&value);
            return;
        }
        let when = if running { "" } else { " No hub is running; it takes effect at the next start." };
        print::line(format!("Server `{name}` {what}.{when}"));
    }

    fn hub_runs(&self) -> Result<bool> {
        block_on(local::connect(self.home.path())).map(|connected| connected.is_ok())
    }
}

/// Returns a server status as people read it.
pub(crate) fn status_label(status: &str) -> String {
    match status {
        "needs_auth" => "needs login".to_owned(),
        other => other.replace('_', " "),
    }
}

/// Returns a server status as the predicate of a sentence.
pub(crate) fn status_predicate(status: &str) -> String {
    match status {
        "needs_auth" => "needs a login".to_owned(),
        "needs_client_registration" => "needs a client registration".to_owned(),
        "failed" => "failed to start".to_owned(),
        other => format!("is {}", status_label(other)),
    }
}

/// Returns the fix for a server that needs authentication.
pub(super) fn sign_in_hint(server: &McpServerSettings, status: &str) -> Option<String> {
    let name = &server.name;
    let header = server.headers.iter().find(|(header, _)| header == "authorization");
    match (status, &server.oauth, header) {
        ("needs_auth", Some(_), _) => Some(format!("log in: portcullis mcp auth {name}")),
        ("needs_auth", None, Some(_)) => Some(format!(
            "the server rejects the `Authorization` header in `mcp.{name}.headers`; correct it, or replace it by `oauth = true`"
        )),
        ("needs_auth", None, None) => Some(format!(
            "add `oauth = true` to `mcp.{name}` in the configuration, then: portcullis mcp auth {name}"
        )),
        _ => None,
    }
}

/// Returns command line or URL, on one line.
pub(crate) fn reached(server: &McpServerSettings, extent: Extent) -> String {
    if let Some(place) = &server.place {
        return shortened(&secret_detection::shown_url(&place.to_string()), extent);
    }
    let args = secret_detection::shown_args(&server.args);
    let words = std::iter::once(&server.command).chain(&args);
    words.map(|word| shortened(word, extent)).collect::<Vec<_>>().join(" ")
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

fn listed(server: &McpServerSettings, makers: &ServerFactory) -> Value {
    let trusted = makers.pins.of(&server.name);
    let in_ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    json!({
        "name": server.name,
        "enabled": makers.is_wanted(server),
        "enabled_in_configuration": server.enabled,
        "unseen": makers.is_unreviewed(server),
        "command": server.command,
        "args": secret_detection::shown_args(&server.args),
        "cwd": server.cwd,
        "url": server.place.as_ref().map(|place| secret_detection::shown_url(&place.to_string())),
        "headers": server.headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        "oauth": server.oauth.is_some(),
        "env": server.env.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "timeout_ms": in_ms(server.timeout),
        "start": if server.lazy { "lazy" } else { "now" },
        "idle_stop_ms": server.idle_stop.map(in_ms),
        "per_client": server.per_client.is_some(),
        "clients_max": server.per_client,
        "prefix": server.prefix,
        "trust": if server.always_trusted { "always" } else { "ask" },
        "trusted_since": trusted.as_ref().map(|trusted| trusted.since.to_string()),
        "trusted_by": trusted.as_ref().map(|trusted| trusted.by.clone()),
    })
}
