//! The command line.

mod admin;
mod mcp;
mod policy;
mod scripts;

pub use admin::{AdminArgs, AdminCommand};
pub use mcp::{McpAddArgs, McpArgs, McpCommand, McpImportArgs, McpTrustArgs};
pub use policy::{PolicyArgs, PolicyCommand, PolicyTestArgs};
pub use scripts::{ScriptApproveArgs, ScriptRunArgs, ScriptsArgs, ScriptsCommand};

use crate::install::{ClientApp, Transport};
use clap::{Args, Parser, Subcommand, ValueEnum};
use portcullis_core::{Effect, ToolView};
use std::path::PathBuf;

/// One guarded door between AI agents and everything they touch.
///
/// Without a command it serves: it makes its home, listens on 127.0.0.1:3000 and prints what to do next.
#[derive(Debug, Parser)]
#[command(name = "portcullis", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Cli {
    /// Where the data lives [default: PORTCULLIS_HOME, or the platform's data folder]
    #[arg(long, global = true, value_name = "DIR")]
    pub home: Option<PathBuf>,

    /// Print data as JSON
    #[arg(long, global = true)]
    pub json: bool,

    /// Speak MCP on standard input and output; the same as `portcullis stdio`
    #[arg(long)]
    pub mcp: bool,

    /// Check that every tool, its schema, its snapshot and its dispatch agree, by calling each one
    #[arg(long, conflicts_with = "mcp")]
    pub selftest: bool,

    #[command(subcommand)]
    pub command: Option<Command>,
}

const EXAMPLES: &str = "\
Examples:
  portcullis                                      serve MCP on http://127.0.0.1:3000/mcp
  portcullis clients add laptop --effects read    a client that can only look
  portcullis clients add editor --install cursor  and write it into Cursor's configuration
  portcullis tools call workspace_list '{}'       call a tool from here
  portcullis secrets set GITHUB_TOKEN --grant api.github.com
                                                  keep a secret for one place, out of everything else
  portcullis mcp add git -- uvx mcp-server-git    another server behind the same guards
  portcullis policy test laptop workspace_write   may it, and by which rule
  portcullis doctor                               what works and what does not

Environment:
  PORTCULLIS_HOME             where the data lives
  MCP_TRANSPORT               `stdio` or `http`: what to do when no command is given
  MCP_HTTP_PORT               the port, instead of that of `http.listen`
  PORTCULLIS_KEY              where the key of the secrets is: `credential` (systemd, portcullis-key), `keyring`
                              (secret-tool), `file` or `passphrase`; found out if it is not set
  PORTCULLIS_KEY_FILE         the key file, instead of ~/.config/portcullis/key
  PORTCULLIS_PASSPHRASE_FILE  a file with the passphrase, for where nobody can be asked";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve MCP over HTTP, and to `--mcp` processes on the same home
    Serve,
    /// Speak MCP on standard input and output
    ///
    /// Where a hub already runs on the same home this process only passes messages on to it.
    Stdio,
    /// Write a commented configuration file
    Init(InitArgs),
    /// Check the installation and say what to do about each problem
    Doctor,
    /// List the tools, or call one
    Tools(ToolsArgs),
    /// Put other MCP servers behind this hub, and say what of them is let in
    #[command(after_help = "\
Examples:
  portcullis mcp add git -- uvx mcp-server-git --repository ~/code
  portcullis mcp import                      what other programs use
  portcullis mcp trust git                   look at what it offers, and let that in
  portcullis mcp status                      how all of them stand")]
    Mcp(McpArgs),
    /// Say who may call, and what
    Clients(ClientsArgs),
    /// Show the rules, or explain what they make of a call
    Policy(PolicyArgs),
    /// Keep values that agents may use and nobody may read
    Secrets(SecretsArgs),
    /// Decide which scripts may run, and what they may use
    Scripts(ScriptsArgs),
    /// Decide about calls that wait for a person
    Approvals(ApprovalsArgs),
    /// Let people in to the admin page, and end their sessions
    Admin(AdminArgs),
    /// Read the log of every call, and check that nobody changed it
    Audit(AuditArgs),
    /// Print completions for a shell
    #[command(
        after_help = "Example: portcullis completions bash > ~/.local/share/bash-completion/completions/portcullis"
    )]
    Completions { shell: clap_complete::Shell },
    /// Print the JSON schema of the configuration file, for editors
    ConfigSchema,
    /// Waits beside a hub, to end its servers if it cannot
    #[command(name = "__guardian", hide = true)]
    Guardian { mark: String },
}

