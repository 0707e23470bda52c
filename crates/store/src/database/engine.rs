//! The SQLite engine: a thread that writes and a thread that follows, with a connection each.
//!
//! An acknowledged change is in force in every process of this machine, and a call reads memory only:
//!
//! 1. The writer runs jobs one after another. Another process's transaction, a flush or a slow job may block it.
//! 2. The follower ([`super::follower`]) never waits for a writer. Once a second, and at each notification, it compares the
//!    snapshots with the database, reloads the topics that differ, and writes the version of the snapshots into its peer file.
//! 3. A reader uses the snapshots for `FRESH_FOR` after such a comparison *began* ([`super::freshness`]). Then it wakes the
//!    follower, waits for it for at most 100 ms, and refuses.
//! 4. After COMMIT the writer hands the new version to the follower and takes the next job. The follower reloads, notifies the
//!    other processes, and acknowledges the change when each of them has written that version, has died, or `FRESH_FOR` has
//!    passed.
//! 5. The follower gives up a process that is silent for so long and removes its peer file, so that no later change waits for
//!    it; the snapshots of that process are stale by its own clock. A process checks its peer file before it renews its
//!    freshness. If the file is missing, the process joins again and reloads. So a process that was stopped finds out by itself.
//! 6. A comparison that fails does not extend the freshness. One that fails after COMMIT ends it at once, and so does one that
//!    finds another file at the path of the database, or migrations of a newer program.
//! 7. A panic ends its job. A thread that panics again and again ends; then the engine refuses all jobs, and the snapshots go
//!    stale.
//! 8. Each process has one engine for each file ([`super::registry`]).

use super::file_identity::FileIdentity;
use super::follower::{Announcement, Follower, FollowerQueue, FollowerRequest, SnapshotReader};
use super::freshness::Freshness;
use super::migration::{KnownMigrations, Migration};
use super::peers::{self, Peers};
use super::row_key::RowKey;
use super::shared::{Supervised, Views, WakeUp};
use super::statement::{execute, query};
use super::view::{CachedTopic, Load, Refresh};
use super::{
    DatabaseError, OperationId, Topic, Transaction, TransactionFn, View, connection, table_digests, wait,
};
use futures::channel::oneshot;
use parking_lot::{Condvar, Mutex, MutexGuard};
use portcullis_core::{Clock, SystemClock};
use rusqlite::Connection;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How many jobs may wait. Each is a change that a person or a call is waiting for.
const JOBS_MAX: usize = 1_024;
/// How long operation ids are remembered. A caller repeats one within a request or two, which take seconds.
const OPERATIONS_KEPT: Duration = Duration::from_secs(10 * 60);
/// How many operation ids are remembered at most: more than the jobs that can wait in a few processes at once.
const OPERATIONS_MAX: i64 = 4_096;

pub(super) type Job = Box<dyn FnOnce(&mut Writer) + Send>;

/// What a job does with the database.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Change(Topic, OperationId),
    Claim(OperationId),
    Read,
}

pub(super) struct Engine {
    path: PathBuf,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads of the engine share with its callers.
pub(super) struct Shared {
    jobs: Mutex<VecDeque<Job>>,
    /// Notified when the writer has a job.
    wake: Condvar,
    stopping: AtomicBool,
    writer: Supervised,
    follower: Supervised,
    freshness: Arc<Freshness>,
    /// `None` for a database in memory, whose snapshots the writer reloads itself.
    queue: Option<Arc<FollowerQueue>>,
    /// `None` for a database in memory, which no other process can replace or migrate.
    guard: Option<Arc<FileGuard>>,
    views: Arc<Views>,
}

/// Checks that the database is still the one that was opened.
pub(super) struct FileGuard {
    file: FileIdentity,
    known: KnownMigrations,
}

impl FileGuard {
    /// Refuses a file that was replaced.
    pub(super) fn check_file(&self) -> Result<(), DatabaseError> {
        self.file.check()
    }

    /// Refuses a schema that a newer program has migrated. Within a transaction, which costs no further lock.
    pub(super) fn check_schema(&self, connection: &Connection) -> Result<(), DatabaseError> {
        self.known.check(connection, self.file.path())
    }
}

impl Shared {
    fn lock_jobs(&self) -> MutexGuard<'_, VecDeque<Job>> {
        self.jobs.lock()
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.freshness.holds()
    }

