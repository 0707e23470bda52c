//! The arguments of `portcullis policy`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use portcullis_core::{Effect, Origin};

#[derive(Debug, Args)]
pub struct PolicyArgs {
    #[command(subcommand)]
    pub command: Option<PolicyCommand>,
}

#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// List the rules in order, and the defaults
    List,
    /// Explain the decision on a call, without calling anything
    ///
    /// The exit code is the decision: 0 allow, 3 ask, 4 deny. Errors: 1 failure, 2 bad usage or configuration.
    #[command(after_help = "\
Examples:
  portcullis policy test laptop workspace_write
  portcullis policy test local workspace_read '{\"path\": \"notes/todo.md\"}'
  portcullis policy test ci workspace_write --origin schedule --at 2026-11-15T23:00")]
    Test(PolicyTestArgs),
    /// Add a rule to portcullis.toml; conditions that are not given match everything
    #[command(after_help = "\
Examples:
  portcullis policy add ask --tool 'git_*' --effect write,destroy
  portcullis policy add deny --client ci --hours 22:00-06:00 --before 0")]
    Add(Box<PolicyAddArgs>),
    /// Remove a rule from portcullis.toml
    #[command(after_help = "Example: portcullis policy remove 2")]
    Remove {
        /// Number of the rule, as `policy list` shows it, from 0
        #[arg(value_parser = rule_number)]
        rule: usize,
    },
    /// Move a rule in portcullis.toml; the first match wins
    #[command(after_help = "Example: portcullis policy move 3 0")]
    Move {
        /// Number of the rule, as `policy list` shows it, from 0
        #[arg(value_parser = rule_number)]
        rule: usize,
        /// Its new number
        #[arg(value_parser = rule_number)]
        to: usize,
    },
}

#[derive(Debug, Args)]
pub struct PolicyAddArgs {
    /// Decision on calls that match: allow, ask or deny
    #[arg(value_parser = ["allow", "ask", "deny"])]
    pub decision: String,
    /// Tools, resources and prompts, as a glob; repeatable
    #[arg(long = "tool", value_name = "GLOB")]
    pub tools: Vec<String>,
    /// Clients, as a glob; repeatable
    #[arg(long = "client", value_name = "GLOB")]
    pub clients: Vec<String>,
    /// Origins: client, schedule, script, chat, engine, admin
    #[arg(long = "origin", value_name = "ORIGINS", value_delimiter = ',', value_parser = origins())]
    pub origins: Vec<Origin>,
    /// Effects: read, create, write, destroy
    #[arg(long = "effect", value_name = "EFFECTS", value_delimiter = ',')]
    pub effects: Vec<Effect>,
    /// Reach of the tool
    #[arg(long, value_parser = ["local", "outside"])]
    pub reach: Option<String>,
    /// Hours in the hub's time zone, like 22:00-06:00
    #[arg(long, value_name = "FROM-TO")]
    pub hours: Option<String>,
    /// Days: mon to sun, and ranges like mon-fri
    #[arg(long, value_name = "DAYS", value_delimiter = ',')]
    pub days: Vec<String>,
    /// When the rule expires, like 2026-12-31T00:00:00Z
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Insert before this rule [default: at the end]
    #[arg(long, value_name = "RULE", value_parser = rule_number)]
    pub before: Option<usize>,
}

/// Parses `2` or `policy[2]`.
fn rule_number(text: &str) -> Result<usize, String> {
    let inner = text.strip_prefix("policy[").and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    inner.parse().map_err(|_| "expected the number of a rule, like 2 or policy[2]".to_owned())
}

#[derive(Debug, Args)]
pub struct PolicyTestArgs {
    /// Client name; the stdio client is `stdio.client` (`local`)
    pub client: String,
    /// Tool name
    pub tool: String,
    /// Arguments as a JSON object, checked against the schema; `-` reads them from stdin
    pub arguments: Option<String>,
    /// Origin of the call
    #[arg(long, default_value = "client", value_parser = origins())]
    pub origin: Origin,
    /// Time of the call: 2026-11-15T23:00:00Z, or 2026-11-15T23:00 in the hub's time zone [default: now]
    #[arg(long, value_name = "TIME")]
    pub at: Option<String>,
}

fn origins() -> impl TypedValueParser<Value = Origin> {
    PossibleValuesParser::new(Origin::ALL.map(Origin::as_str)).map(|name| {
        // The parser has let no other name through.
        Origin::parse(&name).unwrap_or(Origin::Client)
    })
}
