//! Services: what runs by itself beside the calls.
//!
//! A scheduler, a chat provider, a watcher of files and an engine are all a [`Service`]. The hub starts them from one list,
//! restarts one that failed with backoff, reports them in `/readyz` and `doctor`, and drains them at shutdown like calls.

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
    pub clock: Arc<dyn Clock>,
    /// For calls, by [`crate::Gate::call_as`] only.
    pub gate: GateHandle,
}

/// Something that runs until the hub shuts down.
pub trait Service: Send + Sync + 'static {
    /// Returns its name in `/readyz`, `doctor`, logs and metrics: a lower-case word or two joined by `-`.
    fn name(&self) -> &'static str;

    /// Runs until `ctx.shutdown`, or until its work is done. An error or a panic is retried with backoff, on the same
    /// value: what must survive a restart is a field.
    fn run(self: Arc<Self>, ctx: ServiceCtx) -> BoxFuture<'static, Result<(), ServiceError>>;

    fn health(&self) -> Health {
        Health::Ok
    }
}
