//! The identity of the database's file, by which a replacement is noticed.
//!
//! SQLite goes on with the file that it has open, also when a backup was put in its place. What it acknowledged would then be
//! in a file without a name, and what other processes write would not be read.

use super::DatabaseError;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
pub(super) struct FileIdentity {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl FileIdentity {
    /// `metadata` was read before the file was opened: a replacement in between is then noticed, too.
    pub(super) fn new(path: &Path, metadata: &Metadata) -> FileIdentity {
        FileIdentity { path: path.to_owned(), device: metadata.dev(), inode: metadata.ino() }
    }

    pub(super) fn inode(&self) -> u64 {
        self.inode
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_same_file(&self, other: &FileIdentity) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Refuses a database whose path names another file now, or none. Costs one `stat`.
    pub(super) fn check(&self) -> Result<(), DatabaseError> {
        let replaced = |what: &str| {
            let why = format!("was {what} while this program had it open; restart the hub");
            Err(DatabaseError::refused(&self.path, &why))
        };
        match std::fs::symlink_metadata(&self.path) {
            Ok(now) if self.is_same_file(&FileIdentity::new(&self.path, &now)) => Ok(()),
            Ok(_) => replaced("replaced"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => replaced("removed"),
            Err(error) => Err(DatabaseError::file("read", &self.path, error)),
        }
    }
}
