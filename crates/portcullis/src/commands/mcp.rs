//! `portcullis mcp`: the servers behind the hub.

mod add;
pub(crate) mod import;
pub(crate) mod look;
mod status;
pub(crate) mod trust;

use super::{Opened, block_on, open};
use crate::cli::{McpArgs, McpCommand};
use crate::commands::mcp_auth::{self, Browser};
use crate::config::{Config, EditError, McpServer, remove_server};
use crate::home::{Home, make_private};
use crate::mcp::Makers;
use crate::private::{Extent, shortened};
use crate::secrets::Asking;
use crate::{BadUsage, print, private};
use anyhow::{Context, Result};
use portcullis_core::SystemClock;
use portcullis_server::local;
use portcullis_store::secrets::SecretStore;
use portcullis_upstream::LoggedOut;
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
    let Opened { home, loaded, .. } = open(home)?;
    make_private(&loaded.config.workspace.secure_dir())?;
    let desk = Desk { home, config: loaded.config, as_json };
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

/// Says whether the words were wrong, or the work failed.
pub(crate) fn explained(error: EditError) -> anyhow::Error {
    match error {
        EditError::Taken(_) | EditError::Unknown(_) | EditError::Unfit { .. } | EditError::ByHand { .. } => {
            BadUsage(error.to_string()).into()
        }
        EditError::Config(errors) => errors.into(),
        other => other.into(),
    }
}

pub(crate) struct Desk {
    pub(crate) home: Home,
    pub(crate) config: Config,
    pub(crate) as_json: bool,
}

impl Desk {
    /// Opens what a server is made with. The secret store is unlocked only for one that needs it.
    fn makers(&self, needs_secrets: bool) -> Result<Makers> {
        let clock = Arc::new(SystemClock);
        let asking = if needs_secrets { Asking::ToOpen } else { Asking::Never };
        let store = crate::secrets::open(&self.home, &self.config, clock.clone(), asking)?;
        Makers::open(&self.config.workspace.secure_dir(), Arc::new(store), clock)
    }

