//! Lifecycle of one connection: open, retired (no new requests), closed; and the liveness check.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_util::sync::CancellationToken;

/// Whether a connection takes requests, and why the hub gave it up where it did.
#[derive(Default)]
pub struct ConnectionLifecycle {
    /// Cancelled when the server is gone.
    pub closed: CancellationToken,
    /// Cancelled when a new connection is needed. Requests in flight on this one go on.
    pub retired: CancellationToken,
    reason: OnceLock<&'static str>,
    /// Whether a liveness probe is under way. Cleared by anything that shows the server to be alive.
    in_doubt: AtomicBool,
}

impl ConnectionLifecycle {
    pub(crate) fn close(&self) {
        self.closed.cancel();
        self.retired.cancel();
    }

    /// Takes no new requests. Those in flight find out by themselves how they end.
    pub fn retire(&self) {
        self.retired.cancel();
    }

    /// The same, for a reason that a person should know.
    pub(crate) fn retire_for(&self, reason: &'static str) {
        self.set_reason(reason);
        self.retire();
    }

    /// Notes why the hub gives the connection up. Only the first reason counts.
    pub(crate) fn set_reason(&self, reason: &'static str) {
        let _ = self.reason.set(reason);
    }

    /// Returns why the hub gave the connection up, where it did.
    pub(crate) fn given_up_for(&self) -> Option<&'static str> {
        self.reason.get().copied()
    }

    /// Begins a liveness probe.
    pub(crate) fn doubt(&self) {
        self.in_doubt.store(true, Ordering::Release);
    }

    /// Ends the probe. Returns whether the server gave no sign of life meanwhile.
    pub(crate) fn is_silent(&self) -> bool {
        self.in_doubt.swap(false, Ordering::AcqRel)
    }

    /// Takes note of a sign of life.
    pub(crate) fn alive(&self) {
        // A load first: this runs for every response, and the probe is rare.
        if self.in_doubt.load(Ordering::Relaxed) {
            self.in_doubt.store(false, Ordering::Release);
        }
    }
}
