//! Reachability of one upstream server: the live connection, the status that people see, and when the next retry is due.

use super::live_connection::LiveConnection;
use crate::rpc::handshake::ProtocolHint;
use crate::status::{ServerStatus, StartPhase, StartProgress, StatusKind};
use crate::transport::DiagnosticTail;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

pub(crate) struct Reachability {
    pub(crate) live: LiveConnection,
    pub(crate) status: watch::Sender<ServerStatus>,
    attempt: Mutex<StartAttempt>,
    /// Whether it does not run because it is not needed.
    idle: AtomicBool,
    /// Whether a call failed for want of a login, and none succeeded since.
    locked_out: AtomicBool,
    retry: Retry,
}

/// The current attempt to connect.
#[derive(Default)]
struct StartAttempt {
    phase: Option<StartPhase>,
    diagnostics: DiagnosticTail,
}

/// When the supervisor tries again.
#[derive(Default)]
struct Retry {
    /// How often the server could not be started or reached.
    failures: AtomicU64,
    /// The end of the current backoff.
    at: Mutex<Option<Instant>>,
    /// Notified to connect again now.
    now: Notify,
    /// Whether a person wants that, so that it is no sign of a fault.
    requested: AtomicBool,
    hint: Mutex<Option<ProtocolHint>>,
}

impl Default for Reachability {
    fn default() -> Reachability {
        Reachability {
            live: LiveConnection::default(),
            status: watch::Sender::new(ServerStatus::of(StatusKind::Starting)),
            attempt: Mutex::default(),
            idle: AtomicBool::new(false),
            locked_out: AtomicBool::new(false),
            retry: Retry::default(),
        }
    }
}

impl Reachability {
    /// Returns the era and transport that worked on the last connection.
    pub(crate) fn hint(&self) -> Option<ProtocolHint> {
        self.retry.hint.lock().clone()
    }

    pub(crate) fn set_hint(&self, hint: Option<ProtocolHint>) {
        *self.retry.hint.lock() = hint;
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.idle.load(Ordering::Acquire)
    }

    /// Takes note that it does not run until it is needed.
    pub(super) fn set_idle(&self) {
        self.idle.store(true, Ordering::Release);
    }

    /// Takes note that it is started.
    pub(super) fn set_starting(&self) {
        self.idle.store(false, Ordering::Release);
        self.status.send_modify(|status| (status.kind, status.idle) = (StatusKind::Starting, false));
    }

    /// Takes note of a failed attempt, and when the next one is due.
    pub(super) fn failed(&self, status: ServerStatus, retry_at: Instant) {
        self.retry.failures.fetch_add(1, Ordering::AcqRel);
        *self.retry.at.lock() = Some(retry_at);
        // Last: those who wait look when it changes.
        self.status.send_replace(status);
    }

    /// Takes note that an attempt begins, whenever it was due, and where its server writes.
    pub(super) fn attempting(&self, diagnostics: DiagnosticTail) {
        *self.attempt.lock() = StartAttempt { phase: Some(StartPhase::Launch), diagnostics };
        *self.retry.at.lock() = None;
        self.take_reconnect_request();
    }

    /// Takes note of how far the attempt is; `None` once the server is connected.
    pub(super) fn set_phase(&self, phase: Option<StartPhase>) {
        self.attempt.lock().phase = phase;
    }

    pub(crate) fn start_progress(&self) -> StartProgress {
        let attempt = self.attempt.lock();
        StartProgress { phase: attempt.phase, last_line: attempt.diagnostics.last_line() }
    }

    pub(super) fn failures(&self) -> u64 {
        self.retry.failures.load(Ordering::Acquire)
    }

    /// Returns whether the backoff ends only after that time.
    pub(super) fn is_backing_off_until(&self, time: Instant) -> bool {
        self.retry.at.lock().is_some_and(|at| at > time)
    }

    /// Connects again now, because a person wants it.
    pub(crate) fn request_reconnect(&self) {
        self.retry.requested.store(true, Ordering::Release);
        self.reconnect();
    }

    /// Returns whether a person has asked for it since the last time.
    pub(super) fn take_reconnect_request(&self) -> bool {
        self.retry.requested.swap(false, Ordering::AcqRel)
    }

    /// Connects again now.
    pub(crate) fn reconnect(&self) {
        self.retry.now.notify_one();
    }

    /// Waits until the server is to be connected again now.
    pub(super) async fn reconnect_requested(&self) {
        self.retry.now.notified().await;
    }

    /// Takes note that the server wants a login.
    pub(super) fn login_required(&self, reason: String) {
        // Until a person has logged in, or a call succeeds without.
        self.locked_out.store(true, Ordering::Relaxed);
        self.status.send_if_modified(|status| {
            let is_news = status.kind == StatusKind::Connected && !status.idle;
            if is_news {
                (status.kind, status.reason) = (StatusKind::NeedsAuth, Some(reason));
            }
            is_news
        });
    }

    /// Takes note of a successful call: a person has logged in, or only one tool wants a login.
    pub(super) fn call_succeeded(&self) {
        // A load first: this runs on every call.
        if !self.locked_out.load(Ordering::Relaxed) {
            return;
        }
        self.locked_out.store(false, Ordering::Relaxed);
        self.status.send_if_modified(|status| {
            let is_news = status.kind == StatusKind::NeedsAuth && self.live.is_there();
            if is_news {
                (status.kind, status.reason) = (StatusKind::Connected, None);
            }
            is_news
        });
    }
}
