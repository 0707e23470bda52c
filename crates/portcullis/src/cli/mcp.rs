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
    /// List configured servers with their state, trust and transport
    #[command(after_help = "\
Examples:
  portcullis mcp list
  portcullis mcp list --json")]
    List,
    /// Add a server: connect, show its tools, and trust it after confirmation
    ///
    /// The configuration is changed only if the connection works. Agents see no tools of an untrusted server.
    #[command(after_help = "\
Examples:
  portcullis mcp add git -- uvx mcp-server-git --repository ~/code
  portcullis mcp add files --env LOG=debug -- npx -y @modelcontextprotocol/server-filesystem ~/Documents
  portcullis mcp add notes --url https://mcp.example.com/mcp --header 'Authorization=Bearer secret:NOTES_TOKEN'
  portcullis mcp add tasks --url https://tasks.example.com/mcp --oauth
  portcullis mcp add mine --command node --args path/to/server.js")]
    Add(McpAddArgs),
    /// Remove a server from the configuration and revoke its trust
    ///
    /// Also logs out and revokes its OAuth tokens if the server supports that. Removes its section and the comment right above it; the rest of the file is unchanged.
    #[command(after_help = "Example: portcullis mcp remove git")]
    Remove {
        /// Server name
        name: String,
    },
    /// Connect to a server once and show its tools or the error
    ///
    /// An imported server must be reviewed first, with `portcullis mcp trust NAME`.
    #[command(after_help = "Example: portcullis mcp test git")]
    Test {
        /// Server name
        name: String,
    },
    /// Show the status of servers in the running hub
    #[command(after_help = "\
Examples:
  portcullis mcp status
  portcullis mcp status git --json")]
    Status {
        /// Server name [default: all]
        name: Option<String>,
    },
    /// Restart a server in the running hub, or all of them
    #[command(after_help = "\
Examples:
  portcullis mcp reload                      restart all servers
  portcullis mcp reload git")]
    Reload {
        /// Server name [default: all]
        name: Option<String>,
    },
    /// Enable a server, overriding the configuration
    ///
    /// An imported server must be reviewed first, with `portcullis mcp trust NAME`.
    #[command(after_help = "Example: portcullis mcp enable git")]
    Enable {
        /// Server name
        name: String,
    },
    /// Disable a server, overriding the configuration, until it is enabled again
    #[command(after_help = "Example: portcullis mcp disable git")]
    Disable {
        /// Server name
        name: String,
    },
    /// Import servers from other applications; dry run unless `--yes` is given
    ///
    /// Reads the configuration of Claude Desktop, Claude Code (including this folder's project), Cursor, VS Code and OpenCode; a
    /// file that is named may be JSON, TOML or YAML.
    /// Entries that cannot be imported are skipped with the reason. Tokens move to the secret store. Nothing is started:
    /// imported servers stay disabled until `portcullis mcp trust NAME`.
    #[command(after_help = "\
Examples:
  portcullis mcp import                      preview the usual places
  portcullis mcp import .vscode/mcp.json --yes
  portcullis mcp import .opencode/config.toml
  portcullis mcp import ~/.cursor/mcp.json --only github --yes")]
    Import(McpImportArgs),
    /// Review a server's tools and expose them to agents
    ///
    /// New or changed tools need review again. The review starts or connects to the server; for an imported server, its command is shown and confirmed before the first start.
    #[command(after_help = "\
Examples:
  portcullis mcp trust git --diff            show every change
  portcullis mcp trust git --yes
  portcullis mcp trust git --yes --policy allow --effect 'git_log=read'
  portcullis mcp trust git --revoke          hide all its tools from agents")]
    Trust(McpTrustArgs),
    /// Log in to a server with OAuth: prints the login URL and waits for the browser redirect
    ///
    /// A running hub uses the login at once. Tokens are kept in the secret store.
    #[command(after_help = "\
Examples:
  portcullis mcp auth notes
  portcullis mcp auth notes --open")]
    Auth {
        /// Server name
        name: String,
        /// Also open the URL in this machine's browser
        #[arg(long)]
        open: bool,
    },
    /// Log out of a server and revoke its tokens if it supports that
    #[command(after_help = "Example: portcullis mcp logout notes")]
    Logout {
        /// Server name
        name: String,
    },
}

