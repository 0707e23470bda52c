//! The command line.

mod admin;
mod mcp;
mod policy;
mod scripts;
mod store;

pub use admin::{AdminArgs, AdminCommand};
pub use mcp::{McpAddArgs, McpArgs, McpCommand, McpImportArgs, McpTrustArgs};
pub use policy::{PolicyAddArgs, PolicyArgs, PolicyCommand, PolicyTestArgs};
pub use scripts::{ScriptApproveArgs, ScriptRunArgs, ScriptsArgs, ScriptsCommand};
pub use store::{StoreArgs, StoreCommand};

use crate::install::{ClientApp, Transport};
use clap::{Args, Parser, Subcommand, ValueEnum};
use portcullis_core::{Effect, ToolView};
use std::path::PathBuf;

/// Version, commit and profile of this build.
pub const VERSION: &str = env!("PORTCULLIS_VERSION");

/// One guarded door between AI agents and everything they touch.
///
/// Without a command it starts the server: it creates its home folder, listens on 127.0.0.1:3000 and prints the next steps.
#[derive(Debug, Parser)]
#[command(name = "portcullis", version = VERSION, max_term_width = 100, after_help = EXAMPLES)]
pub struct Cli {
    /// Home folder [default: PORTCULLIS_HOME, or the platform's data folder]
    #[arg(long, global = true, value_name = "DIR")]
    pub home: Option<PathBuf>,

    /// Output JSON
    #[arg(long, global = true)]
    pub json: bool,

    /// Serve MCP over stdio; same as `portcullis stdio`
    #[arg(long)]
    pub mcp: bool,

    /// Client to speak for on stdio; same as `portcullis stdio --client`
    #[arg(long, value_name = "NAME", requires = "mcp")]
    pub client: Option<String>,

    /// Call every tool and check it against its schema and snapshot
    #[arg(long, conflicts_with = "mcp")]
    pub selftest: bool,

    #[command(subcommand)]
    pub command: Option<Command>,
}

const EXAMPLES: &str = "\
Examples:
  portcullis                                      serve MCP at http://127.0.0.1:3000/mcp
  portcullis clients add laptop --effects read    add a read-only client
  portcullis clients add editor --install cursor  add a client and configure Cursor
  portcullis tools call workspace_list '{}'       call a tool
  portcullis secrets set GITHUB_TOKEN --grant api.github.com
                                                  store a secret for one host, redacted elsewhere
  portcullis mcp add git -- uvx mcp-server-git    add an upstream MCP server
  portcullis policy test laptop workspace_write   show which rule decides a call
  portcullis doctor                               check the installation

Environment:
  PORTCULLIS_HOME             home folder
  MCP_TRANSPORT               `stdio` or `http`: the transport when no command is given
  MCP_HTTP_PORT               overrides the port of `http.listen`
  PORTCULLIS_KEY              source of the secret store's key: `credential` (systemd, portcullis-key), `keyring`
                              (secret-tool), `file` or `passphrase`; detected if not set
  PORTCULLIS_KEY_FILE         key file, instead of ~/.config/portcullis/key
  PORTCULLIS_PASSPHRASE_FILE  file with the passphrase, for non-interactive use";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve MCP over HTTP, and to stdio processes with the same home
    Serve(ServeArgs),
    /// Serve MCP over stdio
    ///
    /// If a hub already runs with the same home, this process only relays messages to it. Without `--client` it speaks for the
    /// client of `[stdio]` in the configuration, which may call everything unless that says otherwise.
    #[command(after_help = "Example: portcullis stdio --client laptop")]
    Stdio(StdioArgs),
    /// Write a commented configuration file, or add the missing sections to an existing one
    ///
    /// Nothing that an existing file says is changed or lost.
    #[command(after_help = "\
Examples:
  portcullis init                            write portcullis.toml, or add the sections that it lacks
  portcullis init --print                    print every setting with its default")]
    Init(InitArgs),
    /// Check the installation and suggest a fix for each problem
    Doctor,
    /// List the tools, show one, or call one
    Tools(ToolsArgs),
    /// Manage upstream MCP servers and trust their tools
    #[command(after_help = "\
