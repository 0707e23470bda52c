//! Directory listings and tree walks.

use super::write::is_temporary;
use super::{FOLDER, FileKind, HANDLE, INSIDE, NO_LINKS, Root, RootError, RootedPath, open_inside, size_of};
use crate::hidden_chars::is_invisible;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::CString;
use std::fmt::Write as _;

/// Bound on the names read from one folder. A listing shows far fewer, but must read them all to sort them.
const NAMES_MAX: usize = 100_000;

/// One entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderEntry {
    /// The name, with non-text bytes and hidden characters escaped as `\x1b` or `\u{202e}`.
    pub name: String,
    pub kind: FileKind,
    pub size: u64,
}

/// The entries of a folder: folders first, then by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderListing {
    pub entries: Vec<FolderEntry>,
    /// There are more entries than requested.
    pub truncated: bool,
}

/// A readable file found by a walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkedFile {
    pub path: RootedPath,
    pub size: u64,
    pub stamp: InodeStamp,
}

/// Identifies a version of a file: a different inode, size or change time means that the file changed.
///
/// Uses the ctime, which programs cannot set back, unlike the mtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InodeStamp {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl InodeStamp {
    pub(super) fn of(stat: &Stat) -> InodeStamp {
        // The widths differ between architectures.
        #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
        let changed = (stat.st_ctime as i64, stat.st_ctime_nsec as i64);
        InodeStamp { inode: stat.st_ino, size: size_of(stat), changed }
    }
}

/// A tree in a fixed order: depth first, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeListing {
    pub files: Vec<WalkedFile>,
    /// The folders visited, including the root.
    pub folders: Vec<RootedPath>,
    /// The tree has more entries than requested.
    pub truncated: bool,
}

impl Root {
    /// Lists one folder.
    pub fn list(&self, path: &RootedPath, entries_max: usize) -> Result<FolderListing, RootError> {
        list_in(open_inside(&self.folder, path.as_str(), FOLDER, INSIDE)?, entries_max, &|_| true)
    }

    /// Lists the entries of a folder that `shows` accepts; any symbolic link in the path is an error.
    pub fn list_nofollow(
        &self,
        path: &RootedPath,
        entries_max: usize,
        shows: &dyn Fn(&str) -> bool,
    ) -> Result<FolderListing, RootError> {
        let folder = open_inside(&self.folder, path.as_str(), FOLDER | OFlags::NOFOLLOW, NO_LINKS)?;
        list_in(folder, entries_max, shows)
    }

    /// Lists every readable file of the tree. Links to folders are not followed.
    ///
    /// Files whose path is not a valid [`RootedPath`] and hard links are left out.
    pub fn walk(&self, entries_max: usize, depth_max: usize) -> Result<TreeListing, RootError> {
        self.walk_from(&RootedPath::root(), entries_max, depth_max, &|_| true)
    }

    /// Walks one folder, limited to names that `shows` accepts. Any symbolic link in the path is an error.
    pub fn walk_from(
        &self,
        path: &RootedPath,
        entries_max: usize,
        depth_max: usize,
        shows: &dyn Fn(&str) -> bool,
    ) -> Result<TreeListing, RootError> {
        let folder = open_inside(&self.folder, path.as_str(), FOLDER | OFlags::NOFOLLOW, NO_LINKS)?;
        let mut walk = TreeWalker { walked: TreeListing::default(), entries_left: entries_max, shows };
        walk.enter(folder, path.clone(), depth_max)?;
        Ok(walk.walked)
    }

    /// Returns whether a walk would include this file now.
    pub fn shows(&self, path: &RootedPath) -> bool {
        let opened = open_inside(&self.folder, path.as_str(), HANDLE | OFlags::NOFOLLOW, NO_LINKS);
        let stat = opened.and_then(rustix::fs::fstat);
        stat.is_ok_and(|stat| FileKind::of(&stat) == FileKind::File && stat.st_nlink <= 1)
    }
}

