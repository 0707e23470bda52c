//! Whether anybody needs a server now, and since when nobody has.

use crate::server::Server;
use portcullis_core::ForeignTask;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How many tasks are remembered that clients ask after. A server with more of them is busy in any case.
const TASKS_MAX: usize = 1_000;
/// How long a task is believed to run, whatever its server says.
const TASK_MAX: Duration = Duration::from_secs(24 * 3600);

pub(crate) struct Uses {
    under_way: AtomicUsize,
    /// How many there ever were.
    ever: AtomicU64,
    last: Mutex<Instant>,
    /// Whether its client has no session any more. Means something only for a server of one client's own.
    left: AtomicBool,
    /// Whether its client ever came without a session. Then nobody can tell when it has gone.
    sessionless: AtomicBool,
    /// The tasks that clients ask after themselves, and until when each is of any use.
    tasks: Mutex<HashMap<String, Instant>>,
    /// Told when the first one comes, when the last one goes, and when the client has left.
    pub(crate) changed: Notify,
}

impl Default for Uses {
    fn default() -> Uses {
        Uses {
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

impl Uses {
    pub(crate) fn any(&self) -> bool {
        self.under_way.load(Ordering::Acquire) > 0
    }

    pub(crate) fn ever(&self) -> u64 {
        self.ever.load(Ordering::Acquire)
    }

    pub(crate) fn last(&self) -> Instant {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touch(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Waits until somebody needs the server, or it is needed for another reason that is told as a change.
    pub(crate) async fn needed(&self, otherwise: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on nobody comes unheard.
            changed.as_mut().enable();
            if self.any() || otherwise() {
                return;
            }
            changed.await;
        }
    }

    /// Hears what a server answered a client that may ask after a task itself: one that has begun, or how one stands.
    pub(crate) fn tasks_in(&self, answer: &RawValue) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Stands {
            task_id: String,
            #[serde(default)]
            status: String,
            ttl_ms: Option<f64>,
        }
        // Most results are only passed on, and need not be taken apart to see that.
        if !answer.get().contains("\"taskId\"") {
            return;
        }
        let Ok(task) = serde_json::from_str::<Stands>(answer.get()) else { return };
        if matches!(&*task.status, "completed" | "failed" | "cancelled") {
            return self.task_ended(&task.task_id);
        }
        let ttl = task.ttl_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok());
        let mut tasks = self.tasks();
        if tasks.len() < TASKS_MAX && task.task_id.len() <= ForeignTask::NAME_BYTES_MAX {
            let until = Instant::now() + ttl.unwrap_or(TASK_MAX).min(TASK_MAX);
            tasks.entry(task.task_id).or_insert(until);
        }
    }

    pub(crate) fn task_ended(&self, id: &str) {
        self.tasks().remove(id);
    }

    /// Forgets all tasks: the server that ran them is gone.
    pub(crate) fn forget_tasks(&self) {
        self.tasks().clear();
    }

    /// Returns whether a task runs that somebody may still ask after.
    pub(crate) fn any_task(&self) -> bool {
        let mut tasks = self.tasks();
        tasks.retain(|_, until| *until > Instant::now());
        !tasks.is_empty()
    }

    fn tasks(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears that the client came without a session.
    pub(crate) fn without_session(&self) {
        self.sessionless.store(true, Ordering::Release);
    }

    /// Hears that the client has closed its last session.
    pub(crate) fn leaves(&self) {
        self.left.store(!self.sessionless.load(Ordering::Acquire), Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Hears that the client is one no more, so that nobody is to come back, with a session or without.
    pub(crate) fn has_gone(&self) {
        self.sessionless.store(false, Ordering::Release);
        self.leaves();
    }

    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }
}

/// Somebody needs the server as long as this is held.
pub(crate) struct Use(Arc<Server>);

impl Use {
    pub(crate) fn of(server: &Arc<Server>) -> Use {
        let uses = &server.uses;
        uses.ever.fetch_add(1, Ordering::AcqRel);
        uses.left.store(false, Ordering::Release);
        // One more or less of several is no news.
        if uses.under_way.fetch_add(1, Ordering::AcqRel) == 0 {
            uses.changed.notify_waiters();
        }
        Use(server.clone())
    }
}

impl Deref for Use {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let uses = &self.0.uses;
        uses.touch();
        if uses.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            uses.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(uses: &Uses, answer: &str) -> bool {
        uses.tasks_in(&RawValue::from_string(answer.to_owned()).unwrap());
        uses.any_task()
    }

    #[test]
    fn whoever_comes_without_a_session_leaves_only_for_good() {
        let uses = Uses::default();
        uses.without_session();
        uses.leaves();
        assert!(!uses.has_left());
        uses.has_gone();
        assert!(uses.has_left());
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_is_a_use_until_it_has_ended_or_its_time_is_over() {
        let uses = Uses::default();
        assert!(!says(&uses, r#"{"content":[]}"#));
        let begun = r#"{"resultType":"task","taskId":"1","status":"working","ttlMs":60000}"#;
        assert!(says(&uses, begun));
        assert!(says(&uses, r#"{"taskId":"1","status":"input_required","ttlMs":60000}"#));
        assert!(!says(&uses, r#"{"taskId":"1","status":"completed","ttlMs":60000,"result":{}}"#));
        assert!(says(&uses, begun));
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(!uses.any_task());
        // For ever is not for ever.
        assert!(says(&uses, r#"{"taskId":"2","status":"working","ttlMs":null}"#));
        tokio::time::advance(TASK_MAX).await;
        assert!(!uses.any_task());
        assert!(says(&uses, begun));
        uses.forget_tasks();
        assert!(!uses.any_task());
        for (length, is_kept) in
            [(ForeignTask::NAME_BYTES_MAX + 1, false), (ForeignTask::NAME_BYTES_MAX, true)]
        {
            let named = format!(r#"{{"taskId":"{}","status":"working"}}"#, "t".repeat(length));
            assert_eq!(says(&uses, &named), is_kept, "{length}");
        }
    }
}
