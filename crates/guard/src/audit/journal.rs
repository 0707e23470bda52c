//! The journal: a bounded queue of audit records, and the thread that writes them.
//!
//! Records are written in queue order by one thread, which alone knows the head of the chain. A caller that needs durability
//! queues a commit: all commits in a batch share one `fdatasync` (group commit).

use super::record::JournalRecord;
use super::sink::LogSink;
use super::writer::JournalWriter;
use arc_swap::ArcSwapOption;
use parking_lot::{Condvar, Mutex, MutexGuard};
use portcullis_core::{CallId, Clock, Limit};
use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// Bound on the queue, including a reserved place for the end of every open call. At 10 µs per record, a tenth of a second
/// of writing. A call without room waits, and is refused after a while (backpressure); one client may take an eighth
/// ([`QueueBounds`]).
pub(super) const QUEUE_RECORDS_MAX: usize = 8_192;
/// How long records without a waiting commit are batched. It saves a wake-up per call and costs only memory.
const BATCH_WINDOW: Duration = Duration::from_millis(2);
/// Retry interval after a write failure, unless a commit arrives sooner.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// The queue and its thread. Dropping it writes the rest.
pub(super) struct Journal {
    shared: Arc<JournalState>,
    writer: Option<JoinHandle<()>>,
    bounds: QueueBounds,
}

pub(super) struct JournalState {
    queue: Mutex<Queue>,
    arrived: Condvar,
    room: Notify,
    pub(super) failure: ArcSwapOption<String>,
}

#[derive(Default)]
struct Queue {
    entries: Vec<JournalEntry>,
    /// Places reserved for the end records of open calls.
    reserved: usize,
    /// Queued and reserved places per client.
    shares: HashMap<String, Share>,
    /// The number of the newest entry.
    ticket: u64,
    /// The ticket of the begin record of each open call with side effects.
    begun: HashMap<CallId, u64>,
    writer_is_idle: bool,
    urgent: bool,
    stopping: bool,
    /// The thread panicked. Nothing is queued any more, and nothing becomes durable.
    dead: bool,
}

/// One client's part of the queue.
#[derive(Default)]
struct Share {
    queued: usize,
    reserved: usize,
}

impl Queue {
    fn share(&mut self, client: &str) -> &mut Share {
        self.shares.entry(client.to_owned()).or_default()
    }

    fn has_room(&self, client: &str, places: usize, client_records_max: usize) -> bool {
        let own = self.shares.get(client).map_or(0, |share| share.queued + share.reserved);
        self.entries.len() + self.reserved + places <= QUEUE_RECORDS_MAX && own + places <= client_records_max
    }
}

/// The part of the queue that one client may take, and how long its records wait for room.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueBounds {
    pub(super) client_records_max: usize,
    pub(super) within: Duration,
}

impl Default for QueueBounds {
    fn default() -> QueueBounds {
        QueueBounds { client_records_max: QUEUE_RECORDS_MAX / 8, within: Duration::from_secs(5) }
    }
}

/// There was no room for a record in time.
#[derive(Debug, thiserror::Error)]
#[error("the audit log has no room for another record of this client")]
pub(super) struct AuditQueueFull;

pub(super) enum JournalEntry {
    Record {
        ticket: u64,
        record: JournalRecord,
    },
    /// Requests that everything before it is durable, and that the record `ticket` was not lost.
    Commit {
        ticket: u64,
        done: oneshot::Sender<Result<(), String>>,
    },
}

impl Journal {
    pub(super) fn start(
        sink: Box<dyn LogSink>,
        clock: Arc<dyn Clock>,
        bounds: QueueBounds,
    ) -> io::Result<Journal> {
        let shared = Arc::new(JournalState {
            queue: Mutex::default(),
            arrived: Condvar::new(),
            room: Notify::new(),
            failure: ArcSwapOption::empty(),
        });
        let mut writer = JournalWriter::new(shared.clone(), sink, clock);
        let run = move || {
            if catch_unwind(AssertUnwindSafe(|| writer.run())).is_err() {
                writer.shared().die();
            }
        };
        let thread = std::thread::Builder::new().name("audit".to_owned()).spawn(run)?;
        Ok(Journal { shared, writer: Some(thread), bounds })
    }

    pub(super) fn health(&self) -> Result<(), String> {
        self.shared.failure.load().as_ref().map_or(Ok(()), |reason| Err(reason.to_string()))
    }

    /// Queues the begin record of a call, and reserves a place for its end. On `AuditQueueFull` there is no record, and the call
    /// must not run.
    pub(super) async fn begin(&self, record: JournalRecord) -> Result<(), AuditQueueFull> {
        let subject = record.subject().clone();
        let mut queue = self.room(subject.client(), 2, Some(self.bounds.within)).await?;
        queue.reserved += 1;
        queue.share(subject.client()).reserved += 1;
        if subject.has_side_effects() {
            let ticket = queue.ticket + 1;
            queue.begun.insert(subject.call, ticket);
        }
        self.shared.push_record(queue, record);
        Ok(())
    }

    /// Queues a record of something that has ended, and waits for room as long as needed.
    pub(super) async fn note(&self, record: JournalRecord) {
        let subject = record.subject().clone();
        // Cannot fail without a timeout.
        if let Ok(queue) = self.room(subject.client(), 1, None).await {
            self.shared.push_record(queue, record);
        }
    }

