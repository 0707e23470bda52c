//! The schema, as migrations that are applied once and in order.

use super::DatabaseError;
use parking_lot::Mutex;
use rusqlite::Connection;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};

/// Marks the file as ours in its header: "PORT".
pub(super) const APPLICATION_ID: i32 = 0x504f_5254;

/// One step of the schema of one owner. A step that was released is never edited.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// Whose tables these are: `store`, or a tool family.
    pub owner: &'static str,
    /// 1, 2, 3 … for each owner.
    pub number: u32,
    /// Portable to both engines.
    pub sql: &'static str,
}

/// The tables of the seam itself.
const OWN: &str = "
CREATE TABLE migrations (
    owner TEXT NOT NULL,
    number BIGINT NOT NULL,
    program TEXT NOT NULL,
    PRIMARY KEY (owner, number)
);
CREATE TABLE topics (name TEXT PRIMARY KEY, version BIGINT NOT NULL);
CREATE TABLE operations (id BYTEA PRIMARY KEY, at BIGINT NOT NULL);
CREATE INDEX operations_by_time ON operations (at);
INSERT INTO topics (name, version) VALUES ('', 0);
";

/// Later steps of the seam itself.
const SEAM: [Migration; 1] = [Migration {
    owner: "database",
    number: 1,
    sql: "CREATE TABLE table_digests (name TEXT PRIMARY KEY, digest TEXT NOT NULL);",
}];

/// Returns the steps of the seam, and those of its users.
fn with_seam(migrations: &[Migration]) -> Vec<Migration> {
    SEAM.iter().chain(migrations).copied().collect()
}

/// Brings the schema up to date in one transaction. The caller holds the write lock.
pub(super) fn apply(
    connection: &Connection,
    path: &Path,
    migrations: &[Migration],
) -> Result<(), DatabaseError> {
    let migrations = &with_seam(migrations)[..];
    let application: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    if tables == 0 {
        connection.execute_batch(OWN)?;
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    } else if application != APPLICATION_ID {
        return Err(DatabaseError::refused(path, "is another program's database; move it away"));
    }
    let applied = applied(connection)?;
    if let Some((owner, number, program)) = unknown(&applied, migrations) {
        let why = format!(
            "was written by a newer Portcullis ({program}, `{owner}` {number}) and this is {}; upgrade, or restore a backup \
             from before",
            env!("CARGO_PKG_VERSION")
        );
        return Err(DatabaseError::refused(path, &why));
    }
    for migration in migrations {
        if applied.iter().any(|(owner, number, _)| owner == migration.owner && *number == migration.number) {
            continue;
        }
        connection.execute_batch(migration.sql)?;
        connection.execute(
            "INSERT INTO migrations (owner, number, program) VALUES (?1, ?2, ?3)",
            (migration.owner, migration.number, env!("CARGO_PKG_VERSION")),
        )?;
    }
    Ok(())
}

/// Returns whether a file is a database of this program.
pub(super) fn is_ours(connection: &Connection) -> Result<bool, DatabaseError> {
    let application: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    Ok(application == APPLICATION_ID)
}

/// Owner, number, and the version of the program that applied it.
type AppliedMigration = (String, u32, String);

fn applied(connection: &Connection) -> Result<Vec<AppliedMigration>, DatabaseError> {
    let mut statement = connection.prepare_cached("SELECT owner, number, program FROM migrations")?;
    let applied = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(applied.collect::<Result<_, _>>()?)
}

/// Returns a migration of a newer program.
fn unknown<'a>(applied: &'a [AppliedMigration], known: &[Migration]) -> Option<&'a AppliedMigration> {
    applied.iter().find(|(owner, number, _)| {
        !known.iter().any(|known| known.owner == *owner && known.number == *number)
    })
}

/// The migrations that this program knows, for as long as it has the database open.
pub(super) struct KnownMigrations {
    known: Mutex<Vec<Migration>>,
    /// How many the database had when they were compared last. They only become more.
    compared: AtomicI64,
}

impl KnownMigrations {
    pub(super) fn new(migrations: &[Migration]) -> KnownMigrations {
        KnownMigrations { known: Mutex::new(with_seam(migrations)), compared: AtomicI64::new(0) }
    }

    /// Adds those of one more opener in this process.
    pub(super) fn extend(&self, migrations: &[Migration]) {
        let mut known = self.known.lock();
        for new in migrations {
            if !known.iter().any(|old| (old.owner, old.number) == (new.owner, new.number)) {
                known.push(*new);
            }
        }
    }

    /// Refuses a schema that a newer program has migrated while this one had it open.
    pub(super) fn check(&self, connection: &Connection, path: &Path) -> Result<(), DatabaseError> {
        let count: i64 =
            connection.prepare_cached("SELECT count(*) FROM migrations")?.query_row([], |row| row.get(0))?;
        if self.compared.load(Ordering::Relaxed) == count {
            return Ok(());
        }
        let applied = applied(connection)?;
        let Some((_, _, program)) = unknown(&applied, &self.known.lock()).cloned() else {
            self.compared.store(count, Ordering::Relaxed);
            return Ok(());
        };
        let why = format!(
            "was migrated by a newer Portcullis ({program}) while this one ({}) had it open; restart the hub with that version",
            env!("CARGO_PKG_VERSION")
        );
        Err(DatabaseError::refused(path, &why))
    }
}

/// Returns whether there is nothing to apply, so that the write lock need not be taken.
pub(super) fn is_current(connection: &Connection, migrations: &[Migration]) -> Result<bool, DatabaseError> {
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    let application: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    if tables == 0 || application != APPLICATION_ID {
        return Ok(false);
    }
    let mut statement = connection.prepare("SELECT owner, number FROM migrations")?;
    let applied = statement
        .query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?)))?
        .collect::<Result<Vec<_>, _>>()?;
    let has = |migration: &Migration| {
        applied.iter().any(|(owner, number)| owner == migration.owner && *number == migration.number)
    };
    let migrations = with_seam(migrations);
    Ok(applied.len() == migrations.len() && migrations.iter().all(has))
}
