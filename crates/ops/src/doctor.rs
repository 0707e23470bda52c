//! Health checks of a home, each with a fix.
//!
//! They need no running hub, change nothing but the permissions of the home, and make no request. Those of a tool family
//! are in its folder.

mod hub;
mod servers;

pub use portcullis_family::{CheckState, DoctorParts, HealthCheck};

use hub::{HubState, check_hub};
use servers::{check_servers, check_services};

use crate::config::{Config, ConfigError};
use crate::database;
use crate::home::{Home, environment};
use crate::output_redaction::OutputRedaction;
use crate::secret_store::{self, unasked};
use crate::tool_families::extra_roots;
use anyhow::Result;
use portcullis_core::{Root, SystemClock, counted};
use portcullis_server::local;
use portcullis_store::approvals::ApprovalStore;
use portcullis_store::clients::ClientDirectory;
use portcullis_store::pins::PinStore;
use portcullis_store::secrets::{SecretError, SecretStore};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Runs every check of the home at `path`, in the order in which they are shown. `count_tools` asks the running hub.
pub async fn check_all(
    path: PathBuf,
    redaction: &OutputRedaction,
    count_tools: impl AsyncFnOnce(&Home) -> Result<usize>,
) -> Result<Vec<HealthCheck>> {
    let mut checks = vec![check_home(&path).of("home")];
    if !path.is_dir() {
        return Ok(checks);
    }
    let home = &Home::open(path)?;
    let (of_file, config) = check_config(home);
    checks.extend(of_file);
    let Some(config) = &config else { return Ok(checks) };
    redaction.set_home(home, config);
    checks.extend([
        check_workspace(config).of("workspace"),
        check_clients(home, config).of("clients"),
        check_approvals(home, config).of("approvals"),
    ]);
    let store = open_secrets(home, config);
    checks.extend(check_egress(config));
    checks.extend(check_families(home, config, store.as_ref()).await);
    checks.push(store.as_ref().map_or_else(unreadable, check_secrets).of("secrets"));
    let hub = HubState::of(home, count_tools).await?;
    if !config.mcp.is_empty() {
        let pins = database::open_or_in_memory(home, config).ok();
        let pins = pins.map(|database| PinStore::open(&database, Arc::new(SystemClock)));
        checks.extend(check_servers(config, pins.as_ref(), hub.answers()));
    }
    checks.push(check_hub(config, hub).of("hub"));
    checks.extend(check_services(config, local::holder(home.path()).map(|hub| hub.pid)));
    Ok(checks)
}

fn check_home(path: &Path) -> CheckState {
    match std::fs::metadata(path) {
        Err(_) => {
            CheckState::Good(format!("{} (does not exist yet; created at the first start)", path.display()))
        }
        Ok(metadata) if !metadata.is_dir() => {
            CheckState::bad(format!("{} is not a folder", path.display()), "choose another with `--home DIR`")
        }
        Ok(metadata) if metadata.permissions().mode() & 0o077 != 0 => CheckState::Warning(format!(
            "{} was accessible to other users; its permissions are fixed now",
            path.display()
        )),
        Ok(_) => CheckState::Good(path.display().to_string()),
    }
}

/// Checks the configuration file. Without it nothing else can be checked.
fn check_config(home: &Home) -> (Vec<HealthCheck>, Option<Config>) {
    match Config::load(home.path(), &environment) {
        Ok(loaded) => {
            let place = loaded.path.map_or("defaults".to_owned(), |path| path.display().to_string());
            let warnings = loaded.warnings.into_iter().map(CheckState::Warning);
            let states = std::iter::once(CheckState::Good(place)).chain(warnings);
            (states.map(|state| state.of("config")).collect(), Some(loaded.config))
        }
        Err(errors) => {
            let states = errors.problems.iter().map(faulty_line);
            (states.map(|state| state.of("config")).collect(), None)
        }
    }
}

/// Shows the line and the place of an error in it, and how to correct it.
fn faulty_line(error: &ConfigError) -> CheckState {
    const SETTINGS: &str = "`portcullis init --print` shows every setting with its default";
    let Some(excerpt) = &error.excerpt else { return CheckState::bad(error.to_string(), SETTINGS) };
    let advice = match excerpt.correction() {
        Some(line) => format!("line {} should be: {line}", excerpt.line()),
        None => format!("correct line {}; {SETTINGS}", excerpt.line()),
    };
    CheckState::bad(format!("{error}\n{excerpt}"), advice)
}

