//! Import of the files of earlier versions into the database: those of this crate, and those of tool families.
//!
//! All files become rows in one transaction, which also notes that they did; then they are renamed. Until the transaction
//! is committed the files are in force, afterwards the database is, wherever the process is killed.

use crate::database::{Database, DatabaseError, OperationId, Topic, TopicState, Transaction, wait};
use crate::locked_file::{FilePrivacy, LockedFile, versioned};
use crate::{FamilyTables, admins, approvals, clients, database, pins, secrets, servers};
use futures::future::BoxFuture;
use portcullis_core::{Clock, SystemClock};
use std::io;
use std::path::{Path, PathBuf};

/// Suffix of a file whose contents are in the database.
const IMPORTED: &str = "imported";
/// Every file had this version when its contents moved.
const VERSION: u32 = 1;

/// A file of an earlier version.
#[derive(Debug, Clone, Copy)]
pub struct LegacyFile {
    pub name: &'static str,
    pub privacy: FilePrivacy,
    pub import: LegacyImport,
}

/// Turns a file into rows.
pub type LegacyImport =
    for<'t> fn(LegacyDocument, &'t mut Transaction<'_>) -> BoxFuture<'t, Result<(), LegacyImportError>>;

/// A file of an earlier version, as it was read.
pub struct LegacyDocument {
    /// Where it and its companions are.
    pub folder: PathBuf,
    pub name: &'static str,
    bytes: Vec<u8>,
}

impl LegacyDocument {
    /// Reads the rows of a JSON document.
    pub fn rows<T>(&self, read: impl FnOnce(serde_json::Value) -> Result<T, String>) -> Result<T, String> {
        versioned(self.name, VERSION, &self.bytes).and_then(read)
    }
}

/// Why a file could not be imported.
pub enum LegacyImportError {
    /// The document makes no sense.
    Document(String),
    Database(DatabaseError),
}

impl From<DatabaseError> for LegacyImportError {
    fn from(error: DatabaseError) -> LegacyImportError {
        LegacyImportError::Database(error)
    }
}

/// Makes a document the rows of a topic.
pub async fn import_rows<S: TopicState>(
    rows: Result<S::Rows, String>,
    transaction: &mut Transaction<'_>,
) -> Result<(), LegacyImportError> {
    let rows = rows.map_err(LegacyImportError::Document)?;
    // A document that makes no sense stays a file, which a person can repair.
    S::of(&rows).map_err(LegacyImportError::Document)?;
    Ok(database::fill::<S>(transaction, &rows).await?)
}

/// Makes the entry of a file whose document is read by `$read` into rows of the topic `$state`.
macro_rules! legacy {
    ($name:literal, $privacy:ident, $state:ty, $read:path) => {
        LegacyFile {
            name: $name,
            privacy: FilePrivacy::$privacy,
            import: |document, transaction| {
                Box::pin(import_rows::<$state>(document.rows($read), transaction))
            },
        }
    };
}

const FILES: [LegacyFile; 6] = [
    legacy!("clients.json", ToWriting, clients::ClientTable, clients::read_legacy),
    legacy!("approvals.json", ToReading, approvals::ApprovalTable, approvals::read_legacy),
    legacy!("pins.json", ToWriting, pins::PinTable, pins::read_legacy),
    legacy!("toggles.json", ToWriting, servers::OverrideTable, servers::read_legacy),
    legacy!("admins.json", ToReading, admins::AdminRows, admins::read_legacy),
    LegacyFile {
        name: "secrets.pcs",
        privacy: FilePrivacy::ToReading,
        import: |document, transaction| {
            let rows = secrets::read_legacy(&document.bytes);
            Box::pin(import_rows::<secrets::SealedTable>(rows, transaction))
        },
    },
];

/// Returns whether a folder has files of an earlier version.
pub(crate) fn are_in(folder: &Path, families: &[FamilyTables]) -> bool {
    files(families).any(|file| folder.join(file.name).exists())
}

fn files(families: &[FamilyTables]) -> impl Iterator<Item = &LegacyFile> {
    FILES.iter().chain(families.iter().flat_map(|family| family.legacy))
}

/// Imports the files that were not imported yet. Runs before any view exists.
pub(crate) fn import(
    folder: &Path,
    database: &Database,
    families: &[FamilyTables],
) -> Result<(), DatabaseError> {
    let mut present = Vec::new();
    for file in files(families) {
        match std::fs::symlink_metadata(folder.join(file.name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(DatabaseError::file("read", &folder.join(file.name), error)),
            Ok(_) => present.push(*file),
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
                        import_file(&from, &file, transaction).await?;
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
    let document = LegacyDocument { folder: folder.to_owned(), name: file.name, bytes };
    match (file.import)(document, transaction).await {
        Ok(()) => Ok(()),
        Err(LegacyImportError::Document(why)) => Err(refused(why)),
        Err(LegacyImportError::Database(error)) => Err(error),
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
