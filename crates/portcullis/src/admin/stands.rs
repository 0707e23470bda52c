//! How scripts stand, for whoever watches and for the number beside the menu.
//!
//! A script stands differently when its file changes, when somebody decides, in whichever process, and when an approval
//! ends. So both folders are watched, and looked at now and then in any case.

use super::scripts::brief;
use crate::folder_changes::FolderChanges;
use portcullis_admin::desk::{Event, ScriptBrief};
use portcullis_server::Hub;
use portcullis_store::scripts::Scripts;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, watch};

/// How often is looked without a sign: for approvals that end, and folders that were not there yet.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// How long signs are gathered. An editor gives several for one change.
const GATHER: Duration = Duration::from_millis(50);
/// What a script is called that is not there any more.
const GONE: &str = "gone";

/// What is told of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stand {
    state: String,
    sha256: String,
}

impl Stand {
    fn of(brief: ScriptBrief) -> (String, Stand) {
        (brief.name, Stand { state: brief.state, sha256: brief.sha256 })
    }

    fn waits(&self) -> bool {
        matches!(self.state.as_str(), "pending" | "changed")
    }
}

/// By name; nothing before anybody looked.
pub(super) type Standing = Option<Arc<BTreeMap<String, Stand>>>;

pub(super) struct Stands {
    scripts: Arc<Scripts>,
    now: watch::Sender<Standing>,
    /// One who looks at a time, so that nobody tells something older last.
    looking: Mutex<()>,
}

impl Stands {
    pub(super) fn new(scripts: Arc<Scripts>) -> Stands {
        Stands { scripts, now: watch::Sender::new(None), looking: Mutex::default() }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Standing> {
        self.now.subscribe()
    }

    /// Returns how many scripts wait for a person.
    pub(super) async fn waiting(&self) -> usize {
        if self.now.borrow().is_none() {
            self.look_again().await;
        }
        self.now.borrow().as_ref().map_or(0, |all| all.values().filter(|stand| stand.waits()).count())
    }

    /// Looks at all scripts, and tells who watches if one stands differently.
    pub(super) async fn look_again(&self) {
        let _looking = self.looking.lock().await;
        let scripts = self.scripts.clone();
        // What cannot be read is said by `/readyz`; until it can, nothing is told.
        let Ok(Ok(all)) = tokio::task::spawn_blocking(move || scripts.list()).await else { return };
        let all: BTreeMap<_, _> = all.iter().map(|listed| Stand::of(brief(listed))).collect();
        self.now.send_if_modified(|now| {
            let is_other = now.as_deref() != Some(&all);
            if is_other {
                *now = Some(Arc::new(all));
            }
            is_other
        });
    }

    /// Follows what other processes do, until the hub closes.
    pub(super) async fn watch(self: Arc<Stands>, secure: PathBuf, hub: Arc<Hub>) {
        let decided = FolderChanges::of(&secure);
        let mut files = FolderChanges::of(self.scripts.folder());
        let mut clock = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                () = hub.closed() => return,
                // The folder may have been made meanwhile, or be another one.
                _ = clock.tick() => files = FolderChanges::of(self.scripts.folder()),
                () = files.next() => {}
                () = decided.next() => {}
            }
            tokio::time::sleep(GATHER).await;
            self.look_again().await;
        }
    }
}

/// Returns what is to be told to one who knew `before`.
pub(super) fn told(before: &Standing, now: &Standing) -> Vec<Event> {
    // Whoever has seen nothing yet has nothing to compare with.
    let (Some(before), Some(now)) = (before, now) else { return Vec::new() };
    let event = |name: &String, state: &str| Event::Script { name: name.clone(), state: state.to_owned() };
    let other = now.iter().filter(|(name, stand)| before.get(*name) != Some(*stand));
    let mut events: Vec<Event> = other.map(|(name, stand)| event(name, &stand.state)).collect();
    events.extend(before.keys().filter(|name| !now.contains_key(*name)).map(|name| event(name, GONE)));
    events
}
