//! Persistent state.
//!
//! Administrators, approvals, clients, pins, secrets and overrides of servers are rows of one database, which the hub and
//! the command line share; a tool family adds its own tables ([`FamilyTables`]). What belongs to one machine (programs,
//! catalogs of servers) are files. `guard::audit` keeps the audit log.

pub mod admins;
pub mod approvals;
pub mod catalogs;
pub mod clients;
pub mod database;
mod legacy_files;
mod locked_file;
pub mod pins;
pub mod programs;
pub mod secrets;
pub mod servers;
#[cfg(test)]
mod testing;

pub use legacy_files::{
    LegacyDocument, LegacyFile, LegacyImport, LegacyImportError, LegacyKind, import_rows,
};
pub use locked_file::{FileError, FileLock, FilePrivacy};

use database::{Database, DatabaseError, Migration};
use std::path::{Path, PathBuf};

/// The tables of a tool family.
#[derive(Debug, Clone, Copy)]
pub struct FamilyTables {
    pub migrations: &'static [Migration],
    /// What it stored in files before it had tables.
    pub legacy: &'static [LegacyFile],
}

/// The tables of this crate.
pub const MIGRATIONS: [Migration; 1] = [Migration {
    owner: "store",
    number: 1,
    sql: concat!(
        "CREATE TABLE imports (file TEXT PRIMARY KEY, at BIGINT NOT NULL, sha256 TEXT NOT NULL);\n",
        sealed_record_table_sql!("clients"),
        sealed_record_table_sql!("approvals"),
        sealed_record_table_sql!("pins"),
        sealed_record_table_sql!("server_overrides"),
        record_table_sql!("secrets"),
        sealed_record_table_sql!("admins"),
        sealed_record_table_sql!("admin_links"),
        sealed_record_table_sql!("admin_sessions"),
    ),
}];

/// Opens the database in a folder, with the tables of this crate and those of `families`, and imports the JSON files of
/// earlier versions. `home` is where a hub of an earlier version would hold its lock.
pub fn open_in_home(
    home: &Path,
    folder: &Path,
    families: &[FamilyTables],
) -> Result<Database, DatabaseError> {
    let database = Database::open(folder, &migrations(families))?;
    legacy_files::import(home, folder, &database, families)?;
    Ok(database)
}

/// The same for a folder that is its own home, as in tests and measurements.
pub fn open(folder: &Path, families: &[FamilyTables]) -> Result<Database, DatabaseError> {
    open_in_home(folder, folder, families)
}

/// Puts a backup in the place of the database of a folder, and returns where the replaced one is now. The caller holds the
/// lock of the home.
pub fn restore(
    folder: &Path,
    backup: &Path,
    families: &[FamilyTables],
) -> Result<Option<PathBuf>, DatabaseError> {
    database::restore(folder, backup, &migrations(families))
}

/// Returns whether a folder has a database.
pub fn has_database_file(folder: &Path) -> bool {
    folder.join(database::FILE_NAME).exists()
}

/// Returns whether a folder has a database, or files that become one.
pub fn has_database(folder: &Path, families: &[FamilyTables]) -> bool {
    has_database_file(folder) || legacy_files::are_in(folder, families)
}

/// Makes an empty database with the same tables, which ends with the process.
pub fn open_in_memory(families: &[FamilyTables]) -> Result<Database, DatabaseError> {
    Database::in_memory(&migrations(families))
}

fn migrations(families: &[FamilyTables]) -> Vec<Migration> {
    let families = families.iter().flat_map(|family| family.migrations);
    MIGRATIONS.iter().chain(families).copied().collect()
}
