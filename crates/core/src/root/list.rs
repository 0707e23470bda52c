//! What is in a folder, and in the whole tree.

use super::write::is_temporary;
use super::{FOLDER, FileKind, HANDLE, INSIDE, Root, RootError, RootedPath, open_inside, size_of};
use crate::json::is_invisible;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::fmt::Write as _;

/// How many names of one folder are looked at. A list shows far fewer, but must see them all to sort them.
const NAMES_MAX: usize = 100_000;

/// One entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name, with whatever is not text written as `\x1b` or `\u{202e}`.
    pub name: String,
    pub kind: FileKind,
    pub size: u64,
}

/// The entries of a folder: folders first, then by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub entries: Vec<Entry>,
    /// There are more entries than were asked for.
    pub truncated: bool,
}

/// A file that a walk found, and that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkedFile {
    pub path: RootedPath,
    pub size: u64,
}

/// The tree in a fixed order: depth first, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walked {
    pub files: Vec<WalkedFile>,
    /// The folders that were entered, the root among them.
    pub folders: Vec<RootedPath>,
    /// There is more in the tree than was asked for.
    pub truncated: bool,
}

impl Root {
    /// Lists one folder.
    pub fn list(&self, path: &RootedPath, entries_max: usize) -> Result<Listed, RootError> {
        let folder = open_inside(&self.folder, path.as_str(), FOLDER, INSIDE)?;
        let (mut names, too_many) = names_in(&folder)?;
        names.sort_by(|a, b| {
            (a.kind != FileKind::Directory, &a.name).cmp(&(b.kind != FileKind::Directory, &b.name))
        });
        let truncated = too_many || names.len() > entries_max;
        names.truncate(entries_max);
        let mut entries = Vec::with_capacity(names.len());
        for Named { name, kind } in names {
            let size = match rustix::fs::statat(&folder, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if kind == FileKind::File => size_of(&stat),
                // The size of a folder or a link says nothing about what is in it.
                Ok(_) => 0,
                // Removed since its name was read.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno.into()),
            };
            entries.push(Entry { name: shown(name.as_bytes()), kind, size });
        }
        Ok(Listed { entries, truncated })
    }

    /// Lists every file of the tree that could be read, without following a link to a folder.
    ///
    /// What cannot be named by a [`RootedPath`], or has a second name elsewhere, is left out.
    pub fn walk(&self, entries_max: usize, depth_max: usize) -> Result<Walked, RootError> {
        let mut walked = Walked::default();
        let folder = open_inside(&self.folder, ".", FOLDER, INSIDE)?;
        walk_into(folder, RootedPath::root(), &mut walked, &mut { entries_max }, depth_max)?;
        Ok(walked)
    }

    /// Returns whether a walk would show this file now.
    pub fn shows(&self, path: &RootedPath) -> bool {
        let strict = INSIDE | ResolveFlags::NO_SYMLINKS;
        let opened = open_inside(&self.folder, path.as_str(), HANDLE | OFlags::NOFOLLOW, strict);
        let stat = opened.and_then(rustix::fs::fstat);
        stat.is_ok_and(|stat| FileKind::of(&stat) == FileKind::File && stat.st_nlink <= 1)
    }
}

struct Named {
    name: CString,
    kind: FileKind,
}

/// Returns the names in a folder, in no order, and whether there are too many of them.
fn names_in(folder: &OwnedFd) -> Result<(Vec<Named>, bool), Errno> {
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
            // Some file systems do not say it beside the name.
            FileKind::Other => match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileKind::of(&stat),
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno),
            },
            kind => kind,
        };
        names.push(Named { name: name.to_owned(), kind });
    }
    Ok((names, false))
}

/// Walks one folder and, by recursion of at most [`super::DEPTH_MAX`] levels, those in it.
fn walk_into(
    folder: OwnedFd,
    path: RootedPath,
    walked: &mut Walked,
    entries_left: &mut usize,
    depth_left: usize,
) -> Result<(), RootError> {
    let (mut names, too_many) = names_in(&folder)?;
    walked.truncated |= too_many;
    names.sort_by(|a, b| a.name.cmp(&b.name));
    walked.folders.push(path.clone());
    for Named { name, kind } in names {
        let Ok(text) = name.to_str() else { continue };
        let joined = if path.is_root() { text.to_owned() } else { format!("{path}/{text}") };
        // A name that holds what a path must not is not one that anybody could ask for.
        let Ok(inner) = RootedPath::parse(&joined) else { continue };
        if !matches!(kind, FileKind::File | FileKind::Directory) {
            continue;
        }
        let Some(left) = entries_left.checked_sub(1) else {
            walked.truncated = true;
            return Ok(());
        };
        *entries_left = left;
        if kind == FileKind::File {
            match rustix::fs::statat(&folder, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if FileKind::of(&stat) == FileKind::File && stat.st_nlink <= 1 => {
                    walked.files.push(WalkedFile { path: inner, size: size_of(&stat) });
                }
                Ok(_) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
            continue;
        }
        let Some(depth_left) = depth_left.checked_sub(1) else {
            walked.truncated = true;
            continue;
        };
        let strict = INSIDE | ResolveFlags::NO_SYMLINKS;
        match open_inside(&folder, text, FOLDER | OFlags::NOFOLLOW, strict) {
            Ok(opened) => walk_into(opened, inner, walked, entries_left, depth_left)?,
            // Removed or replaced since its name was read, or not ours to read: the rest is still worth listing.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Returns a name as text that shows every byte of it.
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