fn list_in(
    folder: OwnedFd,
    entries_max: usize,
    shows: &dyn Fn(&str) -> bool,
) -> Result<FolderListing, RootError> {
    let (mut names, too_many) = names_in(&folder)?;
    names.retain(|named| shows(&named.name.to_string_lossy()));
    names.sort_by(|a, b| {
        (a.kind != FileKind::Directory, &a.name).cmp(&(b.kind != FileKind::Directory, &b.name))
    });
    let truncated = too_many || names.len() > entries_max;
    names.truncate(entries_max);
    let mut entries = Vec::with_capacity(names.len());
    for RawEntry { name, kind } in names {
        let size = match rustix::fs::statat(&folder, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if kind == FileKind::File => size_of(&stat),
            // The size of a folder or link says nothing about its content.
            Ok(_) => 0,
            // Removed since its name was read.
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(errno.into()),
        };
        entries.push(FolderEntry { name: shown(name.as_bytes()), kind, size });
    }
    Ok(FolderListing { entries, truncated })
}

struct RawEntry {
    name: CString,
    kind: FileKind,
}

/// Returns the names in a folder, unordered, and whether the bound was reached.
fn names_in(folder: &OwnedFd) -> Result<(Vec<RawEntry>, bool), Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") || name.to_str().is_ok_and(is_temporary) {
            continue;
        }
        if names.len() == NAMES_MAX {
            return Ok((names, true));
        }
        let kind = match FileKind::of_type(entry.file_type()) {
            // Some file systems do not report the type with the name.
            FileKind::Other => match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileKind::of(&stat),
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno),
            },
            kind => kind,
        };
        names.push(RawEntry { name: name.to_owned(), kind });
    }
    Ok((names, false))
}

/// The state of a walk.
struct TreeWalker<'a> {
    walked: TreeListing,
    entries_left: usize,
    shows: &'a dyn Fn(&str) -> bool,
}

impl TreeWalker<'_> {
    /// Walks one folder and, by recursion of at most [`super::DEPTH_MAX`] levels, its subfolders.
    fn enter(&mut self, folder: OwnedFd, path: RootedPath, depth_left: usize) -> Result<(), RootError> {
        let (mut names, too_many) = names_in(&folder)?;
        self.walked.truncated |= too_many;
        names.sort_by(|a, b| a.name.cmp(&b.name));
        self.walked.folders.push(path.clone());
        for RawEntry { name, kind } in names {
            let Ok(text) = name.to_str() else { continue };
            if !matches!(kind, FileKind::File | FileKind::Directory) || !(self.shows)(text) {
                continue;
            }
            let joined = if path.is_root() { text.to_owned() } else { format!("{path}/{text}") };
            // A name that is not valid in a path could not be requested.
            let Ok(inner) = RootedPath::parse(&joined) else { continue };
            let Some(left) = self.entries_left.checked_sub(1) else {
                self.walked.truncated = true;
                return Ok(());
            };
            self.entries_left = left;
            if kind == FileKind::File {
                match rustix::fs::statat(&folder, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) if FileKind::of(&stat) == FileKind::File && stat.st_nlink <= 1 => {
                        let (size, stamp) = (size_of(&stat), InodeStamp::of(&stat));
                        self.walked.files.push(WalkedFile { path: inner, size, stamp });
                    }
                    Ok(_) | Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno.into()),
                }
                continue;
            }
            let Some(depth_left) = depth_left.checked_sub(1) else {
                self.walked.truncated = true;
                continue;
            };
            match open_inside(&folder, text, FOLDER | OFlags::NOFOLLOW, NO_LINKS) {
                Ok(opened) => self.enter(opened, inner, depth_left)?,
                // Removed or replaced since its name was read, or not readable: skip it and list the rest.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::PERM) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

/// Returns a name as text, with every non-text byte escaped.
fn shown(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || is_invisible(c) {
                text.extend(c.escape_unicode());
            } else {
                text.push(c);
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}
