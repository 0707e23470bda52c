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
    /// Check every page, index and seal of the database
    Check,
    /// Write a copy of the database into a new file, while the hub runs
    ///
    /// The copy is one file, which `portcullis store restore` puts back. Secrets are in it as they are stored, sealed.
    ///
    /// Not in it, so back these up too: the keys (`workspace/secure/row.key`, without which a restored database admits no client and
    /// can't be changed, and the key of the secrets), the configuration, the folder of scripts, and the audit log.
    #[command(after_help = "Example: portcullis store backup ~/portcullis-$(date +%F).db")]
    Backup { file: PathBuf },
    /// Put a backup in the place of the database, while the hub is stopped
    ///
    /// Every page, index and seal of the backup is checked first. The database that it replaces stays beside it, as
    /// `portcullis.db.replaced-…`. Do not copy a backup over the database by hand: SQLite would apply the log of the old one to it.
    #[command(after_help = "Example: portcullis store restore ~/portcullis-2026-01-31.db")]
    Restore { file: PathBuf },
    /// Print every row of the database as JSON; secrets stay sealed
    Export,
}
