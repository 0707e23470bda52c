//! Atomic, durable writes.
//!
//! New content goes to a temporary file in the same folder, is fsynced, and replaces the old file by rename. A reader sees
//! all of the old or all of the new content; a crash, a full disk or an error leaves the old.

use super::{FOLDER, FileKind, NO_LINKS, OpenFile, READ, Root, RootError, RootedPath, open_inside};
use data_encoding::HEXLOWER;
use rustix::buffer::spare_capacity;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;

/// A write follows no symbolic link at all, because one could be swapped between two system calls.
const STRICT: ResolveFlags = NO_LINKS;
/// New files are private to the hub's user.
const NEW_FILE: Mode = Mode::RUSR.union(Mode::WUSR);
const NEW_FOLDER: Mode = Mode::RWXU;
/// The permission bits that a replaced file passes on; never setuid, setgid or sticky.
const KEPT_MODE: Mode = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);

const TEMPORARY_PREFIX: &str = ".portcullis-";
const TEMPORARY_SUFFIX: &str = ".tmp";
/// Enough that names never collide and cannot be guessed.
const TEMPORARY_RANDOM_BYTES: usize = 16;
/// Bound on the entries searched for temporary files left by a crash.
const SWEEP_ENTRIES_MAX: usize = 100_000;

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteSummary {
    /// The new size of the file.
    pub bytes: u64,
    /// The file did not exist before.
    pub created: bool,
}

