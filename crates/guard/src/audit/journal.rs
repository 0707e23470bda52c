//! One thread writes the log; everyone else hands it records.
//!
//! Records wait in one queue and are written in its order, so the number of a line, and later the hash of the line
//! before it, are known to one place only. Whoever needs durability waits in the same queue: all who wait when
//! the thread comes round share one `fdatasync`.

use super::record::{self, Record};
use super::sink::Sink;
use arc_swap::ArcSwapOption;
use portcullis_core::CallId;
use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// How many records wait at most, counting the end of every call that has begun. At 10 µs per record, a tenth of a
/// second of writing; a call that finds no room waits for it.
const QUEUE_RECORDS_MAX: usize = 8_192;
/// How many records are kept while they cannot be written. Beyond this they are counted, and the count is written.
const KEPT_RECORDS_MAX: usize = QUEUE_RECORDS_MAX;
/// How long records that nobody waits for may gather. It saves a wake-up per call and costs only memory.
const GATHER: Duration = Duration::from_millis(2);
/// How long after a failure it is tried again, if nobody asks sooner.
const RETRY: Duration = Duration::from_millis(250);

/// The queue and the thread behind it. Dropping it writes what is left.
pub(super) struct Journal {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
    room: Notify,
    trouble: ArcSwapOption<String>,
}

