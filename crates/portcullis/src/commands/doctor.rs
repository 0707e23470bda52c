//! `portcullis doctor`: health checks, each with a fix.

mod outbound;
mod scripts;
mod servers;

use super::{block_on, environment, hub_client::HubClient};
use crate::config::Config;
use crate::database;
use crate::home::Home;
use crate::passphrase::open_secrets;
use crate::{output_redaction, print, services};
use anyhow::Result;
use portcullis_core::{Root, SystemClock};
use portcullis_ops::secret_store::PassphrasePrompt;
use portcullis_server::local;
use portcullis_store::approvals::ApprovalStore;
use portcullis_store::clients::ClientDirectory;
use portcullis_store::secrets::{SecretError, SecretStore};
use portcullis_tools::{GitError, look_at_repository};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// Result of one check.
struct Finding {
    what: &'static str,
    state: State,
}

enum State {
    Good(String),
    /// Works, but needs attention.
    Warning(String),
    Bad {
        problem: String,
        advice: String,
    },
}

fn bad(problem: impl Into<String>, advice: impl Into<String>) -> State {
    State::Bad { problem: problem.into(), advice: advice.into() }
}

pub(crate) fn run(home: Option<&Path>, as_json: bool) -> Result<ExitCode> {
    let path = Home::locate(home, environment)?;
    let mut findings = vec![Finding { what: "home", state: look_at_home(&path) }];
    if path.is_dir() {
        let home = Home::open(path)?;
        findings.extend(look_inside(&home)?);
    }
    let bad = findings.iter().any(|finding| matches!(finding.state, State::Bad { .. }));
    if as_json {
        print::json(&findings.iter().map(shown).collect::<Vec<_>>().into());
    } else {
        findings.iter().for_each(|finding| print::line(line(finding)));
    }
    Ok(ExitCode::from(u8::from(bad)))
}

fn look_at_home(path: &Path) -> State {
    match std::fs::metadata(path) {
        Err(_) => State::Good(format!("{} (does not exist yet; created at the first start)", path.display())),
        Ok(metadata) if !metadata.is_dir() => {
            bad(format!("{} is not a folder", path.display()), "choose another with `--home DIR`")
        }
        Ok(metadata) if metadata.permissions().mode() & 0o077 != 0 => State::Warning(format!(
            "{} was accessible to other users; its permissions are fixed now",
            path.display()
        )),
        Ok(_) => State::Good(path.display().to_string()),
    }
}

fn look_inside(home: &Home) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let config = match Config::load(home.path(), &environment) {
        Ok(loaded) => {
            output_redaction::set_home(home, &loaded.config);
            let place = loaded.path.map_or("defaults".to_owned(), |path| path.display().to_string());
            findings.push(Finding { what: "config", state: State::Good(place) });
            let warnings = loaded.warnings.into_iter();
            findings.extend(warnings.map(|text| Finding { what: "config", state: State::Warning(text) }));
            loaded.config
        }
        Err(errors) => {
            let each = errors.problems.iter().map(|problem| Finding {
                what: "config",
                state: bad(
                    problem.to_string(),
                    "fix the file, or write a new one with `portcullis init --force`",
                ),
            });
            findings.extend(each);
            return Ok(findings);
        }
    };
    findings.push(Finding { what: "workspace", state: look_at_workspace(&config) });
    findings.push(Finding { what: "clients", state: look_at_clients(&config) });
    findings.push(Finding { what: "approvals", state: look_at_approvals(&config) });
    findings.push(Finding { what: "vault", state: look_at_vault(&config)? });
    findings.push(Finding { what: "scripts", state: scripts::look(&config)? });
    let database = database::open_to_look(&config).or_else(|_| database::in_memory())?;
    let store = open_secrets(home, &config, &database, Arc::new(SystemClock), PassphrasePrompt::Never)?;
    findings.extend(outbound::look(&config, &store));
    findings.push(Finding { what: "secrets", state: look_at_secrets(&store) });
    let hub = look_at_hub(home, &config)?;
    if !config.mcp.is_empty() {
        let runs = matches!(&hub, State::Good(text) if text.starts_with("running"));
        findings.extend(servers::look(&config, runs));
    }
    findings.push(Finding { what: "hub", state: hub });
    findings.extend(look_at_services(home, &config));
    Ok(findings)
}

fn look_at_workspace(config: &Config) -> State {
    let path = config.workspace.data_dir();
    match Root::create(&path) {
        Ok(_) => State::Good(path.display().to_string()),
        Err(error) => bad(
            format!("{}: {error}", path.display()),
            "check `workspace.path`, the folder's owner, and that the kernel has openat2 (Linux 5.6)",
        ),
    }
}

/// What to do about rows that cannot be read.
const RESTORE: &str = "`portcullis store check` says more; stop the hub and restore a backup";

fn unreadable(error: &anyhow::Error) -> State {
    bad(format!("{error:#}"), RESTORE)
}

fn look_at_clients(config: &Config) -> State {
    let secure = config.workspace.secure_dir();
    if !secure.is_dir() {
        return State::Good("none yet; the first start creates one".to_owned());
    }
    let clients = database::open(config)
        .and_then(|database| Ok(ClientDirectory::open(&database, Arc::new(SystemClock)).list()?));
    match clients {
        Err(error) => unreadable(&error),
        Ok(clients) if clients.is_empty() => {
            State::Warning("none, so HTTP is unusable; run `portcullis clients add NAME`".to_owned())
        }
        Ok(clients) => {
            let expired: Vec<&str> = clients
                .iter()
                .filter(|client| client.is_expired(&SystemClock))
                .map(|client| client.name.as_str())
                .collect();
            match expired.is_empty() {
                true => State::Good(format!("{} clients", clients.len())),
                false => State::Warning(format!("expired: {}", expired.join(", "))),
            }
        }
    }
}

