//! Import of the files of earlier versions into the database: those of this crate, and those of tool families.
//!
//! All files become rows in one transaction, which also notes that they did, and their digests; then they are renamed. Until
//! the transaction is committed the files are in force, afterwards the database is, wherever the process is killed. An
//! earlier version that still runs is kept out: its hub, because the import refuses while it has the home, and its commands,
//! because they lock a file to change it, and the import holds those locks. What one of them wrote to a file that was
//! imported but not renamed yet shows in the digest, and is neither read nor lost.

use crate::database::{Database, DatabaseError, OperationId, Topic, TopicState, Transaction, wait};
use crate::locked_file::{FilePrivacy, LockedFile, versioned};
use crate::{FamilyTables, admins, approvals, clients, database, pins, secrets, servers};
use data_encoding::HEXLOWER;
use futures::future::BoxFuture;
use portcullis_core::{Clock, SystemClock};
use sha2::{Digest, Sha256};
use std::io;
use std::path::{Path, PathBuf};

/// Suffix of a file whose contents are in the database.
const IMPORTED: &str = "imported";
/// Every file had this version when its contents moved.
const VERSION: u32 = 1;

/// A file of an earlier version, or a folder of such files.
#[derive(Debug, Clone, Copy)]
pub struct LegacyFile {
    /// Below the private folder.
    pub name: &'static str,
    pub kind: LegacyKind,
    pub privacy: FilePrivacy,
    pub import: LegacyImport,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LegacyKind {
    File,
    /// The import reads the files in it itself.
    Folder,
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
            kind: LegacyKind::File,
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
        kind: LegacyKind::File,
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
    home: &Path,
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
    refuse_beside_older_hub(home, folder, database)?;
    // From the first byte that is read until the last name is changed. In the order of the list, as every process does.
    let files = present.iter().filter(|file| file.kind == LegacyKind::File);
    let files: Vec<LockedFile> = files.map(|file| locked(folder, file)).collect();
    let locks = files.iter().map(LockedFile::lock).collect::<Result<Vec<_>, _>>();
    let _locks =
        locks.map_err(|e| DatabaseError::refused(folder, &format!("cannot be imported from: {e}")))?;
    let from = folder.to_owned();
    let imported =
        wait(database.change(Topic::new("imports"), OperationId::random()?, move |transaction| {
            Box::pin(async move {
                let mut imported = Vec::new();
                for file in present {
                    // Another process was first, and has renamed it.
                    let Some(sha256) = digest(&from, &file) else { continue };
                    let known = "SELECT sha256 FROM imports WHERE file = $1";
                    let known = transaction.query(known, &[file.name.into()]).await?.pop();
                    match known.map(|mut row| row.take::<String>("sha256")).transpose()? {
                        None => {
                            let now = SystemClock.since_epoch().as_micros() as i64;
                            let note = "INSERT INTO imports (file, at, sha256) VALUES ($1, $2, $3)";
                            transaction.execute(note, &[file.name.into(), now.into(), sha256.into()]).await?;
                            import_file(&from, &file, transaction).await?;
                        }
                        Some(known) if known == sha256 => {}
                        Some(_) => return Err(came_back(&from.join(file.name))),
                    }
                    imported.push(file.name);
                }
                Ok::<_, DatabaseError>(imported)
            })
        }))?;
    imported.into_iter().try_for_each(|name| retire(&folder.join(name)))
}

fn locked(folder: &Path, file: &LegacyFile) -> LockedFile {
    LockedFile::new(folder, file.name, LEGACY_BYTES_MAX, file.privacy)
}

/// Returns the digest of a file, by which it is told whether it is the one that was imported; `None` if there is none.
fn digest(folder: &Path, file: &LegacyFile) -> Option<String> {
    if file.kind == LegacyKind::Folder {
        return folder_digest(&folder.join(file.name));
    }
    // One that cannot be read is refused by the import, which says what to do.
    let bytes = locked(folder, file).read().unwrap_or_else(|_| Some(Vec::new()))?;
    Some(HEXLOWER.encode(&Sha256::digest(&bytes)))
}

/// The same of a folder: of the names, sizes and contents of the files in it. A folder in it is another.
fn folder_digest(folder: &Path) -> Option<String> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let mut digest = Sha256::new();
    for path in paths.into_iter().take(LEGACY_FILES_MAX) {
        let metadata = std::fs::symlink_metadata(&path);
        if metadata.as_ref().is_ok_and(std::fs::Metadata::is_dir) {
            continue;
        }
        let is_sound = metadata.is_ok_and(|file| file.is_file() && file.len() <= LEGACY_BYTES_MAX);
        // What is none is not imported, either.
        let bytes = if is_sound { std::fs::read(&path).unwrap_or_default() } else { Vec::new() };
        digest.update(path.as_os_str().as_encoded_bytes());
        digest.update((bytes.len() as u64).to_be_bytes());
        digest.update(bytes);
    }
    Some(HEXLOWER.encode(&digest.finalize()))
}

/// The lock of the hub that has the home.
const HUB_LOCK: &str = "hub.lock";

/// Refuses to import while a hub of an earlier version runs: it would go on with the files. A hub that knows the database, such
/// as this process, has it open before it serves.
fn refuse_beside_older_hub(home: &Path, folder: &Path, database: &Database) -> Result<(), DatabaseError> {
    let path = home.join(HUB_LOCK);
    let Ok(lock) = std::fs::OpenOptions::new().read(true).write(true).open(&path) else { return Ok(()) };
    if !matches!(lock.try_lock(), Err(std::fs::TryLockError::WouldBlock)) {
        return Ok(());
    }
    // `PID NAMESPACE`, written by the hub that has the lock.
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let Some(Ok(pid)) = text.split_whitespace().next().map(str::parse::<u32>) else { return Ok(()) };
    if pid == std::process::id() || database.is_open_in(pid) {
        return Ok(());
    }
    let why = format!(
        "has files of an earlier version, and a hub of that version still runs (process {pid}); stop it, then try again"
    );
    Err(DatabaseError::refused(folder, &why))
}

fn came_back(path: &Path) -> DatabaseError {
    let why = "is of an earlier version, and the database already holds its contents; move it away";
    DatabaseError::refused(path, why)
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
    let found = match file.kind {
        LegacyKind::File => locked(folder, file).read(),
        LegacyKind::Folder => Ok(Some(Vec::new())),
    };
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
/// Files in a folder: twice as many as there may be scripts.
const LEGACY_FILES_MAX: usize = 2_000;

/// Renames a file whose contents are in the database. One that came back after it was renamed is neither read nor lost.
fn retire(path: &Path) -> Result<(), DatabaseError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(IMPORTED);
    let retired = PathBuf::from(name);
    if retired.exists() && path.exists() {
        return Err(came_back(path));
    }
    match std::fs::rename(path, &retired) {
        // Another process was first.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed.map_err(|e| DatabaseError::file("rename", path, e)),
    }
}
