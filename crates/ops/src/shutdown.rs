//! Shutdown signals of a process.

use crate::shutdown_watchdog;
use anyhow::Result;
use portcullis_upstream::Shutdown;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Counts the shutdown signals of a process, and stops its upstream servers. Clones are the same one.
#[derive(Clone, Default)]
pub struct ShutdownWatch {
    signals: Arc<watch::Sender<u32>>,
    servers: Shutdown,
}

impl ShutdownWatch {
    /// Returns the watch of a process with these servers.
    pub fn of(servers: &Shutdown) -> ShutdownWatch {
        ShutdownWatch { servers: servers.clone(), ..ShutdownWatch::default() }
    }

    /// Returns what stops the servers of the process.
    pub fn servers(&self) -> &Shutdown {
        &self.servers
    }

    /// Returns the signals from now on. Created early: earlier signals are not caught.
    pub fn signals(&self) -> std::io::Result<ShutdownSignals> {
        Ok(ShutdownSignals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            watch: self.clone(),
        })
    }

    /// Exits the process if the shutdown takes longer than this, also if all workers of the runtime are stuck.
    pub fn exit_within(&self, within: Duration) -> Result<()> {
        shutdown_watchdog::watch(self.clone(), within)
    }

    /// Returns whether a second signal has come.
    pub fn is_insisted(&self) -> bool {
        *self.signals.borrow() > 1
    }

    /// Resolves when a second signal has come, also if that was before. The steps of a shutdown listen for it one after
    /// the other, and could miss it in between.
    pub async fn insisted(&self) {
        // The sender is held here.
        let _ = self.signals.subscribe().wait_for(|count| *count > 1).await;
    }

    /// Counts a signal, unless another listener has counted it: `nth` is the number of signals that the caller heard.
    pub(crate) fn count(&self, nth: u32) {
        self.signals.send_if_modified(|count| {
            let is_new = *count < nth;
            *count = nth.max(*count);
            is_new
        });
    }
}

/// Shutdown signals, from its creation on.
pub struct ShutdownSignals {
    terminate: Signal,
    interrupt: Signal,
    watch: ShutdownWatch,
}

impl ShutdownSignals {
    /// Resolves at each shutdown signal.
    pub async fn received(&mut self) {
        self.heard().await;
        let before = *self.watch.signals.borrow();
        self.watch.count(before + 1);
    }

    /// As [`received`](Self::received), for an observer.
    pub(crate) async fn heard(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
