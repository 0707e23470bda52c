//! The SQLite engine: one connection on one thread, which runs jobs in turn and keeps views fresh.

use super::migration::{self, Migration};
use super::peers::Peers;
use super::view::{CachedTopic, Load, Refresh};
use super::{DatabaseError, OperationId, Row, Topic, Transaction, Value, View, Work, wait};
use crate::locked_file::{FilePrivacy, check_private, make_private_folder};
use parking_lot::{Condvar, Mutex};
use portcullis_core::{Clock, SystemClock};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, ToSql};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How many jobs may wait. Each is a change that a person or a call is waiting for.
const JOBS_MAX: usize = 1_024;
/// How long another process may hold the write lock.
const BUSY_WITHIN: Duration = Duration::from_secs(5);
/// How often the engine looks for changes that nobody told it of: those of a process that was killed right after COMMIT.
const TICK: Duration = Duration::from_secs(1);
/// How old a snapshot may be. A process that was stopped for longer reads again before it goes by one.
pub(super) const FRESH_FOR: Duration = Duration::from_secs(3);
/// How long a reader waits for a snapshot to become fresh before it refuses.
const REFRESH_WITHIN: Duration = Duration::from_secs(2);
/// How long operation ids are remembered. Whoever repeats one does so within a request or two.
const OPERATIONS_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// Pages in memory, in KiB. Views hold what is read often.
const CACHE_KIB: i64 = 512;

pub(super) type Job = Box<dyn FnOnce(&mut Worker) + Send>;

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
    thread: Option<JoinHandle<()>>,
}

/// What the engine's thread shares with its callers.
pub(super) struct Shared {
    jobs: Mutex<VecDeque<Job>>,
    /// Written to whenever the thread has something to do.
    wake: OwnedFd,
    stopping: AtomicBool,
    views: Mutex<Vec<Weak<dyn Refresh>>>,
    made: Instant,
    /// When the versions were last found to be those of the snapshots, in nanoseconds since `made`.
    checked: AtomicU64,
    /// Told whenever `checked` rises.
    ticked: (Mutex<()>, Condvar),
}

impl Shared {
    fn wake(&self) {
        // It fails only where the counter is full, and then the thread is awake.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    pub(super) fn is_fresh(&self) -> bool {
        let now = self.made.elapsed().as_nanos() as u64;
        now.saturating_sub(self.checked.load(Ordering::Acquire)) < FRESH_FOR.as_nanos() as u64
    }

    pub(super) fn wait_until_fresh(&self) -> Result<(), DatabaseError> {
        self.wake();
        let (lock, ticked) = &self.ticked;
        let waited = ticked.wait_while_for(&mut lock.lock(), |()| !self.is_fresh(), REFRESH_WITHIN);
        if waited.timed_out() && !self.is_fresh() { Err(DatabaseError::busy()) } else { Ok(()) }
    }

    fn note_fresh(&self) {
        self.checked.store(self.made.elapsed().as_nanos() as u64, Ordering::Release);
        let _guard = self.ticked.0.lock();
        self.ticked.1.notify_all();
    }
}

impl Engine {
    pub(super) fn open(
        folder: &Path,
        name: &'static str,
        migrations: &[Migration],
    ) -> Result<Engine, DatabaseError> {
        make_private_folder(folder).map_err(|e| DatabaseError::file("make", folder, e))?;
        let path = folder.join(name);
        let connection = connect(&path, migrations)?;
        let peers = Peers::join(&path).map_err(|e| DatabaseError::file("join the processes at", &path, e))?;
        Engine::start(path, connection, Some(peers))
    }

    /// Makes an empty database that no other process sees and that ends with this one.
    pub(super) fn in_memory(migrations: &[Migration]) -> Result<Engine, DatabaseError> {
        let connection = Connection::open_in_memory()?;
        prepare(&connection)?;
        migration::apply(&connection, Path::new(":memory:"), migrations)?;
        Engine::start(PathBuf::from(":memory:"), connection, None)
    }

