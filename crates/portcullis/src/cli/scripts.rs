//! `portcullis scripts …`

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct ScriptsArgs {
    #[command(subcommand)]
    pub command: Option<ScriptsCommand>,
}

#[derive(Debug, Subcommand)]
pub enum ScriptsCommand {
    /// List scripts and proposals with their state
    List,
    /// Show a script, its requested permissions and the decision
    #[command(after_help = "\
Examples:
  portcullis scripts show report
  portcullis scripts show report --diff      show changes since the last approval")]
    Show {
        name: String,
        /// Show the diff from the last approved version, or from the file for a proposal
        #[arg(long)]
        diff: bool,
        /// Show another version, by hash
        #[arg(long, value_name = "HASH", conflicts_with = "diff")]
        version: Option<String>,
    },
    /// Approve a script in exactly this version
    ///
    /// It is granted what its header comment requests, unless other grants are given. Any change needs a new approval.
    /// Approving a proposal of an agent creates the script.
    #[command(after_help = "\
Examples:
  portcullis scripts approve report --hash 1f3a9c02
  portcullis scripts approve report --hash 1f3a9c02 --secrets API_KEY --hosts api.example.com --expires 30d
  portcullis scripts approve report --hash 1f3a9c02 --nothing       grant nothing")]
    Approve(ScriptApproveArgs),
    /// Reject a script in this version
    #[command(
        after_help = "Example: portcullis scripts reject report --hash 1f3a9c02 --reason 'reads too much'"
    )]
    Reject {
        name: String,
        /// Hash of the version you reviewed, at least eight characters
        #[arg(long)]
        hash: Option<String>,
        /// Reason, sent to the agent
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Show the decisions and latest runs of a script
    History { name: String },
    /// Restore an approved version with its grants
    #[command(after_help = "Example: portcullis scripts restore report 1f3a9c02")]
    Restore { name: String, hash: String },
    /// Run a script as the local client, through all checks
    #[command(after_help = "\
Examples:
  portcullis scripts run report
  portcullis scripts run weather --function get_weather '\"London\"' 3
  portcullis scripts run report --dry-run    run in the sandbox without grants or approval")]
    Run(ScriptRunArgs),
    /// Check the syntax and header of a script file
    Check { file: PathBuf },
}

#[derive(Debug, Args)]
pub struct ScriptApproveArgs {
    pub name: String,
    /// Hash of the version you reviewed, at least eight characters
    #[arg(long)]
    pub hash: Option<String>,
    /// Secrets to grant, instead of the requested ones
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub secrets: Option<Vec<String>>,
    /// Hosts to grant, instead of the requested ones
    #[arg(long, value_delimiter = ',', value_name = "HOSTS")]
    pub hosts: Option<Vec<String>>,
    /// Tools to grant, instead of the requested ones
    #[arg(long, value_delimiter = ',', value_name = "TOOLS")]
    pub tools: Option<Vec<String>>,
    /// Grant nothing
    #[arg(long, conflicts_with_all = ["secrets", "hosts", "tools"])]
    pub nothing: bool,
    /// Lifetime of the approval: 12h, 30d, 8w [default: never expires]
    #[arg(long, value_name = "TIME")]
    pub expires: Option<String>,
}

#[derive(Debug, Args)]
pub struct ScriptRunArgs {
    pub name: String,
    /// Function to call [default: main]
    #[arg(long)]
    pub function: Option<String>,
    /// Run in the sandbox without secrets, network or tools; needs no approval
    #[arg(long)]
    pub dry_run: bool,
    /// Arguments of the function, each as JSON; anything else is a string
    pub args: Vec<String>,
}
