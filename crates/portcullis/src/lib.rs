//! The hub binary as a library: command line, composition.

mod admin;
mod approval_notifier;
pub mod cli;
mod colour;
mod commands;
pub mod compose;
mod memory;
mod print;
mod reload;
pub mod services;
mod status_line;
pub mod surface;

pub use portcullis_config as config;

use cli::{Cli, Command};
use config::ConfigErrors;
use portcullis_interop::install;
use portcullis_ops::{
    Problem, ProblemCode, database, home, known_tools, logging, login, mcp, passphrase, password_prompt,
    with_causes,
};
use portcullis_server::local::HubRefusal;
use portcullis_upstream::{HubMark, run_guardian};
use std::path::Path;
use std::process::ExitCode;

/// Bad usage or configuration (exit code 2), as opposed to a failure.
#[derive(Debug)]
pub(crate) struct BadUsage(pub(crate) String);

impl std::fmt::Display for BadUsage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadUsage {}

/// A signal interrupted a prompt.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// 128 + SIGINT, as shells report it.
const INTERRUPTED_CODE: u8 = 130;

/// Prints a usage error or the requested help.
pub fn refuse(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        // Redacted: it repeats the input, which may contain a secret.
        commands::look_for_home();
        print::note(error.render().to_string().trim_end());
    } else {
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Runs a command. Exit codes: 0 success, 1 failure, 2 bad usage or configuration; `policy test` adds two.
pub fn run(cli: Cli) -> ExitCode {
    print::install_panic_hook();
    leave_no_core();
    hide_from_same_user();
    let json = cli.json;
    match dispatch(cli) {
        Ok(code) => code,
        Err(error) if error.is::<Interrupted>() => {
            // Ends the line of the prompt; there is nothing to explain.
            print::note("");
            ExitCode::from(INTERRUPTED_CODE)
        }
        Err(error) => {
            let bad = is_bad_usage(&error);
            let refusal = refusal(&error);
            let retry = refusal.and_then(|refusal| Some((refusal.code, refusal.retry_after_ms?)));
            if json {
                let mut said = serde_json::json!({ "error": with_causes(&error) });
                if let Some(refusal) = refusal {
                    said["code"] = refusal.code.into();
                }
                if let Some((_, wait)) = retry {
                    said["retry_after_ms"] = wait.into();
                }
                print::note_json(&said);
            } else {
                print::error(&with_causes(&error));
                if let Some((code, wait)) = retry {
                    print::note(format!("code {code}, retry after {wait} ms"));
                }
            }
            ExitCode::from(if bad { 2 } else { 1 })
        }
    }
}

/// Returns the error object of the hub, if it refused a request.
fn refusal(error: &anyhow::Error) -> Option<&HubRefusal> {
    error.downcast_ref::<std::io::Error>()?.get_ref()?.downcast_ref()
}

/// Returns whether an error is bad usage or configuration.
pub(crate) fn is_bad_usage(error: &anyhow::Error) -> bool {
    let is_invalid = |problem: &Problem| problem.code == ProblemCode::Invalid;
    error.is::<BadUsage>() || error.is::<ConfigErrors>() || error.downcast_ref().is_some_and(is_invalid)
}

/// A name on the command line that nothing has is bad usage.
pub(crate) fn bad_name(problem: Problem) -> anyhow::Error {
    match problem.code {
        ProblemCode::NotFound => BadUsage(problem.to_string()).into(),
        _ => problem.into(),
    }
}

/// Disables core dumps, which would contain secrets.
fn leave_no_core() {
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    // Lowering a limit always succeeds.
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
}

/// Makes the process non-dumpable before it starts any child: other processes of this user, including upstream servers,
/// cannot read its environment and memory in `/proc` or trace it.
fn hide_from_same_user() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    // Always permitted for the own process.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    if cli.selftest {
        return commands::selftest::run(cli.json);
    }
    let command = match (cli.command, cli.mcp) {
        (None, true) => Command::Stdio(cli::StdioArgs { client: cli.client }),
        (None, false) => by_environment()?,
        (Some(command), _) => command,
    };
    let (home, json) = (cli.home.as_deref(), cli.json);
    run_command(home, command, json)
}

fn run_command(home: Option<&Path>, command: Command, json: bool) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(args) => commands::serve::run(home, &args, json),
        Command::Stdio(args) => commands::stdio::run(home, args.client.as_deref()),
        Command::Init(args) => commands::init::run(home, &args, json),
        Command::Doctor => commands::doctor::run(home, json),
        Command::Tools(args) => commands::tools::run(home, args, json),
        Command::Mcp(args) => commands::mcp::run(home, args, json),
        Command::Clients(args) => commands::clients::run(home, args, json),
        Command::Policy(args) => commands::policy::run(home, args, json),
        Command::Scripts(args) => commands::scripts::run(home, args, json),
        Command::Secrets(args) => commands::secrets::run(home, args, json),
        Command::Approvals(args) => commands::approvals::run(home, args, json),
        Command::Admin(args) => commands::admin::run(home, args, json),
        Command::Audit(args) => commands::audit::run(home, args, json),
        Command::Store(args) => commands::store::run(home, args, json),
        Command::Completions { shell } => Ok(commands::completions::script(shell)),
        Command::Complete { words } => commands::completions::names(home, &words),
        Command::Man { folder } => commands::manual_pages(&folder),
        Command::ConfigSchema => {
            print::json(&config::schema());
            Ok(ExitCode::SUCCESS)
        }
        Command::Guardian { mark } => {
            let mark = HubMark::parse(&mark).ok_or_else(|| BadUsage("internal command".to_owned()))?;
            run_guardian(&mark);
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Without a command, `MCP_TRANSPORT` decides.
fn by_environment() -> anyhow::Result<Command> {
    match std::env::var("MCP_TRANSPORT").as_deref() {
        Err(_) | Ok("" | "http") => Ok(Command::Serve(cli::ServeArgs::default())),
        Ok("stdio") => Ok(Command::Stdio(cli::StdioArgs::default())),
        Ok(other) => {
            let other = portcullis_core::json::printable(other);
            Err(BadUsage(format!("MCP_TRANSPORT is `{other}`, expected `stdio` or `http`")).into())
        }
    }
}
