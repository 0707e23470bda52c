//! The arguments of `portcullis mcp`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct McpArgs {
    #[command(subcommand)]
    pub command: Option<McpCommand>,
}

#[derive(Debug, Subcommand)]
pub enum McpCommand {
    /// List the configured servers: whether they are used and trusted, and how they are reached
    #[command(after_help = "\
Examples:
  portcullis mcp list
  portcullis mcp list --json")]
    List,
    /// Add a server: connect to it, show what it offers, and trust it if you say so
    ///
    /// The configuration is changed only if the connection works. A server that nobody trusts offers nothing to agents.
    #[command(after_help = "\
Examples:
  portcullis mcp add git -- uvx mcp-server-git --repository ~/code
  portcullis mcp add files --env LOG=debug -- npx -y @modelcontextprotocol/server-filesystem ~/Documents
  portcullis mcp add notes --url https://mcp.example.com/mcp --header 'Authorization=Bearer secret:NOTES_TOKEN'
  portcullis mcp add tasks --url https://tasks.example.com/mcp --oauth")]
    Add(McpAddArgs),
    /// Take a server out of the configuration, and forget that it was trusted
    ///
    /// If somebody was logged in to it, that ends, and its tokens are revoked where that is offered. Its own lines go, and the comment right above them; everything else in the file stays as it is.
    #[command(after_help = "Example: portcullis mcp remove git")]
    Remove {
        /// Its name in the configuration
        name: String,
    },
    /// Connect to a server once, from here, and tell what it offers or why it does not work
    ///
    /// One that was imported has to be looked at first, with `portcullis mcp trust NAME`.
    #[command(after_help = "Example: portcullis mcp test git")]
    Test {
        /// Its name in the configuration
        name: String,
    },
    /// Show how the servers stand in the hub that runs on this home
    #[command(after_help = "\
Examples:
  portcullis mcp status
  portcullis mcp status git --json")]
    Status {
        /// Its name in the configuration; all of them if left out
        name: Option<String>,
    },
    /// Let a running hub connect to a server anew
    #[command(after_help = "Example: portcullis mcp reload git")]
    Reload {
        /// Its name in the configuration
        name: String,
    },
    /// Switch a server on, whatever the configuration says
    ///
    /// One that was imported has to be looked at first, with `portcullis mcp trust NAME`.
    #[command(after_help = "Example: portcullis mcp enable git")]
    Enable {
        /// Its name in the configuration
        name: String,
    },
    /// Switch a server off, whatever the configuration says, until it is switched on again
    #[command(after_help = "Example: portcullis mcp disable git")]
    Disable {
        /// Its name in the configuration
        name: String,
    },
    /// Take over servers from the files of other programs; shows what it would do unless `--yes` is given
    ///
    /// What does not fit is left out, with the reason. Reads the files of Claude Desktop, Claude Code (also those for the project of this folder), Cursor, VS Code and
    /// OpenCode. Tokens in them go into the secret store. Nothing is started: an imported server is switched off until `portcullis mcp trust NAME`.
    #[command(after_help = "\
Examples:
  portcullis mcp import                      what the usual places hold
  portcullis mcp import .vscode/mcp.json --yes
  portcullis mcp import ~/.cursor/mcp.json --only github --yes")]
    Import(McpImportArgs),
    /// Look at what a server offers now, and let that in
    ///
    /// What is new or different afterwards waits until you look again. To be looked at it is started, or connected to; one that was imported is shown, and asked about, before that is done for the first time.
    #[command(after_help = "\
Examples:
  portcullis mcp trust git --diff            what is different, word for word
  portcullis mcp trust git --yes
  portcullis mcp trust git --revoke          nothing of it is let in from now on")]
    Trust(McpTrustArgs),
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
    /// Forget the login of a server, and revoke its tokens where that is offered
    #[command(after_help = "Example: portcullis mcp logout notes")]
    Logout {
        /// Its name in the configuration
        name: String,
    },
}

#[derive(Debug, Args)]
pub struct McpAddArgs {
    /// Letters, digits, `-` and `_`; its tools appear as NAME_tool
    pub name: String,
    /// Its environment; `secret:NAME` is a secret and `${NAME}` a variable of the hub's; repeatable
    #[arg(long = "env", value_name = "KEY=VALUE")]
    pub env: Vec<String>,
    /// The folder it starts in; one of its own, which no tool can reach, if left out
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    pub cwd: Option<String>,
    /// A server that is reached over HTTP
    #[arg(long, conflicts_with_all = ["command", "env"])]
    pub url: Option<String>,
    /// A header for a server that is reached over HTTP; repeatable
    #[arg(long = "header", value_name = "NAME=VALUE", requires = "url")]
    pub headers: Vec<String>,
    /// Log in there by OAuth, before it is tested
    #[arg(long, requires = "url")]
    pub oauth: bool,
    /// Milliseconds that a call may take without a sign of progress
    #[arg(long, value_name = "MS")]
    pub timeout_ms: Option<u64>,
    /// Trust what it offers without asking
    #[arg(long)]
    pub yes: bool,
    /// Only write it down
    #[arg(long, conflicts_with = "yes")]
    pub no_test: bool,
    /// The program and its arguments, after `--`
    #[arg(last = true, required_unless_present = "url", value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
pub struct McpImportArgs {
    /// The file; the usual places if left out
    pub file: Option<PathBuf>,
    /// Do it
    #[arg(long)]
    pub yes: bool,
    /// Only these servers, by the names they have there; repeatable
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,
}

#[derive(Debug, Args)]
pub struct McpTrustArgs {
    /// Its name in the configuration
    pub name: String,
    /// Show every difference word for word; where nobody can be asked, look and let nothing in
    #[arg(long)]
    pub diff: bool,
    /// Show every word of how a new server is started, however long
    #[arg(long)]
    pub full: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    /// Take trust back instead
    #[arg(long, conflicts_with_all = ["diff", "full", "yes"])]
    pub revoke: bool,
}

#[cfg(test)]
mod tests {
    use crate::cli::Cli;
    use clap::CommandFactory;

    #[test]
    fn every_command_has_an_example_and_says_what_it_takes() {
        let all = Cli::command();
        let mcp = all.find_subcommand("mcp").unwrap();
        for command in std::iter::once(mcp).chain(mcp.get_subcommands()) {
            let name = command.get_name();
            assert!(
                command.get_after_help().is_some_and(|help| help.to_string().contains("portcullis mcp")),
                "{name}"
            );
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                assert!(argument.get_help().is_some(), "{name}: {}", argument.get_id());
            }
        }
    }
}
