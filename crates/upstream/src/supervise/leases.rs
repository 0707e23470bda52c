//! Leases on a server: whether a client needs it now, and since when none has.

use parking_lot::Mutex;
use portcullis_core::ForeignTask;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How many tasks of clients are tracked. A server with more of them is busy in any case.
const TASKS_MAX: usize = 1_000;
/// The longest lifetime of a task, whatever its server says.
const TASK_MAX: Duration = Duration::from_secs(24 * 3600);

pub(crate) struct Leases {
    under_way: AtomicUsize,
    /// How many leases there ever were.
    ever: AtomicU64,
    last: Mutex<Instant>,
    /// Whether its client has no session any more. Meaningful only for a per-client server.
    left: AtomicBool,
    /// Whether its client ever came without a session. Then its departure cannot be noticed.
    sessionless: AtomicBool,
    /// The tasks that clients poll themselves, with their expiry.
    tasks: Mutex<HashMap<String, Instant>>,
    /// Notified with the first lease, with the last one, and when the client has left.
    pub(crate) changed: Notify,
}

impl Default for Leases {
    fn default() -> Leases {
        Leases {
            under_way: AtomicUsize::new(0),
            ever: AtomicU64::new(0),
            last: Mutex::new(Instant::now()),
            left: AtomicBool::new(false),
            sessionless: AtomicBool::new(false),
            tasks: Mutex::default(),
            changed: Notify::new(),
        }
    }
}

impl Leases {
    pub(crate) fn any(&self) -> bool {
        self.under_way.load(Ordering::Acquire) > 0
    }

    pub(crate) fn ever(&self) -> u64 {
        self.ever.load(Ordering::Acquire)
    }

    pub(crate) fn last(&self) -> Instant {
        *self.last.lock()
    }

    /// Takes note of a new lease, until [`Leases::end`].
    pub(super) fn begin(&self) {
        self.ever.fetch_add(1, Ordering::AcqRel);
        self.left.store(false, Ordering::Release);
        // Only the first and the last one matter.
        if self.under_way.fetch_add(1, Ordering::AcqRel) == 0 {
            self.changed.notify_waiters();
        }
    }

    /// Takes note of the end of a lease.
    pub(super) fn end(&self) {
        *self.last.lock() = Instant::now();
        if self.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.changed.notify_waiters();
        }
    }

    /// Waits until the server is leased, or needed `otherwise`, which has to notify `changed`.
    pub(crate) async fn needed(&self, otherwise: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on no change is missed.
            changed.as_mut().enable();
            if self.any() || otherwise() {
                return;
            }
            changed.await;
        }
    }

    /// Tracks a task in a response to a client that polls it itself: a new one, or its status.
    pub(crate) fn tasks_in(&self, answer: &RawValue) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Stands {
            task_id: String,
            #[serde(default)]
            status: String,
            ttl_ms: Option<f64>,
        }
        // Most results are passed on unparsed.
        if !answer.get().contains("\"taskId\"") {
            return;
        }
        let Ok(task) = serde_json::from_str::<Stands>(answer.get()) else { return };
        if matches!(&*task.status, "completed" | "failed" | "cancelled") {
            return self.task_ended(&task.task_id);
        }
        let ttl = task.ttl_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok());
        let mut tasks = self.tasks.lock();
        if tasks.len() < TASKS_MAX && task.task_id.len() <= ForeignTask::NAME_BYTES_MAX {
            let until = Instant::now() + ttl.unwrap_or(TASK_MAX).min(TASK_MAX);
            tasks.entry(task.task_id).or_insert(until);
        }
    }

    pub(crate) fn task_ended(&self, id: &str) {
        self.tasks.lock().remove(id);
    }

    /// Forgets all tasks: the server that ran them is gone.
    pub(crate) fn forget_tasks(&self) {
        self.tasks.lock().clear();
    }

    /// Returns whether a client may still poll a task.
    pub(crate) fn any_task(&self) -> bool {
        let mut tasks = self.tasks.lock();
        tasks.retain(|_, until| *until > Instant::now());
        !tasks.is_empty()
    }

    /// Takes note that the client came without a session.
    pub(crate) fn without_session(&self) {
        self.sessionless.store(true, Ordering::Release);
    }

    /// Takes note that the client has closed its last session.
    pub(crate) fn client_left(&self) {
        self.left.store(!self.sessionless.load(Ordering::Acquire), Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Takes note that the client is removed, and will not come back, with a session or without.
    pub(crate) fn client_removed(&self) {
        self.sessionless.store(false, Ordering::Release);
        self.client_left();
    }

    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(leases: &Leases, answer: &str) -> bool {
        leases.tasks_in(&RawValue::from_string(answer.to_owned()).unwrap());
        leases.any_task()
    }

    #[test]
    fn whoever_comes_without_a_session_leaves_only_for_good() {
        let leases = Leases::default();
        leases.without_session();
        leases.client_left();
        assert!(!leases.has_left());
        leases.client_removed();
        assert!(leases.has_left());
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_is_a_use_until_it_has_ended_or_its_time_is_over() {
        let leases = Leases::default();
        assert!(!says(&leases, r#"{"content":[]}"#));
        let begun = r#"{"resultType":"task","taskId":"1","status":"working","ttlMs":60000}"#;
        assert!(says(&leases, begun));
        assert!(says(&leases, r#"{"taskId":"1","status":"input_required","ttlMs":60000}"#));
        assert!(!says(&leases, r#"{"taskId":"1","status":"completed","ttlMs":60000,"result":{}}"#));
        assert!(says(&leases, begun));
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(!leases.any_task());
        // No lifetime is unlimited.
        assert!(says(&leases, r#"{"taskId":"2","status":"working","ttlMs":null}"#));
        tokio::time::advance(TASK_MAX).await;
        assert!(!leases.any_task());
        assert!(says(&leases, begun));
        leases.forget_tasks();
        assert!(!leases.any_task());
        for (length, is_kept) in
            [(ForeignTask::NAME_BYTES_MAX + 1, false), (ForeignTask::NAME_BYTES_MAX, true)]
        {
            let named = format!(r#"{{"taskId":"{}","status":"working"}}"#, "t".repeat(length));
            assert_eq!(says(&leases, &named), is_kept, "{length}");
        }
    }
}
