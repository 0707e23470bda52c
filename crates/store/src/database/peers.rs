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
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a change writes, and all processes watch. Locked, shared by those that acknowledge and alone by the one that removes.
const CHANGED: &str = "changed";
/// A version as text, followed by the inode of the database that it is of, since a backup put in its place counts anew. Both have
/// the same length always, so that no reader sees half of one.
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
    /// The inode of the database.
    inode: u64,
    changed: JoinedFile,
    /// Tells of writes to `changed`; where the kernel has none to give, the tick has to do.
    watch: Option<OwnedFd>,
    own: OwnFile,
    acknowledged: Option<i64>,
}

/// A file of the folder, held open.
struct JoinedFile {
    file: File,
    path: PathBuf,
}

/// The file of this process. It is removed when the process leaves.
struct OwnFile(JoinedFile);

/// Whether the other processes wait for this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Membership {
    Kept,
    /// They had given it up; it has joined again, and what it has read may be old.
    Renewed,
}

impl Peers {
    /// Joins. From here on a change waits for this process.
    pub(super) fn join(database: &Path, inode: u64) -> io::Result<Peers> {
        let folder = folder_of(database);
        let (changed, watch, own) = Peers::enter(&folder)?;
        Ok(Peers { folder, inode, changed, watch, own, acknowledged: None })
    }

    /// Makes what is missing of the folder, watches it, and adds a file of this process.
    fn enter(folder: &Path) -> io::Result<(JoinedFile, Option<OwnedFd>, OwnFile)> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let changed = JoinedFile::open(folder.join(CHANGED))?;
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .and_then(|watch| inotify::add_watch(&watch, &changed.path, WatchFlags::MODIFY).map(|_| watch))
            .ok();
        let own = OwnFile::make(folder)?;
        Ok((changed, watch, own))
    }

    /// Returns whether other processes find the files of this one. They do not where somebody has removed the folder.
    fn is_joined(&self) -> io::Result<bool> {
        Ok(self.own.0.is_there()? && self.changed.is_there()?)
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
        if self.acknowledged == Some(version) && self.is_joined()? {
            return Ok(Membership::Kept);
        }
        {
            // So that no process removes the file between the look at it and the write.
            let _lock = SharedLock::of(&self.changed.file)?;
            if self.is_joined()? {
                // A file that cannot be written costs another process a wait, and nothing else.
                let written = write_version(&self.own.0.file, version, self.inode);
                self.acknowledged = written.is_ok().then_some(version);
                return Ok(Membership::Kept);
            }
        }
        self.acknowledged = None;
        (self.changed, self.watch, self.own) = Peers::enter(&self.folder)?;
        Ok(Membership::Renewed)
    }

    /// Tells every other process of a change. Returns those that have to read it.
    pub(super) fn tell(&self, version: i64) -> PeersBehind {
        let _ = write_version(&self.changed.file, version, self.inode);
        PeersBehind { version, told: Instant::now(), others: self.others().ok() }
    }

    /// Returns the files of the other processes.
    fn others(&self) -> io::Result<Vec<PathBuf>> {
        let paths = fs::read_dir(&self.folder)?.map(|entry| Ok(entry?.path()));
        let is_other = |path: &PathBuf| *path != self.own.0.path && !path.ends_with(CHANGED);
        paths.filter(|path| path.as_ref().map_or(true, is_other)).collect()
    }

    /// Returns whether every process goes by a change that they were told of.
    pub(super) fn have_read(&self, behind: &mut PeersBehind) -> bool {
        if behind.others.is_none() {
            behind.others = self.others().ok();
        }
        if let Some(others) = &mut behind.others {
            others.retain(|path| self.is_behind(path, behind.version));
        }
        if behind.told.elapsed() >= ANSWER_WITHIN {
            // Those that could not be listed have read by now, or their snapshots are stale.
            let silent = behind.others.take().unwrap_or_default();
            silent.iter().for_each(|path| self.give_up(path, behind.version));
            return true;
        }
        behind.others.as_ref().is_some_and(Vec::is_empty)
    }

    /// Removes the file of a process that does not answer.
    fn give_up(&self, path: &Path, version: i64) {
        // Where the lock is not to be had the next change waits for that process, too.
        if self.changed.file.try_lock().is_ok() {
            if self.is_behind(path, version) {
                let _ = fs::remove_file(path);
            }
            let _ = self.changed.file.unlock();
        }
    }

    /// Returns whether a process lives and still goes by an older version. What a dead one left is removed.
    fn is_behind(&self, path: &Path, version: i64) -> bool {
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            // A file that cannot be opened, for want of descriptors, says nothing about its process.
            Err(error) => return error.kind() != io::ErrorKind::NotFound,
        };
        if read_version(&file, self.inode).is_some_and(|seen| seen >= version) {
            return false;
        }
        if file.try_lock().is_ok() {
            let _ = fs::remove_file(path);
            return false;
        }
        true
    }
}

