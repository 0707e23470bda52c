//! Services: what runs by itself beside the calls.
//!
//! A scheduler, a chat provider, a watcher of files and an engine are all a [`Service`]. The hub starts them from one list,
//! restarts one that failed with backoff, reports them in `/readyz` and `doctor`, and drains them at shutdown like calls.
//!
//! A service gets what it works on when it is made: its database, its configuration, its files. [`ServiceCtx`] has only what
//! every service has, and this crate knows no store.
//!
//! Upstream servers are not services: there are many of them, they come and go with the configuration, and each has a state
//! that people see. `upstream::supervise` starts them with a backoff and a status of its own.

use crate::clock::Clock;
use crate::principal::GateHandle;
use futures::future::BoxFuture;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Why a service ended. The supervisor logs it and starts the service again.
pub type ServiceError = Box<dyn std::error::Error + Send + Sync>;

/// What a service says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    Ok,
    /// It runs, but cannot do its work, for this reason.
    Failed(String),
}

/// What a service gets when it is started.
#[derive(Clone)]
pub struct ServiceCtx {
    /// Cancelled when the hub shuts down. The service gives up its leases and returns.
    pub shutdown: CancellationToken,
    /// Cancelled after that, when the calls in flight are done: the end of a service that calls rely on.
    pub calls_over: CancellationToken,
    pub clock: Arc<dyn Clock>,
    /// For calls, by [`crate::Gate::call_as`] only.
    pub gate: GateHandle,
}

/// Something that runs until the hub shuts down.
pub trait Service: Send + Sync + 'static {
    /// Returns its name in `/readyz`, `doctor`, logs and metrics: a lower-case word or two joined by `-`.
    fn name(&self) -> &'static str;

    /// Runs until `ctx.shutdown`. An error or a panic is retried with backoff, on the same value: what must survive a restart
    /// is a field. To return earlier is a failure too, unless the service is finite.
    fn run(self: Arc<Self>, ctx: ServiceCtx) -> BoxFuture<'static, Result<(), ServiceError>>;

    /// Returns whether its work has an end: such a service is done when `run` returns.
    fn is_finite(&self) -> bool {
        false
    }

    fn health(&self) -> Health {
        Health::Ok
    }
}
