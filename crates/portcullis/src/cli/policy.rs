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
    /// List the rules in order, and what holds where none matches
    List,
    /// Explain what is decided about a call, and by which rule; nothing is called
    ///
    /// The exit code is the decision: 0 allow, 3 ask, 4 deny. Otherwise 1 is failed, 2 bad usage or configuration.
    #[command(after_help = "\
Examples:
  portcullis policy test laptop workspace_write
  portcullis policy test local workspace_read '{\"path\": \"notes/todo.md\"}'
  portcullis policy test ci workspace_write --origin schedule --at 2026-11-15T23:00")]
    Test(PolicyTestArgs),
}

#[derive(Debug, Args)]
pub struct PolicyTestArgs {
    /// Name of the client; `stdio.client` (`local`) is who calls on stdio
    pub client: String,
    /// Name of the tool
    pub tool: String,
    /// The arguments, a JSON object, to see whether they fit; `-` reads them from standard input
    pub arguments: Option<String>,
    /// By which way the call comes
    #[arg(long, default_value = "client", value_parser = origins())]
    pub origin: Origin,
    /// When the call comes: 2026-11-15T23:00:00Z, or 2026-11-15T23:00 in the hub's time zone [default: now]
    #[arg(long, value_name = "TIME")]
    pub at: Option<String>,
}

fn origins() -> impl TypedValueParser<Value = Origin> {
    PossibleValuesParser::new(Origin::ALL.map(Origin::as_str)).map(|name| {
        // The parser has let no other name through.
        Origin::ALL.into_iter().find(|origin| origin.as_str() == name).unwrap_or(Origin::Client)
    })
}