    pub(super) fn wait_until_fresh(&self) -> Result<(), DatabaseError> {
        if let Some(queue) = &self.queue {
            queue.wake.up();
        }
        self.freshness.wait()
    }

    /// Waits for a job; `None` once there will be none.
    fn next_job(&self) -> Option<Job> {
        let mut jobs = self.lock_jobs();
        loop {
            if let Some(job) = jobs.pop_front() {
                return Some(job);
            }
            if self.stopping.load(Ordering::Acquire) {
                return None;
            }
            self.wake.wait(&mut jobs);
        }
    }
}

impl Engine {
    /// Opens a file that exists, and that no other engine of this process has open.
    pub(super) fn open(
        path: &Path,
        file: FileIdentity,
        migrations: &[Migration],
    ) -> Result<Engine, DatabaseError> {
        let connection = connection::for_writing(path, migrations)?;
        let row_key = Arc::new(RowKey::beside(path, &connection)?);
        let reader = connection::for_reading(path)?;
        let peers = Peers::join(path, file.inode())
            .map_err(|e| DatabaseError::file("join the processes at", path, e))?;
        let wake = WakeUp::new().map_err(|e| DatabaseError::file("watch", path, e))?;
        let guard = Arc::new(FileGuard { file, known: KnownMigrations::new(migrations) });
        let shared = Shared::new(Some(Arc::new(FollowerQueue::new(wake))), Some(guard.clone()));
        let mut engine = Engine { path: path.to_owned(), shared: shared.clone(), threads: Vec::new() };
        let (views, freshness) = (shared.views.clone(), shared.freshness.clone());
        if let Some(queue) = shared.queue.clone() {
            let mut follower =
                Follower::new(reader, guard, row_key.clone(), peers, views, freshness, queue.clone());
            engine.spawn("store-follower", move || {
                let at_end = || {
                    // Other processes no longer wait for this one.
                    shared.freshness.expire();
                    queue.clear();
                };
                shared.follower.run(|| follower.step(), at_end);
            })?;
        }
        engine.start_writer(connection, row_key)?;
        Ok(engine)
    }

    /// Makes an empty database that no other process sees and that ends with this one.
    pub(super) fn in_memory(migrations: &[Migration]) -> Result<Engine, DatabaseError> {
        let connection = connection::in_memory(migrations)?;
        let path = PathBuf::from(":memory:");
        let mut engine = Engine { path, shared: Shared::new(None, None), threads: Vec::new() };
        engine.start_writer(connection, Arc::new(RowKey::random()?))?;
        Ok(engine)
    }

    fn start_writer(&mut self, connection: Connection, row_key: Arc<RowKey>) -> Result<(), DatabaseError> {
        let shared = self.shared.clone();
        let snapshots = SnapshotReader::default();
        let mut writer = Writer { connection, row_key, shared: shared.clone(), snapshots };
        self.spawn("store", move || {
            let at_end = || {
                let left = std::mem::take(&mut *shared.lock_jobs());
                drop(left);
                // The last changes are announced before the follower ends.
                if let Some(queue) = &shared.queue {
                    queue.end();
                }
            };
            shared.writer.run(|| writer.step(), at_end);
        })
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), DatabaseError> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        self.threads.push(thread.map_err(|e| DatabaseError::file("start a thread of", &self.path, e))?);
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn submit(&self, job: Job) -> Result<(), DatabaseError> {
        let mut jobs = self.shared.lock_jobs();
        if self.shared.writer.is_over() || self.shared.follower.is_over() {
            return Err(DatabaseError::stopped());
        }
        if jobs.len() >= JOBS_MAX {
            return Err(DatabaseError::busy());
        }
        jobs.push_back(job);
        self.shared.wake.notify_one();
        Ok(())
    }

