//! The arguments of `portcullis admin`.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub struct AdminArgs {
    #[command(subcommand)]
    pub command: Option<AdminCommand>,
}

#[derive(Debug, Subcommand)]
pub enum AdminCommand {
    /// List who may sign in
    List,
    /// Print a link that lets one person set a password, once and within an hour
    Link,
    /// Take a person's right to sign in back, and end their sessions
    Remove { name: String },
    /// List the sessions
    Sessions,
    /// End one session, or all of them
    SignOut {
        /// The id of the session
        #[arg(required_unless_present = "all")]
        id: Option<String>,
        /// All sessions of everyone
        #[arg(long, conflicts_with = "id")]
        all: bool,
    },
}