Examples:
  portcullis mcp add git -- uvx mcp-server-git --repository ~/code
  portcullis mcp import                      preview servers of other applications
  portcullis mcp trust git                   review its tools and expose them
  portcullis mcp status                      show the status of all servers")]
    Mcp(McpArgs),
    /// Manage clients and their scopes
    Clients(ClientsArgs),
    /// Show and edit the policy rules, or explain a decision
    Policy(PolicyArgs),
    /// Manage secrets: values that calls may use but no one can read back
    Secrets(SecretsArgs),
    /// Review scripts and what they may use
    Scripts(ScriptsArgs),
    /// Approve or reject calls that need a decision
    Approvals(ApprovalsArgs),
    /// Manage administrators and their sessions
    Admin(AdminArgs),
    /// Search and verify the audit log
    Audit(AuditArgs),
    /// Check, back up, restore or export the database
    Store(StoreArgs),
    /// Print shell completions
    #[command(
        after_help = "Example: portcullis completions bash > ~/.local/share/bash-completion/completions/portcullis"
    )]
    Completions { shell: clap_complete::Shell },
    /// Print the JSON schema of the configuration file, for editors
    ConfigSchema,
    /// Names that can follow the given words, for completion scripts
    #[command(name = "__complete", hide = true)]
    Complete {
        #[arg(last = true)]
        words: Vec<String>,
    },
    /// Write the manual pages into a folder, for packages
    #[command(name = "__man", hide = true)]
    Man { folder: PathBuf },
    /// Watchdog: ends the hub's child processes if the hub is killed
    #[command(name = "__guardian", hide = true)]
    Guardian { mark: String },
}

#[derive(Debug, Default, Args)]
pub struct ServeArgs {
    /// Open the admin page in this machine's browser: $BROWSER, or the system's
    #[arg(long)]
    pub open: bool,
}

#[derive(Debug, Default, Args)]
pub struct StdioArgs {
    /// Client to speak for; its scope, expiry and revocation apply
    #[arg(long, value_name = "NAME")]
    pub client: Option<String>,
}

#[derive(Debug, Args)]
pub struct InitArgs {
    /// Replace an existing file and keep a backup beside it
    #[arg(long)]
    pub force: bool,
    /// Print the file and write nothing
    #[arg(long, conflicts_with = "force")]
    pub print: bool,
}

#[derive(Debug, Args)]
pub struct ToolsArgs {
    #[command(subcommand)]
    pub command: Option<ToolsCommand>,
}

#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// List the tools visible to the local client
    List,
    /// Call a tool as the local client, through all checks
    #[command(after_help = "Example: portcullis tools call workspace_read '{\"path\": \"notes/todo.md\"}'")]
    Call {
        name: String,
        /// Arguments as a JSON object; `-` reads them from stdin
        #[arg(default_value = "{}")]
        arguments: String,
        /// Folder for images and other binary results
        #[arg(long, value_name = "DIR", default_value = ".")]
        save: PathBuf,
    },
    /// Show a tool: its arguments, effect, an example, and the rule that decides calls of the local client
    #[command(after_help = "Example: portcullis tools show workspace_read")]
    Show { name: String },
}

#[derive(Debug, Args)]
pub struct ClientsArgs {
    #[command(subcommand)]
    pub command: Option<ClientsCommand>,
}

#[derive(Debug, Subcommand)]
pub enum ClientsCommand {
    /// Add a client and print its token, which is shown once
    #[command(after_help = "\
Examples:
  portcullis clients add laptop
  portcullis clients add ci --allow 'workspace_*' --effects read --expires 30d
  portcullis clients add helper --tools search --allow 'git_*' --deny '*_push'
  portcullis clients add editor --install vscode")]
    Add(AddArgs),
    /// List clients; tokens are never shown
    List,
    /// Revoke a client, effective with its next request
    Revoke { name: String },
    /// Print what to paste into an application's configuration, and into which file
    ///
    /// A token is stored as a hash only, so over HTTP the snippet has a placeholder for it.
    #[command(after_help = "\
Examples:
  portcullis clients snippet laptop
  portcullis clients snippet laptop --for claude-code --transport http")]
    Snippet(SnippetArgs),
}

#[derive(Debug, Args)]
pub struct SnippetArgs {
    /// Client that the application is
    pub name: String,
    /// Application [default: all]
    #[arg(long = "for", value_name = "APP")]
    pub app: Option<ClientApp>,
    /// Transport for the application
    #[arg(long, value_enum, default_value_t = TransportArg::Stdio)]
    pub transport: TransportArg,
}

#[derive(Debug, Args)]
pub struct ApprovalsArgs {
    #[command(subcommand)]
    pub command: Option<ApprovalsCommand>,
}