    pub(super) fn view<T: Send + Sync + 'static>(&self, topic: Topic, load: Load<T>) -> View<T> {
        let cached = Arc::new(CachedTopic::new(topic, load));
        let refresh: Arc<dyn Refresh> = cached.clone();
        let (done, loaded) = std::sync::mpsc::sync_channel(1);
        match &self.shared.queue {
            Some(queue) => queue.push(FollowerRequest::Load(refresh, done), &self.shared.follower),
            None => {
                let submitted = self.submit(Box::new(move |writer| {
                    writer.shared.views.add(&refresh);
                    writer.refresh();
                    // The caller may have gone.
                    let _ = done.send(());
                }));
                // A view that could not be loaded returns the error to its reader.
                drop(submitted);
            }
        }
        let _ = loaded.recv();
        View::new(cached, self.shared.clone())
    }

    /// Returns once the snapshots of every process of this machine show what is committed now. Blocks.
    pub(super) fn catch_up(&self) {
        // Without a follower, the writer refreshes before each reply.
        let Some(queue) = &self.shared.queue else { return };
        let (done, compared) = std::sync::mpsc::sync_channel(1);
        queue.push(FollowerRequest::CatchUp(done), &self.shared.follower);
        // A follower that has ended drops the request; then the snapshots go stale.
        let _ = compared.recv();
    }

    /// Brings the schema up to date for one more opener.
    pub(super) fn migrate(&self, migrations: &[Migration]) -> Result<(), DatabaseError> {
        let (path, migrations) = (self.path.clone(), migrations.to_vec());
        // Before they are applied, so that the follower does not take them for those of a newer program.
        if let Some(guard) = &self.shared.guard {
            guard.known.extend(&migrations);
        }
        let (reply, outcome) = oneshot::channel();
        self.submit(Box::new(move |writer| {
            drop(reply.send(connection::migrate(&mut writer.connection, &path, &migrations)));
        }))?;
        wait(outcome).map_err(|_| DatabaseError::stopped())?
    }
}

impl Shared {
    fn new(queue: Option<Arc<FollowerQueue>>, guard: Option<Arc<FileGuard>>) -> Arc<Shared> {
        Arc::new(Shared {
            jobs: Mutex::default(),
            wake: Condvar::new(),
            stopping: AtomicBool::new(false),
            writer: Supervised::default(),
            follower: Supervised::default(),
            freshness: Arc::new(Freshness::new(queue.is_some())),
            queue,
            guard,
            views: Arc::default(),
        })
    }
}

impl Drop for Engine {
    /// Lets what was submitted finish, then closes the file.
    fn drop(&mut self) {
        {
            let _jobs = self.shared.lock_jobs();
            self.shared.stopping.store(true, Ordering::Release);
        }
        self.shared.wake.notify_all();
        let here = std::thread::current().id();
        // A job on one of these threads may drop the last clone.
        if self.threads.iter().any(|thread| thread.thread().id() == here) {
            return;
        }
        if let (Some(queue), 1) = (&self.shared.queue, self.threads.len()) {
            // The writer was never started.
            queue.end();
        }
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// The engine's thread for transactions.
pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) row_key: Arc<RowKey>,
    shared: Arc<Shared>,
    /// Used where there is no follower.
    snapshots: SnapshotReader,
}

impl Writer {
    fn step(&mut self) -> bool {
        // Rolls back the transaction of a job that panicked. Here, so that a panic of the rollback is caught, too.
        self.roll_back();
        let Some(job) = self.shared.next_job() else { return false };
        // The caller of a job that panics finds its reply channel closed.
        job(self);
        true
    }

    fn refresh(&mut self) {
        // Only a database in memory is reloaded here, and reading memory does not fail temporarily.
        let _ = self.snapshots.refresh(&mut self.connection, None, &self.row_key, &self.shared.views);
    }

    /// Ends a transaction that only read, or that failed.
    fn roll_back(&mut self) {
        if !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }

