//! One thread writes the log; everyone else hands it records.
//!
//! Records wait in one queue and are written in its order, so the number of a line and the code of the line before
//! it are known to one place only. Whoever needs durability waits in the same queue: all who wait when
//! the thread comes round share one `fdatasync`.

use super::record::Record;
use super::sink::Sink;
use super::writer::Writer;
use arc_swap::ArcSwapOption;
use portcullis_core::{CallId, Clock, Limit};
use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// How many records wait at most, counting the end of every call that has begun. At 10 µs per record, a tenth of a
/// second of writing. A call that finds no room waits for it, and is refused after a while; one client may take an
/// eighth ([`QueueBounds`]).
pub(super) const QUEUE_RECORDS_MAX: usize = 8_192;
/// How long records that nobody waits for may gather. It saves a wake-up per call and costs only memory.
const GATHER: Duration = Duration::from_millis(2);
/// How long after a failure it is tried again, if nobody asks sooner.
const RETRY: Duration = Duration::from_millis(250);

/// The queue and the thread behind it. Dropping it writes what is left.
pub(super) struct Journal {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
    bounds: QueueBounds,
}

pub(super) struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
    room: Notify,
    pub(super) trouble: ArcSwapOption<String>,
}

#[derive(Default)]
struct Queue {
    entries: Vec<Entry>,
    /// Places kept for the end records of calls that have begun.
    reserved: usize,
    /// What each client has of both.
    shares: HashMap<String, Share>,
    /// The number of the newest entry.
    ticket: u64,
    /// The begin record of each call with side effects that has not ended.
    begun: HashMap<CallId, u64>,
    writer_is_idle: bool,
    urgent: bool,
    stopping: bool,
    /// The thread is gone for good. Nothing is queued any more, and nothing becomes durable.
    dead: bool,
}

/// What one client has of the queue.
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

/// How much of the queue one client may take, and how long its records wait for room.
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
pub(super) struct QueueFull;

pub(super) enum Entry {
    Record {
        ticket: u64,
        record: Record,
    },
    /// Wants everything before it durable, and the record `ticket` not lost.
    Commit {
        ticket: u64,
        done: oneshot::Sender<Result<(), String>>,
    },
}

