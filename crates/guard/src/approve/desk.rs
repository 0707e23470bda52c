//! The approval desk: creates, decides and waits for approval requests.

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use portcullis_core::{Clock, ErrorKind, ToolError, blocking};
use portcullis_store::approvals::{
    Approval, ApprovalError, ApprovalLifetimes, ApprovalOutcome, ApprovalRequest, ApprovalSnapshot,
    ApprovalStage, ApprovalStore, ApprovalVerdict,
};
use portcullis_store::database::Database;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Timeouts and lifetimes of approvals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApprovalTimes {
    /// How long a call waits for a decision before it fails with `needs_approval`.
    pub wait: Duration,
    pub lifetimes: ApprovalLifetimes,
}

impl Default for ApprovalTimes {
    fn default() -> ApprovalTimes {
        ApprovalTimes {
            // Below the one-minute timeout of common clients.
            wait: Duration::from_secs(50),
            lifetimes: ApprovalLifetimes {
                pending: Duration::from_secs(24 * 60 * 60),
                approved: Duration::from_secs(60 * 60),
            },
        }
    }
}

/// The approvals of a running hub. Clones share state.
#[derive(Clone)]
pub struct ApprovalDesk {
    inner: Arc<Inner>,
}

struct Inner {
    store: ApprovalStore,
    times: ArcSwap<ApprovalTimes>,
    closed: CancellationToken,
    /// The approvals with an open form at some client, so that no person gets the same form twice.
    forms: Mutex<HashSet<String>>,
}

impl ApprovalDesk {
    pub fn open(database: &Database, times: ApprovalTimes, clock: Arc<dyn Clock>) -> ApprovalDesk {
        let inner = Inner {
            store: ApprovalStore::open(database, clock),
            times: ArcSwap::from_pointee(times),
            closed: CancellationToken::new(),
            forms: Mutex::default(),
        };
        ApprovalDesk { inner: Arc::new(inner) }
    }

    /// Returns the store.
    pub fn approvals(&self) -> &ApprovalStore {
        &self.inner.store
    }

    /// Decides an approval and wakes the waiting calls.
    pub async fn decide(
        &self,
        id: &str,
        verdict: ApprovalVerdict,
        by: &str,
    ) -> Result<Approval, ApprovalError> {
        let (desk, id, by) = (self.clone(), id.to_owned(), by.to_owned());
        let lifetimes = self.times().lifetimes;
        blocking(move || desk.inner.store.decide(&id, verdict, &by, lifetimes)).await
    }

    /// Decides an approval unless another decision was made since `seen` ([`ApprovalStore::answer`]), and wakes the waiting
    /// calls.
    pub async fn answer(
        &self,
        id: &str,
        verdict: ApprovalVerdict,
        by: &str,
        seen: ApprovalSnapshot,
    ) -> Result<Approval, ApprovalError> {
        let (desk, id, by) = (self.clone(), id.to_owned(), by.to_owned());
        let lifetimes = self.times().lifetimes;
        blocking(move || desk.inner.store.answer(&id, verdict, &by, &seen, lifetimes)).await
    }

    /// Ends the wait of every call; they fail with `needs_approval`.
    pub fn close(&self) {
        self.inner.closed.cancel();
    }

    pub(super) async fn closed(&self) {
        self.inner.closed.cancelled().await;
    }

    /// Returns a receiver that changes with every new or decided approval.
    pub fn changed(&self) -> watch::Receiver<()> {
        self.inner.store.subscribe()
    }

    /// Changes the times, for new requests.
    pub fn configure(&self, times: ApprovalTimes) {
        self.inner.times.store(Arc::new(times));
    }

    pub(super) fn times(&self) -> ApprovalTimes {
        **self.inner.times.load()
    }

    pub(super) async fn ask(&self, call: Arc<ApprovalRequest>) -> Result<ApprovalOutcome, ToolError> {
        let (desk, lifetimes) = (self.clone(), self.times().lifetimes);
        let standing = blocking(move || desk.inner.store.ask(&call, lifetimes)).await;
        standing.map_err(refused)
    }

    /// Returns the state of a call's approval without creating a request.
    pub(super) async fn peek(
        &self,
        call: Arc<ApprovalRequest>,
    ) -> Result<Option<ApprovalOutcome>, ToolError> {
        let desk = self.clone();
        blocking(move || desk.inner.store.peek(&call)).await.map_err(refused)
    }

    /// Resolves when an approval is no longer pending.
    pub(super) async fn decided(&self, id: &str) {
        let mut changed = self.changed();
        loop {
            let (desk, id) = (self.clone(), id.to_owned());
            let pending = blocking(move || {
                let store = &desk.inner.store;
                Ok::<_, ApprovalError>(store.get(&id)?.stage(store.now()) == ApprovalStage::Pending)
            });
            if !pending.await.unwrap_or(false) {
                return;
            }
            tokio::select! {
                _ = changed.changed() => {}
                () = tokio::time::sleep(super::POLL_INTERVAL) => {}
            }
        }
    }

    /// Marks a form as open until the guard is dropped; `None` if one is open already.
    pub(super) fn open_form(&self, id: &str) -> Option<OpenFormGuard> {
        let new = self.inner.forms.lock().insert(id.to_owned());
        new.then(|| OpenFormGuard { desk: self.clone(), id: id.to_owned() })
    }
}

/// A form that is open at some client.
pub(super) struct OpenFormGuard {
    desk: ApprovalDesk,
    id: String,
}

impl Drop for OpenFormGuard {
    fn drop(&mut self) {
        self.desk.inner.forms.lock().remove(&self.id);
    }
}

fn refused(error: ApprovalError) -> ToolError {
    match error {
        ApprovalError::Full => ToolError::new(ErrorKind::NeedsApproval, error.to_string())
            .hint("`portcullis approvals list` shows what waits; make this call again afterwards"),
        other => ToolError::unavailable("approvals cannot be stored, so calls that need one are refused")
            .hint("an administrator finds the reason at `/readyz`, and with `portcullis doctor`")
            .caused_by(other),
    }
}
