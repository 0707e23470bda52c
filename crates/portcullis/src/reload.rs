//! A changed configuration file takes effect; a bad one does not.

use crate::compose::{Bound, Composed};
use crate::config::Config;
use crate::home::Home;
use crate::logging::LogLevel;
use portcullis_guard::AuditSettings;
use portcullis_guard::audit::SpoolReader;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How often the file is looked at. A look costs five system calls, and works on every file system and with every
/// editor, which watches do not.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What tells one version of a file from another.
pub(crate) type Version = Vec<Option<(u64, i64, i64, u64)>>;

/// Looks at the file. Before it is read, so that a change in between is noticed.
pub(crate) fn version(home: &Path) -> Version {
    let names = ["portcullis.toml", "portcullis.yaml", "portcullis.yml", "portcullis.json"];
    let look = |name| {
        let metadata = std::fs::metadata(home.join(name)).ok()?;
        Some((metadata.ino(), metadata.mtime(), metadata.mtime_nsec(), metadata.size()))
    };
    names.into_iter().map(look).collect()
}

/// What commands changed and the hub puts on the record.
struct Spool {
    reader: SpoolReader,
    /// Why that did not work the last time.
    trouble: Option<String>,
}

impl Spool {
    async fn take_over(&mut self) {
        let trouble = self.reader.take_over().await.err();
        if let Some(reason) = trouble.as_ref().filter(|_| trouble != self.trouble) {
            tracing::error!(target: "audit", %reason, "What commands changed cannot be put on the record.");
        }
        self.trouble = trouble;
    }
}

/// Looks at the file until the hub closes.
pub(crate) async fn watch(
    home: Home,
    mut seen: Version,
    composed: Arc<Composed>,
    start: Config,
    bound: Option<Bound>,
    log_level: LogLevel,
) {
    let mut in_force = true;
    let audit = AuditSettings::in_folder(&start.workspace.secure_dir());
    let mut spool = Spool { reader: SpoolReader::new(&audit, composed.change_log()), trouble: None };
    loop {
        tokio::select! {
            () = composed.hub.closed() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        spool.take_over().await;
        let makers = &composed.servers.makers;
        // Before the file is looked at: these were taken out of it, so what it has of their names is new.
        let removed = makers.toggles.removed();
        let now = version(home.path());
        if now == seen {
            if in_force {
                makers.forget_removed(&removed);
            }
            continue;
        }
        seen = now;
        match Config::load(home.path(), &|name| std::env::var_os(name)) {
            Ok(loaded) => {
                for warning in &loaded.warnings {
                    tracing::warn!(target: "config", "{warning}");
                }
                composed.apply(&loaded.config, bound.as_ref());
                in_force = true;
                makers.forget_removed(&removed);
                log_level.set(loaded.config.logging.level);
                let waiting = start.diff_needs_restart(&loaded.config);
                if waiting.is_empty() {
                    tracing::info!(target: "config", "The changed configuration is in force.");
                } else {
                    let keys = waiting.join(", ");
                    tracing::warn!(target: "config", %keys, "The changed configuration is in force, but for these keys, which need a restart.");
                }
            }
            Err(errors) => {
                in_force = false;
                for problem in &errors.problems {
                    tracing::error!(target: "config", "{problem}");
                }
                tracing::error!(target: "config", "The changed configuration has errors; the last good one stays in force.");
                let count = errors.problems.len();
                composed.health.set(Some(format!(
                    "the changed file has {count} errors, so the last good one is in force; `portcullis doctor` names them"
                )));
            }
        }
    }
}