#[derive(Debug, Args)]
pub struct McpAddArgs {
    /// Letters, digits, `-` and `_`; tools appear as NAME_tool
    pub name: String,
    /// Environment variable; `secret:NAME` is a secret, `${NAME}` a variable of the hub; repeatable
    #[arg(long = "env", value_name = "KEY=VALUE")]
    pub env: Vec<String>,
    /// Working directory [default: a private folder that no tool can reach]
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    pub cwd: Option<String>,
    /// URL of a remote server (HTTP)
    #[arg(long, conflicts_with_all = ["command", "program", "env"])]
    pub url: Option<String>,
    /// Header for a remote server; repeatable
    #[arg(long = "header", value_name = "NAME=VALUE", requires = "url")]
    pub headers: Vec<String>,
    /// Log in with OAuth before the connection test
    #[arg(long, requires = "url")]
    pub oauth: bool,
    /// Timeout of a call without progress, in milliseconds
    #[arg(long, value_name = "MS")]
    pub timeout_ms: Option<u64>,
    /// Timeout of its start and handshake, in milliseconds [default: 30000]
    #[arg(long, value_name = "MS")]
    pub start_timeout_ms: Option<u64>,
    /// Trust its tools without confirmation
    #[arg(long)]
    pub yes: bool,
    /// What a call gets where no rule matches: ask-changes (reads are allowed, others ask), allow or ask
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,
    /// Effect of tools by the server's names: read, create, write or destroy [default: as advertised, else destroy]; repeatable
    #[arg(long = "effect", value_name = "GLOB=EFFECT")]
    pub effects: Vec<String>,
    /// Only write the configuration, without connecting
    #[arg(long, conflicts_with_all = ["yes", "policy", "effects"])]
    pub no_test: bool,
    /// Command, instead of after `--`
    #[arg(long = "command", value_name = "COMMAND", conflicts_with = "command")]
    pub program: Option<String>,
    /// Arguments of `--command`: all words that follow, so other options come before
    #[arg(long, value_name = "ARG", requires = "program", num_args = 1.., allow_hyphen_values = true)]
    pub args: Vec<String>,
    /// Command and arguments, after `--`
    #[arg(last = true, required_unless_present_any = ["url", "program"], value_name = "COMMAND")]
    pub command: Vec<String>,
}

impl McpAddArgs {
    /// Returns the command and its arguments, however they were given.
    pub fn words(&self) -> impl Iterator<Item = &String> {
        self.program.iter().chain(&self.args).chain(&self.command)
    }
}

#[derive(Debug, Args)]
pub struct McpImportArgs {
    /// Configuration file [default: the usual places]
    pub file: Option<PathBuf>,
    /// Import instead of a dry run
    #[arg(long)]
    pub yes: bool,
    /// Only this server, by its name in the file; repeatable
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,
}

#[derive(Debug, Args)]
pub struct McpTrustArgs {
    /// Server name
    pub name: String,
    /// Show every change; without a terminal, show only and trust nothing
    #[arg(long)]
    pub diff: bool,
    /// Show the full command of a new server, however long
    #[arg(long)]
    pub full: bool,
    /// Trust without confirmation
    #[arg(long)]
    pub yes: bool,
    /// What a call gets where no rule matches: ask-changes (reads are allowed, others ask), allow or ask
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,
    /// Effect of tools by the server's names: read, create, write or destroy [default: as advertised, else destroy]; repeatable
    #[arg(long = "effect", value_name = "GLOB=EFFECT")]
    pub effects: Vec<String>,
    /// Revoke trust
    #[arg(long, conflicts_with_all = ["diff", "full", "yes", "policy", "effects"])]
    pub revoke: bool,
}

#[cfg(test)]
mod tests {
    use super::{McpArgs, McpCommand};
    use crate::cli::{Cli, Command};
    use clap::error::ErrorKind;
    use clap::{CommandFactory, Parser};

    #[test]
    fn a_command_is_given_in_two_ways() {
        let words = |line: &str| {
            let cli =
                Cli::try_parse_from(["portcullis", "mcp", "add", "x"].into_iter().chain(line.split(' ')))
                    .map_err(|error| error.kind())?;
            match cli.command {
                Some(Command::Mcp(McpArgs { command: Some(McpCommand::Add(args)) })) => {
                    Ok((args.words().cloned().collect::<Vec<_>>().join(" "), args.yes))
                }
                other => panic!("{other:?}"),
            }
        };
        for (line, given) in [
            ("--command node --args path/to/server.js", Ok(("node path/to/server.js".to_owned(), false))),
            ("--yes --command npx --args -y pkg --yes", Ok(("npx -y pkg --yes".to_owned(), true))),
            ("--command node", Ok(("node".to_owned(), false))),
            ("-- npx -y pkg", Ok(("npx -y pkg".to_owned(), false))),
            ("--command node -- npx", Err(ErrorKind::ArgumentConflict)),
            ("--command node --url https://x.test", Err(ErrorKind::ArgumentConflict)),
            ("--args a", Err(ErrorKind::MissingRequiredArgument)),
            ("--yes", Err(ErrorKind::MissingRequiredArgument)),
        ] {
            assert_eq!(words(line), given, "{line}");
        }
    }

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
