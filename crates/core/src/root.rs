//! Sandboxed file access: no path leads out of a [`Root`].
//!
//! A [`Root`] is a directory held open by a descriptor. The kernel resolves every path below that descriptor (`openat2` with
//! `RESOLVE_BENEATH` and `RESOLVE_NO_MAGICLINKS`), so path traversal and TOCTOU races with symbolic links are impossible.
//! What the kernel does not guarantee is checked on the open descriptor: that it is a regular file without hard links.
//!
//! Not covered: a mount inside the directory is part of it, and so is anything that a user with access to the directory
//! moves into it. The functions block; an async caller must choose the thread.

mod error;
mod list;
mod path;
mod write;

pub use error::RootError;
pub use list::{FolderEntry, FolderListing, InodeStamp, TreeListing, WalkedFile};
pub use path::{DEPTH_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX, RootedPath};
pub use write::{WriteSummary, is_temporary};

use rustix::buffer::spare_capacity;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;

/// Symbolic links are followed as long as they stay inside. Magic links like `/proc/self/fd` never are.
const INSIDE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);
/// Non-blocking, so that opening a pipe or a device does not hang.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const HANDLE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
/// For trees with hidden parts, which a symbolic link must not expose.
const NO_LINKS: ResolveFlags = INSIDE.union(ResolveFlags::NO_SYMLINKS);
/// The kernel returns `EAGAIN` for a path that is being renamed. It rarely does so twice.
const OPEN_ATTEMPTS_MAX: usize = 64;

/// A directory that no path leaves. Clones share the descriptor.
#[derive(Debug, Clone)]
pub struct Root {
    folder: Arc<OwnedFd>,
}

/// The type of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    File,
    Directory,
    Link,
    Pipe,
    Device,
    Other,
}

/// Type and size of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStatus {
    pub kind: FileKind,
    pub size: u64,
}

/// A file that passed all checks, open for reading.
#[derive(Debug)]
pub struct OpenFile {
    descriptor: OwnedFd,
    size: u64,
    mode: Mode,
    stamp: InodeStamp,
}

impl Root {
    /// Opens an existing directory. Fails here, not at the first use, if the kernel lacks `openat2`.
    pub fn open(folder: &Path) -> Result<Root, RootError> {
        let descriptor = rustix::fs::open(folder, HANDLE | OFlags::DIRECTORY, Mode::empty())?;
        open_inside(&descriptor, ".", HANDLE, INSIDE)?;
        Ok(Root { folder: Arc::new(descriptor) })
    }

    /// Creates the directory with mode 0700 if missing, and opens it.
    pub fn create(folder: &Path) -> Result<Root, RootError> {
        let made = crate::durable_dir::create_all(folder);
        made.map_err(|error| match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => RootError::Io(error),
        })?;
        Root::open(folder)
    }

    /// Opens a file for reading. Separate from reading, because the caller picks a thread by the size.
    pub fn open_file(&self, path: &RootedPath) -> Result<OpenFile, RootError> {
        OpenFile::check(open_inside(&self.folder, path.as_str(), READ, INSIDE)?)
    }

    /// Opens a file for reading; any symbolic link in the path is an error.
    pub fn open_nofollow(&self, path: &RootedPath) -> Result<OpenFile, RootError> {
        let flags = READ | OFlags::NOFOLLOW;
        OpenFile::check(open_inside(&self.folder, path.as_str(), flags, NO_LINKS)?)
    }

    /// Returns the content of a file of at most `bytes_max` bytes.
    pub fn read(&self, path: &RootedPath, bytes_max: usize) -> Result<Vec<u8>, RootError> {
        self.open_file(path)?.read(bytes_max)
    }

    /// Returns type and size of an entry. A symbolic link inside the tree is followed.
    pub fn stat(&self, path: &RootedPath) -> Result<FileStatus, RootError> {
        let descriptor = open_inside(&self.folder, path.as_str(), HANDLE, INSIDE)?;
        let stat = rustix::fs::fstat(&descriptor)?;
        Ok(FileStatus { kind: FileKind::of(&stat), size: size_of(&stat) })
    }
}

impl OpenFile {
    /// Checks on the descriptor what path resolution cannot guarantee.
    fn check(descriptor: OwnedFd) -> Result<OpenFile, RootError> {
        let stat = rustix::fs::fstat(&descriptor)?;
        match FileKind::of(&stat) {
            FileKind::File => {}
            FileKind::Directory => return Err(RootError::IsDirectory),
            kind => return Err(RootError::NotAFile { kind }),
        }
        // A hard link may be outside. Zero links are fine: the file was replaced after it was opened.
        if stat.st_nlink > 1 {
            return Err(RootError::HardLink);
        }
        let mode = Mode::from_raw_mode(stat.st_mode);
        Ok(OpenFile { descriptor, size: size_of(&stat), mode, stamp: InodeStamp::of(&stat) })
    }

    /// Returns the size when the file was opened.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns a stamp that changes with the file.
    pub fn stamp(&self) -> InodeStamp {
        self.stamp
    }

    /// Returns the content up to the size at opening; later appends are left out.
    pub fn read(self, bytes_max: usize) -> Result<Vec<u8>, RootError> {
        let size = match usize::try_from(self.size) {
            Ok(size) if size <= bytes_max => size,
            _ => return Err(RootError::TooLarge { bytes: self.size, bytes_max: bytes_max as u64 }),
        };
        let mut content = Vec::with_capacity(size);
        while content.len() < size {
            match rustix::io::read(&self.descriptor, spare_capacity(&mut content)) {
                // The file was truncated meanwhile.
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

/// Returns the size; a negative one from a broken file system counts as zero.
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