impl Journal {
    pub(super) fn start(
        sink: Box<dyn Sink>,
        clock: Arc<dyn Clock>,
        bounds: QueueBounds,
    ) -> io::Result<Journal> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            arrived: Condvar::new(),
            room: Notify::new(),
            trouble: ArcSwapOption::empty(),
        });
        let mut writer = Writer::new(shared.clone(), sink, clock);
        let run = move || {
            if catch_unwind(AssertUnwindSafe(|| writer.run())).is_err() {
                writer.shared().die();
            }
        };
        let thread = std::thread::Builder::new().name("audit".to_owned()).spawn(run)?;
        Ok(Journal { shared, writer: Some(thread), bounds })
    }

    pub(super) fn health(&self) -> Result<(), String> {
        self.shared.trouble.load().as_ref().map_or(Ok(()), |reason| Err(reason.to_string()))
    }

    /// Hands over the begin record of a call, and keeps a place for its end. Where there is no room in time, there is no
    /// record, and the call must not be made.
    pub(super) async fn begin(&self, record: Record) -> Result<(), QueueFull> {
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

    /// Hands over a record of something that is over already, and waits for room as long as it takes.
    pub(super) async fn note(&self, record: Record) {
        let subject = record.subject().clone();
        // Without a bound on the wait it does not fail.
        if let Ok(queue) = self.room(subject.client(), 1, None).await {
            self.shared.push_record(queue, record);
        }
    }

    /// Hands over begin and end of something that is over already: both, or none if there is no room in time.
    pub(super) async fn note_both(&self, begin: Record, end: Record) -> Result<(), QueueFull> {
        let subject = begin.subject().clone();
        drop(self.room(subject.client(), 2, Some(self.bounds.within)).await?);
        for record in [begin, end] {
            self.shared.push_record(self.shared.lock(), record);
        }
        Ok(())
    }

    /// Waits until so many records of a client have room, among all and in its own share.
    async fn room(
        &self,
        client: &str,
        places: usize,
        within: Option<Duration>,
    ) -> Result<MutexGuard<'_, Queue>, QueueFull> {
        let late = within.map(|within| tokio::time::Instant::now() + within);
        loop {
            let room = self.shared.room.notified();
            {
                let mut queue = self.shared.lock();
                if queue.dead || queue.has_room(client, places, self.bounds.client_records_max) {
                    return Ok(queue);
                }
                // What is there is written at once.
                queue.urgent = true;
                self.shared.arrived.notify_one();
            }
            match late {
                None => room.await,
                Some(late) => {
                    let in_time = tokio::time::timeout_at(late, room).await;
                    in_time.map_err(|_| {
                        Limit::AuditQueue.hit();
                        QueueFull
                    })?;
                }
            }
        }
    }

    /// Hands over the end record of a call. Its place is kept, so this neither waits nor fails.
    pub(super) fn end(&self, record: Record) {
        let mut queue = self.shared.lock();
        queue.reserved = queue.reserved.saturating_sub(1);
        let subject = record.subject();
        let share = queue.share(subject.client());
        share.reserved = share.reserved.saturating_sub(1);
        if subject.has_side_effects() {
            queue.begun.remove(&subject.call);
        }
        self.shared.push_record(queue, record);
    }

    /// Returns when the begin record of `call` is durable.
    pub(super) async fn commit(&self, call: CallId) -> Result<(), String> {
        let begun = self.shared.lock().begun.get(&call).copied();
        // A call that came here around the audit layer has no record, and does not act.
        let ticket = begun.ok_or_else(|| format!("call {call} has no begin record"))?;
        self.durable(ticket).await
    }

    /// Returns when everything handed over so far is durable.
    pub(super) async fn flush(&self) -> Result<(), String> {
        let newest = self.shared.lock().ticket;
        self.durable(newest).await
    }

    async fn durable(&self, ticket: u64) -> Result<(), String> {
        let (done, answer) = oneshot::channel();
        let queue = self.shared.lock();
        self.shared.push(queue, Urgency::Now, Entry::Commit { ticket, done });
        answer.await.unwrap_or_else(|_| Err("the audit writer has stopped".to_owned()))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.arrived.notify_one();
        if let Some(writer) = self.writer.take() {
            // A panic was caught and told of where it happened.
            let _ = writer.join();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Urgency {
    Now,
    Whenever,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, mut queue: MutexGuard<'_, Queue>, urgency: Urgency, entry: Entry) {
        if queue.dead {
            // Whoever waits for the entry learns that it is gone.
            return;
        }
        queue.ticket += 1;
        queue.entries.push(entry);
        let urgent = urgency == Urgency::Now || queue.entries.len() >= QUEUE_RECORDS_MAX / 2;
        // Woken once: until it runs it would be told by everyone who comes.
        let wake = std::mem::take(&mut queue.writer_is_idle) || (urgent && !queue.urgent);
        queue.urgent |= urgent;
        drop(queue);
        if wake {
            self.arrived.notify_one();
        }
    }

    fn push_record(&self, mut queue: MutexGuard<'_, Queue>, record: Record) {
        if !queue.dead {
            queue.share(record.subject().client()).queued += 1;
        }
        let ticket = queue.ticket + 1;
        self.push(queue, Urgency::Whenever, Entry::Record { ticket, record });
    }

    /// Lets go of everyone who waits for the thread, now and later.
    fn die(&self) {
        tracing::error!("The audit writer panicked; calls with side effects are refused from now on.");
        self.trouble.store(Some(Arc::new("the audit writer has stopped".to_owned())));
        let mut queue = self.lock();
        queue.dead = true;
        queue.entries.clear();
        drop(queue);
        self.room.notify_waiters();
    }

    /// Waits for entries, at most `patience`, and takes them all. Returns them, and whether they are the last.
    pub(super) fn take(&self, spare: Vec<Entry>, patience: Option<Duration>) -> (Vec<Entry>, bool) {
        let mut queue = self.lock();
        queue.writer_is_idle = true;
        let is_quiet = |queue: &mut Queue| queue.entries.is_empty() && !queue.stopping;
        // In trouble it also comes round by itself.
        let patience = if self.trouble.load().is_some() { Some(RETRY) } else { patience };
        queue = match patience {
            None => self.arrived.wait_while(queue, is_quiet).unwrap_or_else(PoisonError::into_inner),
            Some(patience) => {
                let waited = self.arrived.wait_timeout_while(queue, patience, is_quiet);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        queue.writer_is_idle = false;
        let can_gather = |queue: &mut Queue| !queue.urgent && !queue.stopping;
        queue = self
            .arrived
            .wait_timeout_while(queue, GATHER, can_gather)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
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
