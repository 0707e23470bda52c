//! The schema, as migrations that are applied once and in order.

use super::DatabaseError;
use rusqlite::Connection;
use std::path::Path;

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

/// Brings the schema up to date in one transaction. The caller holds the write lock.
pub(super) fn apply(
    connection: &Connection,
    path: &Path,
    migrations: &[Migration],
) -> Result<(), DatabaseError> {
    let application: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    if tables == 0 {
        connection.execute_batch(OWN)?;
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    } else if application != APPLICATION_ID {
        return Err(DatabaseError::refused(path, "is another program's database; move it away"));
    }
    let mut statement = connection.prepare("SELECT owner, number, program FROM migrations")?;
    let applied = statement
        .query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?, row.get::<_, String>(2)?)))?
        .collect::<Result<Vec<_>, _>>()?;
    for (owner, number, program) in &applied {
        if !migrations.iter().any(|known| known.owner == *owner && known.number == *number) {
            let why = format!(
                "was written by a newer Portcullis ({program}, `{owner}` {number}) and this is {}; upgrade, or restore a backup \
                 from before",
                env!("CARGO_PKG_VERSION")
            );
            return Err(DatabaseError::refused(path, &why));
        }
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
    Ok(applied.len() == migrations.len() && migrations.iter().all(has))
}
