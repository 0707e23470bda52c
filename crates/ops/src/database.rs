//! Where the database is, and which tables it has.

use crate::config::Config;
use crate::home::make_private;
use anyhow::{Context, Result};
use portcullis_store::database::Database;

/// Opens the database of a home, and makes it where it is missing.
pub fn open(config: &Config) -> Result<Database> {
    let secure = config.workspace.secure_dir();
    make_private(&secure)?;
    portcullis_store::open(&secure, &portcullis_tools::tables()).context("the database")
}

/// Opens the database of a home, or an empty one in memory if there is none: looking at a home makes nothing in it.
pub fn open_to_look(config: &Config) -> Result<Database> {
    if portcullis_store::has_database(&config.workspace.secure_dir(), &portcullis_tools::tables()) {
        open(config)
    } else {
        in_memory()
    }
}

pub fn in_memory() -> Result<Database> {
    portcullis_store::open_in_memory(&portcullis_tools::tables()).context("the database")
}
