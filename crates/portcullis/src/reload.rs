//! Hot reload of the configuration; an invalid file keeps the previous one in force.

use crate::compose::{BoundAddress, ComposedHub};
use crate::config::Config;
use crate::home::Home;
use crate::logging::LogLevelHandle;
use crate::services;
use portcullis_core::Service;
use portcullis_guard::AuditSettings;
use portcullis_guard::audit::SpoolReader;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Poll interval. A poll costs five system calls and works with every file system and editor, unlike file events.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Fingerprint of a file version.
pub(crate) type ConfigFileVersion = Vec<Option<(u64, i64, i64, u64)>>;

/// Fingerprints the file. Called before reading it, so that a change in between is noticed.
pub(crate) fn version(home: &Path) -> ConfigFileVersion {
    let names = ["portcullis.toml", "portcullis.yaml", "portcullis.yml", "portcullis.json"];
    let look = |name| {
        let metadata = std::fs::metadata(home.join(name)).ok()?;
        Some((metadata.ino(), metadata.mtime(), metadata.mtime_nsec(), metadata.size()))
    };
    names.into_iter().map(look).collect()
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

/// The service that follows changes of the configuration file.
pub(crate) fn service(
    home: &Home,
    seen: &ConfigFileVersion,
    composed: &Arc<ComposedHub>,
    start: &Config,
    bound: Option<BoundAddress>,
    log_level: LogLevelHandle,
) -> Arc<dyn Service> {
    let (home, seen, start) = (home.clone(), seen.clone(), start.clone());
    // Weak: the hub owns its services.
    let composed = Arc::downgrade(composed);
    services::service("config", move |ctx| {
        let (home, seen, start) = (home.clone(), seen.clone(), start.clone());
        let (bound, log_level) = (bound.clone(), log_level.clone());
        let composed = composed.upgrade();
        async move {
            if let Some(composed) = composed {
                watch(home, seen, composed, start, bound, log_level, ctx.shutdown).await;
            }
        }
    })
}

/// Runs what may wait for the disk, for another process or for a key. It may start tasks.
///
/// Returns whether it came to its end. The hook has logged a panic.
async fn on_blocking_thread(
    composed: &Arc<ComposedHub>,
    work: impl FnOnce(&ComposedHub) + Send + 'static,
) -> bool {
    let (composed, runtime) = (composed.clone(), tokio::runtime::Handle::current());
    let work = move || {
        let _entered = runtime.enter();
        work(&composed);
    };
    tokio::task::spawn_blocking(work).await.is_ok()
}

/// Polls the file until shutdown.
async fn watch(
    home: Home,
    mut seen: ConfigFileVersion,
    composed: Arc<ComposedHub>,
    start: Config,
    bound: Option<BoundAddress>,
    log_level: LogLevelHandle,
    shutdown: CancellationToken,
) {
    let mut in_force = true;
    let audit = AuditSettings::in_folder(&start.workspace.secure_dir());
    let mut spool = Spool { reader: SpoolReader::new(&audit, composed.change_log()), trouble: None };
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
        let removed = composed.servers.makers.toggles.removed();
        let now = version(home.path());
        if now == seen {
            if in_force && !removed.is_empty() {
                on_blocking_thread(&composed, move |composed| {
                    composed.servers.makers.forget_removed(&removed);
                })
                .await;
            }
            continue;
        }
        seen = now;
        match Config::load(home.path(), &|name| std::env::var_os(name)) {
            Ok(loaded) => {
                for warning in &loaded.warnings {
                    tracing::warn!(target: "config", "{warning}");
                }
                let (config, bound) = (loaded.config.clone(), bound.clone());
                in_force = on_blocking_thread(&composed, move |composed| {
                    composed.apply(&config, bound.as_ref());
                    composed.servers.makers.forget_removed(&removed);
                })
                .await;
                if !in_force {
                    let reason =
                        "the changed file could not be applied; see the hub's log, and restart the hub";
                    composed.health.set(Some(reason.to_owned()));
                    continue;
                }
                log_level.set(loaded.config.logging.level);
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
                let count = errors.problems.len();
                composed.health.set(Some(format!(
                    "the changed file has {count} errors, so the previous configuration is in force; `portcullis doctor` lists them"
                )));
            }
        }
    }
}
