//! Hot reload of the configuration; an invalid file keeps the previous one in force.

use crate::config::{Config, FILE_NAMES, Level};
use crate::home::{Home, environment};
use crate::mcp::ServerManager;
use portcullis_core::{counted, run_blocking};
use portcullis_guard::AuditSettings;
use portcullis_guard::audit::{ChangeLog, SpoolReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Poll interval. A poll costs five system calls and works with every file system and editor, unlike file events.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Fingerprint of a file version.
pub type ConfigFileVersion = Vec<Option<(u64, i64, i64, u64)>>;

/// Fingerprints the file. Called before reading it, so that a change in between is noticed.
pub fn version(home: &Path) -> ConfigFileVersion {
    let look = |name| {
        let metadata = std::fs::metadata(home.join(name)).ok()?;
        Some((metadata.ino(), metadata.mtime(), metadata.mtime_nsec(), metadata.size()))
    };
    FILE_NAMES.into_iter().map(look).collect()
}

/// The running hub, as a reload changes it.
pub trait ReloadTarget: Send + Sync + 'static {
    fn servers(&self) -> &ServerManager;

    /// Returns the audit recorder of administrators' changes.
    fn change_log(&self) -> ChangeLog;

    /// Puts a configuration in force. May wait for the disk, for another process or for a key, and may start tasks.
    fn apply(&self, config: &Config);

    /// Sets why the configuration file is not in force.
    fn set_config_problem(&self, problem: String);

    fn set_log_level(&self, level: Level);
}

/// Transfers records of commands to the audit log.
struct Spool {
    reader: SpoolReader,
    /// The last error.
    trouble: Option<String>,
}

impl Spool {
    async fn take_over(&mut self) {
        let trouble = self.reader.take_over().await.err();
        if let Some(reason) = trouble.as_ref().filter(|_| trouble != self.trouble) {
            tracing::error!(target: "audit", %reason, "failed to record changes made by commands");
        }
        self.trouble = trouble;
    }
}

/// Runs what may wait. Returns whether it came to its end; the hook has logged a panic.
async fn apply_blocking<T: ReloadTarget>(target: &Arc<T>, work: impl FnOnce(&T) + Send + 'static) -> bool {
    let (target, runtime) = (target.clone(), tokio::runtime::Handle::current());
    let work = move || {
        let _entered = runtime.enter();
        work(&target);
    };
    run_blocking(work).await.is_some()
}

/// Polls the file until shutdown. `start` is the configuration that the hub started with.
pub async fn watch<T: ReloadTarget>(
    home: Home,
    mut seen: ConfigFileVersion,
    target: Arc<T>,
    start: Config,
    shutdown: CancellationToken,
) {
    let mut in_force = true;
    let audit = AuditSettings::in_folder(&start.workspace.secure_dir());
    let mut spool = Spool { reader: SpoolReader::new(&audit, target.change_log()), trouble: None };
    loop {
        tokio::select! {
            () = shutdown.cancelled() => {
                // What commands changed in the last moment is recorded, and redacted, by this hub.
                spool.take_over().await;
                return;
            }
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        spool.take_over().await;
        // Read before the file: these servers were removed from it, so an entry of the same name is new.
        let removed = target.servers().makers.toggles.removed();
        let now = version(home.path());
        if now == seen {
            if in_force && !removed.is_empty() {
                apply_blocking(&target, move |target| target.servers().makers.forget_removed(&removed)).await;
            }
            continue;
        }
        seen = now;
        match Config::load(home.path(), &environment) {
            Ok(loaded) => {
                for warning in &loaded.warnings {
                    tracing::warn!(target: "config", "{warning}");
                }
                let config = loaded.config.clone();
                in_force = apply_blocking(&target, move |target| {
                    target.apply(&config);
                    target.servers().makers.forget_removed(&removed);
                })
                .await;
                if !in_force {
                    let reason =
                        "the changed file could not be applied; see the hub's log, and restart the hub";
                    target.set_config_problem(reason.to_owned());
                    continue;
                }
                target.set_log_level(loaded.config.logging.level);
                let waiting = start.diff_needs_restart(&loaded.config);
                if waiting.is_empty() {
                    tracing::info!(target: "config", "configuration reloaded");
                } else {
                    let keys = waiting.join(", ");
                    tracing::warn!(target: "config", %keys, "configuration reloaded; some keys need a restart");
                }
            }
            Err(errors) => {
                in_force = false;
                for problem in &errors.problems {
                    tracing::error!(target: "config", "{problem}");
                }
                tracing::error!(target: "config", "configuration invalid; keeping the previous one");
                let count = counted(errors.problems.len(), "error");
                target.set_config_problem(format!(
                    "the changed file has {count}, so the previous configuration is in force; `portcullis doctor` lists them"
                ));
            }
        }
    }
}