#[derive(Debug, Subcommand)]
pub enum ApprovalsCommand {
    /// List pending approvals
    List {
        /// Include decided, used and expired approvals
        #[arg(long)]
        all: bool,
    },
    /// Show an approval with the call's arguments
    Show {
        /// Approval ID, or a unique prefix
        id: String,
    },
    /// Approve a call: this exact call, once, by default
    ///
    /// A call that still waits runs at once; otherwise it runs when the client retries it with the same arguments.
    /// Destructive calls are approved one at a time.
    #[command(after_help = "\
Examples:
  portcullis approvals approve 4k2m9q7x
  portcullis approvals approve 4k2m --session
  portcullis approvals approve 4k2m --always")]
    Approve(ApproveArgs),
    /// Reject a call
    #[command(after_help = "Example: portcullis approvals reject 4k2m --reason 'wrong channel'")]
    Reject {
        /// Approval ID, or a unique prefix
        id: String,
        /// Reason, sent to the agent
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Follow pending approvals, and decide each at the terminal
    ///
    /// At a terminal, each call is shown with its arguments: `y` approves it once, `n` rejects it, and Enter leaves it
    /// pending. Elsewhere, and with --json, each pending approval is one line.
    #[command(after_help = "Example: portcullis approvals watch --json")]
    Watch,
}

#[derive(Debug, Args)]
pub struct ApproveArgs {
    /// Approval ID, or a unique prefix
    pub id: String,
    /// Approve all calls of this tool by this client, with any arguments, until its session ends
    #[arg(long, conflicts_with = "always")]
    pub session: bool,
    /// Approve all calls of this tool by this client, with any arguments, as an allow rule in portcullis.toml
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
    /// Show the latest records
    Tail {
        /// Number of records
        #[arg(short = 'n', long, default_value_t = 20)]
        lines: usize,
        /// Follow new records until interrupted
        #[arg(short, long)]
        follow: bool,
    },
    /// Show matching records
    #[command(after_help = "\
Examples:
  portcullis audit search --tool 'workspace_*' --since 1h
  portcullis audit search --client laptop --outcome denied --json")]
    Search(SearchArgs),
    /// Verify the hash chain and report the first modified record
    Verify,
}

#[derive(Debug, Clone, Args)]
pub struct SearchArgs {
    /// Tool names, resource URIs or prompt names
    #[arg(long, value_name = "GLOB")]
    pub tool: Option<String>,
    /// Client names
    #[arg(long, value_name = "GLOB")]
    pub client: Option<String>,
    /// Since a duration ago (30m, 1h, 7d) or a timestamp (2026-07-28T12:00:00Z)
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Outcome of the call: ok, tool_error, denied, timeout and so on
    #[arg(long)]
    pub outcome: Option<String>,
}

#[derive(Debug, Args)]
pub struct AddArgs {
    pub name: String,
    /// Allow tools, resources and prompts that match a glob; repeatable
    #[arg(long, value_name = "GLOB")]
    pub allow: Vec<String>,
    /// Deny tools, resources and prompts that match a glob, even if allowed; repeatable
    #[arg(long, value_name = "GLOB")]
    pub deny: Vec<String>,
    /// Allowed effects: read, create, write, destroy
    #[arg(long, value_name = "EFFECTS", value_delimiter = ',')]
    pub effects: Vec<Effect>,
    /// Upstream tools: list all, or search them with `find_tools`
    #[arg(long, value_enum, default_value_t)]
    pub tools: ViewArg,
    /// Lifetime of the token: 12h, 30d, 8w [default: never expires]
    #[arg(long, value_name = "TIME")]
    pub expires: Option<String>,
    /// Add the client to an application's configuration; repeatable
    #[arg(long, value_name = "APP")]
    pub install: Vec<ClientApp>,
    /// Transport for the application
    #[arg(long, value_enum)]
    pub transport: Option<TransportArg>,
    /// Change the application's configuration without confirmation
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
    /// Set a secret; prompts for the value, or reads it from stdin
    ///
    /// The value is never an argument. One trailing newline is removed. An existing secret keeps its grants unless
    /// `--grant` is given.
    #[command(after_help = "\
Examples:
  portcullis secrets set GITHUB_TOKEN --grant api.github.com
  pass show example | portcullis secrets set EXAMPLE_KEY --grant '*.example.com:X-Api-Key'")]
    Set(SecretSetArgs),
    /// List secrets: name, age and grants, never values
    List,
    /// Allow a secret to be sent to more hosts
    #[command(after_help = "Example: portcullis secrets grant GITHUB_TOKEN uploads.github.com")]
    Grant {
        name: String,
        /// Host or *.example.com, optionally with the header [default: Authorization]
        #[arg(required = true, value_name = "HOST[:FIELD]")]
        grants: Vec<String>,
    },
    /// Remove a secret
    Remove { name: String },
}

#[derive(Debug, Args)]
pub struct SecretSetArgs {
    /// A-Z, 0-9 and `_`; referenced as secret:NAME
    pub name: String,
    /// Allowed host or *.example.com, optionally with the header [default: Authorization]; repeatable
    #[arg(long = "grant", value_name = "HOST[:FIELD]")]
    pub grants: Vec<String>,
    /// Accept a weak value: a client can test 10,000 guesses a day by seeing which are redacted, faster if it is a word;
    /// and ordinary text that contains the value is redacted too
    #[arg(long)]
    pub weak: bool,
    /// Accepted only to explain why a value must not be an argument.
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
