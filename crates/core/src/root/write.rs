//! Writing so that nothing is lost and nothing is torn.
//!
//! New content goes to a hidden file beside the old one, is made durable, and takes the old one's place in one
//! step. A reader sees all of the old or all of the new; a crash, a full disk or an error leaves the old.

use super::{FOLDER, FileKind, NO_LINKS, OpenFile, READ, Root, RootError, RootedPath, open_inside};
use rustix::buffer::spare_capacity;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;

/// A link could be swapped for another between two calls, so a write follows none at all.
const STRICT: ResolveFlags = NO_LINKS;
/// What agents write is their owner's business only.
const NEW_FILE: Mode = Mode::RUSR.union(Mode::WUSR);
const NEW_FOLDER: Mode = Mode::RWXU;
/// The permission bits that a replaced file passes on; never set-user-id and its like.
const KEPT_MODE: Mode = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);

const TEMPORARY_PREFIX: &str = ".portcullis-";
const TEMPORARY_SUFFIX: &str = ".tmp";
/// Enough that two writers never meet, and that nobody can guess the name.
const TEMPORARY_RANDOM_BYTES: usize = 16;
/// How much of a tree is searched for what a crash left behind.
const SWEEP_ENTRIES_MAX: usize = 100_000;

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The size of the file now.
    pub bytes: u64,
    /// There was no such file before.
    pub created: bool,
}

