//! The arguments of `portcullis admin`.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub struct AdminArgs {
    #[command(subcommand)]
    pub command: Option<AdminCommand>,
}

#[derive(Debug, Subcommand)]
pub enum AdminCommand {
    /// List administrators
    List,
    /// Print a one-time link to set a password, valid for one hour
    Link,
    /// Remove an administrator and end their sessions
    Remove { name: String },
    /// List sessions
    Sessions,
    /// End one session, or all
    SignOut {
        /// Session ID
        #[arg(required_unless_present = "all")]
        id: Option<String>,
        /// End all sessions of all administrators
        #[arg(long, conflicts_with = "id")]
        all: bool,
    },
}
