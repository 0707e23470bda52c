//! `secrets.pcs` on disk: reading it, noticing a change, and replacing it so that no reader ever sees half of it.

use super::{FILE_NAME, SecretError};
use rustix::fs::OFlags;
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Written in full before it takes the place of the file. One that a crash left behind is never read.
const NEW_NAME: &str = "secrets.pcs.new";
/// Locked by whoever changes the file. The file itself is replaced, so a lock on it would not hold.
const LOCK_NAME: &str = "secrets.lock";

/// A thousand ordinary secrets are 200 KB; a hundred of the largest size fit too.
pub(super) const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;
/// Others have no business with it, not even to guess a passphrase.
const OPEN_TO_OTHERS: u32 = 0o077;
const ROOT: u32 = 0;

/// What changes whenever the file does.
///
/// A replaced file has another number, which is certain as long as the old one is kept open. An edit in
/// place is seen by its size and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    mode: u32,
    owner: u32,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    pub(super) fn of(metadata: &Metadata) -> Stamp {
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
pub(super) struct Found {
    pub(super) stamp: Option<Stamp>,
    /// Kept open, so that the file's number cannot be given to its successor and hide a change.
    pub(super) file: Option<File>,
    /// `None` where there is no file.
    pub(super) bytes: Result<Option<Vec<u8>>, SecretError>,
}

/// The folder that holds the file.
pub(super) struct Folder {
    dir: PathBuf,
    path: PathBuf,
}

impl Folder {
    pub(super) fn new(dir: &Path) -> Folder {
        Folder { dir: dir.to_owned(), path: dir.join(FILE_NAME) }
    }

    /// Returns the stamp of the file as it is now; `None` if there is none.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        std::fs::symlink_metadata(&self.path).ok().map(|metadata| Stamp::of(&metadata))
    }

    pub(super) fn read(&self) -> Found {
        // Not through a link, and without waiting on a pipe that someone put in its place.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let cannot = |e: io::Error| SecretError::Damaged(format!("cannot read {FILE_NAME}: {e}"));
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
                let bytes = read_bytes(&mut file, &metadata).map(Some);
                Found { stamp: Some(Stamp::of(&metadata)), file: Some(file), bytes }
            }
            Err(error) => Found { stamp: None, file: None, bytes: Err(cannot(error)) },
        }
    }

    /// Waits until no other process changes the file, and keeps them waiting until the lock is dropped.
    pub(super) fn lock(&self) -> Result<File, SecretError> {
        let made = DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(&self.dir);
        made.map_err(|e| io_error("make", &self.dir, e))?;
        let path = self.dir.join(LOCK_NAME);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(PRIVATE_FILE).open(&path);
        let lock = lock.map_err(|e| io_error("open", &path, e))?;
        lock.lock().map_err(|e| io_error("lock", &path, e))?;
        Ok(lock)
    }

    /// Puts new contents in place. They are on disk when this returns; only for whoever holds the lock.
    pub(super) fn replace(&self, bytes: &[u8]) -> Result<(), SecretError> {
        let failed = |e: io::Error| io_error("write", &self.path, e);
        let new_path = self.dir.join(NEW_NAME);
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
        std::fs::rename(&new_path, &self.path).map_err(failed)?;
        // The new name must last as well as the new contents.
        File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(failed)
    }
}

fn read_bytes(file: &mut File, metadata: &Metadata) -> Result<Vec<u8>, SecretError> {
    let refused = |why: &str| Err(SecretError::Damaged(format!("{FILE_NAME} {why}")));
    if !metadata.is_file() {
        return refused("is not a regular file");
    }
    if metadata.mode() & OPEN_TO_OTHERS != 0 {
        return refused("is open to other users; check it, then `chmod 600` it");
    }
    if ![ROOT, rustix::process::geteuid().as_raw()].contains(&metadata.uid()) {
        return refused("belongs to another user");
    }
    let mut bytes = Vec::new();
    if let Err(error) = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes) {
        return refused(&format!("cannot be read: {error}"));
    }
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return refused(&format!("is larger than {FILE_BYTES_MAX} bytes"));
    }
    Ok(bytes)
}

pub(super) fn io_error(doing: &'static str, path: &Path, source: io::Error) -> SecretError {
    SecretError::Io { doing, path: path.display().to_string(), source }
}