#[derive(Debug, Args)]
pub struct InitArgs {
    /// Replace a file that is there
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct ToolsArgs {
    #[command(subcommand)]
    pub command: Option<ToolsCommand>,
}

#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// List the tools that the local client sees
    List,
    /// Call a tool as the local client, through every guard
    #[command(after_help = "Example: portcullis tools call workspace_read '{\"path\": \"notes/todo.md\"}'")]
    Call {
        name: String,
        /// The arguments, a JSON object; `-` reads them from standard input
        #[arg(default_value = "{}")]
        arguments: String,
    },
}

#[derive(Debug, Args)]
pub struct ClientsArgs {
    #[command(subcommand)]
    pub command: Option<ClientsCommand>,
}

#[derive(Debug, Subcommand)]
pub enum ClientsCommand {
    /// Make a client and print its token, once
    #[command(after_help = "\
Examples:
  portcullis clients add laptop
  portcullis clients add ci --allow 'workspace_*' --effects read --expires 30d
  portcullis clients add helper --tools search --allow 'git_*' --deny '*_push'
  portcullis clients add editor --install vscode")]
    Add(AddArgs),
    /// List the clients; tokens are never shown
    List,
    /// Take a client's access away, from its next request on
    Revoke { name: String },
}

#[derive(Debug, Args)]
pub struct ApprovalsArgs {
    #[command(subcommand)]
    pub command: Option<ApprovalsCommand>,
}