    fn start(path: PathBuf, connection: Connection, peers: Option<Peers>) -> Result<Engine, DatabaseError> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| DatabaseError::file("watch", &path, e.into()))?;
        let shared = Arc::new(Shared {
            jobs: Mutex::default(),
            wake,
            stopping: AtomicBool::new(false),
            views: Mutex::default(),
            made: Instant::now(),
            checked: AtomicU64::new(0),
            ticked: (Mutex::new(()), Condvar::new()),
        });
        let mut worker =
            Worker { connection, shared: shared.clone(), peers, versions: HashMap::new(), version: 0 };
        worker.refresh()?;
        let thread = std::thread::Builder::new().name("store".to_owned()).spawn(move || worker.work());
        let thread = thread.map_err(|e| DatabaseError::file("start the thread of", &path, e))?;
        Ok(Engine { path, shared, thread: Some(thread) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn submit(&self, job: Job) -> Result<(), DatabaseError> {
        let mut jobs = self.shared.jobs.lock();
        if jobs.len() >= JOBS_MAX {
            return Err(DatabaseError::busy());
        }
        jobs.push_back(job);
        drop(jobs);
        self.shared.wake();
        Ok(())
    }

    pub(super) fn view<T: Send + Sync + 'static>(&self, topic: Topic, load: Load<T>) -> View<T> {
        let cached = Arc::new(CachedTopic::new(topic, load));
        let refresh: Arc<dyn Refresh> = cached.clone();
        let (done, loaded) = std::sync::mpsc::sync_channel(1);
        let submitted = self.submit(Box::new(move |worker| {
            worker.add_view(&refresh);
            // The one who waits may have gone.
            let _ = done.send(());
        }));
        // A view that could not be loaded says so to its reader.
        if submitted.is_ok() {
            let _ = loaded.recv();
        }
        View::new(cached, self.shared.clone())
    }
}

impl Drop for Engine {
    /// Lets what was submitted finish, then closes the file.
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // The last clone may be dropped by a job on this very thread.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

/// Opens the file and brings its schema up to date.
fn connect(path: &Path, migrations: &[Migration]) -> Result<Connection, DatabaseError> {
    let nofollow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let open = |new: bool| {
        OpenOptions::new()
            .create_new(new)
            .read(true)
            .write(true)
            .mode(0o600)
            .custom_flags(nofollow)
            .open(path)
    };
    let file = match open(false) {
        // Another process may make it at the same time.
        Err(error) if error.kind() == io::ErrorKind::NotFound => open(true).or_else(|_| open(false)),
        opened => opened,
    };
    let file = file.map_err(|e| DatabaseError::file("open", path, e))?;
    let metadata = file.metadata().map_err(|e| DatabaseError::file("read", path, e))?;
    check_private(&metadata, FilePrivacy::ToReading).map_err(|why| DatabaseError::refused(path, why))?;
    drop(file);
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    prepare(&connection)?;
    write_ahead(&connection)?;
    // What is acknowledged is on disk.
    connection.pragma_update(None, "synchronous", "FULL")?;
    if !migration::is_current(&connection, migrations)? {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        match migration::apply(&connection, path, migrations) {
            Ok(()) => connection.execute_batch("COMMIT")?,
            Err(error) => {
                connection.execute_batch("ROLLBACK")?;
                return Err(error);
            }
        }
    }
    // The names of the file and of its log must last as well as what is in them. SQLite ignores it if this fails.
    let folder = path.parent().unwrap_or(Path::new("."));
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|e| DatabaseError::file("sync", folder, e))?;
    Ok(connection)
}

/// Switches to the write-ahead log. SQLite does not wait for another process that does the same at this moment.
#[expect(clippy::disallowed_methods, reason = "the database is opened on a thread that may wait")]
fn write_ahead(connection: &Connection) -> Result<(), DatabaseError> {
    let began = Instant::now();
    loop {
        let switched = connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()));
        match switched.map_err(DatabaseError::from) {
            Err(error) if error.is_busy() && began.elapsed() < BUSY_WITHIN => {
                std::thread::sleep(Duration::from_millis(5));
            }
            switched => return switched,
        }
    }
}

fn prepare(connection: &Connection) -> Result<(), DatabaseError> {
    connection.busy_timeout(BUSY_WITHIN)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cell_size_check", true)?;
    Ok(())
}

/// The engine's thread.
pub(super) struct Worker {
    pub(super) connection: Connection,
    shared: Arc<Shared>,
    /// `None` for a database in memory.
    peers: Option<Peers>,
    /// The version of each topic that the snapshots show.
    versions: HashMap<String, i64>,
    /// Raised by every change of any topic.
    version: i64,
}

