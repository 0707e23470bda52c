//! States of scripts, for event subscribers and the counter in the navigation.
//!
//! A state changes with the file, with a decision in any process, and when an approval expires. So both folders are
//! watched, and polled at an interval as well.

use super::scripts::brief;
use crate::desk::{AdminEvent, ScriptBrief};
use crate::folder_changes::FolderChanges;
use portcullis_core::run_blocking;
use portcullis_tools::scripts::ScriptStore;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, watch};

/// Poll interval, for expiring approvals and folders created later.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// Debounce. An editor causes several events for one change.
const GATHER: Duration = Duration::from_millis(50);
/// State of a removed script.
const GONE: &str = "gone";

/// Name and state of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScriptStatus {
    state: String,
    sha256: String,
}

impl ScriptStatus {
    fn of(brief: ScriptBrief) -> (String, ScriptStatus) {
        (brief.name, ScriptStatus { state: brief.state, sha256: brief.sha256 })
    }

    fn waits(&self) -> bool {
        matches!(self.state.as_str(), "pending" | "changed")
    }
}

/// States by name; `None` before the first scan.
pub(super) type ScriptStatuses = Option<Arc<BTreeMap<String, ScriptStatus>>>;

/// Follows the states of all scripts, for subscribers.
pub struct ScriptStatusWatcher {
    scripts: Arc<ScriptStore>,
    now: watch::Sender<ScriptStatuses>,
    /// Serializes scans, so that an older result is never published last.
    looking: Mutex<()>,
}

impl ScriptStatusWatcher {
    pub(super) fn new(scripts: Arc<ScriptStore>) -> ScriptStatusWatcher {
        ScriptStatusWatcher { scripts, now: watch::Sender::new(None), looking: Mutex::default() }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<ScriptStatuses> {
        self.now.subscribe()
    }

    /// Returns how many scripts need approval.
    pub(super) async fn waiting(&self) -> usize {
        if self.now.borrow().is_none() {
            self.look_again().await;
        }
        self.now.borrow().as_ref().map_or(0, |all| all.values().filter(|stand| stand.waits()).count())
    }

    /// Scans all scripts and notifies subscribers if a state changed.
    pub(super) async fn look_again(&self) {
        let _looking = self.looking.lock().await;
        let scripts = self.scripts.clone();
        // `/readyz` reports a read error; nothing is published meanwhile.
        let Some(Ok(all)) = run_blocking(move || scripts.list()).await else { return };
        let all: BTreeMap<_, _> = all.iter().map(|listed| ScriptStatus::of(brief(listed))).collect();
        self.now.send_if_modified(|now| {
            let is_other = now.as_deref() != Some(&all);
            if is_other {
                *now = Some(Arc::new(all));
            }
            is_other
        });
    }

    /// Follows changes by other processes until shutdown.
    pub async fn watch(self: Arc<ScriptStatusWatcher>, closed: impl Future<Output = ()>) {
        tokio::pin!(closed);
        let mut decided = self.scripts.subscribe();
        let mut files = FolderChanges::of(self.scripts.folder());
        let mut clock = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                () = &mut closed => return,
                // The folder may have been created or replaced.
                _ = clock.tick() => files = FolderChanges::of(self.scripts.folder()),
                () = files.next() => {}
                Ok(()) = decided.changed() => {}
            }
            tokio::time::sleep(GATHER).await;
            self.look_again().await;
        }
    }
}

/// Returns the changes since `before`.
pub(super) fn script_events(before: &ScriptStatuses, now: &ScriptStatuses) -> Vec<AdminEvent> {
    // The first scan has nothing to compare with.
    let (Some(before), Some(now)) = (before, now) else { return Vec::new() };
    let event =
        |name: &String, state: &str| AdminEvent::Script { name: name.clone(), state: state.to_owned() };
    let other = now.iter().filter(|(name, stand)| before.get(*name) != Some(*stand));
    let mut events: Vec<AdminEvent> = other.map(|(name, stand)| event(name, &stand.state)).collect();
    events.extend(before.keys().filter(|name| !now.contains_key(*name)).map(|name| event(name, GONE)));
    events
}
