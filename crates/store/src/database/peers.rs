//! The other processes on this machine that have the same database open.
//!
//! Each has a file in a folder beside the database, locked for as long as the process lives, and writes into it the version that
//! its snapshots show. A change writes the new version into a file that all of them watch, and is acknowledged when each
//! has read again, has died, or has let [`FRESH_FOR`] pass: then its snapshots are stale by its own clock, which is the
//! same for all. Its file is removed, so that no later change waits for it. A process that finds its own file gone, such as
//! one that was stopped, makes a new one and reads again before it goes by anything. So an acknowledged revocation is in
//! force everywhere, and a stopped process delays one change, once.

use super::freshness::FRESH_FOR;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a change writes, and all processes watch. Locked, shared by those that acknowledge and alone by the one that removes.
const CHANGED: &str = "changed";
/// A version as text, of the same length always, so that no reader sees half of one.
const DIGITS: usize = 20;
/// When the snapshots of a process that does not answer have become stale by its own clock, with a margin for rounding.
pub(super) const ANSWER_WITHIN: Duration = FRESH_FOR.saturating_add(Duration::from_millis(10));
/// For how long a process tries to acknowledge while another one removes files. That takes microseconds.
const LOCK_TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(1);
/// How often a process that joins may find its file removed before it had locked it.
const JOIN_TRIES: u32 = 100;

pub(super) struct Peers {
    folder: PathBuf,
    changed: File,
    /// Tells of writes to `changed`; where the kernel has none to give, the tick has to do.
    watch: Option<OwnedFd>,
    own: OwnFile,
    acknowledged: Option<i64>,
}

struct OwnFile {
    file: File,
    path: PathBuf,
}

/// Whether the other processes wait for this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Membership {
    Kept,
    /// They had given it up; it has joined again, and what it has read may be old.
    Renewed,
}

impl Peers {
    /// Joins. From here on a change waits for this process.
    pub(super) fn join(database: &Path) -> io::Result<Peers> {
        let folder = folder_of(database);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let changed_path = folder.join(CHANGED);
        let changed = open(&changed_path)?;
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .and_then(|watch| inotify::add_watch(&watch, &changed_path, WatchFlags::MODIFY).map(|_| watch))
            .ok();
        let own = OwnFile::make(&folder)?;
        Ok(Peers { folder, changed, watch, own, acknowledged: None })
    }

    /// Returns what can be waited on for news.
    pub(super) fn news(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    /// Forgets the news so far. Before the database is read, so that none is lost.
    pub(super) fn drain_news(&self) {
        let mut events = [0; 1024];
        while let Some(watch) = &self.watch
            && rustix::io::read(watch, &mut events).is_ok_and(|bytes| bytes > 0)
        {}
    }

    /// Writes down which version the snapshots of this process show.
    pub(super) fn acknowledge(&mut self, version: i64) -> io::Result<Membership> {
        if self.acknowledged == Some(version) && self.own.is_there()? {
            return Ok(Membership::Kept);
        }
        {
            // So that no process removes the file between the look at it and the write.
            let _lock = SharedLock::of(&self.changed)?;
            if self.own.is_there()? {
                // A file that cannot be written costs another process a wait, and nothing else.
                self.acknowledged = write_version(&self.own.file, version).is_ok().then_some(version);
                return Ok(Membership::Kept);
            }
        }
        self.own = OwnFile::make(&self.folder)?;
        self.acknowledged = None;
        Ok(Membership::Renewed)
    }

    /// Tells every other process of a change. Returns those that have to read it.
    pub(super) fn tell(&self, version: i64) -> PeersBehind {
        let _ = write_version(&self.changed, version);
        let listed = fs::read_dir(&self.folder).into_iter().flatten();
        let paths = listed.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        let others = paths.filter(|path| *path != self.own.path && !path.ends_with(CHANGED)).collect();
        PeersBehind { version, told: Instant::now(), others }
    }

    /// Returns whether every process goes by a change that they were told of.
    pub(super) fn have_read(&self, behind: &mut PeersBehind) -> bool {
        behind.others.retain(|path| is_behind(path, behind.version));
        if behind.told.elapsed() >= ANSWER_WITHIN {
            behind.others.drain(..).for_each(|path| self.give_up(&path, behind.version));
        }
        behind.others.is_empty()
    }

    /// Removes the file of a process that does not answer.
    fn give_up(&self, path: &Path, version: i64) {
        // Where the lock is not to be had the next change waits for that process, too.
        if self.changed.try_lock().is_ok() {
            if is_behind(path, version) {
                let _ = fs::remove_file(path);
            }
            let _ = self.changed.unlock();
        }
    }
}

/// The processes that have not read a change yet.
pub(super) struct PeersBehind {
    version: i64,
    told: Instant,
    others: Vec<PathBuf>,
}

impl OwnFile {
    fn make(folder: &Path) -> io::Result<OwnFile> {
        for _ in 0..JOIN_TRIES {
            let mut random = [0; 4];
            getrandom::fill(&mut random).map_err(io::Error::other)?;
            let path = folder.join(format!("{}-{:08x}", std::process::id(), u32::from_ne_bytes(random)));
            let own = OwnFile { file: open(&path)?, path };
            own.file.lock()?;
            // Before it was locked it looked like that of a dead process.
            if own.is_there()? {
                return Ok(own);
            }
        }
        Err(io::Error::other("other processes keep removing the file of this one"))
    }

    fn is_there(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.nlink() > 0)
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        // It may have gone, and the name is not used twice.
        let _ = fs::remove_file(&self.path);
    }
}

/// A shared lock on a file, until it is dropped.
struct SharedLock<'a>(&'a File);

impl SharedLock<'_> {
    #[expect(clippy::disallowed_methods, reason = "the thread that follows changes is the engine's own")]
    fn of(file: &File) -> io::Result<SharedLock<'_>> {
        for _ in 0..LOCK_TRIES {
            if file.try_lock_shared().is_ok() {
                return Ok(SharedLock(file));
            }
            std::thread::sleep(PAUSE);
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "another process holds the lock"))
    }
}

impl Drop for SharedLock<'_> {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

fn folder_of(database: &Path) -> PathBuf {
    let mut folder = database.as_os_str().to_owned();
    folder.push("-processes");
    PathBuf::from(folder)
}

/// Returns whether a process has joined.
pub(super) fn has_joined(database: &Path, pid: u32) -> bool {
    let beginning = format!("{pid}-");
    let mut listed = fs::read_dir(folder_of(database)).into_iter().flatten().flatten();
    listed.any(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(&beginning)))
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(path)
}

/// Returns whether a process lives and still goes by an older version. What a dead one left is removed.
fn is_behind(path: &Path, version: i64) -> bool {
    let Ok(file) = OpenOptions::new().read(true).write(true).open(path) else { return false };
    if read_version(&file).is_some_and(|seen| seen >= version) {
        return false;
    }
    if file.try_lock().is_ok() {
        let _ = fs::remove_file(path);
        return false;
    }
    true
}

fn write_version(file: &File, version: i64) -> io::Result<()> {
    file.write_all_at(format!("{version:0DIGITS$}").as_bytes(), 0)
}

fn read_version(file: &File) -> Option<i64> {
    let mut digits = [0; DIGITS];
    file.read_exact_at(&mut digits, 0).ok()?;
    std::str::from_utf8(&digits).ok()?.parse().ok()
}
