//! The follower: a thread with its own connection that keeps the snapshots fresh, notifies other processes of changes, and
//! acknowledges theirs. It only reads, so no writer, flush or transaction delays it.

use super::engine::FileGuard;
use super::freshness::Freshness;
use super::peers::{Membership, Peers, PeersBehind};
use super::row_key::RowKey;
use super::shared::{Supervised, Views, WakeUp};
use super::view::Refresh;
use super::{DatabaseError, Transaction};
use parking_lot::{Mutex, MutexGuard};
use rusqlite::Connection;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// Interval of comparisons without a notification, because a process may be killed right after COMMIT. A third of the time for
/// which a snapshot is fresh.
const TICK: Duration = Duration::from_secs(1);
/// Pause between polls of the peer files. It grows while a process does not answer.
const PAUSE_MIN: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// How often a process that was given up reloads before it waits for the next tick.
const REJOIN_TRIES: u32 = 3;

/// A request to the follower.
pub(super) enum FollowerRequest {
    Load(Arc<dyn Refresh>, SyncSender<()>),
    /// Compare now and announce the version again: the caller has seen rows that the snapshot of some process may lack.
    CatchUp(SyncSender<()>),
    Announce(Announcement),
}

/// A change that was committed.
pub(super) struct Announcement {
    pub(super) version: i64,
    /// Runs when every process of this machine uses it.
    pub(super) done: Box<dyn FnOnce() + Send>,
}

/// What the follower shares with the writer and with readers.
pub(super) struct FollowerQueue {
    requests: Mutex<VecDeque<FollowerRequest>>,
    pub(super) wake: WakeUp,
    /// Set when no more requests come.
    ending: AtomicBool,
}