/// Returns whether a name is that of a temporary file. Listings and watchers skip it.
pub fn is_temporary(name: &str) -> bool {
    let inner = name.strip_prefix(TEMPORARY_PREFIX).and_then(|rest| rest.strip_suffix(TEMPORARY_SUFFIX));
    inner.is_some_and(|inner| {
        inner.len() == 2 * TEMPORARY_RANDOM_BYTES && inner.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

impl Root {
    /// Replaces a file, or creates it with its parent folders. Durable when it returns.
    pub fn write(&self, path: &RootedPath, content: &[u8]) -> Result<WriteSummary, RootError> {
        let (folder, name) = self.folder_of(path)?;
        let former = former(&folder, name)?;
        // The fsync comes before the lock, so that writers in one folder share disk flushes.
        let temporary = TemporaryFile::filled(&folder, content, former)?;
        let lock = FolderLock::take(&folder)?;
        let created = self::former(&folder, name)?.is_none();
        temporary.rename_to(name)?;
        drop(lock);
        make_durable(&folder)?;
        Ok(WriteSummary { bytes: content.len() as u64, created })
    }

    /// Replaces a file with `change` of its content; `None` means that the file does not exist.
    ///
    /// Atomic with respect to other writes of this file through a `Root`, also from other processes.
    pub fn update(
        &self,
        path: &RootedPath,
        bytes_max: usize,
        change: impl FnOnce(Option<Vec<u8>>) -> Vec<u8>,
    ) -> Result<WriteSummary, RootError> {
        let (folder, name) = self.folder_of(path)?;
        let lock = FolderLock::take(&folder)?;
        let (former, mode) = match open_inside(&folder, name, READ | OFlags::NOFOLLOW, STRICT) {
            Ok(descriptor) => {
                let file = OpenFile::check(descriptor)?;
                let mode = file.mode;
                (Some(file.read(bytes_max)?), Some(mode))
            }
            Err(Errno::NOENT) => (None, None),
            Err(errno) => return Err(errno.into()),
        };
        let created = former.is_none();
        let content = change(former);
        let bytes = content.len() as u64;
        if content.len() > bytes_max {
            return Err(RootError::TooLarge { bytes, bytes_max: bytes_max as u64 });
        }
        TemporaryFile::filled(&folder, &content, mode)?.rename_to(name)?;
        drop(lock);
        make_durable(&folder)?;
        Ok(WriteSummary { bytes, created })
    }

    /// Appends to a file, which then has at most `bytes_max` bytes. Durable when it returns.
    ///
    /// Rewrites the file instead of `O_APPEND`: a crash or a full disk during an append leaves half of it, and these files
    /// are small.
    pub fn append(
        &self,
        path: &RootedPath,
        addition: &[u8],
        bytes_max: usize,
    ) -> Result<WriteSummary, RootError> {
        self.update(path, bytes_max, |former| {
            let mut content = former.unwrap_or_default();
            content.extend_from_slice(addition);
            content
        })
    }

    /// Removes temporary files that a crash left behind, and returns their number.
    ///
    /// A write in progress holds a lock on its temporary file, so those of other processes are kept.
    pub fn sweep(&self) -> Result<usize, RootError> {
        let mut removed = 0;
        for path in self.walk(SWEEP_ENTRIES_MAX, super::DEPTH_MAX)?.folders {
            let folder = match open_inside(&self.folder, path.as_str(), FOLDER, STRICT) {
                Ok(folder) => folder,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(errno) => return Err(errno.into()),
            };
            for entry in rustix::fs::Dir::read_from(&folder)? {
                let entry = entry?;
                let Some(name) = entry.file_name().to_str().ok().filter(|name| is_temporary(name)) else {
                    continue;
                };
                let Ok(file) = open_inside(&folder, name, READ | OFlags::NOFOLLOW, STRICT) else { continue };
                if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                    rustix::fs::unlinkat(&folder, name, AtFlags::empty())?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    /// Opens the folder of a file, creating it if missing, and returns it with the file name.
    fn folder_of<'p>(&self, path: &'p RootedPath) -> Result<(OwnedFd, &'p str), RootError> {
        let name = path.name().ok_or(RootError::IsDirectory)?;
        match open_inside(&self.folder, path.folder(), FOLDER, STRICT) {
            Ok(folder) => Ok((folder, name)),
            Err(Errno::NOENT) => Ok((self.make_folders(path)?, name)),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Creates the parent folders one by one.
    fn make_folders(&self, path: &RootedPath) -> Result<OwnedFd, RootError> {
        let mut folder = open_inside(&self.folder, ".", FOLDER, STRICT)?;
        let count = path.names().count().saturating_sub(1);
        for name in path.names().take(count) {
            folder = match open_inside(&folder, name, FOLDER | OFlags::NOFOLLOW, STRICT) {
                Err(Errno::NOENT) => {
                    match rustix::fs::mkdirat(&folder, name, NEW_FOLDER) {
                        // Created concurrently, which is fine.
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                    // A durable file in a folder that a crash loses is lost too. Removed if the fsync fails, so that the
                    // next write does not mistake it for durable.
                    if let Err(errno) = rustix::fs::fsync(&folder) {
                        let _ = rustix::fs::unlinkat(&folder, name, AtFlags::REMOVEDIR);
                        return Err(errno.into());
                    }
                    open_inside(&folder, name, FOLDER | OFlags::NOFOLLOW, STRICT)?
                }
                opened => opened?,
            };
        }
        Ok(folder)
    }
}

/// Returns the mode of the file to replace. Only a regular file without hard links may be replaced.
fn former(folder: &OwnedFd, name: &str) -> Result<Option<Mode>, RootError> {
    let stat = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    match FileKind::of(&stat) {
        FileKind::File if stat.st_nlink > 1 => Err(RootError::HardLink),
        FileKind::File => Ok(Some(Mode::from_raw_mode(stat.st_mode))),
        FileKind::Directory => Err(RootError::IsDirectory),
        FileKind::Link => Err(RootError::Link),
        kind => Err(RootError::NotAFile { kind }),
    }
}

/// Fsyncs a folder after a rename.
///
/// On failure the new content is already in place, so no error may claim that the file is unchanged.
fn make_durable(folder: &OwnedFd) -> Result<(), RootError> {
    rustix::fs::fsync(folder).map_err(|errno| RootError::Io(errno.into()))
}

/// Excludes other writers from a folder until dropped.
///
/// A `flock` rather than a mutex: it also excludes another hub on the same folder, and the kernel releases it when the
/// process dies.
struct FolderLock<'a> {
    folder: &'a OwnedFd,
}

impl FolderLock<'_> {
    fn take(folder: &OwnedFd) -> Result<FolderLock<'_>, Errno> {
        loop {
            match rustix::fs::flock(folder, FlockOperation::LockExclusive) {
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
                Ok(()) => return Ok(FolderLock { folder }),
            }
        }
    }
}

impl Drop for FolderLock<'_> {
    fn drop(&mut self) {
        // Closing the descriptor would release the lock as well.
        let _ = rustix::fs::flock(self.folder, FlockOperation::Unlock);
    }
}

/// A temporary file. Removed if dropped before the rename.
struct TemporaryFile<'a> {
    folder: &'a OwnedFd,
    name: String,
    /// Open as long as the file exists: its lock tells a sweep that the write is in progress.
    descriptor: OwnedFd,
    placed: bool,
}

impl<'a> TemporaryFile<'a> {
    /// Creates a temporary file with this content, fsynced, with the mode of the file it replaces.
    fn filled(
        folder: &'a OwnedFd,
        content: &[u8],
        mode: Option<Mode>,
    ) -> Result<TemporaryFile<'a>, RootError> {
        let name = temporary_name()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = rustix::fs::openat(folder, name.as_str(), flags, NEW_FILE)?;
        let temporary = TemporaryFile { folder, name, descriptor, placed: false };
        rustix::fs::flock(&temporary.descriptor, FlockOperation::NonBlockingLockExclusive)?;
        let mut done = 0;
        while let Some(left) = content.get(done..).filter(|left| !left.is_empty()) {
            // `pwrite`, so that a system call trace distinguishes these writes.
            match rustix::io::pwrite(&temporary.descriptor, left, done as u64) {
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        if let Some(mode) = mode {
            rustix::fs::fchmod(&temporary.descriptor, mode & KEPT_MODE)?;
        }
        rustix::fs::fsync(&temporary.descriptor)?;
        Ok(temporary)
    }

    /// Renames the file to its final name.
    fn rename_to(mut self, name: &str) -> Result<(), RootError> {
        rustix::fs::renameat(self.folder, self.name.as_str(), self.folder, name)?;
        self.placed = true;
        Ok(())
    }
}

impl Drop for TemporaryFile<'_> {
    fn drop(&mut self) {
        if !self.placed {
            // If this fails, the next sweep removes it.
            let _ = rustix::fs::unlinkat(self.folder, self.name.as_str(), AtFlags::empty());
        }
    }
}

fn temporary_name() -> Result<String, Errno> {
    let mut random = Vec::with_capacity(TEMPORARY_RANDOM_BYTES);
    while random.len() < TEMPORARY_RANDOM_BYTES {
        rustix::rand::getrandom(spare_capacity(&mut random), GetRandomFlags::empty())?;
    }
    let hex = HEXLOWER.encode(&random[..TEMPORARY_RANDOM_BYTES]);
    Ok(format!("{TEMPORARY_PREFIX}{hex}{TEMPORARY_SUFFIX}"))
}
