//! What can go wrong with the database, and what an administrator does about it.

use std::io;
use std::path::Path;

/// A database that could not be opened, read or changed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct DatabaseError {
    kind: ErrorKind,
    message: String,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ErrorKind {
    /// The file is not what this program reads. Nothing is repaired on its own.
    Refused,
    /// The rows are not what this program expects.
    Damaged,
    /// Another process holds the database, or too much is waiting.
    Busy,
    /// This operation was made already.
    Repeated,
    /// The topic would grow beyond its bound.
    TooLarge,
    Unchanged,
    Failed,
}

impl DatabaseError {
    fn new(kind: ErrorKind, message: impl Into<String>) -> DatabaseError {
        DatabaseError { kind, message: message.into(), source: None }
    }

    fn caused_by(self, source: impl std::error::Error + Send + Sync + 'static) -> DatabaseError {
        DatabaseError { source: Some(Box::new(source)), ..self }
    }

    pub(crate) fn refused(path: &Path, why: &str) -> DatabaseError {
        DatabaseError::new(ErrorKind::Refused, format!("`{}` {why}", path.display()))
    }

    pub(crate) fn file(doing: &'static str, path: &Path, source: io::Error) -> DatabaseError {
        let message = format!("cannot {doing} `{}`: {source}", path.display());
        DatabaseError::new(ErrorKind::Failed, message).caused_by(source)
    }

    /// Other processes cannot be told what this one has read.
    pub(super) fn peers(source: io::Error) -> DatabaseError {
        let message = format!("the other processes cannot be told: {source}");
        DatabaseError::new(ErrorKind::Failed, message).caused_by(source)
    }

    /// A row that makes no sense.
    pub fn shape(why: String) -> DatabaseError {
        DatabaseError::new(ErrorKind::Damaged, format!("the database is damaged: {why}"))
    }

    pub(super) fn random(source: getrandom::Error) -> DatabaseError {
        DatabaseError::new(ErrorKind::Failed, format!("cannot get random bytes from the system: {source}"))
    }

    pub(super) fn busy() -> DatabaseError {
        DatabaseError::new(ErrorKind::Busy, "too many changes are waiting for the database; try again")
    }

    /// Another process holds the write lock. `suspects` are the processes that have the database open.
    pub(super) fn held(suspects: &[u32]) -> DatabaseError {
        let message = match suspects {
            [] => "another process holds the database; try again".to_owned(),
            _ => {
                let ids: Vec<String> = suspects.iter().map(u32::to_string).collect();
                let ids = ids.join(", ");
                format!(
                    "another process holds the database (open in: {ids}); try again, or end the one that hangs"
                )
            }
        };
        DatabaseError::new(ErrorKind::Busy, message)
    }

    pub(super) fn stopped() -> DatabaseError {
        DatabaseError::new(ErrorKind::Failed, "the database was closed")
    }

    pub(super) fn repeated() -> DatabaseError {
        DatabaseError::new(ErrorKind::Repeated, "this operation was made already")
    }

    /// The snapshots are too old to go by.
    pub(super) fn stale(why: Option<&str>) -> DatabaseError {
        let why = why.unwrap_or("it does not answer");
        DatabaseError::new(ErrorKind::Busy, format!("the database cannot be read now: {why}"))
    }

    /// A change whose COMMIT failed, and of which nothing can be read afterwards.
    pub(super) fn unknown_outcome(source: rusqlite::Error) -> DatabaseError {
        let message = format!("the change may or may not have been applied; check before retrying: {source}");
        DatabaseError::new(ErrorKind::Failed, message).caused_by(source)
    }

    pub(super) fn key(why: &impl std::fmt::Display) -> DatabaseError {
        DatabaseError::new(ErrorKind::Refused, format!("the key of the database's rows: {why}"))
    }

    /// The caller refused its own change, and has an error of its own.
    pub(super) fn abandoned() -> DatabaseError {
        DatabaseError::new(ErrorKind::Failed, "the change was abandoned")
    }

    /// Nothing to write: the transaction is rolled back, and no process reloads.
    pub(super) fn unchanged() -> DatabaseError {
        DatabaseError::new(ErrorKind::Unchanged, "nothing changed")
    }

    pub(super) fn is_unchanged(&self) -> bool {
        self.kind == ErrorKind::Unchanged
    }

    pub(super) fn too_large(topic: super::Topic, bytes_max: usize) -> DatabaseError {
        let message = format!("`{}` may have at most {bytes_max} bytes in the database", topic.name());
        DatabaseError::new(ErrorKind::TooLarge, message)
    }

    /// Returns whether the change was refused because the topic would be too large.
    pub fn is_too_large(&self) -> bool {
        self.kind == ErrorKind::TooLarge
    }

    /// Returns whether the file as a whole is not for this process.
    pub(super) fn is_refused(&self) -> bool {
        self.kind == ErrorKind::Refused
    }

    pub(super) fn is_busy(&self) -> bool {
        self.kind == ErrorKind::Busy
    }

    /// Returns whether the operation was made before, by a caller that did not learn of it.
    pub fn is_repeated(&self) -> bool {
        self.kind == ErrorKind::Repeated
    }

    /// Returns whether the file or its rows are damaged or not for this program.
    pub fn is_damaged(&self) -> bool {
        matches!(self.kind, ErrorKind::Refused | ErrorKind::Damaged)
    }
}

impl From<rusqlite::Error> for DatabaseError {
    fn from(error: rusqlite::Error) -> DatabaseError {
        use rusqlite::ErrorCode::{DatabaseBusy, DatabaseCorrupt, DatabaseLocked, DiskFull, NotADatabase};
        let (kind, message) = match error.sqlite_error_code() {
            Some(DatabaseCorrupt | NotADatabase) => {
                (ErrorKind::Damaged, "the database is damaged; stop the hub and restore a backup".to_owned())
            }
            Some(DatabaseBusy | DatabaseLocked) => {
                (ErrorKind::Busy, "another process holds the database; try again".to_owned())
            }
            Some(DiskFull) => (ErrorKind::Failed, "the disk is full".to_owned()),
            _ => (ErrorKind::Failed, format!("the database failed: {error}")),
        };
        DatabaseError::new(kind, message).caused_by(error)
    }
}