impl Worker {
    fn work(mut self) {
        loop {
            let next = self.shared.jobs.lock().pop_front();
            let Some(job) = next else {
                if self.shared.stopping.load(Ordering::Acquire) {
                    return;
                }
                self.sleep();
                if self.refresh().is_ok() {
                    self.shared.note_fresh();
                }
                continue;
            };
            // A panic ends its job only; the caller sees that the reply is gone.
            if catch_unwind(AssertUnwindSafe(|| job(&mut self))).is_err() {
                self.roll_back();
            }
            if self.peers.as_mut().is_some_and(Peers::were_told) && self.refresh().is_ok() {
                self.shared.note_fresh();
            }
        }
    }

    /// Waits for a job, for news of another process, or for the tick.
    fn sleep(&mut self) {
        let wake = self.shared.wake.as_fd();
        let mut awaited = vec![PollFd::new(&wake, PollFlags::IN)];
        let news = self.peers.as_ref().and_then(Peers::news);
        if let Some(news) = &news {
            awaited.push(PollFd::new(news, PollFlags::IN));
        }
        let tick = Timespec { tv_sec: TICK.as_secs() as i64, tv_nsec: 0 };
        // Interrupted or not, the caller looks at everything.
        let _ = poll(&mut awaited, Some(&tick));
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.shared.wake, &mut count);
        if let Some(peers) = &mut self.peers {
            peers.were_told();
        }
    }

    /// Reads again what has changed since it was last read, and tells the other processes how far this one is.
    fn refresh(&mut self) -> Result<(), DatabaseError> {
        let version: i64 = {
            let mut statement =
                self.connection.prepare_cached("SELECT version FROM topics WHERE name = ''")?;
            statement.query_row([], |row| row.get(0))?
        };
        if version != self.version {
            self.connection.execute_batch("BEGIN")?;
            let refreshed = self.reload();
            self.roll_back();
            refreshed?;
        }
        if let Some(peers) = &mut self.peers {
            peers.acknowledge(self.version);
        }
        Ok(())
    }

    /// Reloads the views of every topic whose version differs. In a transaction, so that all show the same moment.
    fn reload(&mut self) -> Result<(), DatabaseError> {
        let versions: HashMap<String, i64> = {
            let mut statement = self.connection.prepare_cached("SELECT name, version FROM topics")?;
            statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?
        };
        for view in self.views() {
            let name = view.topic().name();
            if versions.get(name) != self.versions.get(name) {
                let version = versions.get(name).copied().unwrap_or_default();
                view.refresh(&mut Transaction { connection: &mut self.connection }, version);
            }
        }
        self.version = versions.get("").copied().unwrap_or_default();
        self.versions = versions;
        Ok(())
    }

    fn views(&self) -> Vec<Arc<dyn Refresh>> {
        let mut views = self.shared.views.lock();
        views.retain(|view| view.strong_count() > 0);
        views.iter().filter_map(Weak::upgrade).collect()
    }

    fn add_view(&mut self, view: &Arc<dyn Refresh>) {
        self.shared.views.lock().push(Arc::downgrade(view));
        if self.connection.execute_batch("BEGIN").is_ok() {
            let version = self.versions.get(view.topic().name()).copied().unwrap_or_default();
            view.refresh(&mut Transaction { connection: &mut self.connection }, version);
            self.roll_back();
        }
        self.shared.note_fresh();
    }

    /// Ends a transaction that only read, or that failed.
    fn roll_back(&mut self) {
        if !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }

    pub(super) fn run<T, E: From<DatabaseError>>(
        &mut self,
        kind: Kind,
        work: impl Work<T, E>,
    ) -> Result<T, E> {
        let done = self.transact(kind, work);
        if done.is_err() || matches!(kind, Kind::Read) {
            self.roll_back();
            return done;
        }
        if let Kind::Change(..) = kind {
            // It is on disk: whatever fails from here on, the change is made.
            if self.refresh().is_ok() {
                self.shared.note_fresh();
            }
            if let Some(peers) = &mut self.peers {
                peers.tell(self.version);
            }
        }
        done
    }

    fn transact<T, E: From<DatabaseError>>(&mut self, kind: Kind, work: impl Work<T, E>) -> Result<T, E> {
        let begin = if matches!(kind, Kind::Read) { "BEGIN" } else { "BEGIN IMMEDIATE" };
        self.connection.execute_batch(begin).map_err(DatabaseError::from)?;
        if let Kind::Change(_, id) | Kind::Claim(id) = kind {
            self.note_operation(id)?;
        }
        let done = wait(work(&mut Transaction { connection: &mut self.connection }))?;
        if let Kind::Change(topic, _) = kind {
            for name in [topic.name(), ""] {
                let raise = "INSERT INTO topics (name, version) VALUES ($1, 1)
                             ON CONFLICT (name) DO UPDATE SET version = topics.version + 1";
                execute(&self.connection, raise, &[name.into()])?;
            }
        }
        if !matches!(kind, Kind::Read) {
            self.connection.execute_batch("COMMIT").map_err(DatabaseError::from)?;
        }
        Ok(done)
    }

    fn note_operation(&mut self, id: OperationId) -> Result<(), DatabaseError> {
        let now = SystemClock.since_epoch();
        let forget = now.saturating_sub(OPERATIONS_KEPT).as_micros() as i64;
        execute(&self.connection, "DELETE FROM operations WHERE at < $1", &[forget.into()])?;
        let insert = "INSERT INTO operations (id, at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING";
        let values = [id.to_value(), (now.as_micros() as i64).into()];
        if execute(&self.connection, insert, &values)? == 0 {
            return Err(DatabaseError::repeated());
        }
        Ok(())
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Int(value) => ValueRef::Integer(*value),
            Value::Text(value) => ValueRef::Text(value.as_bytes()),
            Value::Bytes(value) => ValueRef::Blob(value),
        }))
    }
}