/// Opens the secret store, to check what needs it. Asks for nothing.
pub fn open_secrets(home: &Home, config: &Config) -> Result<SecretStore> {
    let database = database::open_or_in_memory(home, config)?;
    secret_store::open(home, config, &database, Arc::new(SystemClock), unasked)
}

fn check_workspace(config: &Config) -> CheckState {
    let path = config.workspace.data_dir();
    match Root::create(&path) {
        Ok(_) => CheckState::Good(path.display().to_string()),
        Err(error) => CheckState::bad(
            format!("{}: {error}", path.display()),
            "check `workspace.path`, the folder's owner, and that the kernel has openat2 (Linux 5.6)",
        ),
    }
}

fn unreadable(error: &anyhow::Error) -> CheckState {
    CheckState::unreadable(format!("{error:#}"))
}

fn check_clients(home: &Home, config: &Config) -> CheckState {
    if !database::exists(config) {
        return CheckState::Good("none yet; the first start creates one".to_owned());
    }
    let clients = database::open_or_in_memory(home, config)
        .and_then(|database| Ok(ClientDirectory::open(&database, Arc::new(SystemClock)).list()?));
    match clients {
        Err(error) => unreadable(&error),
        Ok(clients) if clients.is_empty() => {
            CheckState::Warning("none, so HTTP is unusable; run `portcullis clients add NAME`".to_owned())
        }
        Ok(clients) => {
            let expired: Vec<&str> = clients
                .iter()
                .filter(|client| client.is_expired(&SystemClock))
                .map(|client| client.name.as_str())
                .collect();
            match expired.is_empty() {
                true => CheckState::Good(counted(clients.len(), "client")),
                false => CheckState::Warning(format!("expired: {}", expired.join(", "))),
            }
        }
    }
}

fn check_approvals(home: &Home, config: &Config) -> CheckState {
    let database = match database::open_or_in_memory(home, config) {
        Ok(database) => database,
        Err(error) => return unreadable(&error),
    };
    match ApprovalStore::open(&database, Arc::new(SystemClock)).pending() {
        Ok(pending) if pending.is_empty() => CheckState::Good("nothing waits for a decision".to_owned()),
        Ok(pending) => {
            CheckState::Good(format!("{} pending; list them with `portcullis approvals`", pending.len()))
        }
        Err(error) => CheckState::unreadable(error.to_string()),
    }
}

/// Runs the checks of the tool families, in their order.
pub async fn check_families(
    home: &Home,
    config: &Config,
    secrets: Result<&SecretStore, &anyhow::Error>,
) -> Vec<HealthCheck> {
    let secrets = secrets.map_err(|error| format!("{error:#}"));
    let database = database::open_or_in_memory(home, config).map_err(|error| format!("{error:#}"));
    let parts = DoctorParts {
        sections: &config.sections,
        workspace: &config.workspace,
        egress_exceptions: &config.egress.exceptions,
        secrets: secrets.as_ref().map(|store| &**store).map_err(String::as_str),
        database: database.as_ref().map_err(String::as_str),
    };
    let mut checks = Vec::new();
    for doctor in config.families.iter().filter_map(|family| family.doctor) {
        checks.extend(doctor(&parts).await);
    }
    checks
}

/// Checks the certificates for outbound requests, if any are configured.
fn check_egress(config: &Config) -> Option<HealthCheck> {
    config.egress.ca_file.as_ref()?;
    let state = match extra_roots(config) {
        Ok(roots) => CheckState::Good(format!("{} trusted", counted(roots.len(), "additional certificate"))),
        Err(error) => {
            CheckState::bad(format!("{error:#}"), "fix `egress.ca_file`; the hub does not start without it")
        }
    };
    Some(state.of("egress"))
}

fn check_secrets(store: &SecretStore) -> CheckState {
    match store.list() {
        Ok(secrets) if secrets.is_empty() => CheckState::Good("none".to_owned()),
        Ok(secrets) => CheckState::Good(counted(secrets.len(), "secret")),
        Err(error @ SecretError::Locked(_)) => CheckState::bad(
            format!("locked: {error}"),
            "restore the key, or set PORTCULLIS_KEY_FILE or PORTCULLIS_PASSPHRASE_FILE; everything that needs no secret still works",
        ),
        Err(error) => CheckState::bad(
            error.to_string(),
            "stop the hub and restore a backup of the database; everything that needs no secret still works",
        ),
    }
}
