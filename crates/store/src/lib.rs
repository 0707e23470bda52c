//! Persistent state.
//!
//! Administrators, approvals, clients, pins, programs, scripts, secrets, catalogs and overrides of servers,
//! each in one file that the hub and the command line share. `guard::audit` keeps the audit log.

pub mod admins;
pub mod approvals;
pub mod catalogs;
pub mod clients;
pub mod database;
mod legacy_files;
mod locked_file;
pub mod pins;
pub mod programs;
pub mod scripts;
pub mod secrets;
pub mod servers;
#[cfg(test)]
mod testing;

pub use locked_file::{FileError, FileLock};

use database::{Database, DatabaseError, Migration};
use std::path::Path;

/// The tables of this crate.
pub const MIGRATIONS: [Migration; 1] = [Migration {
    owner: "store",
    number: 1,
    sql: concat!(
        "CREATE TABLE imports (file TEXT PRIMARY KEY, at BIGINT NOT NULL);\n",
        record_table_sql!("clients"),
        record_table_sql!("approvals"),
        record_table_sql!("pins"),
        record_table_sql!("server_overrides"),
        record_table_sql!("scripts"),
        record_table_sql!("secrets"),
        record_table_sql!("admins"),
        record_table_sql!("admin_links"),
        record_table_sql!("admin_sessions"),
    ),
}];

/// Opens the database in a folder, with the tables of this crate and those of `families`, and imports the JSON files of
/// earlier versions.
pub fn open(folder: &Path, families: &[Migration]) -> Result<Database, DatabaseError> {
    let database = Database::open(folder, &with_own(families))?;
    legacy_files::import(folder, &database)?;
    Ok(database)
}

/// Returns whether a folder has a database, or files that become one.
pub fn has_database(folder: &Path) -> bool {
    folder.join(database::FILE_NAME).exists() || legacy_files::are_in(folder)
}

/// Makes an empty database with the same tables, which ends with the process.
pub fn open_in_memory(families: &[Migration]) -> Result<Database, DatabaseError> {
    Database::in_memory(&with_own(families))
}

fn with_own(families: &[Migration]) -> Vec<Migration> {
    MIGRATIONS.iter().chain(families).copied().collect()
}