#[derive(Default)]
struct Queue {
    entries: Vec<Entry>,
    /// Places kept for the end records of calls that have begun.
    reserved: usize,
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

enum Entry {
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
    pub(super) fn start(sink: Box<dyn Sink>) -> io::Result<Journal> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            arrived: Condvar::new(),
            room: Notify::new(),
            trouble: ArcSwapOption::empty(),
        });
        let mut writer = Writer {
            shared: shared.clone(),
            sink,
            next_seq: None,
            kept: Vec::new(),
            lost: 0,
            lost_through: None,
            unsynced: false,
            lines: Vec::new(),
        };
        let run = move || {
            if catch_unwind(AssertUnwindSafe(|| writer.run())).is_err() {
                writer.shared.die();
            }
        };
        let thread = std::thread::Builder::new().name("audit".to_owned()).spawn(run)?;
        Ok(Journal { shared, writer: Some(thread) })
    }

    pub(super) fn health(&self) -> Result<(), String> {
        self.shared.trouble.load().as_ref().map_or(Ok(()), |reason| Err(reason.to_string()))
    }

    /// Hands over the begin record of a call, and keeps a place for its end.
    pub(super) async fn begin(&self, record: Record) {
        loop {
            let room = self.shared.room.notified();
            {
                let mut queue = self.shared.lock();
                if queue.dead || queue.entries.len() + queue.reserved + 2 <= QUEUE_RECORDS_MAX {
                    queue.reserved += 1;
                    let ticket = queue.ticket + 1;
                    let subject = record.subject();
                    if subject.has_side_effects() {
                        queue.begun.insert(subject.call, ticket);
                    }
                    self.shared.push(queue, Urgency::Whenever, Entry::Record { ticket, record });
                    return;
                }
            }
            room.await;
        }
    }

    /// Hands over the end record of a call. Its place is kept, so this neither waits nor fails.
    pub(super) fn end(&self, record: Record) {
        let mut queue = self.shared.lock();
        queue.reserved = queue.reserved.saturating_sub(1);
        let subject = record.subject();
        if subject.has_side_effects() {
            queue.begun.remove(&subject.call);
        }
        let ticket = queue.ticket + 1;
        self.shared.push(queue, Urgency::Whenever, Entry::Record { ticket, record });
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
        let wake = queue.writer_is_idle || (urgent && !queue.urgent);
        queue.urgent |= urgent;
        drop(queue);
        if wake {
            self.arrived.notify_one();
        }
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

    /// Waits for entries and takes them all. Returns them, and whether they are the last.
    fn take(&self, spare: Vec<Entry>) -> (Vec<Entry>, bool) {
        let mut queue = self.lock();
        queue.writer_is_idle = true;
        let is_quiet = |queue: &mut Queue| queue.entries.is_empty() && !queue.stopping;
        queue = if self.trouble.load().is_none() {
            self.arrived.wait_while(queue, is_quiet).unwrap_or_else(PoisonError::into_inner)
        } else {
            // In trouble it also comes round by itself.
            self.arrived.wait_timeout_while(queue, RETRY, is_quiet).unwrap_or_else(PoisonError::into_inner).0
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
        let stopping = queue.stopping;
        drop(queue);
        self.room.notify_waiters();
        (taken, stopping)
    }
}

/// What the thread knows.
struct Writer {
    shared: Arc<Shared>,
    sink: Box<dyn Sink>,
    /// The number of the next line. Unknown until the end of the file has been read.
    next_seq: Option<u64>,
    /// Records that are not written yet.
    kept: Vec<Record>,
    /// How many records are missing before the next line, and the newest that ever was.
    lost: u64,
    lost_through: Option<u64>,
    unsynced: bool,
    lines: Vec<u8>,
}

impl Writer {
    fn run(&mut self) {
        // Opened before the first call, so that `/readyz` tells of a wrong path at once.
        self.settle(&mut Vec::new());
        let (mut spare, mut waiting) = (Vec::new(), Vec::new());
        loop {
            let (mut entries, stopping) = self.shared.take(spare);
            for entry in entries.drain(..) {
                match entry {
                    Entry::Record { record, .. } if self.kept.len() < KEPT_RECORDS_MAX => {
                        self.kept.push(record)
                    }
                    Entry::Record { ticket, .. } => {
                        self.lost += 1;
                        self.lost_through = Some(ticket);
                    }
                    Entry::Commit { ticket, done } => waiting.push((ticket, done)),
                }
            }
            spare = entries;
            self.settle(&mut waiting);
            if stopping {
                return self.finish();
            }
        }
    }

    /// Writes what there is, and answers those who wait.
    fn settle(&mut self, waiting: &mut Vec<(u64, oneshot::Sender<Result<(), String>>)>) {
        let durable = !waiting.is_empty();
        let written = self.write(durable).map_err(|error| error.to_string());
        self.tell(&written);
        for (ticket, done) in waiting.drain(..) {
            let answer = match &written {
                Ok(()) if self.lost_through.is_some_and(|lost| ticket <= lost) => {
                    Err("the record was lost".to_owned())
                }
                other => other.clone(),
            };
            // Who does not wait any more does not need to know.
            let _ = done.send(answer);
        }
    }

    fn write(&mut self, durable: bool) -> io::Result<()> {
        let mut seq = match self.next_seq {
            Some(seq) => seq,
            None => self.sink.last_line()?.and_then(|line| record::seq_of(&line)).map_or(1, |last| last + 1),
        };
        self.lines.clear();
        for record in &self.kept {
            record.write(seq, &mut self.lines);
            seq += 1;
        }
        if self.lost > 0 {
            record::write_gap(seq, self.lost, &mut self.lines);
            seq += 1;
        }
        if !self.lines.is_empty() {
            self.sink.append(&self.lines)?;
            self.kept.clear();
            (self.lost, self.unsynced) = (0, true);
        }
        self.next_seq = Some(seq);
        if durable && self.unsynced {
            self.sink.sync()?;
            self.unsynced = false;
        }
        Ok(())
    }

    /// Lets everyone know how it stands; the log only when it changes.
    fn tell(&self, written: &Result<(), String>) {
        let before = self.shared.trouble.load();
        match (written, before.as_deref()) {
            (Ok(()), None) => {}
            (Ok(()), Some(_)) => {
                tracing::warn!("The audit log can be written again.");
                self.shared.trouble.store(None);
            }
            (Err(reason), before) if before != Some(reason) => {
                tracing::error!(%reason, "The audit log cannot be written; calls with side effects are refused.");
                self.shared.trouble.store(Some(Arc::new(reason.clone())));
            }
            (Err(_), _) => {}
        }
    }

    fn finish(&mut self) {
        let lost = self.lost + self.kept.len() as u64;
        if lost > 0 {
            tracing::error!(lost, "Audit records could not be written before the end.");
        }
        if let Err(error) = self.sink.sync() {
            tracing::error!(%error, "The audit log may not be durable.");
        }
    }
}
