//! The arguments of `portcullis policy`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use portcullis_core::Origin;

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
