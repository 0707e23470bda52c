//! Restoring a backup: a checked copy of it takes the place of the database.
//!
//! The copy is checked, migrated and synced under another name, and one rename puts it in force. The database that it replaces
//! stays beside it. The log of the replaced one must be gone before the rename: SQLite would apply it to the new file.

use super::migration::{self, Migration};
use super::row_key::RowKey;
use super::{DatabaseError, FILE_NAME, backup, connection, peers};
use crate::locked_file::make_private_folder;
use portcullis_core::{Clock, SystemClock};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What SQLite may write beside a database.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];
/// How many problems of a refused backup are named.
const PROBLEMS_SHOWN: usize = 3;

/// Puts a backup in the place of the database of a folder. Returns where the replaced database is now, if there was one.
///
/// The caller holds the lock of the home, so that no hub starts meanwhile.
pub fn restore(
    folder: &Path,
    backup: &Path,
    migrations: &[Migration],
) -> Result<Option<PathBuf>, DatabaseError> {
    make_private_folder(folder).map_err(|e| DatabaseError::file("make", folder, e))?;
    let folder = folder.canonicalize().map_err(|e| DatabaseError::file("find", folder, e))?;
    let path = folder.join(FILE_NAME);
    refuse_others(&path)?;
    let new = with_suffix(&path, ".restoring");
    remove(&new)?;
    let prepared = prepare(backup, &new, migrations);
    // To prepare it takes a while.
    let prepared = prepared.and_then(|()| refuse_others(&path));
    if prepared.is_err() {
        remove(&new)?;
    }
    prepared?;
    let replaced = keep_replaced(&path)?;
    std::fs::rename(&new, &path).map_err(|e| DatabaseError::file("replace", &path, e))?;
    sync(&folder)?;
    Ok(replaced)
}

/// Refuses while another process has the database open: it would go on with the replaced file.
fn refuse_others(path: &Path) -> Result<(), DatabaseError> {
    let others = peers::others(path);
    if others.is_empty() {
        return Ok(());
    }
    let others: Vec<String> = others.iter().map(u32::to_string).collect();
    let why = format!("is open in other processes ({}); end them first", others.join(", "));
    Err(DatabaseError::refused(path, &why))
}

/// Copies a backup, checks the copy, and brings its schema up to date.
fn prepare(backup: &Path, new: &Path, migrations: &[Migration]) -> Result<(), DatabaseError> {
    copy(backup, new)?;
    let log = with_suffix(backup, "-wal");
    if log.exists() {
        // A database that was moved away has its newest changes there.
        copy(&log, &with_suffix(new, "-wal"))?;
    }
    let opened = connection::open_prepared(new).and_then(|copied| Ok((migration::is_ours(&copied)?, copied)));
    let mut copied = match opened {
        Ok((true, copied)) => copied,
        Err(error) if !error.is_damaged() => return Err(error),
        _ => return Err(DatabaseError::refused(backup, "is no backup of this program")),
    };
    connection::migrate(&mut copied, backup, migrations)?;
    let problems = backup::problems(&copied, &RowKey::beside(new, &copied)?)?;
    if !problems.is_empty() {
        let shown: Vec<&str> = problems.iter().map(String::as_str).take(PROBLEMS_SHOWN).collect();
        return Err(DatabaseError::refused(backup, &format!("cannot be restored: {}", shown.join("; "))));
    }
    // Everything in one file, which one rename puts in force.
    connection::set_journal_mode(&copied, "DELETE")?;
    copied.close().map_err(|(_, error)| error)?;
    sync(new)
}

/// Gives the database that is there another name, and takes its log away from the path.
fn keep_replaced(path: &Path) -> Result<Option<PathBuf>, DatabaseError> {
    if !path.exists() {
        return Ok(None);
    }
    // With everything in the file the log is empty. A database too damaged for that keeps its log.
    if let Ok(old) = connection::open_prepared(path) {
        let _ = old.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }
    let kept = with_suffix(path, &format!(".replaced-{}", SystemClock.since_epoch().as_micros()));
    std::fs::hard_link(path, &kept).map_err(|e| DatabaseError::file("keep", path, e))?;
    for companion in COMPANIONS {
        match std::fs::rename(with_suffix(path, companion), with_suffix(&kept, companion)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(DatabaseError::file("move the log of", path, error));
            }
            _ => {}
        }
    }
    Ok(Some(kept))
}

fn copy(from: &Path, to: &Path) -> Result<(), DatabaseError> {
    let mut read = File::open(from).map_err(|e| DatabaseError::file("read", from, e))?;
    let made = OpenOptions::new().create_new(true).write(true).mode(0o600).open(to);
    let mut written = made.map_err(|e| DatabaseError::file("make", to, e))?;
    io::copy(&mut read, &mut written).map_err(|e| DatabaseError::file("copy", from, e))?;
    Ok(())
}

/// Removes a copy that was not put in force.
fn remove(new: &Path) -> Result<(), DatabaseError> {
    for path in [""].into_iter().chain(COMPANIONS).map(|companion| with_suffix(new, companion)) {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(DatabaseError::file("remove", &path, error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn sync(path: &Path) -> Result<(), DatabaseError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|e| DatabaseError::file("sync", path, e))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