    /// Queues begin and end of something that has ended: both, or neither if there is no room in time.
    pub(super) async fn note_both(
        &self,
        begin: JournalRecord,
        end: JournalRecord,
    ) -> Result<(), AuditQueueFull> {
        let subject = begin.subject().clone();
        drop(self.room(subject.client(), 2, Some(self.bounds.within)).await?);
        for record in [begin, end] {
            self.shared.push_record(self.shared.queue.lock(), record);
        }
        Ok(())
    }

    /// Waits for room in the queue and in the client's share.
    async fn room(
        &self,
        client: &str,
        places: usize,
        within: Option<Duration>,
    ) -> Result<MutexGuard<'_, Queue>, AuditQueueFull> {
        let late = within.map(|within| tokio::time::Instant::now() + within);
        loop {
            let room = self.shared.room.notified();
            {
                let mut queue = self.shared.queue.lock();
                if queue.dead || queue.has_room(client, places, self.bounds.client_records_max) {
                    return Ok(queue);
                }
                // Wakes the writer at once.
                queue.urgent = true;
                self.shared.arrived.notify_one();
            }
            match late {
                None => room.await,
                Some(late) => {
                    let in_time = tokio::time::timeout_at(late, room).await;
                    in_time.map_err(|_| {
                        Limit::AuditQueue.hit();
                        AuditQueueFull
                    })?;
                }
            }
        }
    }

    /// Queues the end record of a call. Its place is reserved, so this neither waits nor fails.
    pub(super) fn end(&self, record: JournalRecord) {
        let mut queue = self.shared.queue.lock();
        queue.reserved = queue.reserved.saturating_sub(1);
        let subject = record.subject();
        let share = queue.share(subject.client());
        share.reserved = share.reserved.saturating_sub(1);
        if subject.has_side_effects() {
            queue.begun.remove(&subject.call);
        }
        self.shared.push_record(queue, record);
    }

    /// Resolves when the begin record of `call` is durable.
    pub(super) async fn commit(&self, call: CallId) -> Result<(), String> {
        let begun = self.shared.queue.lock().begun.get(&call).copied();
        // A call that bypassed the audit layer has no record, and must not run.
        let ticket = begun.ok_or_else(|| format!("call {call} has no begin record"))?;
        self.durable(ticket).await
    }

    /// Resolves when everything queued so far is durable.
    pub(super) async fn flush(&self) -> Result<(), String> {
        let newest = self.shared.queue.lock().ticket;
        self.durable(newest).await
    }

    async fn durable(&self, ticket: u64) -> Result<(), String> {
        let (done, answer) = oneshot::channel();
        let queue = self.shared.queue.lock();
        self.shared.push(queue, Urgency::Now, JournalEntry::Commit { ticket, done });
        answer.await.unwrap_or_else(|_| Err("the audit writer has stopped".to_owned()))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.shared.queue.lock().stopping = true;
        self.shared.arrived.notify_one();
        if let Some(writer) = self.writer.take() {
            // A panic was caught and logged in the thread.
            let _ = writer.join();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Urgency {
    Now,
    Deferred,
}

impl JournalState {
    fn push(&self, mut queue: MutexGuard<'_, Queue>, urgency: Urgency, entry: JournalEntry) {
        if queue.dead {
            // Dropping the entry closes its channel, which fails the commit.
            return;
        }
        queue.ticket += 1;
        queue.entries.push(entry);
        let urgent = urgency == Urgency::Now || queue.entries.len() >= QUEUE_RECORDS_MAX / 2;
        // Wakes the writer once, not for every entry until it runs.
        let wake = std::mem::take(&mut queue.writer_is_idle) || (urgent && !queue.urgent);
        queue.urgent |= urgent;
        drop(queue);
        if wake {
            self.arrived.notify_one();
        }
    }

    fn push_record(&self, mut queue: MutexGuard<'_, Queue>, record: JournalRecord) {
        if !queue.dead {
            queue.share(record.subject().client()).queued += 1;
        }
        let ticket = queue.ticket + 1;
        self.push(queue, Urgency::Deferred, JournalEntry::Record { ticket, record });
    }

    /// Fails all current and future commits.
    fn die(&self) {
        tracing::error!("audit writer panicked; calls with side effects are refused");
        self.failure.store(Some(Arc::new("the audit writer has stopped".to_owned())));
        let mut queue = self.queue.lock();
        queue.dead = true;
        queue.entries.clear();
        drop(queue);
        self.room.notify_waiters();
    }

    /// Waits up to `timeout` for entries and takes them all. Also returns whether they are the last.
    pub(super) fn take(
        &self,
        spare: Vec<JournalEntry>,
        timeout: Option<Duration>,
    ) -> (Vec<JournalEntry>, bool) {
        let mut queue = self.queue.lock();
        queue.writer_is_idle = true;
        let is_quiet = |queue: &mut Queue| queue.entries.is_empty() && !queue.stopping;
        // After a failure, retries on its own.
        let timeout = if self.failure.load().is_some() { Some(RETRY_INTERVAL) } else { timeout };
        match timeout {
            None => self.arrived.wait_while(&mut queue, is_quiet),
            Some(timeout) => {
                self.arrived.wait_while_for(&mut queue, is_quiet, timeout);
            }
        }
        queue.writer_is_idle = false;
        let can_batch = |queue: &mut Queue| !queue.urgent && !queue.stopping;
        self.arrived.wait_while_for(&mut queue, can_batch, BATCH_WINDOW);
        queue.urgent = false;
        let taken = std::mem::replace(&mut queue.entries, spare);
        queue.shares.retain(|_, share| {
            share.queued = 0;
            share.reserved > 0
        });
        let stopping = queue.stopping;
        drop(queue);
        self.room.notify_waiters();
        (taken, stopping)
    }
}
