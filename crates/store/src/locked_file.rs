//! Atomically replaced files with an advisory lock, shared by processes.
//!
//! The hub and the command line share such files without IPC. A writer holds the lock, writes a new file next
//! to the old one and renames it into place. A reader compares the metadata stamp first. Invariant: no reader
//! ever sees half a write.

use rustix::fs::OFlags;
use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Timeout for a lock. A holder only writes a small file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// A reader trusts its last `stat` for this long, and a writer waits as long before it returns. So a change
/// that has been acknowledged is visible to every reader.
const STAT_TTL: Duration = Duration::from_millis(2);
/// Only the owner reads and writes.
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;
const ROOT: u32 = 0;

/// A file or folder that could not be created, locked or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} `{path}`: {source}")]
pub struct FileError {
    doing: &'static str,
    path: String,
    #[source]
    source: io::Error,
}

impl FileError {
    pub fn new(doing: &'static str, path: &Path, source: io::Error) -> FileError {
        FileError { doing, path: path.display().to_string(), source }
    }
}

/// Permissions that other users must not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilePrivacy {
    /// A user who can write it can admit anyone.
    ToWriting,
    /// Other users must not read it either.
    ToReading,
}

impl FilePrivacy {
    /// Returns the refused permission bits, and the error if one is set.
    fn refused(self) -> (u32, &'static str) {
        match self {
            FilePrivacy::ToWriting => (0o022, "can be written by others; check it, then `chmod 600` it"),
            FilePrivacy::ToReading => (0o077, "is open to other users; check it, then `chmod 600` it"),
        }
    }
}

/// Changes whenever the file does.
///
/// A replaced file has another inode, which is certain as long as the old one stays open. An edit in place
/// shows in size and times; one of the same size within the same kernel tick does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MetadataStamp {
    device: u64,
    inode: u64,
    size: u64,
    mode: u32,
    owner: u32,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl MetadataStamp {
    pub(crate) fn of(metadata: &Metadata) -> MetadataStamp {
        MetadataStamp {
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

/// A file in a private folder. Neither has to exist yet.
pub(crate) struct LockedFile {
    dir: PathBuf,
    path: PathBuf,
    name: &'static str,
    bytes_max: u64,
    closed: FilePrivacy,
}

impl LockedFile {
    pub(crate) fn new(dir: &Path, name: &'static str, bytes_max: u64, closed: FilePrivacy) -> LockedFile {
        LockedFile { dir: dir.to_owned(), path: dir.join(name), name, bytes_max, closed }
    }

    pub(crate) fn exists(&self) -> bool {
        std::fs::symlink_metadata(&self.path).is_ok()
    }

    /// Returns the contents; `None` if there is no file. Errors name the file without its path.
    pub(crate) fn read(&self) -> Result<Option<Vec<u8>>, String> {
        // No symlink is followed, and a FIFO in its place does not block.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let cannot = |e: io::Error| format!("cannot read {}: {e}", self.name);
        let mut file = match OpenOptions::new().read(true).custom_flags(flags).open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(cannot(error)),
        };
        let metadata = file.metadata().map_err(cannot)?;
        self.read_bytes(&mut file, &metadata).map(Some)
    }

    fn read_bytes(&self, file: &mut File, metadata: &Metadata) -> Result<Vec<u8>, String> {
        let refused = |why: &str| Err(format!("{} {why}", self.name));
        if let Err(why) = check_private(metadata, self.closed) {
            return refused(why);
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

    /// Creates the folder if it is missing.
    pub(crate) fn make_folder(&self) -> Result<(), FileError> {
        make_private_folder(&self.dir).map_err(|e| FileError::new("make", &self.dir, e))
    }

    /// Waits for the write lock, and holds it until the guard is dropped.
    pub(crate) fn lock(&self) -> Result<FileWriteGuard<'_>, FileError> {
        self.make_folder()?;
        // A separate file: the data file is replaced, so a lock on it would not hold.
        let hold = FileLock::of(&self.path.with_extension("lock"))?;
        Ok(FileWriteGuard { file: self, _hold: hold })
    }
}

/// Makes a folder that only its owner can look into, where it is missing.
pub(crate) fn make_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(path)
}

/// Says why a file is not one that only its owner can change, or read.
pub(crate) fn check_private(metadata: &Metadata, closed: FilePrivacy) -> Result<(), &'static str> {
    if !metadata.is_file() {
        return Err("is not a regular file");
    }
    let (too_open, said) = closed.refused();
    if metadata.mode() & too_open != 0 {
        return Err(said);
    }
    if ![ROOT, rustix::process::geteuid().as_raw()].contains(&metadata.uid()) {
        return Err("belongs to another user");
    }
    Ok(())
}

/// An advisory lock against other processes and threads, until it is dropped.
#[derive(Debug)]
pub struct FileLock {
    _lock: File,
}

impl FileLock {
    /// Waits for the lock on a file, which is created if missing. Nothing is written to it.
    pub fn of(path: &Path) -> Result<FileLock, FileError> {
        FileLock::within(path, LOCK_TIMEOUT)
    }

    /// The same, with a timeout for locks that are held for longer.
    #[expect(clippy::disallowed_methods, reason = "writers run on a blocking thread")]
    pub(crate) fn within(path: &Path, within: Duration) -> Result<FileLock, FileError> {
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(PRIVATE_FILE).open(path);
        let lock = lock.map_err(|e| FileError::new("open", path, e))?;
        let began = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(FileLock { _lock: lock }),
                // A process that was stopped while it held the lock must not block all others.
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
pub(crate) struct FileWriteGuard<'a> {
    file: &'a LockedFile,
    _hold: FileLock,
}

impl FileWriteGuard<'_> {
    /// Replaces the contents (atomic write, fsync). When this returns they are on disk, and no reader uses
    /// the old ones.
    #[expect(clippy::disallowed_methods, reason = "writers run on a blocking thread")]
    pub(crate) fn replace(&self, bytes: &[u8]) -> Result<(), FileError> {
        let LockedFile { dir, path, name, .. } = self.file;
        let failed = |e: io::Error| FileError::new("write", path, e);
        // A leftover of a crash is never read.
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
        // fsync of the folder: the rename must be durable too.
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)?;
        std::thread::sleep(STAT_TTL.saturating_sub(replaced.elapsed()));
        Ok(())
    }
}

/// Parses a JSON document with a version. Tells a later version from a damaged file.
pub(crate) fn versioned(name: &str, version: u32, bytes: &[u8]) -> Result<serde_json::Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|e| format!("{name} is damaged: {e}"))?;
    let value = portcullis_core::json::parse_strict(text).map_err(|e| format!("{name} is damaged: {e}"))?;
    match value.get("version").and_then(serde_json::Value::as_u64) {
        Some(found) if found == u64::from(version) => Ok(value),
        Some(found) => Err(format!("{name} is of version {found}, this program reads version {version}")),
        None => Err(format!("{name} is damaged: it has no version")),
    }
}
