//! Import of the files of earlier versions into the database.
//!
//! All files become rows in one transaction, which also notes that they did; then they are renamed. Until the transaction
//! is committed the files are in force, afterwards the database is, wherever the process is killed.

use crate::database::{self, Database, DatabaseError, OperationId, Topic, TopicState, Transaction, wait};
use crate::locked_file::{FilePrivacy, LockedFile, versioned};
use crate::{admins, approvals, clients, pins, scripts, secrets, servers};
use futures::future::BoxFuture;
use portcullis_core::{Clock, SystemClock};
use std::io;
use std::path::{Path, PathBuf};

/// Suffix of a file whose contents are in the database.
const IMPORTED: &str = "imported";
/// Every file had this version when its contents moved.
const VERSION: u32 = 1;

/// A file of an earlier version.
struct LegacyFile {
    name: &'static str,
    privacy: FilePrivacy,
    import: Import,
}

/// Turns a file's bytes into rows.
type Import =
    for<'t> fn(&'static str, Vec<u8>, &'t mut Transaction<'_>) -> BoxFuture<'t, Result<(), ImportError>>;

enum ImportError {
    /// The document makes no sense.
    Document(String),
    Database(DatabaseError),
}

impl From<DatabaseError> for ImportError {
    fn from(error: DatabaseError) -> ImportError {
        ImportError::Database(error)
    }
}

async fn fill<S: TopicState>(
    rows: Result<S::Rows, String>,
    transaction: &mut Transaction<'_>,
) -> Result<(), ImportError> {
    let rows = rows.map_err(ImportError::Document)?;
    // A document that makes no sense stays a file, which a person can repair.
    S::of(&rows).map_err(ImportError::Document)?;
    Ok(database::fill::<S>(transaction, &rows).await?)
}

/// Makes the entry of a file whose document is read by `$read` into rows of the topic `$state`.
macro_rules! legacy {
    ($name:literal, $privacy:ident, $state:ty, $read:path) => {
        LegacyFile {
            name: $name,
            privacy: FilePrivacy::$privacy,
            import: |name, bytes, transaction| {
                let rows = versioned(name, VERSION, &bytes).and_then($read);
                Box::pin(fill::<$state>(rows, transaction))
            },
        }
    };
}

const FILES: [LegacyFile; 7] = [
    legacy!("clients.json", ToWriting, clients::ClientTable, clients::read_legacy),
    legacy!("approvals.json", ToReading, approvals::ApprovalTable, approvals::read_legacy),
    legacy!("pins.json", ToWriting, pins::PinTable, pins::read_legacy),
    legacy!("toggles.json", ToWriting, servers::OverrideTable, servers::read_legacy),
    legacy!("scripts.json", ToWriting, scripts::ScriptTable, scripts::read_legacy),
    legacy!("admins.json", ToReading, admins::AdminRows, admins::read_legacy),
    LegacyFile {
        name: "secrets.pcs",
        privacy: FilePrivacy::ToReading,
        import: |_, bytes, transaction| {
            Box::pin(fill::<secrets::SealedTable>(secrets::read_legacy(&bytes), transaction))
        },
    },
];

/// Returns whether a folder has files of an earlier version.
pub(crate) fn are_in(folder: &Path) -> bool {
    FILES.iter().any(|file| folder.join(file.name).exists())
}

/// Imports the files that were not imported yet. Runs before any view exists.
pub(crate) fn import(folder: &Path, database: &Database) -> Result<(), DatabaseError> {
    let mut present = Vec::new();
    for file in &FILES {
        match std::fs::symlink_metadata(folder.join(file.name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(DatabaseError::file("read", &folder.join(file.name), error)),
            Ok(_) => present.push(file),
        }
    }
    if present.is_empty() {
        return Ok(());
    }
    let from = folder.to_owned();
    let imported =
        wait(database.change(Topic::new("imports"), OperationId::random()?, move |transaction| {
            Box::pin(async move {
                let mut imported = Vec::new();
                for file in present {
                    let known = "SELECT 1 FROM imports WHERE file = $1";
                    let is_new = transaction.query(known, &[file.name.into()]).await?.is_empty();
                    if is_new {
                        let now = SystemClock.since_epoch().as_micros() as i64;
                        let note = "INSERT INTO imports (file, at) VALUES ($1, $2)";
                        transaction.execute(note, &[file.name.into(), now.into()]).await?;
                        import_file(&from, file, transaction).await?;
                    }
                    imported.push((file.name, is_new));
                }
                Ok::<_, DatabaseError>(imported)
            })
        }))?;
    imported.into_iter().try_for_each(|(name, is_new)| retire(&folder.join(name), is_new))
}

async fn import_file(
    folder: &Path,
    file: &LegacyFile,
    transaction: &mut Transaction<'_>,
) -> Result<(), DatabaseError> {
    let refused = |why: String| {
        DatabaseError::refused(
            &folder.join(file.name),
            &format!("cannot be imported: {why}; repair it, or move it away to go on without it"),
        )
    };
    let found = LockedFile::new(folder, file.name, LEGACY_BYTES_MAX, file.privacy).read();
    let Some(bytes) = found.map_err(refused)? else { return Ok(()) };
    match (file.import)(file.name, bytes, transaction).await {
        Ok(()) => Ok(()),
        Err(ImportError::Document(why)) => Err(refused(why)),
        Err(ImportError::Database(error)) => Err(error),
    }
}

/// The largest file of them all, pins.
const LEGACY_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Renames a file whose contents are in the database. One that came back is neither read nor lost.
fn retire(path: &Path, was_imported_now: bool) -> Result<(), DatabaseError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(IMPORTED);
    let retired = PathBuf::from(name);
    if !was_imported_now && retired.exists() {
        let why = "is of an earlier version, and the database already holds its contents; move it away";
        return Err(DatabaseError::refused(path, why));
    }
    match std::fs::rename(path, &retired) {
        // Another process was first.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed.map_err(|e| DatabaseError::file("rename", path, e)),
    }
}
