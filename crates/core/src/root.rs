//! The one door to files.
//!
//! A [`Root`] is a folder held open by a descriptor. Every path is resolved by the kernel below that descriptor
//! (`openat2` with `RESOLVE_BENEATH` and `RESOLVE_NO_MAGICLINKS`), so there is no moment between a check and a use
//! in which a link could be put in the way. What the kernel does not promise is checked on the open descriptor:
//! that it is a regular file, and that it has no second name outside.
//!
//! Not promised: a mount inside the folder is part of it, as is whatever a person with access to the folder moves
//! into it. The functions block; who calls them from a runtime decides where they run.

mod error;
mod list;
mod path;
mod write;

pub use error::RootError;
pub use list::{Entry, Listed, Stamp, Walked, WalkedFile};
pub use path::{DEPTH_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX, RootedPath};
pub use write::{Written, is_temporary};

use rustix::buffer::spare_capacity;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;

/// Links inside the tree are followed as long as they stay inside. `/proc/self/fd` and its like never are.
const INSIDE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);
/// Without blocking, so that a pipe or a device answers at once instead of never.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const HANDLE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
/// For a tree in which a link must not lead to what is hidden in it, either.
const NO_LINKS: ResolveFlags = INSIDE.union(ResolveFlags::NO_SYMLINKS);
/// The kernel gives up on a path whose parts are being renamed. It rarely does twice.
const OPEN_ATTEMPTS_MAX: usize = 64;

/// A folder out of which no path leads. Clones share the descriptor.
#[derive(Debug, Clone)]
pub struct Root {
    folder: Arc<OwnedFd>,
}

/// What something in the tree is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    File,
    Directory,
    Link,
    Pipe,
    Device,
    Other,
}

/// What is known of one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    pub kind: FileKind,
    pub size: u64,
}

/// A file that passed every check and waits to be read.
#[derive(Debug)]
pub struct OpenFile {
    descriptor: OwnedFd,
    size: u64,
    mode: Mode,
    stamp: Stamp,
}

impl Root {
    /// Opens a folder that exists. Where the kernel lacks `openat2`, this fails, and not the first call.
    pub fn open(folder: &Path) -> Result<Root, RootError> {
        let descriptor = rustix::fs::open(folder, HANDLE | OFlags::DIRECTORY, Mode::empty())?;
        open_inside(&descriptor, ".", HANDLE, INSIDE)?;
        Ok(Root { folder: Arc::new(descriptor) })
    }

    /// Makes the folder, for its owner alone, where it does not exist, and opens it.
    pub fn create(folder: &Path) -> Result<Root, RootError> {
        let made = crate::folder::make(folder);
        made.map_err(|error| match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => RootError::Io(error),
        })?;
        Root::open(folder)
    }

    /// Opens a file for reading. The size decides where a caller reads it, so it is known before the reading.
    pub fn open_file(&self, path: &RootedPath) -> Result<OpenFile, RootError> {
        OpenFile::check(open_inside(&self.folder, path.as_str(), READ, INSIDE)?)
    }

    /// Opens a file for reading if no link is on the way to it.
    pub fn open_unlinked(&self, path: &RootedPath) -> Result<OpenFile, RootError> {
        let flags = READ | OFlags::NOFOLLOW;
        OpenFile::check(open_inside(&self.folder, path.as_str(), flags, NO_LINKS)?)
    }

    /// Returns the contents of a file of at most `bytes_max` bytes.
    pub fn read(&self, path: &RootedPath, bytes_max: usize) -> Result<Vec<u8>, RootError> {
        self.open_file(path)?.read(bytes_max)
    }

    /// Returns what is at a path. A link inside the tree is followed.
    pub fn stat(&self, path: &RootedPath) -> Result<Status, RootError> {
        let descriptor = open_inside(&self.folder, path.as_str(), HANDLE, INSIDE)?;
        let stat = rustix::fs::fstat(&descriptor)?;
        Ok(Status { kind: FileKind::of(&stat), size: size_of(&stat) })
    }
}

impl OpenFile {
    /// Checks on the descriptor what a path cannot promise.
    fn check(descriptor: OwnedFd) -> Result<OpenFile, RootError> {
        let stat = rustix::fs::fstat(&descriptor)?;
        match FileKind::of(&stat) {
            FileKind::File => {}
            FileKind::Directory => return Err(RootError::IsDirectory),
            kind => return Err(RootError::NotAFile { kind }),
        }
        // A second name may lie outside. No name at all is fine: the file was replaced since it was opened.
        if stat.st_nlink > 1 {
            return Err(RootError::HardLink);
        }
        let mode = Mode::from_raw_mode(stat.st_mode);
        Ok(OpenFile { descriptor, size: size_of(&stat), mode, stamp: Stamp::of(&stat) })
    }

    /// Returns how many bytes the file had when it was opened.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns what tells this state of the file from a later one.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Returns the contents as they were when the file was opened; what is appended meanwhile is left out.
    pub fn read(self, bytes_max: usize) -> Result<Vec<u8>, RootError> {
        let size = match usize::try_from(self.size) {
            Ok(size) if size <= bytes_max => size,
            _ => return Err(RootError::TooLarge { bytes: self.size, bytes_max: bytes_max as u64 }),
        };
        let mut content = Vec::with_capacity(size);
        while content.len() < size {
            match rustix::io::read(&self.descriptor, spare_capacity(&mut content)) {
                // Somebody cut the file short.
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(content)
    }
}

impl FileKind {
    pub fn as_str(self) -> &'static str {
        match self {
            FileKind::File => "file",
            FileKind::Directory => "folder",
            FileKind::Link => "symbolic link",
            FileKind::Pipe => "pipe",
            FileKind::Device => "device",
            FileKind::Other => "special file",
        }
    }

    fn of(stat: &Stat) -> FileKind {
        FileKind::of_type(FileType::from_raw_mode(stat.st_mode))
    }

    fn of_type(file_type: FileType) -> FileKind {
        match file_type {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => FileKind::Link,
            FileType::Fifo => FileKind::Pipe,
            FileType::CharacterDevice | FileType::BlockDevice => FileKind::Device,
            FileType::Socket | FileType::Unknown => FileKind::Other,
        }
    }
}

/// Returns the size; a file system that reports a negative one is taken to mean nothing.
fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

fn open_inside(
    folder: impl AsFd,
    path: &str,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    for _ in 0..OPEN_ATTEMPTS_MAX {
        match rustix::fs::openat2(&folder, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened,
        }
    }
    Err(Errno::AGAIN)
}

#[cfg(test)]
#[path = "root/root_tests.rs"]
mod tests;
