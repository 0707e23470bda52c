//! One file of the hub's own: read whole, known by its stamp, and replaced so that no reader ever sees half of it.
//!
//! The hub and the command line share such files without talking to each other. Whoever changes one holds its lock,
//! writes a new file beside it and puts that in its place; whoever reads looks at the stamp first.

use arc_swap::ArcSwap;
use rustix::fs::OFlags;
use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a lock is waited for. Whoever holds one writes a small file and lets go.
const LOCK_WITHIN: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// How long a reader goes on with what it found when it last looked, and a writer waits before it says that it is done:
/// whoever knows of a change finds that everybody does.
const TRUSTED_FOR: Duration = Duration::from_millis(2);
/// Only the owner reads and writes.
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;
const ROOT: u32 = 0;

/// A file or folder that could not be made, locked or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} `{path}`: {source}")]
pub struct FileError {
    doing: &'static str,
    path: String,
    #[source]
    source: io::Error,
}

impl FileError {
    pub(crate) fn new(doing: &'static str, path: &Path, source: io::Error) -> FileError {
        FileError { doing, path: path.display().to_string(), source }
    }
}

/// What other users may not be able to do with the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closed {
    /// Whoever can write it can let anyone in.
    ToWriting,
    /// Others have no business with it, not even to guess at what is in it.
    ToReading,
}

impl Closed {
    /// The permissions that nobody else may have, and what is said if somebody does.
    fn refused(self) -> (u32, &'static str) {
        match self {
            Closed::ToWriting => (0o022, "can be written by others; check it, then `chmod 600` it"),
            Closed::ToReading => (0o077, "is open to other users; check it, then `chmod 600` it"),
        }
    }
}

/// What changes whenever a file does.
///
/// A replaced file has another number, which is certain as long as the old one is kept open. An edit in
/// place is seen by its size and times; one of the same size within the same tick of the kernel is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    mode: u32,
    owner: u32,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(metadata: &Metadata) -> Stamp {
        Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            mode: metadata.mode(),
            owner: metadata.uid(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// What was found in place of the file.
pub(crate) struct Found {
    pub(crate) stamp: Option<Stamp>,
    /// Kept open, so that the file's number cannot be given to its successor and hide a change.
    pub(crate) file: Option<File>,
    /// `None` where there is no file. Trouble is told in words, with the file's name and without its path.
    pub(crate) bytes: Result<Option<Vec<u8>>, String>,
}

/// A file in a private folder, of which neither has to exist yet.
pub(crate) struct KeptFile {
    dir: PathBuf,
    path: PathBuf,
    name: &'static str,
    bytes_max: u64,
    closed: Closed,
}

impl KeptFile {
    pub(crate) fn new(dir: &Path, name: &'static str, bytes_max: u64, closed: Closed) -> KeptFile {
        KeptFile { dir: dir.to_owned(), path: dir.join(name), name, bytes_max, closed }
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Returns the stamp of the file as it is now; `None` if there is none.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        std::fs::symlink_metadata(&self.path).ok().map(|metadata| Stamp::of(&metadata))
    }

    pub(crate) fn read(&self) -> Found {
        // Not through a link, and without waiting on a pipe that someone put in its place.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let cannot = |e: io::Error| format!("cannot read {}: {e}", self.name);
        let mut file = match OpenOptions::new().read(true).custom_flags(flags).open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Found { stamp: None, file: None, bytes: Ok(None) };
            }
            // The stamp is remembered all the same, so that every look does not try again.
            Err(error) => return Found { stamp: self.stamp(), file: None, bytes: Err(cannot(error)) },
        };
        match file.metadata() {
            Ok(metadata) => {
                let bytes = self.read_bytes(&mut file, &metadata).map(Some);
                Found { stamp: Some(Stamp::of(&metadata)), file: Some(file), bytes }
            }
            Err(error) => Found { stamp: None, file: None, bytes: Err(cannot(error)) },
        }
    }

    fn read_bytes(&self, file: &mut File, metadata: &Metadata) -> Result<Vec<u8>, String> {
        let refused = |why: &str| Err(format!("{} {why}", self.name));
        if !metadata.is_file() {
            return refused("is not a regular file");
        }
        let (too_open, said) = self.closed.refused();
        if metadata.mode() & too_open != 0 {
            return refused(said);
        }
        if ![ROOT, rustix::process::geteuid().as_raw()].contains(&metadata.uid()) {
            return refused("belongs to another user");
        }
        let mut bytes = Vec::new();
        if let Err(error) = file.take(self.bytes_max + 1).read_to_end(&mut bytes) {
            return refused(&format!("cannot be read: {error}"));
        }
        if bytes.len() as u64 > self.bytes_max {
            return refused(&format!("is larger than {} bytes", self.bytes_max));
        }
        Ok(bytes)
    }

    /// Waits until nobody else holds what is locked by a name, in the folder of this file.
    pub(crate) fn lock_named(&self, name: &str, within: Duration) -> Result<Hold, FileError> {
        self.make_folder()?;
        Hold::within(&self.dir.join(format!("{name}.lock")), within)
    }

    /// Makes the folder, where it is missing.
    pub(crate) fn make_folder(&self) -> Result<(), FileError> {
        let made = DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(&self.dir);
        made.map_err(|e| FileError::new("make", &self.dir, e))
    }

    /// Waits until no other process changes the file, and keeps them waiting until the lock is dropped.
    pub(crate) fn lock(&self) -> Result<FileLock<'_>, FileError> {
        self.make_folder()?;
        // Not the file itself: that is replaced, so a lock on it would not hold.
        let hold = Hold::of(&self.path.with_extension("lock"))?;
        Ok(FileLock { file: self, _hold: hold })
    }
}