    /// Runs a transaction. The reply leaves when the change is in force, or did not happen.
    pub(super) fn run<T, E>(
        &mut self,
        kind: Kind,
        work: impl TransactionFn<T, E>,
        reply: oneshot::Sender<Result<T, E>>,
    ) where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        let done = self.transact(kind, work);
        self.roll_back();
        let (done, version) = match done {
            Ok((done, Some(version))) => (done, version),
            other => return drop(reply.send(other.map(|(done, _)| done))),
        };
        let done: Box<dyn FnOnce() + Send> = Box::new(move || drop(reply.send(Ok(done))));
        match &self.shared.queue {
            Some(queue) => {
                let announcement = Announcement { version, done };
                queue.push(FollowerRequest::Announce(announcement), &self.shared.follower);
            }
            None => {
                self.refresh();
                done();
            }
        }
    }

    /// Returns what the work returned, and the version that a change has made.
    fn transact<T, E: From<DatabaseError>>(
        &mut self,
        kind: Kind,
        work: impl TransactionFn<T, E>,
    ) -> Result<(T, Option<i64>), E> {
        self.begin(kind)?;
        if let Kind::Change(_, id) | Kind::Claim(id) = kind {
            self.note_operation(id)?;
        }
        let mut transaction = Transaction { connection: &mut self.connection, row_key: &self.row_key };
        let done = wait(work(&mut transaction))?;
        let mut version = None;
        if let Kind::Change(topic, _) = kind {
            for name in [topic.name(), ""] {
                let raise = "INSERT INTO topics (name, version) VALUES ($1, 1)
                             ON CONFLICT (name) DO UPDATE SET version = topics.version + 1 RETURNING version";
                let raised = query(&self.connection, raise, &[name.into()])?.pop();
                version = raised.map(|mut row| row.take("version")).transpose()?;
            }
            table_digests::seal(&self.connection, &self.row_key)?;
        }
        if let Kind::Change(_, id) | Kind::Claim(id) = kind {
            self.commit(id)?;
        }
        Ok((done, version))
    }

    /// Begins a transaction. One that writes is refused where the file was replaced: nothing would read what it writes.
    fn begin(&mut self, kind: Kind) -> Result<(), DatabaseError> {
        if matches!(kind, Kind::Read) {
            return Ok(self.connection.execute_batch("BEGIN")?);
        }
        let Some(guard) = &self.shared.guard else {
            return Ok(self.connection.execute_batch("BEGIN IMMEDIATE")?);
        };
        guard.check_file()?;
        let begun = self.connection.execute_batch("BEGIN IMMEDIATE").map_err(DatabaseError::from);
        begun.map_err(|error| match error.is_busy() {
            true => DatabaseError::held(&peers::others(guard.file.path())),
            false => error,
        })?;
        guard.check_schema(&self.connection)
    }

    /// Commits. Where that fails, the operation's id tells whether it happened all the same.
    fn commit(&mut self, id: OperationId) -> Result<(), DatabaseError> {
        let Err(error) = self.connection.execute_batch("COMMIT") else { return Ok(()) };
        if error.sqlite_error_code() == Some(rusqlite::ErrorCode::SystemIoFailure) {
            // The log may have reached the disk though its flush failed. Then the process that opens the file next applies it.
            return Err(DatabaseError::unknown_outcome(error));
        }
        if !self.connection.is_autocommit() {
            // The transaction is still open, and is about to be rolled back.
            return Err(error.into());
        }
        match query(&self.connection, super::OPERATION, &[id.to_value()]) {
            Ok(found) if found.is_empty() => Err(error.into()),
            Ok(_) => Ok(()),
            Err(_) => Err(DatabaseError::unknown_outcome(error)),
        }
    }

    fn note_operation(&mut self, id: OperationId) -> Result<(), DatabaseError> {
        let now = SystemClock.since_epoch();
        let forget = now.saturating_sub(OPERATIONS_KEPT).as_micros() as i64;
        execute(&self.connection, "DELETE FROM operations WHERE at < $1", &[forget.into()])?;
        let surplus = "DELETE FROM operations WHERE at <
            (SELECT at FROM operations ORDER BY at DESC LIMIT 1 OFFSET $1)";
        execute(&self.connection, surplus, &[OPERATIONS_MAX.into()])?;
        let insert = "INSERT INTO operations (id, at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING";
        let values = [id.to_value(), (now.as_micros() as i64).into()];
        if execute(&self.connection, insert, &values)? == 0 {
            return Err(DatabaseError::repeated());
        }
        Ok(())
    }
}