fn look_at_approvals(config: &Config) -> State {
    let database = match database::open_to_look(config) {
        Ok(database) => database,
        Err(error) => return unreadable(&error),
    };
    match ApprovalStore::open(&database, Arc::new(SystemClock)).pending() {
        Ok(pending) if pending.is_empty() => State::Good("nothing waits for a decision".to_owned()),
        Ok(pending) => {
            State::Good(format!("{} pending; list them with `portcullis approvals`", pending.len()))
        }
        Err(error) => bad(error.to_string(), RESTORE),
    }
}

/// Does not contact the remote.
fn look_at_vault(config: &Config) -> Result<State> {
    let Some(vault) = &config.vault else {
        return Ok(State::Good(
            "off; add `[vault]` to the configuration to enable the vault_* tools".to_owned(),
        ));
    };
    let path = vault.path.display();
    let Some(sync) = &vault.sync else {
        return Ok(match Root::create(&vault.path) {
            Ok(_) => State::Good(format!("{path}, not synced")),
            Err(error) => bad(format!("{path}: {error}"), "check `vault.path` and the folder's owner"),
        });
    };
    if let Err(error) = Root::create(&vault.path) {
        return Ok(bad(format!("{path}: {error}"), "check `vault.path` and the folder's owner"));
    }
    Ok(match block_on(look_at_repository(&vault.path))? {
        Ok(()) => State::Good(format!("{path}, synced with {}", sync.address)),
        Err(problem) => bad(format!("{path}: {problem}"), vault_advice(&problem)),
    })
}

fn vault_advice(problem: &GitError) -> &'static str {
    match problem {
        GitError::Missing => "install git (Debian: `apt-get install git`), or turn `vault.auto_sync` off",
        GitError::Old(_) => "install a newer git, or turn `vault.auto_sync` off",
        GitError::NotARepository => {
            "run `git init` and pull, or choose an empty folder, into which the hub clones"
        }
        GitError::Elsewhere => "choose a folder with a repository of its own",
        GitError::Settings(_) => "remove them from `.git/config`; the hub starts no program but git",
        _ => "check the repository with `git status`, or turn `vault.auto_sync` off",
    }
}

fn look_at_secrets(store: &SecretStore) -> State {
    match store.list() {
        Ok(secrets) if secrets.is_empty() => State::Good("none".to_owned()),
        Ok(secrets) => State::Good(format!("{} secrets", secrets.len())),
        Err(error @ SecretError::Locked(_)) => bad(
            format!("locked: {error}"),
            "restore the key, or set PORTCULLIS_KEY_FILE or PORTCULLIS_PASSPHRASE_FILE; everything that needs no secret still works",
        ),
        Err(error) => bad(
            error.to_string(),
            "stop the hub and restore a backup of the database; everything that needs no secret still works",
        ),
    }
}

fn look_at_hub(home: &Home, config: &Config) -> Result<State> {
    let running = local::claim(home.path())?.is_none();
    if !running {
        let address = config.http.listen;
        // Only a check: released at once.
        return Ok(match std::net::TcpListener::bind(address) {
            Ok(_) => State::Good(format!("not running; {address} is free")),
            Err(error) => bad(
                format!("not running, and {address}: {error}"),
                "choose a port with MCP_HTTP_PORT or `http.listen`",
            ),
        });
    }
    let tools = block_on(async {
        let mut link = HubClient::open(home, config).await?;
        link.list("tools/list", "tools").await
    })?;
    Ok(match tools {
        Ok(tools) => State::Good(format!("running, {} tools", tools.len())),
        Err(error) => bad(format!("running, but: {error:#}"), "check the hub's log, or restart it"),
    })
}

/// Returns a finding for each service of the running hub that has a problem.
fn look_at_services(home: &Home, config: &Config) -> Vec<Finding> {
    let hub = local::holder(home.path()).map(|hub| hub.pid);
    let problems = services::written_problems(&config.workspace.secure_dir(), hub);
    let problems = problems.into_iter().map(|(name, why)| Finding {
        what: "services",
        state: bad(
            format!("`{name}`: {why}"),
            "see the hub's log for the cause; the hub tries again by itself",
        ),
    });
    problems.collect()
}

fn line(finding: &Finding) -> String {
    match &finding.state {
        State::Good(text) => format!("ok       {:<10} {text}", finding.what),
        State::Warning(text) => format!("warning  {:<10} {text}", finding.what),
        State::Bad { problem, advice } => {
            format!("PROBLEM  {:<10} {problem}\n         {:<10} {advice}", finding.what, "")
        }
    }
}

fn shown(finding: &Finding) -> serde_json::Value {
    match &finding.state {
        State::Good(text) => json!({ "what": finding.what, "status": "ok", "detail": text }),
        State::Warning(text) => json!({ "what": finding.what, "status": "warning", "detail": text }),
        State::Bad { problem, advice } => {
            json!({ "what": finding.what, "status": "problem", "detail": problem, "advice": advice })
        }
    }
}