/// Binds `$1`, `$2` … by their names: SQLite would number them by where they first stand.
fn bind(statement: &mut rusqlite::CachedStatement<'_>, values: &[Value]) -> Result<(), DatabaseError> {
    for (at, value) in values.iter().enumerate() {
        let Some(index) = statement.parameter_index(&format!("${}", at + 1))? else {
            return Err(DatabaseError::shape(format!("the statement has no ${}", at + 1)));
        };
        statement.raw_bind_parameter(index, value)?;
    }
    Ok(())
}

pub(super) fn query(
    connection: &Connection,
    sql: &'static str,
    values: &[Value],
) -> Result<Vec<Row>, DatabaseError> {
    let mut statement = connection.prepare_cached(sql)?;
    bind(&mut statement, values)?;
    rows_of(&mut statement)
}

/// Returns every row of a table that the database itself has named.
pub(super) fn table(connection: &Connection, name: &str) -> Result<Vec<Row>, DatabaseError> {
    let mut statement = connection.prepare(&format!("SELECT * FROM \"{}\"", name.replace('"', "\"\"")))?;
    rows_of(&mut statement)
}

fn rows_of(statement: &mut rusqlite::Statement<'_>) -> Result<Vec<Row>, DatabaseError> {
    let columns: Arc<[String]> = statement.column_names().map(str::to_owned).collect();
    let mut found = Vec::new();
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        let mut values = Vec::with_capacity(columns.len());
        for at in 0..columns.len() {
            values.push(match row.get_ref(at)? {
                ValueRef::Null => Value::Null,
                ValueRef::Integer(value) => Value::Int(value),
                ValueRef::Text(value) => Value::Text(
                    String::from_utf8(value.to_vec())
                        .map_err(|_| DatabaseError::shape("text is not UTF-8".to_owned()))?,
                ),
                ValueRef::Blob(value) => Value::Bytes(value.to_vec()),
                ValueRef::Real(_) => {
                    return Err(DatabaseError::shape("a column holds a fraction".to_owned()));
                }
            });
        }
        found.push(Row { columns: columns.clone(), values });
    }
    Ok(found)
}

pub(super) fn execute(
    connection: &Connection,
    sql: &'static str,
    values: &[Value],
) -> Result<usize, DatabaseError> {
    let mut statement = connection.prepare_cached(sql)?;
    bind(&mut statement, values)?;
    Ok(statement.raw_execute()?)
}
