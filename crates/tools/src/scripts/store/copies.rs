//! Files of scripts, and copies of their versions by hash.

use super::{SOURCE_BYTES_MAX, ScriptError, ScriptName};
use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use portcullis_core::{Clock, SystemClock};
use portcullis_store::FileError;
use portcullis_store::database::{Database, DatabaseError, OperationId, Transaction, wait};
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};
use std::collections::{BTreeSet, HashMap};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;
/// How old a copy is that no row names before it is removed. A change takes seconds.
const UNUSED_FOR: Duration = Duration::from_secs(60);
/// Copies in memory: one for each proposal that may be pending.
const RECENT_MAX: usize = 50;

pub(super) fn sha256(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

/// Returns the scripts in the folder. Other file names are skipped.
pub(super) fn names_in(folder: &Path, names_max: usize) -> Result<Vec<ScriptName>, ScriptError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(FileError::new("read", folder, error).into()),
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let names = names.filter(|name| name.ends_with(".star")).filter_map(|name| name.parse().ok());
    Ok(names.take(names_max).collect())
}

/// Reads the file of a script.
pub(super) fn read(folder: &Path, name: &ScriptName) -> Result<String, ScriptError> {
    // No symlink is followed, and a FIFO in its place does not block.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let unreadable =
        |error: io::Error| ScriptError::Unreadable { name: name.clone(), why: error.kind().to_string() };
    let file = OpenOptions::new().read(true).custom_flags(flags).open(folder.join(name.as_str()));
    let file = file.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ScriptError::Unknown(name.clone()),
        _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            ScriptError::NotFile(name.clone())
        }
        _ => unreadable(error),
    })?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(ScriptError::NotFile(name.clone()));
    }
    let mut bytes = Vec::new();
    file.take(SOURCE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > SOURCE_BYTES_MAX {
        return Err(ScriptError::TooLarge {
            name: name.clone(),
            bytes: metadata.len().max(bytes.len() as u64),
        });
    }
    String::from_utf8(bytes).map_err(|_| ScriptError::NotText(name.clone()))
}

/// Writes the file of a script atomically.
pub(super) fn put(folder: &Path, name: &ScriptName, source: &str) -> Result<(), ScriptError> {
    make(folder)?;
    Ok(write(folder, name.as_str(), source)?)
}

pub(super) fn remove(folder: &Path, name: &ScriptName) -> Result<(), ScriptError> {
    let path = folder.join(name.as_str());
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(ScriptError::Unknown(name.clone())),
        removed => Ok(removed.map_err(|error| FileError::new("remove", &path, error))?),
    }
}

fn make(folder: &Path) -> Result<(), FileError> {
    let made = DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(folder);
    made.map_err(|error| FileError::new("make", folder, error))
}

fn write(folder: &Path, name: &str, source: &str) -> Result<(), FileError> {
    let path = folder.join(name);
    let failed = |error: io::Error| FileError::new("write", &path, error);
    // Not a script's name, so that a leftover of a crash is no script.
    let new_path = folder.join(format!(".{name}.new"));
    match std::fs::remove_file(&new_path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let new = OpenOptions::new().create_new(true).write(true).mode(PRIVATE_FILE).open(&new_path);
    let mut new = new.map_err(failed)?;
    new.write_all(source.as_bytes()).and_then(|()| new.sync_all()).map_err(failed)?;
    std::fs::rename(&new_path, &path).map_err(failed)?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

/// Copies of versions, content-addressed by their hash: rows that no view is loaded from.
///
/// All of this blocks, and waits for the database; so not while a change of the scripts is being made.
pub(super) struct ScriptCopies {
    database: Database,
    /// What was read last. A list shows each proposal that has no file, and reads nothing twice for that.
    recent: Mutex<HashMap<String, Arc<str>>>,
}

impl ScriptCopies {
    pub(super) fn new(database: &Database) -> ScriptCopies {
        ScriptCopies { database: database.clone(), recent: Mutex::default() }
    }

    /// Stores a version. Before the row that names it: one that no row comes to name is removed later.
    pub(super) fn keep(&self, hash: &str, source: &str) -> Result<(), DatabaseError> {
        let values = [hash.into(), source.into(), now().into()];
        wait(self.database.claim(OperationId::random()?, move |transaction| {
            Box::pin(async move { transaction.execute(KEEP, &values).await.map(|_| ()) })
        }))
    }

    /// Returns a version, if its contents still match its hash.
    pub(super) fn read(&self, hash: &str) -> Result<String, String> {
        if let Some(source) = self.recent.lock().get(hash) {
            return Ok(source.to_string());
        }
        let gone =
            |why: &str| format!("the stored version {} of the script {why}", &hash[..hash.len().min(12)]);
        let key = hash.to_owned();
        let found: Result<Option<String>, DatabaseError> = wait(self.database.read(move |transaction| {
            Box::pin(async move {
                let one = "SELECT source FROM script_copies WHERE sha256 = $1";
                let row = transaction.query(one, &[key.into()]).await?.pop();
                row.map(|mut row| row.take("source")).transpose()
            })
        }));
        let source = found.map_err(|error| gone(&format!("cannot be read: {error}")))?;
        let source = source.ok_or_else(|| gone("is missing"))?;
        if sha256(source.as_bytes()) != hash {
            return Err(gone("was changed; approve the script again"));
        }
        let mut recent = self.recent.lock();
        if recent.len() >= RECENT_MAX {
            recent.clear();
        }
        recent.insert(hash.to_owned(), source.as_str().into());
        Ok(source)
    }

    /// Removes versions that no record refers to. One that cannot be removed only takes space.
    pub(super) fn forget_others(&self, used: BTreeSet<String>) -> Result<(), DatabaseError> {
        let old = now() - UNUSED_FOR.as_micros() as i64;
        wait(self.database.claim(OperationId::random()?, move |transaction| {
            Box::pin(async move {
                // A copy is written before the row that names it: a young one may belong to a change under way.
                let all = "SELECT sha256 FROM script_copies WHERE at < $1";
                for mut row in transaction.query(all, &[old.into()]).await? {
                    let hash: String = row.take("sha256")?;
                    if !used.contains(&hash) {
                        let delete = "DELETE FROM script_copies WHERE sha256 = $1";
                        transaction.execute(delete, &[hash.into()]).await?;
                    }
                }
                Ok(())
            })
        }))
    }
}

const KEEP: &str = "INSERT INTO script_copies (sha256, source, at) VALUES ($1, $2, $3) \
    ON CONFLICT (sha256) DO UPDATE SET source = excluded.source, at = excluded.at";

/// Microseconds since 1970.
fn now() -> i64 {
    SystemClock.since_epoch().as_micros() as i64
}

/// Imports the files of earlier versions, one for each copy. One whose contents do not match its name never ran.
pub(super) async fn import(folder: &Path, transaction: &mut Transaction<'_>) -> Result<(), DatabaseError> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    for entry in entries.filter_map(Result::ok) {
        let is_sound =
            entry.metadata().is_ok_and(|file| file.is_file() && file.len() <= SOURCE_BYTES_MAX as u64);
        let source =
            if is_sound { std::fs::read_to_string(entry.path()).unwrap_or_default() } else { continue };
        let hash = sha256(source.as_bytes());
        if entry.file_name().to_str() == Some(&format!("{hash}.star")) {
            transaction.execute(KEEP, &[hash.into(), source.into(), now().into()]).await?;
        }
    }
    Ok(())
}