/// Keeps other processes, and other threads, from what a file stands for, until it is dropped.
#[derive(Debug)]
pub struct Hold {
    _lock: File,
}

impl Hold {
    /// Waits until nobody else holds the file, which is made where it is missing. Nothing is written to it.
    pub fn of(path: &Path) -> Result<Hold, FileError> {
        Hold::within(path, LOCK_WITHIN)
    }

    /// The same, for what others may hold for longer.
    #[expect(clippy::disallowed_methods, reason = "whoever changes a file is on a thread that may wait")]
    pub(crate) fn within(path: &Path, within: Duration) -> Result<Hold, FileError> {
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(PRIVATE_FILE).open(path);
        let lock = lock.map_err(|e| FileError::new("open", path, e))?;
        let began = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Hold { _lock: lock }),
                // A process that was stopped in the middle must not stop all others.
                Err(TryLockError::WouldBlock) if began.elapsed() < within => std::thread::sleep(LOCK_PAUSE),
                Err(TryLockError::WouldBlock) => {
                    let held = io::Error::new(io::ErrorKind::TimedOut, "another process holds it");
                    return Err(FileError::new("lock", path, held));
                }
                Err(TryLockError::Error(error)) => return Err(FileError::new("lock", path, error)),
            }
        }
    }
}

/// The right to replace a file, until it is dropped.
pub(crate) struct FileLock<'a> {
    file: &'a KeptFile,
    _hold: Hold,
}

impl FileLock<'_> {
    /// Puts new contents in place. When this returns they are on disk, and nobody goes by the old ones any more.
    #[expect(clippy::disallowed_methods, reason = "whoever changes a file is on a thread that may wait")]
    pub(crate) fn replace(&self, bytes: &[u8]) -> Result<(), FileError> {
        let KeptFile { dir, path, name, .. } = self.file;
        let failed = |e: io::Error| FileError::new("write", path, e);
        // One that a crash left behind is never read.
        let new_path = dir.join(format!("{name}.new"));
        match std::fs::remove_file(&new_path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let mut new = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(PRIVATE_FILE)
            .open(&new_path)
            .map_err(failed)?;
        new.write_all(bytes).map_err(failed)?;
        new.sync_all().map_err(failed)?;
        std::fs::rename(&new_path, path).map_err(failed)?;
        let replaced = Instant::now();
        // The new name must last as well as the new contents.
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)?;
        std::thread::sleep(TRUSTED_FOR.saturating_sub(replaced.elapsed()));
        Ok(())
    }
}

/// What a file means, read again whenever it changed.
///
/// To look costs one `stat`, which is a good part of what a call costs; so many calls go by one look.
pub(crate) struct Live<T> {
    pub(crate) file: KeptFile,
    parse: fn(Option<&[u8]>) -> Result<T, String>,
    seen: ArcSwap<Seen<T>>,
    made: Instant,
    /// When it was last found unchanged, in nanoseconds since it was made.
    looked: AtomicU64,
    /// Held while the file is read again, so that a burst of requests reads it once.
    reading: Mutex<()>,
}

