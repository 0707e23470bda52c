//! `portcullis store`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct StoreArgs {
    #[command(subcommand)]
    pub command: StoreCommand,
}

#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Read every page of the database and say what is wrong
    Check,
    /// Write a copy of the database into a new file, while the hub runs
    ///
    /// Secrets are in it as they are stored, sealed; their key is not. To restore: stop the hub, put the file in the place of
    /// `workspace/secure/portcullis.db`, remove `portcullis.db-wal` and `portcullis.db-shm` beside it, and start.
    ///
    /// In another home, copy `workspace/secure/row.key` too: without it no client and no administrator is admitted.
    #[command(after_help = "Example: portcullis store backup ~/portcullis-$(date +%F).db")]
    Backup { file: PathBuf },
    /// Print every row of the database as JSON; secrets stay sealed
    Export,
}
