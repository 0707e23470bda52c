//! Where the database is, and which tables it has.

use crate::config::Config;
use crate::home::{Home, make_private};
use anyhow::{Context, Result, bail};
use portcullis_family::tables;
use portcullis_store::database::Database;
use std::path::{Path, PathBuf};

/// Opens the database of a home, and makes it where it is missing.
pub fn open(home: &Home, config: &Config) -> Result<Database> {
    let secure = config.workspace.secure_dir();
    make_private(&secure)?;
    portcullis_store::open_in_home(home.path(), &secure, &tables(config.families)).context("the database")
}

/// Opens the database of a home, and refuses a home that has none.
pub fn open_existing(home: &Home, config: &Config) -> Result<Database> {
    let secure = config.workspace.secure_dir();
    if !portcullis_store::has_database_file(&secure) {
        bail!("there is no database in `{}`; the first start of the hub makes one", secure.display());
    }
    open(home, config)
}

/// Puts a backup in the place of the database, and returns where the replaced one is now. The caller holds the lock of the home.
pub fn restore(config: &Config, backup: &Path) -> Result<Option<PathBuf>> {
    let secure = config.workspace.secure_dir();
    make_private(&secure)?;
    portcullis_store::restore(&secure, backup, &tables(config.families)).context("the backup")
}

/// Opens the database of a home, or an empty one in memory if there is none: looking at a home makes nothing in it.
pub fn open_or_in_memory(home: &Home, config: &Config) -> Result<Database> {
    if exists(config) { open(home, config) } else { in_memory(config) }
}

/// Returns whether a home has a database, or files of an earlier version that become one.
pub fn exists(config: &Config) -> bool {
    portcullis_store::has_database(&config.workspace.secure_dir(), &tables(config.families))
}

/// Makes an empty database that ends with the process.
pub fn in_memory(config: &Config) -> Result<Database> {
    portcullis_store::open_in_memory(&tables(config.families)).context("the database")
}