/// Returns whether a name is that of a write in progress. Lists leave it out, and watchers ignore it.
pub fn is_temporary(name: &str) -> bool {
    let inner = name.strip_prefix(TEMPORARY_PREFIX).and_then(|rest| rest.strip_suffix(TEMPORARY_SUFFIX));
    inner.is_some_and(|inner| {
        inner.len() == 2 * TEMPORARY_RANDOM_BYTES && inner.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

impl Root {
    /// Replaces a file, or makes it and the folders on the way. Durable when it returns.
    pub fn write(&self, path: &RootedPath, content: &[u8]) -> Result<Written, RootError> {
        let (folder, name) = self.folder_of(path)?;
        let former = former(&folder, name)?;
        // The slow part comes before the lock, so that writers of one folder share the disk's flushes.
        let temporary = Temporary::filled(&folder, content, former)?;
        let lock = Lock::take(&folder)?;
        let created = self::former(&folder, name)?.is_none();
        temporary.rename_to(name)?;
        drop(lock);
        make_durable(&folder)?;
        Ok(Written { bytes: content.len() as u64, created })
    }

    /// Replaces a file by what `change` makes of it; `None` stands for a file that does not exist.
    ///
    /// No other write of this file, in this process or in another that uses a `Root`, comes in between.
    pub fn update(
        &self,
        path: &RootedPath,
        bytes_max: usize,
        change: impl FnOnce(Option<Vec<u8>>) -> Vec<u8>,
    ) -> Result<Written, RootError> {
        let (folder, name) = self.folder_of(path)?;
        let lock = Lock::take(&folder)?;
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
        Temporary::filled(&folder, &content, mode)?.rename_to(name)?;
        drop(lock);
        make_durable(&folder)?;
        Ok(Written { bytes, created })
    }

    /// Adds to the end of a file that then has at most `bytes_max` bytes. Durable when it returns.
    ///
    /// The file is rewritten rather than opened for appending: a crash or a full disk in the middle of an append
    /// leaves half of it behind, and these files are small.
    pub fn append(&self, path: &RootedPath, addition: &[u8], bytes_max: usize) -> Result<Written, RootError> {
        self.update(path, bytes_max, |former| {
            let mut content = former.unwrap_or_default();
            content.extend_from_slice(addition);
            content
        })
    }

    /// Removes what writes left behind that a crash cut short, and returns how many there were.
    ///
    /// A write in progress holds a lock on its file, so one of another process is left alone.
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

    /// Opens the folder of a file, making it where it does not exist, and returns it with the file's name.
    fn folder_of<'p>(&self, path: &'p RootedPath) -> Result<(OwnedFd, &'p str), RootError> {
        let name = path.name().ok_or(RootError::IsDirectory)?;
        match open_inside(&self.folder, path.folder(), FOLDER, STRICT) {
            Ok(folder) => Ok((folder, name)),
            Err(Errno::NOENT) => Ok((self.make_folders(path)?, name)),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Makes the folders of a file one by one, each below the one before.
    fn make_folders(&self, path: &RootedPath) -> Result<OwnedFd, RootError> {
        let mut folder = open_inside(&self.folder, ".", FOLDER, STRICT)?;
        let count = path.names().count().saturating_sub(1);
        for name in path.names().take(count) {
            folder = match open_inside(&folder, name, FOLDER | OFlags::NOFOLLOW, STRICT) {
                Err(Errno::NOENT) => {
                    match rustix::fs::mkdirat(&folder, name, NEW_FOLDER) {
                        // Somebody else made it just now, which is as good.
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                    // A durable file in a folder that a crash forgets is lost all the same. Taken back if that fails,
                    // so that the next write does not take it for durable.
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

/// Returns the mode of the file that a write would replace. Only a regular file without a second name may be.
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

/// Makes a rename in a folder durable.
///
/// Whatever goes wrong here, the new content is in place already, so no error may say that nothing was changed.
fn make_durable(folder: &OwnedFd) -> Result<(), RootError> {
    rustix::fs::fsync(folder).map_err(|errno| RootError::Io(errno.into()))
}

/// Holds a folder against other writers until it is dropped.
///
/// The kernel's lock rather than one of ours: it also holds against another hub on the same folder, and it ends
/// with the process however that ends.
struct Lock<'a> {
    folder: &'a OwnedFd,
}

impl Lock<'_> {
    fn take(folder: &OwnedFd) -> Result<Lock<'_>, Errno> {
        loop {
            match rustix::fs::flock(folder, FlockOperation::LockExclusive) {
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
                Ok(()) => return Ok(Lock { folder }),
            }
        }
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // Closing the folder, which follows soon, gives the lock back as well.
        let _ = rustix::fs::flock(self.folder, FlockOperation::Unlock);
    }
}

/// New content on its way to its place. Dropped before it gets there, it is removed.
struct Temporary<'a> {
    folder: &'a OwnedFd,
    name: String,
    /// Open as long as the file exists: the lock on it tells a sweep that somebody is still at work.
    descriptor: OwnedFd,
    placed: bool,
}

impl<'a> Temporary<'a> {
    /// Makes a hidden file with this content, durable, and with the mode of the file it will replace.
    fn filled(folder: &'a OwnedFd, content: &[u8], mode: Option<Mode>) -> Result<Temporary<'a>, RootError> {
        let name = temporary_name()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = rustix::fs::openat(folder, name.as_str(), flags, NEW_FILE)?;
        let temporary = Temporary { folder, name, descriptor, placed: false };
        rustix::fs::flock(&temporary.descriptor, FlockOperation::NonBlockingLockExclusive)?;
        let mut done = 0;
        while let Some(left) = content.get(done..).filter(|left| !left.is_empty()) {
            // At a stated place, which is also how a trace tells these writes from all others.
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

    /// Puts the file in its place in one step.
    fn rename_to(mut self, name: &str) -> Result<(), RootError> {
        rustix::fs::renameat(self.folder, self.name.as_str(), self.folder, name)?;
        self.placed = true;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.placed {
            // What cannot be removed now is found by the next sweep.
            let _ = rustix::fs::unlinkat(self.folder, self.name.as_str(), AtFlags::empty());
        }
    }
}

fn temporary_name() -> Result<String, Errno> {
    let mut random = Vec::with_capacity(TEMPORARY_RANDOM_BYTES);
    while random.len() < TEMPORARY_RANDOM_BYTES {
        rustix::rand::getrandom(spare_capacity(&mut random), GetRandomFlags::empty())?;
    }
    let hex: String = random.iter().take(TEMPORARY_RANDOM_BYTES).map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{TEMPORARY_PREFIX}{hex}{TEMPORARY_SUFFIX}"))
}