    fn server(&self, name: &str) -> Result<&McpServer> {
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
        let mut rows = vec![["SERVER", "USED", "TRUST", "REACHED BY"].map(str::to_owned).to_vec()];
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
                "No servers; `portcullis mcp add NAME -- COMMAND` adds one, `portcullis mcp import` takes over others.",
            );
        }
        Ok(ExitCode::SUCCESS)
    }

    fn remove(&self, name: &str) -> Result<ExitCode> {
        // Made first, from what the configuration says: without it nobody could end the login any more.
        let server = self.config.mcp.iter().find(|server| server.name == name);
        let login = server.filter(|server| server.oauth.is_some());
        let login = login.map(|server| mcp_auth::login_of(&self.home, &self.config, server, Asking::ToOpen));
        let login = login.transpose()?;
        let path = remove_server(self.home.path(), &super::environment, name).map_err(explained)?;
        let makers = self.makers(false)?;
        let was_trusted = makers.forget(name)?;
        if let Err(error) = self.forget_removed(name, &makers) {
            // The next hub does it.
            tracing::debug!(target: "upstream", server = name, %error, "a removed server is not forgotten yet");
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
            print::line(format!("Server `{name}` is out of {}, and no longer trusted.", path.display()));
            if let Some(said) = ended.and_then(|ended| mcp_auth::ended(name, ended)) {
                print::line(said);
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Forgets that a server was removed, where no hub runs. One that runs does so once it has read the configuration.
    fn forget_removed(&self, name: &str, makers: &Makers) -> Result<()> {
        // Held meanwhile: a hub that starts after this reads the configuration as it is now.
        let claim = local::claim(self.home.path()).context("the lock of the home folder")?;
        if claim.is_some() {
            makers.toggles.forget_removed(name)?;
        }
        Ok(())
    }

    /// Ends a login that the configuration does not speak of any more. Nobody is asked for a passphrase: few servers have
    /// one.
    fn end_left(&self, name: &str, store: Arc<SecretStore>) -> Option<LoggedOut> {
        mcp_auth::end_left(&self.config, name, store).unwrap_or_else(|error| {
            // A program on this machine has none but by a slip.
            if self.server(name).is_ok_and(|server| server.place.is_some()) {
                print::note(format!(
                    "Whether a login of `{name}` is kept could not be looked at: {error:#}. To forget it: portcullis mcp logout {name}"
                ));
            }
            None
        })
    }

    fn reload(&self, name: &str) -> Result<ExitCode> {
        let server = self.server(name)?;
        let makers = self.makers(false)?;
        if !makers.is_wanted(server) {
            // Then nothing is connected, and nothing will be.
            let how = may_run(server, &makers).map_or("trust", |()| "enable");
            if self.as_json {
                let running = self.hub_runs()?;
                print::json(
                    &json!({ "server": name, "reload": false, "enabled": false, "hub_running": running }),
                );
            } else {
                print::line(format!(
                    "Server `{name}` is switched off, so it does not connect. To switch it on: portcullis mcp {how} {name}"
                ));
            }
            return Ok(ExitCode::SUCCESS);
        }
        if server.place.is_none() {
            // Whoever says this may know of a program that the hub did not find; where nobody does, the hub says so.
            let _ = makers.find_program(server);
        }
        makers.toggles.reload(name)?;
        let running = self.hub_runs()?;
        self.told(name, json!({ "reload": true, "enabled": true }), running, "connects anew");
        Ok(ExitCode::SUCCESS)
    }

    fn switch(&self, name: &str, on: bool) -> Result<ExitCode> {
        let server = self.server(name)?;
        let makers = self.makers(false)?;
        if on {
            may_run(server, &makers).map_err(anyhow::Error::msg)?;
        }
        // What the configuration says anyway needs no word of its own.
        let wish = (server.enabled != on).then_some(on);
        makers.toggles.set(name, wish)?;
        let running = self.hub_runs()?;
        self.told(
            name,
            json!({ "enabled": on }),
            running,
            if on { "is switched on" } else { "is switched off" },
        );
        Ok(ExitCode::SUCCESS)
    }

    fn told(&self, name: &str, mut value: Value, running: bool, what: &str) {
        if self.as_json {
            value["server"] = name.into();
            value["hub_running"] = running.into();
            print::json(&value);
            return;
        }
        let when = if running { "" } else { " No hub runs on this home; the next one will do so." };
        print::line(format!("Server `{name}` {what}.{when}"));
    }

    fn hub_runs(&self) -> Result<bool> {
        block_on(local::connect(self.home.path())).map(|connected| connected.is_ok())
    }
}

/// Says why a server must not be started yet: it came from another program's file, and nobody has looked at it.
pub(crate) fn may_run(server: &McpServer, makers: &Makers) -> Result<(), String> {
    let name = &server.name;
    if !makers.is_unseen(server) {
        return Ok(());
    }
    Err(format!(
        "server `{name}` came from elsewhere, and nobody has looked at it yet; look, and let it in, with: portcullis mcp trust {name}"
    ))
}

/// Says what to do about a server that does not let us in.
pub(super) fn sign_in_hint(server: &McpServer, status: &str) -> Option<String> {
    let name = &server.name;
    let header = server.headers.iter().find(|(header, _)| header == "authorization");
    match (status, &server.oauth, header) {
        ("needs_auth", Some(_), _) => Some(format!("log in: portcullis mcp auth {name}")),
        ("needs_auth", None, Some(_)) => Some(format!(
            "what `mcp.{name}.headers` says in `Authorization` is not accepted there; set the right one, or take it out and add `oauth = true`"
        )),
        ("needs_auth", None, None) => Some(format!(
            "add `oauth = true` to `mcp.{name}` in the configuration, then: portcullis mcp auth {name}"
        )),
        _ => None,
    }
}

/// Says how a server is reached, on one line.
pub(crate) fn reached(server: &McpServer, extent: Extent) -> String {
    if let Some(place) = &server.place {
        return shortened(&private::shown_url(&place.to_string()), extent);
    }
    let args = private::shown_args(&server.args);
    let words = std::iter::once(&server.command).chain(&args);
    words.map(|word| shortened(word, extent)).collect::<Vec<_>>().join(" ")
}

fn trust_words(server: &McpServer, makers: &Makers) -> String {
    if server.always_trusted {
        return "always".to_owned();
    }
    match makers.pins.of(&server.name) {
        Some(trusted) => format!("since {:.0}", trusted.since),
        None => "not yet".to_owned(),
    }
}

fn listed(server: &McpServer, makers: &Makers) -> Value {
    let trusted = makers.pins.of(&server.name);
    let in_ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    json!({
        "name": server.name,
        "enabled": makers.is_wanted(server),
        "enabled_in_configuration": server.enabled,
        "unseen": makers.is_unseen(server),
        "command": server.command,
        "args": private::shown_args(&server.args),
        "cwd": server.cwd,
        "url": server.place.as_ref().map(|place| private::shown_url(&place.to_string())),
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
