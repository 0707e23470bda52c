//! A running hub follows what people say about its servers, and says how they stand.

use super::{Servers, shown};
use crate::folder_changes::FolderChanges;
use jiff::Timestamp;
use portcullis_core::{Clock, SystemClock};
use portcullis_server::Hub;
use portcullis_store::servers::StatusBoard;
use portcullis_upstream::Status;
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// How often the files are looked at where the kernel does not tell of changes, as on network file systems.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Changes that come closer together are written as one.
const DAMPED: Duration = Duration::from_millis(20);

/// Passes on that one server stands otherwise than before, until it is gone.
pub(super) async fn forward(mut status: watch::Receiver<Status>, changed: Arc<Notify>) {
    while status.changed().await.is_ok() {
        changed.notify_one();
    }
}

/// Looks at the files in the folder `secure` until the hub closes, and keeps the one of its own up to date there.
pub(crate) async fn watch(servers: Arc<Servers>, secure: PathBuf, hub: Arc<Hub>) {
    let (changes, board) = (FolderChanges::of(&secure), Arc::new(StatusBoard::open(&secure)));
    let (mut written, mut told, mut trouble) = (None, None, None);
    loop {
        let now = statuses(&servers);
        // Again with every look: what is a secret changes too.
        let mut clean = now.clone();
        clean.values_mut().for_each(|stands| servers.makers.scrub(stands));
        // A hub that never had a server leaves no file.
        if written.as_ref() != Some(&clean) && (written.is_some() || !clean.is_empty()) {
            let (board, value) = (board.clone(), Value::Object(clean.clone()));
            let at = Timestamp::try_from(SystemClock.now()).unwrap_or_default().to_string();
            let done =
                tokio::task::spawn_blocking(move || board.write(&value, &at, std::process::id())).await;
            match done {
                Ok(Ok(())) => (written, trouble) = (Some(clean), None),
                // Tried again with the next look, and said once.
                Ok(Err(error)) => {
                    let why = error.to_string();
                    if trouble.as_ref() != Some(&why) {
                        tracing::warn!(target: "upstream", %error, "How the servers stand cannot be written.");
                        trouble = Some(why);
                    }
                }
                // The process ends, or a panic was told by the hook.
                Err(_) => {}
            }
        }
        if told.as_ref() != Some(&now) {
            servers.stands.send_replace(());
            told = Some(now);
        }
        tokio::select! {
            () = hub.closed() => return,
            () = servers.changed.notified() => tokio::time::sleep(DAMPED).await,
            () = changes.next() => follow(&servers).await,
            () = tokio::time::sleep(LOOK_EVERY) => follow(&servers).await,
        }
    }
}

/// Does what is wanted now, and shows what is trusted now. Reads files, so not on a thread of the runtime.
async fn follow(servers: &Arc<Servers>) {
    let servers = servers.clone();
    let runtime = tokio::runtime::Handle::current();
    // A panic in there was told by the hook; the next look tries again.
    let _ = tokio::task::spawn_blocking(move || {
        let _entered = runtime.enter();
        servers.follow();
    })
    .await;
}

fn statuses(servers: &Servers) -> Map<String, Value> {
    servers.statuses().into_iter().map(|(name, status)| (name, shown(&status))).collect()
}