#[derive(Debug, Subcommand)]
pub enum ApprovalsCommand {
    /// List what waits for a decision
    List {
        /// And what was decided, used and has expired
        #[arg(long)]
        all: bool,
    },
    /// Show one call with its arguments
    Show {
        /// Its id, or the beginning of it
        id: String,
    },
    /// Let a call run: this one, once, unless more is said
    ///
    /// A call that still waits runs at once; one that was told to come back runs when it is made again, with the same
    /// arguments. What destroys is approved one call at a time.
    #[command(after_help = "\
Examples:
  portcullis approvals approve 4k2m9q7x
  portcullis approvals approve 4k2m --session
  portcullis approvals approve 4k2m --always")]
    Approve(ApproveArgs),
    /// Refuse a call; the agent is told
    #[command(after_help = "Example: portcullis approvals reject 4k2m --reason 'wrong channel'")]
    Reject {
        /// Its id, or the beginning of it
        id: String,
        /// Why, in words for the agent
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct ApproveArgs {
    /// Its id, or the beginning of it
    pub id: String,
    /// Every call of this tool by this client, with any arguments, until its session ends
    #[arg(long, conflicts_with = "always")]
    pub session: bool,
    /// Every call of this tool by this client, with any arguments, as a rule in portcullis.toml
    #[arg(long)]
    pub always: bool,
}

#[derive(Debug, Args)]
pub struct AuditArgs {
    #[command(subcommand)]
    pub command: AuditCommand,
}

#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Show the newest records
    Tail {
        /// How many
        #[arg(short = 'n', long, default_value_t = 20)]
        lines: usize,
        /// Go on as records come, until interrupted
        #[arg(short, long)]
        follow: bool,
    },
    /// Show the records that fit
    #[command(after_help = "\
Examples:
  portcullis audit search --tool 'workspace_*' --since 1h
  portcullis audit search --client laptop --outcome denied --json")]
    Search(SearchArgs),
    /// Check every record, and name the first that is not as it was written
    Verify,
}

#[derive(Debug, Clone, Args)]
pub struct SearchArgs {
    /// Names of tools, addresses of resources and names of prompts
    #[arg(long, value_name = "GLOB")]
    pub tool: Option<String>,
    /// Names of clients
    #[arg(long, value_name = "GLOB")]
    pub client: Option<String>,
    /// Not older than: 30m, 1h, 7d, or 2026-07-28T12:00:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// How the call ended: ok, tool_error, denied, timeout and so on
    #[arg(long)]
    pub outcome: Option<String>,
}

#[derive(Debug, Args)]
pub struct AddArgs {
    pub name: String,
    /// What it may see and call: a glob over names of tools, addresses of resources and names of prompts; repeatable
    #[arg(long, value_name = "GLOB")]
    pub allow: Vec<String>,
    /// What of that it may not see and call: such a glob; repeatable
    #[arg(long, value_name = "GLOB")]
    pub deny: Vec<String>,
    /// What its calls may do: read, create, write, destroy
    #[arg(long, value_name = "EFFECTS", value_delimiter = ',')]
    pub effects: Vec<Effect>,
    /// How it gets to know the tools of other servers: listed, or found with `find_tools`
    #[arg(long, value_enum, default_value_t)]
    pub tools: ViewArg,
    /// When the token stops working, from now: 12h, 30d, 8w
    #[arg(long, value_name = "TIME")]
    pub expires: Option<String>,
    /// Write the client into an application's own configuration; repeatable
    #[arg(long, value_name = "APP")]
    pub install: Vec<ClientApp>,
    /// How the application shall connect
    #[arg(long, value_enum)]
    pub transport: Option<TransportArg>,
    /// Do not ask before the application's configuration is changed
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum ViewArg {
    #[default]
    All,
    Search,
}

impl From<ViewArg> for ToolView {
    fn from(view: ViewArg) -> ToolView {
        match view {
            ViewArg::All => ToolView::All,
            ViewArg::Search => ToolView::Search,
        }
    }
}

#[derive(Debug, Args)]
pub struct SecretsArgs {
    #[command(subcommand)]
    pub command: Option<SecretsCommand>,
}

#[derive(Debug, Subcommand)]
pub enum SecretsCommand {
    /// Set a secret; its value is asked for, or read from standard input
    ///
    /// The value is never an argument. One newline at its end is left out. A secret that exists keeps its grants, unless
    /// others are given.
    #[command(after_help = "\
Examples:
  portcullis secrets set GITHUB_TOKEN --grant api.github.com
  pass show example | portcullis secrets set EXAMPLE_KEY --grant '*.example.com:X-Api-Key'")]
    Set(SecretSetArgs),
    /// List the secrets: names, age and grants, never values
    List,
    /// Let a secret be sent to one more host
    #[command(after_help = "Example: portcullis secrets grant GITHUB_TOKEN uploads.github.com")]
    Grant {
        name: String,
        /// A host, or *.example.com for all below it; and the field there, Authorization if left out
        #[arg(required = true, value_name = "HOST[:FIELD]")]
        grants: Vec<String>,
    },
    /// Forget a secret
    Remove { name: String },
}

#[derive(Debug, Args)]
pub struct SecretSetArgs {
    /// A-Z, 0-9 and `_`; agents and the configuration name it as secret:NAME
    pub name: String,
    /// Where it may be sent: a host, or *.example.com for all below it; and the field there, Authorization if left out; repeatable
    #[arg(long = "grant", value_name = "HOST[:FIELD]")]
    pub grants: Vec<String>,
    /// Take a value that can be guessed or is ordinary text: clients find it by reading back guesses, 10,000 a day each, or faster
    /// if it is a word; and it is redacted wherever it occurs
    #[arg(long)]
    pub weak: bool,
    /// Only to say why there is none.
    #[arg(hide = true)]
    pub value: Vec<std::ffi::OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TransportArg {
    Stdio,
    Http,
}

impl From<TransportArg> for Transport {
    fn from(transport: TransportArg) -> Transport {
        match transport {
            TransportArg::Stdio => Transport::Stdio,
            TransportArg::Http => Transport::Http,
        }
    }
}
