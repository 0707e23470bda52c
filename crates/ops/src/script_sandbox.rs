//! Script store and sandbox, for the hub and the command line.

use crate::config::Config;
use crate::tool_families;
use portcullis_core::{Clock, SystemClock, ToolError};
use portcullis_egress::EgressClient;
use portcullis_script::{PoolSettings, WORD, WorkerPool};
use portcullis_store::database::Database;
use portcullis_store::secrets::SecretStore;
use portcullis_tools::scripts::ScriptStore;
use portcullis_tools::{ScriptChecker, ScriptsConfig};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Concurrent scripts; others queue.
const RUNNING_MAX: usize = 4;
/// Idle timeout of pre-started workers.
const IDLE: Duration = Duration::from_secs(60);

/// Opens the store of script decisions.
pub fn open(config: &Config, database: &Database) -> ScriptStore {
    open_in(config, database, &config.scripts.folder)
}

fn open_in(config: &Config, database: &Database, folder: &Path) -> ScriptStore {
    ScriptStore::open(folder, database, config.scripts.allow.clone(), Arc::new(SystemClock))
}

/// The script desk of a command.
pub fn desk(config: &Config, database: &Database) -> ScriptChecker {
    ScriptChecker::new(Arc::new(open(config, database)), pool(config, 0), config.scripts.timeout)
}

fn pool(config: &Config, warm: usize) -> WorkerPool {
    WorkerPool::new(PoolSettings {
        program: own_program(),
        arguments: vec![WORD.to_owned()],
        memory_bytes_max: config.scripts.memory_bytes_max,
        strictness: config.scripts.strictness,
        warm,
        running_max: RUNNING_MAX,
        idle: IDLE,
    })
}

/// The running binary, even if it was replaced on disk.
fn own_program() -> PathBuf {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() { own } else { std::env::current_exe().unwrap_or(own) }
}

/// Dependencies of the script tools in a hub.
pub fn family(config: &Config, database: &Database, store: &Arc<SecretStore>) -> ScriptsConfig {
    let names = store.clone();
    let egress = {
        let (config, store, made) = (config.clone(), store.clone(), OnceLock::<Arc<EgressClient>>::new());
        move || {
            if let Some(made) = made.get() {
                return Ok(made.clone());
            }
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            let new = tool_families::egress(&config, store.clone(), clock).map_err(|error| {
                ToolError::unavailable("the network cannot be used")
                    .hint("tell the user: `portcullis doctor` says why")
                    .caused_by(error.to_string())
            })?;
            Ok(made.get_or_init(|| Arc::new(new)).clone())
        }
    };
    ScriptsConfig {
        scripts: Arc::new(open(config, database)),
        pool: pool(config, config.scripts.warm),
        egress: Arc::new(egress),
        has_secret: Arc::new(move |name| {
            names.list().is_ok_and(|secrets| secrets.iter().any(|secret| secret.name == name))
        }),
        timeout: config.scripts.timeout,
        exec: config.scripts.exec.clone(),
    }
}

/// The script tools for listing only: they read and run nothing.
pub fn nowhere(config: &Config, database: &Database) -> ScriptsConfig {
    let nothing = Path::new("/nonexistent");
    ScriptsConfig {
        scripts: Arc::new(open_in(config, database, nothing)),
        pool: pool(config, 0),
        egress: Arc::new(|| Err(ToolError::unavailable("there is no network here"))),
        has_secret: Arc::new(|_| false),
        timeout: config.scripts.timeout,
        exec: config.scripts.exec.clone(),
    }
}