/// The processes that have not read a change yet.
pub(super) struct PeersBehind {
    version: i64,
    told: Instant,
    /// `None` while the folder could not be listed.
    others: Option<Vec<PathBuf>>,
}

impl OwnFile {
    fn make(folder: &Path) -> io::Result<OwnFile> {
        for _ in 0..JOIN_TRIES {
            let mut random = [0; 4];
            getrandom::fill(&mut random).map_err(io::Error::other)?;
            let path = folder.join(format!("{}-{:08x}", std::process::id(), u32::from_ne_bytes(random)));
            let own = OwnFile(JoinedFile::open(path)?);
            own.0.file.lock()?;
            // Before it was locked it looked like that of a dead process.
            if own.0.is_there()? {
                return Ok(own);
            }
        }
        Err(io::Error::other("other processes keep removing the file of this one"))
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        // It may have gone, and the name is not used twice.
        let _ = fs::remove_file(&self.0.path);
    }
}

impl JoinedFile {
    fn open(path: PathBuf) -> io::Result<JoinedFile> {
        let file =
            OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(&path)?;
        Ok(JoinedFile { file, path })
    }

    /// Returns whether its path still names this file.
    fn is_there(&self) -> io::Result<bool> {
        let open = self.file.metadata()?;
        match fs::symlink_metadata(&self.path) {
            Ok(named) => Ok((named.dev(), named.ino()) == (open.dev(), open.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
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

/// Returns the other processes that live and have the database open. One that cannot be looked at is left out.
pub(super) fn others(database: &Path) -> Vec<u32> {
    let listed = fs::read_dir(folder_of(database)).into_iter().flatten().flatten();
    let mut others: Vec<u32> = listed
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.split_once('-')?.0.parse().ok()?;
            let file = File::open(entry.path()).ok()?;
            let lives = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
            (lives && pid != std::process::id()).then_some(pid)
        })
        .collect();
    others.sort_unstable();
    others.dedup();
    others
}

fn write_version(file: &File, version: i64, inode: u64) -> io::Result<()> {
    file.write_all_at(format!("{version:0DIGITS$}{inode:0DIGITS$}").as_bytes(), 0)
}

/// Returns the version of the database with this inode that a file shows.
fn read_version(file: &File, inode: u64) -> Option<i64> {
    let mut digits = [0; 2 * DIGITS];
    file.read_exact_at(&mut digits, 0).ok()?;
    let (version, of) = std::str::from_utf8(&digits).ok()?.split_at(DIGITS);
    if of.parse() == Ok(inode) { version.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_cannot_be_looked_at_has_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("database");
        let peers = Peers::join(&database, 7).unwrap();
        // It cannot be opened for writing, as if there were no descriptors left.
        let silent = folder_of(&database).join("1-00000000");
        fs::create_dir(&silent).unwrap();
        let mut behind = peers.tell(1);
        assert!(!peers.have_read(&mut behind));
        fs::remove_dir(&silent).unwrap();
        assert!(peers.have_read(&mut behind));
        // Nor do those have that cannot be listed.
        fs::remove_dir_all(folder_of(&database)).unwrap();
        let mut behind = peers.tell(2);
        assert!(!peers.have_read(&mut behind));
    }

    #[test]
    fn a_version_of_another_file_counts_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("database");
        let mut before = Peers::join(&database, 7).unwrap();
        before.acknowledge(100).unwrap();
        let after = Peers::join(&database, 8).unwrap();
        assert!(!after.have_read(&mut after.tell(5)));
        before.inode = 8;
        before.acknowledge(5).unwrap();
        assert!(after.have_read(&mut after.tell(5)));
    }
}
