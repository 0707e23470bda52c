//! Scripts in a hub and on the command line: the same store, the same sandbox.

use crate::compose;
use crate::config::Config;
use portcullis_core::{Clock, SystemClock, ToolError};
use portcullis_egress::Egress;
use portcullis_script::{Pool, PoolSettings, WORD};
use portcullis_store::scripts::Scripts;
use portcullis_store::secrets::SecretStore;
use portcullis_tools::{ScriptDesk, ScriptsConfig};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How many scripts run at the same time; others wait for their turn.
const RUNNING_MAX: usize = 4;
/// After how long without a script the processes that stand ready end.
const IDLE: Duration = Duration::from_secs(60);

/// Opens what was decided about scripts.
pub(crate) fn open(config: &Config) -> Scripts {
    open_in(config, &config.workspace.secure_dir(), &config.scripts.folder)
}

fn open_in(config: &Config, secure: &Path, folder: &Path) -> Scripts {
    Scripts::open(folder, secure, config.scripts.allow.clone(), Arc::new(SystemClock))
}

/// The desk of a process that is no hub.
pub(crate) fn desk(config: &Config) -> ScriptDesk {
    ScriptDesk::new(Arc::new(open(config)), pool(config, 0), config.scripts.timeout)
}

fn pool(config: &Config, warm: usize) -> Pool {
    Pool::new(PoolSettings {
        program: own_program(),
        arguments: vec![WORD.to_owned()],
        memory_bytes_max: config.scripts.memory_bytes_max,
        strictness: config.scripts.strictness,
        warm,
        running_max: RUNNING_MAX,
        idle: IDLE,
    })
}

/// The binary as it was when this process started, also if it was replaced meanwhile.
fn own_program() -> PathBuf {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() { own } else { std::env::current_exe().unwrap_or(own) }
}

/// What the family of a hub needs.
pub(crate) fn family(config: &Config, store: &Arc<SecretStore>) -> ScriptsConfig {
    let names = store.clone();
    let egress = {
        let (config, store, made) = (config.clone(), store.clone(), OnceLock::<Arc<Egress>>::new());
        move || {
            if let Some(made) = made.get() {
                return Ok(made.clone());
            }
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            let new = compose::egress(&config, store.clone(), clock).map_err(|error| {
                ToolError::unavailable("the network cannot be used")
                    .hint("tell the user: `portcullis doctor` says why")
                    .caused_by(error.to_string())
            })?;
            Ok(made.get_or_init(|| Arc::new(new)).clone())
        }
    };
    ScriptsConfig {
        scripts: Arc::new(open(config)),
        pool: pool(config, config.scripts.warm),
        egress: Arc::new(egress),
        has_secret: Arc::new(move |name| {
            names.list().is_ok_and(|secrets| secrets.iter().any(|secret| secret.name == name))
        }),
        timeout: config.scripts.timeout,
        exec: config.scripts.exec.clone(),
        gate: Arc::default(),
    }
}

/// A family that is only looked at: it reads nothing and runs nothing.
pub(crate) fn nowhere(config: &Config) -> ScriptsConfig {
    let nothing = Path::new("/nonexistent");
    ScriptsConfig {
        scripts: Arc::new(open_in(config, nothing, nothing)),
        pool: pool(config, 0),
        egress: Arc::new(|| Err(ToolError::unavailable("there is no network here"))),
        has_secret: Arc::new(|_| false),
        timeout: config.scripts.timeout,
        exec: config.scripts.exec.clone(),
        gate: Arc::default(),
    }
}
