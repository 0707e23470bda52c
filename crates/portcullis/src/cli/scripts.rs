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
    /// List the scripts and proposals, and how each stands
    List,
    /// Show a script, what it wants to use, and what was decided
    #[command(after_help = "\
Examples:
  portcullis scripts show report
  portcullis scripts show report --diff      what changed since it was approved")]
    Show {
        name: String,
        /// Show what is different from the version that was approved last, or from the file for a proposal
        #[arg(long)]
        diff: bool,
        /// Show another version, by its hash
        #[arg(long, value_name = "HASH", conflicts_with = "diff")]
        version: Option<String>,
    },
    /// Let a script run, exactly as it is now
    ///
    /// It may use what its comment asks for, unless other grants are given. One byte more or less, and it waits again. What
    /// an agent proposed becomes a script with its approval.
    #[command(after_help = "\
Examples:
  portcullis scripts approve report --hash 1f3a9c02
  portcullis scripts approve report --hash 1f3a9c02 --secrets API_KEY --hosts api.example.com --expires 30d
  portcullis scripts approve report --hash 1f3a9c02 --nothing       it may only compute")]
    Approve(ScriptApproveArgs),
    /// Refuse a script as it is now; agents are told
    #[command(
        after_help = "Example: portcullis scripts reject report --hash 1f3a9c02 --reason 'reads too much'"
    )]
    Reject {
        name: String,
        /// Which version you have looked at: at least eight characters of its hash
        #[arg(long)]
        hash: Option<String>,
        /// Why, in words for the agent
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Show what was decided about a script, and its newest runs
    History { name: String },
    /// Put an approved version back in place, with what it was granted then
    #[command(after_help = "Example: portcullis scripts restore report 1f3a9c02")]
    Restore { name: String, hash: String },
    /// Run a script as the local client, through every guard
    #[command(after_help = "\
Examples:
  portcullis scripts run report
  portcullis scripts run weather --function get_weather '\"London\"' 3
  portcullis scripts run report --dry-run    in the sandbox with nothing granted, approved or not")]
    Run(ScriptRunArgs),
    /// Check that a file is a script, in the sandbox
    Check { file: PathBuf },
}

#[derive(Debug, Args)]
pub struct ScriptApproveArgs {
    pub name: String,
    /// Which version you have looked at: at least eight characters of its hash
    #[arg(long)]
    pub hash: Option<String>,
    /// Secrets that it may use, instead of those it asks for
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub secrets: Option<Vec<String>>,
    /// Hosts that it may reach, instead of those it asks for
    #[arg(long, value_delimiter = ',', value_name = "HOSTS")]
    pub hosts: Option<Vec<String>>,
    /// Tools that it may call, instead of those it asks for
    #[arg(long, value_delimiter = ',', value_name = "TOOLS")]
    pub tools: Option<Vec<String>>,
    /// Grant nothing of what it asks for
    #[arg(long, conflicts_with_all = ["secrets", "hosts", "tools"])]
    pub nothing: bool,
    /// When the approval ends, from now: 12h, 30d, 8w
    #[arg(long, value_name = "TIME")]
    pub expires: Option<String>,
}

#[derive(Debug, Args)]
pub struct ScriptRunArgs {
    pub name: String,
    /// The function to call, instead of `main`
    #[arg(long)]
    pub function: Option<String>,
    /// In the sandbox, with no secrets, no network and no tools; whether it is approved or not
    #[arg(long)]
    pub dry_run: bool,
    /// What the function is called with, each as JSON; what is no JSON is a text
    pub args: Vec<String>,
}