impl FollowerQueue {
    pub(super) fn new(wake: WakeUp) -> FollowerQueue {
        FollowerQueue { requests: Mutex::default(), wake, ending: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<FollowerRequest>> {
        self.requests.lock()
    }

    /// Queues a request. A follower that has ended drops it, and with it its reply channel.
    pub(super) fn push(&self, request: FollowerRequest, supervised: &Supervised) {
        let mut requests = self.lock();
        if !supervised.is_over() {
            requests.push_back(request);
        }
        drop(requests);
        self.wake.up();
    }

    pub(super) fn end(&self) {
        self.ending.store(true, Ordering::Release);
        self.wake.up();
    }

    pub(super) fn clear(&self) {
        let requests = std::mem::take(&mut *self.lock());
        drop(requests);
    }
}

/// Reloads snapshots, and knows which version they show.
#[derive(Default)]
pub(super) struct SnapshotReader {
    version: Option<i64>,
}

impl SnapshotReader {
    /// Reloads each topic that has changed, or that failed to load before. Returns the version that all views show.
    pub(super) fn refresh(
        &mut self,
        connection: &mut Connection,
        guard: Option<&FileGuard>,
        row_key: &RowKey,
        views: &Views,
    ) -> Result<i64, DatabaseError> {
        // In one transaction, so that all views show the same version.
        connection.execute_batch("BEGIN")?;
        let read = self.read(connection, guard, row_key, views);
        if !connection.is_autocommit() {
            let _ = connection.execute_batch("ROLLBACK");
        }
        read
    }

    fn read(
        &mut self,
        connection: &mut Connection,
        guard: Option<&FileGuard>,
        row_key: &RowKey,
        views: &Views,
    ) -> Result<i64, DatabaseError> {
        let version: i64 = {
            let mut statement = connection.prepare_cached("SELECT version FROM topics WHERE name = ''")?;
            statement.query_row([], |row| row.get(0))?
        };
        guard.map_or(Ok(()), |guard| guard.check_schema(connection))?;
        let now = Instant::now();
        if self.version == Some(version) && !views.all().iter().any(|view| view.is_due(now)) {
            return Ok(version);
        }
        let version = reload(connection, row_key, views, now)?;
        self.version = Some(version);
        Ok(version)
    }
}

fn reload(
    connection: &mut Connection,
    row_key: &RowKey,
    views: &Views,
    now: Instant,
) -> Result<i64, DatabaseError> {
    let versions: HashMap<String, i64> = {
        let mut statement = connection.prepare_cached("SELECT name, version FROM topics")?;
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?
    };
    for view in views.all() {
        let version = versions.get(view.topic().name()).copied().unwrap_or_default();
        if view.version() != Some(version) || view.is_due(now) {
            view.refresh(&mut Transaction { connection: &mut *connection, row_key }, version);
        }
    }
    Ok(versions.get("").copied().unwrap_or_default())
}

pub(super) struct Follower {
    pub(super) connection: Connection,
    pub(super) guard: Arc<FileGuard>,
    pub(super) row_key: Arc<RowKey>,
    pub(super) peers: Peers,
    pub(super) views: Arc<Views>,
    pub(super) freshness: Arc<Freshness>,
    pub(super) queue: Arc<FollowerQueue>,
    pub(super) snapshots: SnapshotReader,
    pub(super) awaited: Vec<(PeersBehind, Announcement)>,
    pub(super) compared: Option<Instant>,
    pub(super) pause: Duration,
}

impl Follower {
    pub(super) fn new(
        connection: Connection,
        guard: Arc<FileGuard>,
        row_key: Arc<RowKey>,
        peers: Peers,
        views: Arc<Views>,
        freshness: Arc<Freshness>,
        queue: Arc<FollowerQueue>,
    ) -> Follower {
        let (snapshots, awaited, pause) = (SnapshotReader::default(), Vec::new(), PAUSE_MIN);
        Follower {
            connection,
            guard,
            row_key,
            peers,
            views,
            freshness,
            queue,
            snapshots,
            awaited,
            compared: None,
            pause,
        }
    }

    /// Handles the requests, polls the peers, and waits. Returns whether to go on.
    pub(super) fn step(&mut self) -> bool {
        let requests = std::mem::take(&mut *self.queue.lock());
        let ending = self.queue.ending.load(Ordering::Acquire);
        self.run(requests);
        let Follower { awaited, peers, .. } = self;
        let mut still = Vec::new();
        for (mut behind, announcement) in std::mem::take(awaited) {
            match peers.have_read(&mut behind) {
                true => (announcement.done)(),
                false => still.push((behind, announcement)),
            }
        }
        *awaited = still;
        if ending && self.awaited.is_empty() && self.queue.lock().is_empty() {
            return false;
        }
        self.sleep();
        true
    }

    fn run(&mut self, requests: VecDeque<FollowerRequest>) {
        let (mut loaded, mut announced, mut asked) = (Vec::new(), Vec::new(), Vec::new());
        for request in requests {
            match request {
                FollowerRequest::Load(view, done) => {
                    self.views.add(&view);
                    loaded.push(done);
                }
                FollowerRequest::CatchUp(done) => asked.push(done),
                FollowerRequest::Announce(announcement) => announced.push(announcement),
            }
        }
        let is_idle = loaded.is_empty() && announced.is_empty() && asked.is_empty();
        if !(is_idle && self.compared.is_some_and(|at| at.elapsed() < TICK)) {
            let shown = self.compare();
            if shown.is_none() && !asked.is_empty() {
                self.freshness.expire();
            }
            // Without a version the callers get their answer from the snapshots, which have expired.
            if let Some(version) = shown {
                announced.extend(asked.drain(..).map(|done: SyncSender<()>| Announcement {
                    version,
                    done: Box::new(move || {
                        // The caller may have gone.
                        let _ = done.try_send(());
                    }),
                }));
            }
            let newest = announced.iter().map(|announcement| announcement.version).max();
            // The change is on disk whatever fails from here on, so no reader may use an older snapshot.
            if newest.is_some_and(|newest| shown.is_none_or(|shown| shown < newest)) {
                self.freshness.expire();
            }
        }
        for announcement in announced {
            self.pause = PAUSE_MIN;
            self.awaited.push((self.peers.tell(announcement.version), announcement));
        }
        // A view that could not be loaded returns the error to its reader. The caller may have gone.
        for done in loaded {
            let _ = done.send(());
        }
    }

    /// Compares the snapshots with the database. Returns the version that they show.
    fn compare(&mut self) -> Option<i64> {
        self.compared = Some(Instant::now());
        self.peers.drain_news();
        for _ in 0..REJOIN_TRIES {
            let as_of = self.freshness.now();
            let Follower { connection, guard, row_key, views, snapshots, .. } = self;
            let in_place = guard.check_file();
            let compared =
                in_place.and_then(|()| snapshots.refresh(connection, Some(guard.as_ref()), row_key, views));
            let kept = compared.and_then(|version| {
                let kept = self.peers.acknowledge(version);
                Ok((version, kept.map_err(DatabaseError::peers)?))
            });
            match kept {
                Ok((version, Membership::Kept)) => {
                    self.freshness.extend(as_of);
                    return Some(version);
                }
                Ok((_, Membership::Renewed)) => {}
                Err(error) => {
                    if error.is_refused() {
                        // The path names another file, or the file has another schema: the snapshots show neither.
                        self.freshness.expire();
                    }
                    self.freshness.note_fault(error.to_string());
                    return None;
                }
            }
        }
        None
    }

    /// Waits for a request, a notification of another process, an acknowledgement, or the tick.
    fn sleep(&mut self) {
        let timeout = match self.awaited.is_empty() {
            true => TICK.saturating_sub(self.compared.map_or(TICK, |at| at.elapsed())),
            false => self.pause,
        };
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        let woken = {
            let wake = self.queue.wake.as_fd();
            let mut fds = vec![PollFd::new(&wake, PollFlags::IN)];
            let news = self.peers.news();
            if let Some(news) = &news {
                fds.push(PollFd::new(news, PollFlags::IN));
            }
            let timeout =
                Timespec { tv_sec: timeout.as_secs().cast_signed(), tv_nsec: timeout.subsec_nanos().into() };
            // The caller checks everything, also after an interrupt.
            poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready > 0)
        };
        self.queue.wake.clear();
        if woken {
            self.compared = None;
        }
    }
}
