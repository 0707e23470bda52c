//! Connections to the database's file.
//!
//! Invariant: nothing but SQLite opens or closes the file, its `-wal` or its `-shm`. POSIX drops every lock that a process
//! holds on a file when the process closes any descriptor of it; the next process would believe that it is alone, and
//! remove the log under this one.

use super::DatabaseError;
use super::migration::{self, Migration};
use crate::locked_file::{FilePrivacy, check_private};
use rusqlite::{Connection, OpenFlags};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long another process may hold the write lock.
const BUSY_WITHIN: Duration = Duration::from_secs(5);
/// How long a reader may be kept out, which happens only while another process recovers the log. Well below the time for which
/// a snapshot is good.
const READ_WITHIN: Duration = Duration::from_millis(500);
/// Pages in memory, in KiB. Views hold what is read often.
const CACHE_KIB: i64 = 512;
const READER_CACHE_KIB: i64 = 128;

/// Makes the file where it is missing, and returns what it is. A file that is there already is not opened.
pub(super) fn make_file(path: &Path) -> Result<Metadata, DatabaseError> {
    // The descriptor of a file that this call made can be closed: no connection to it exists yet.
    match OpenOptions::new().create_new(true).write(true).mode(0o600).open(path) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(DatabaseError::file("open", path, error)),
    }
    let metadata = std::fs::symlink_metadata(path).map_err(|e| DatabaseError::file("read", path, e))?;
    check_private(&metadata, FilePrivacy::ToReading).map_err(|why| DatabaseError::refused(path, why))?;
    Ok(metadata)
}

/// Opens the file for the one thread that writes, and brings its schema up to date.
pub(super) fn for_writing(path: &Path, migrations: &[Migration]) -> Result<Connection, DatabaseError> {
    let mut connection = open_prepared(path)?;
    write_ahead(&connection, path)?;
    // What is acknowledged is on disk.
    connection.pragma_update(None, "synchronous", "FULL")?;
    migrate(&mut connection, path, migrations)?;
    // The names of the file and of its log must last as well as what is in them. SQLite ignores it if this fails.
    let folder = path.parent().unwrap_or(Path::new("."));
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|e| DatabaseError::file("sync", folder, e))?;
    Ok(connection)
}

/// Opens a file that no engine has open, to look at it or to migrate it.
pub(super) fn open_prepared(path: &Path) -> Result<Connection, DatabaseError> {
    let connection = open(path)?;
    prepare(&connection)?;
    Ok(connection)
}

/// Opens the file for the one thread that follows changes. With the write-ahead log it waits for no writer.
pub(super) fn for_reading(path: &Path) -> Result<Connection, DatabaseError> {
    let connection = open_prepared(path)?;
    connection.busy_timeout(READ_WITHIN)?;
    connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

pub(super) fn in_memory(migrations: &[Migration]) -> Result<Connection, DatabaseError> {
    let connection = Connection::open_in_memory()?;
    prepare(&connection)?;
    migration::apply(&connection, Path::new(":memory:"), migrations)?;
    Ok(connection)
}

/// Applies the migrations that the schema does not have, and refuses a schema that has more.
pub(super) fn migrate(
    connection: &mut Connection,
    path: &Path,
    migrations: &[Migration],
) -> Result<(), DatabaseError> {
    if migration::is_current(connection, migrations)? {
        return Ok(());
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    match migration::apply(connection, path, migrations) {
        Ok(()) => Ok(connection.execute_batch("COMMIT")?),
        Err(error) => {
            connection.execute_batch("ROLLBACK")?;
            Err(error)
        }
    }
}

fn open(path: &Path) -> Result<Connection, DatabaseError> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    Ok(Connection::open_with_flags(path, flags)?)
}

/// Switches to the write-ahead log. SQLite does not wait for another process that does the same at this moment.
#[expect(clippy::disallowed_methods, reason = "the database is opened on a thread that may wait")]
fn write_ahead(connection: &Connection, path: &Path) -> Result<(), DatabaseError> {
    let began = Instant::now();
    loop {
        match set_journal_mode(connection, "WAL").map_err(DatabaseError::from) {
            Err(error) if error.is_busy() && began.elapsed() < BUSY_WITHIN => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error),
            Ok(mode) if mode.eq_ignore_ascii_case("wal") => return Ok(()),
            // SQLite goes on with a journal that readers and writers wait for.
            Ok(_) => {
                let why = "is on a file system without shared memory or locks; move the home to a local disk";
                return Err(DatabaseError::refused(path, why));
            }
        }
    }
}

/// Sets the journal mode, and returns the one that is in force. SQLite commits the switch after it has returned the row, so the
/// statement runs to its end: a commit that fails is an error.
pub(super) fn set_journal_mode(connection: &Connection, mode: &str) -> rusqlite::Result<String> {
    connection.prepare(&format!("PRAGMA journal_mode = {mode}"))?.query_one([], |row| row.get(0))
}

fn prepare(connection: &Connection) -> Result<(), DatabaseError> {
    connection.busy_timeout(BUSY_WITHIN)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cell_size_check", true)?;
    Ok(())
}
