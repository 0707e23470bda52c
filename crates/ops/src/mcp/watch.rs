//! Watches overrides and pins of servers, and writes the status file.

use super::{ServerManager, shown};
use crate::status_file::StatusFile;
use portcullis_core::{SystemClock, run_blocking};
use portcullis_store::servers::StatusBoard;
use portcullis_upstream::ServerStatus;
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// Poll interval where file events are unavailable, as on network file systems.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Debounce of status writes.
const DAMPED: Duration = Duration::from_millis(20);

/// Forwards status changes of one server until it is gone.
pub(super) async fn forward(mut status: watch::Receiver<ServerStatus>, changed: Arc<Notify>) {
    while status.changed().await.is_ok() {
        changed.notify_one();
    }
}

/// Watches the files in `secure` until shutdown, and keeps the status file up to date.
pub async fn watch(servers: Arc<ServerManager>, secure: PathBuf, closed: impl Future<Output = ()>) {
    tokio::pin!(closed);
    let board = StatusFile::new(StatusBoard::open(&secure));
    let (mut pinned, mut wanted) = (servers.makers.pins.subscribe(), servers.makers.toggles.subscribe());
    let (mut written, mut announced, mut trouble) = (None, None, None);
    loop {
        let now = statuses(&servers);
        // Redacted each time: the set of secrets changes too.
        let mut clean = now.clone();
        clean.values_mut().for_each(|status| servers.makers.scrub(status));
        // No file for a hub that never had a server.
        if written.as_ref() != Some(&clean) && (written.is_some() || !clean.is_empty()) {
            match board.write(clean.clone(), &SystemClock).await {
                Some(Ok(())) => (written, trouble) = (Some(clean), None),
                // Retried at the next poll, logged once.
                Some(Err(error)) => {
                    let why = error.to_string();
                    if trouble.as_ref() != Some(&why) {
                        tracing::warn!(target: "upstream", %error, "failed to write the status file");
                        trouble = Some(why);
                    }
                }
                None => {}
            }
        }
        if announced.as_ref() != Some(&now) {
            servers.status_changes.send_replace(());
            announced = Some(now);
        }
        tokio::select! {
            () = &mut closed => return,
            () = servers.changed.notified() => tokio::time::sleep(DAMPED).await,
            Ok(()) = pinned.changed() => follow(&servers).await,
            Ok(()) = wanted.changed() => follow(&servers).await,
            () = tokio::time::sleep(LOOK_EVERY) => follow(&servers).await,
        }
    }
}

/// Applies overrides and pins, on the blocking pool.
async fn follow(servers: &Arc<ServerManager>) {
    let servers = servers.clone();
    let runtime = tokio::runtime::Handle::current();
    // The hook has logged a panic; the next poll retries.
    let _ = run_blocking(move || {
        let _entered = runtime.enter();
        servers.follow();
    })
    .await;
}

fn statuses(servers: &ServerManager) -> Map<String, Value> {
    servers.statuses().into_iter().map(|(name, status)| (name, shown(&status))).collect()
}
