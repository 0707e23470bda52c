//! Where questions are put and answered: for the layer, and for every place where a person may be.

use arc_swap::ArcSwap;
use portcullis_core::{Clock, ErrorKind, ToolError};
use portcullis_store::approvals::{
    Approval, ApprovalError, Approvals, Asked, Lifetimes, Seen, Stage, Standing, Verdict,
};
use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long questions and answers last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApprovalTimes {
    /// How long a call waits for an answer before it is told to come back.
    pub wait: Duration,
    pub lifetimes: Lifetimes,
}

impl Default for ApprovalTimes {
    fn default() -> ApprovalTimes {
        ApprovalTimes {
            // Common clients give up on a call after a minute.
            wait: Duration::from_secs(50),
            lifetimes: Lifetimes {
                pending: Duration::from_secs(24 * 60 * 60),
                approved: Duration::from_secs(60 * 60),
            },
        }
    }
}

/// The approvals of a running hub. Cheap to clone; every clone is the same desk.
#[derive(Clone)]
pub struct ApprovalDesk {
    inner: Arc<Inner>,
}

struct Inner {
    store: Approvals,
    times: ArcSwap<ApprovalTimes>,
    changed: watch::Sender<()>,
    closed: CancellationToken,
    /// For which questions a form is open at some client. Nobody is asked the same twice at once.
    forms: Mutex<HashSet<String>>,
}

impl ApprovalDesk {
    /// Opens the desk on the approvals kept in the folder `dir`.
    pub fn open(dir: &Path, times: ApprovalTimes, clock: Arc<dyn Clock>) -> ApprovalDesk {
        let inner = Inner {
            store: Approvals::open(dir, clock),
            times: ArcSwap::from_pointee(times),
            changed: watch::Sender::new(()),
            closed: CancellationToken::new(),
            forms: Mutex::default(),
        };
        ApprovalDesk { inner: Arc::new(inner) }
    }

    /// Returns the approvals, to be looked at.
    pub fn approvals(&self) -> &Approvals {
        &self.inner.store
    }

    /// Decides about a question, and wakes who waits for it.
    pub async fn decide(&self, id: &str, verdict: Verdict, by: &str) -> Result<Approval, ApprovalError> {
        let (desk, id, by) = (self.clone(), id.to_owned(), by.to_owned());
        let lifetimes = self.times().lifetimes;
        let decided = blocking(move || desk.inner.store.decide(&id, verdict, &by, lifetimes)).await;
        self.look_again();
        decided
    }

    /// Takes an answer to a question as it was looked at ([`Approvals::answer`]), and wakes who waits for it.
    pub async fn answer(
        &self,
        id: &str,
        verdict: Verdict,
        by: &str,
        seen: Seen,
    ) -> Result<Approval, ApprovalError> {
        let (desk, id, by) = (self.clone(), id.to_owned(), by.to_owned());
        let lifetimes = self.times().lifetimes;
        let answered = blocking(move || desk.inner.store.answer(&id, verdict, &by, &seen, lifetimes)).await;
        self.look_again();
        answered
    }

    /// Ends the wait of every call: they are told to come back.
    pub fn close(&self) {
        self.inner.closed.cancel();
    }

    pub(super) async fn closed(&self) {
        self.inner.closed.cancelled().await;
    }

    /// Returns what changes whenever a question is put or answered.
    pub fn changed(&self) -> watch::Receiver<()> {
        self.inner.changed.subscribe()
    }

    /// Wakes who waits: another process may have decided.
    pub fn look_again(&self) {
        self.inner.changed.send_replace(());
    }

    /// Changes how long things last, from the next question on.
    pub fn configure(&self, times: ApprovalTimes) {
        self.inner.times.store(Arc::new(times));
    }

    pub(super) fn times(&self) -> ApprovalTimes {
        **self.inner.times.load()
    }

    pub(super) async fn ask(&self, call: Arc<Asked>) -> Result<Standing, ToolError> {
        let (desk, lifetimes) = (self.clone(), self.times().lifetimes);
        let standing = blocking(move || desk.inner.store.ask(&call, lifetimes)).await;
        if let Ok(Standing::Pending(_)) = &standing {
            self.look_again();
        }
        standing.map_err(refused)
    }

    /// Returns how a call stands, without asking anybody.
    pub(super) async fn peek(&self, call: Arc<Asked>) -> Result<Option<Standing>, ToolError> {
        let desk = self.clone();
        blocking(move || desk.inner.store.peek(&call)).await.map_err(refused)
    }

    /// Returns when a question has been answered.
    pub(super) async fn decided(&self, id: &str) {
        let mut changed = self.changed();
        loop {
            let (desk, id) = (self.clone(), id.to_owned());
            let pending = blocking(move || {
                let store = &desk.inner.store;
                Ok(store.get(&id)?.stage(store.now()) == Stage::Pending)
            });
            if !pending.await.unwrap_or(false) {
                return;
            }
            tokio::select! {
                _ = changed.changed() => {}
                () = tokio::time::sleep(super::LOOK_EVERY) => {}
            }
        }
    }

    /// Counts a form as open until the returned value is dropped; `None` if one is open already.
    pub(super) fn open_form(&self, id: &str) -> Option<OpenForm> {
        let new = self.forms().insert(id.to_owned());
        new.then(|| OpenForm { desk: self.clone(), id: id.to_owned() })
    }

    fn forms(&self) -> MutexGuard<'_, HashSet<String>> {
        self.inner.forms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A form that is open at some client.
pub(super) struct OpenForm {
    desk: ApprovalDesk,
    id: String,
}

impl Drop for OpenForm {
    fn drop(&mut self) {
        self.desk.forms().remove(&self.id);
    }
}

fn refused(error: ApprovalError) -> ToolError {
    match error {
        ApprovalError::Full => ToolError::new(ErrorKind::NeedsApproval, error.to_string())
            .hint("`portcullis approvals list` shows what waits; make this call again afterwards"),
        other => ToolError::unavailable("approvals cannot be kept, so nothing that needs one is done")
            .hint("an administrator finds the reason at `/readyz`, and with `portcullis doctor`")
            .caused_by(other),
    }
}

/// The disk is waited for by a thread that may wait.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApprovalError> + Send + 'static,
) -> Result<T, ApprovalError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| Err(ApprovalError::Damaged(panic.to_string())))
}
