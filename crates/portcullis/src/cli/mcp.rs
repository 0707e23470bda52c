//! `portcullis mcp`.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub struct McpArgs {
    #[command(subcommand)]
    pub command: McpCommand,
}

#[derive(Debug, Subcommand)]
pub enum McpCommand {
    /// Log in to a server: prints the address of its login page and waits for the browser to come back
    ///
    /// A running hub takes the login over at once. What is kept of it is in the secret store.
    #[command(after_help = "\
Examples:
  portcullis mcp auth notes
  portcullis mcp auth notes --open")]
    Auth {
        /// Its name in the configuration
        name: String,
        /// Open the page in this machine's browser as well
        #[arg(long)]
        open: bool,
    },
    /// Forget the login of a server
    Logout {
        /// Its name in the configuration
        name: String,
    },
}