pub(crate) struct Seen<T> {
    stamp: Option<Stamp>,
    _file: Option<File>,
    /// What the file means, or why it means nothing.
    pub(crate) known: Result<T, String>,
}

impl<T> Live<T> {
    /// `parse` gets the contents, or `None` where there is no file.
    pub(crate) fn new(file: KeptFile, parse: fn(Option<&[u8]>) -> Result<T, String>) -> Live<T> {
        let seen = ArcSwap::from_pointee(Seen::read(&file, parse));
        Live { file, parse, seen, made: Instant::now(), looked: AtomicU64::new(0), reading: Mutex::new(()) }
    }

    pub(crate) fn current(&self) -> arc_swap::Guard<Arc<Seen<T>>> {
        // Taken before the look: what changes after it is not what was found.
        let now = self.made.elapsed().as_nanos() as u64;
        let looked = self.looked.load(Ordering::Acquire);
        if looked > 0 && now.saturating_sub(looked) < TRUSTED_FOR.as_nanos() as u64 {
            return self.seen.load();
        }
        let seen = self.seen.load();
        if seen.stamp == self.file.stamp() {
            self.looked.store(now, Ordering::Release);
            return seen;
        }
        // Nothing under this lock can leave half a change behind, so a poisoned one is as good as new.
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if self.seen.load().stamp != self.file.stamp() {
            self.seen.store(Arc::new(Seen::read(&self.file, self.parse)));
        }
        self.seen.load()
    }
}

impl<T> Seen<T> {
    fn read(file: &KeptFile, parse: fn(Option<&[u8]>) -> Result<T, String>) -> Seen<T> {
        let found = file.read();
        let known = found.bytes.and_then(|bytes| parse(bytes.as_deref()));
        Seen { stamp: found.stamp, _file: found.file, known }
    }
}

/// Waits until a change that somebody made by hand is noticed. Whoever uses [`FileLock::replace`] has waited already.
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "nothing else runs in these tests")]
pub(crate) fn after_edit() {
    std::thread::sleep(TRUSTED_FOR);
}

/// Reads a JSON document that states its version. One of a later version is told apart from a damaged one.
pub(crate) fn versioned(name: &str, version: u32, bytes: &[u8]) -> Result<serde_json::Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|e| format!("{name} is damaged: {e}"))?;
    let value = portcullis_core::json::parse_strict(text).map_err(|e| format!("{name} is damaged: {e}"))?;
    match value.get("version").and_then(serde_json::Value::as_u64) {
        Some(found) if found == u64::from(version) => Ok(value),
        Some(found) => Err(format!("{name} is of version {found}, this program reads version {version}")),
        None => Err(format!("{name} is damaged: it has no version")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However short ago the reader looked, and whoever wrote.
    #[test]
    fn a_change_that_is_done_is_known_to_everybody() {
        let dir = tempfile::tempdir().unwrap();
        let file = || KeptFile::new(dir.path(), "kept.json", 1_000, Closed::ToReading);
        let text = |bytes: Option<&[u8]>| Ok(String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned());
        let (live, elsewhere) = (Live::new(file(), text), file());
        for n in 0..20 {
            let before = live.current().known.clone();
            elsewhere.lock().unwrap().replace(n.to_string().as_bytes()).unwrap();
            assert_eq!(live.current().known, Ok(n.to_string()), "after {before:?}");
        }
    }

    #[test]
    fn many_looks_are_one() {
        let dir = tempfile::tempdir().unwrap();
        let live = Live::new(KeptFile::new(dir.path(), "kept.json", 1_000, Closed::ToReading), |_| Ok(()));
        live.current();
        let looked = live.looked.load(Ordering::Acquire);
        assert!(looked > 0);
        live.current();
        // Unless the machine was away for longer than a look is good for.
        let trusted = live.made.elapsed() < TRUSTED_FOR;
        assert!(!trusted || live.looked.load(Ordering::Acquire) == looked);
        after_edit();
        live.current();
        assert!(live.looked.load(Ordering::Acquire) > looked);
    }
}
