//! The other processes on this machine that have the same database open.
//!
//! Each process has a peer file in a folder beside the database, locks it for as long as it lives, and writes the version of its
//! snapshots into it. A change writes the new version into the file `changed`, which all processes watch. The change is
//! acknowledged when each process has reloaded, has died, or has let [`FRESH_FOR`] pass: then its snapshots are stale by its
//! own clock, which is the same for all. Its peer file is removed, so that no later change waits for it. A process that
//! finds its peer file missing makes a new one and reloads before it uses a snapshot. So an acknowledged revocation is in
//! force everywhere, and a stopped process delays one change, once.

use super::freshness::FRESH_FOR;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The file that a change writes and all processes watch. A process that acknowledges holds a shared lock on it, one that
/// removes a peer file an exclusive lock.
const CHANGED: &str = "changed";
/// Length of a version as text, and of the inode of its database after it: the versions of a backup put in its place count anew.
/// The length is fixed, so that no reader sees half of a number.
const DIGITS: usize = 20;
/// After this time the snapshots of a process that does not answer are stale by its own clock. With a margin for rounding.
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
    /// Reports writes to `changed`. `None` if the kernel has no more watches; then the tick finds them.
    watch: Option<OwnedFd>,
    own: OwnFile,
    acknowledged: Option<i64>,
}

/// A file of the folder, held open.
struct JoinedFile {
    file: File,
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// The file of this process. It is removed when the process leaves.
struct OwnFile(JoinedFile);

/// Whether the other processes wait for this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Membership {
    Kept,
    /// They had given it up. It has joined again, and must reload.
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

    /// Returns whether other processes find the files of this one. They do not after the folder was removed.
    fn is_joined(&self) -> io::Result<bool> {
        Ok(self.own.0.is_there()? && self.changed.is_there()?)
    }

    /// Returns the descriptor that becomes readable with a notification.
    pub(super) fn news(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    /// Consumes the notifications so far. Called before the database is read, so that none is lost.
    pub(super) fn drain_news(&self) {
        let mut events = [0; 1024];
        while let Some(watch) = &self.watch
            && rustix::io::read(watch, &mut events).is_ok_and(|bytes| bytes > 0)
        {}
    }

    /// Writes the version of the snapshots into the peer file.
    pub(super) fn acknowledge(&mut self, version: i64) -> io::Result<Membership> {
        if self.acknowledged == Some(version) && self.is_joined()? {
            return Ok(Membership::Kept);
        }
        {
            // So that no process removes the file between the check and the write.
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

    /// Notifies every other process of a change. Returns those that have not reloaded.
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

    /// Returns whether every process has reloaded, has died, or was given up.
    pub(super) fn have_read(&self, behind: &mut PeersBehind) -> bool {
        if behind.others.is_none() {
            behind.others = self.others().ok();
        }
        if let Some(others) = &mut behind.others {
            others.retain(|path| self.is_behind(path, behind.version));
        }
        if behind.told.elapsed() >= ANSWER_WITHIN {
            // Processes that could not be listed have reloaded at their tick, or their snapshots are stale.
            let silent = behind.others.take().unwrap_or_default();
            silent.iter().for_each(|path| self.give_up(path, behind.version));
            return true;
        }
        behind.others.as_ref().is_some_and(Vec::is_empty)
    }

    /// Removes the peer file of a process that does not answer.
    fn give_up(&self, path: &Path, version: i64) {
        // Without the lock the file stays, and the next change waits for that process, too.
        if self.changed.file.try_lock().is_ok() {
            if self.is_behind(path, version) {
                let _ = fs::remove_file(path);
            }
            let _ = self.changed.file.unlock();
        }
    }

    /// Returns whether a process lives and its snapshots show an older version. Removes the peer file of a dead process.
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
        let opened = file.metadata()?;
        Ok(JoinedFile { file, path, device: opened.dev(), inode: opened.ino() })
    }

    /// Returns whether its path still names this file.
    fn is_there(&self) -> io::Result<bool> {
        match fs::symlink_metadata(&self.path) {
            Ok(named) => Ok((named.dev(), named.ino()) == (self.device, self.inode)),
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
