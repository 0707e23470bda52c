//! Write-ahead audit records of commands that change state.
//!
//! A command records its intent before it acts, and the outcome afterwards. The hub transfers the records to the audit
//! log.

use crate::cli::{AdminCommand, Command, McpCommand};
use crate::commands::{audit_settings, this_user};
use crate::{Interrupted, is_bad_usage, print};
use anyhow::Result;
use portcullis_core::ErrorKind;
use portcullis_ops::change::ChangeRecorder;
use portcullis_ops::servers::action;
use portcullis_store::database::wait;
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;

/// Runs a command; a change is recorded before and after. If it cannot be recorded, nothing is changed.
pub(crate) fn recorded(
    home: Option<&Path>,
    command: Command,
    run: impl FnOnce(Command) -> Result<ExitCode>,
) -> Result<ExitCode> {
    let Some((action, details)) = change_of(&command) else { return run(command) };
    // If home or configuration cannot be read, the command itself reports it and changes nothing.
    let Ok(settings) = audit_settings(home) else { return run(command) };
    let recorder = ChangeRecorder::Spool { settings, warn: |warning| print::note(warning) };
    let change = wait(recorder.begin(&this_user(), action, details))?;
    let done = run(command);
    let outcome = match &done {
        Ok(code) if *code == ExitCode::SUCCESS => Ok(()),
        Ok(_) => Err(ErrorKind::Denied),
        Err(error) if is_bad_usage(error) => Err(ErrorKind::InvalidArgs),
        Err(error) if error.is::<Interrupted>() => Err(ErrorKind::Cancelled),
        Err(_) => Err(ErrorKind::Internal),
    };
    change.end(outcome);
    done
}

/// Returns the audit action of a command and its details. Every command must be listed here.
fn change_of(command: &Command) -> Option<(&'static str, Value)> {
    match command {
        Command::Serve
        | Command::Stdio
        | Command::Doctor
        // Calls have their own records.
        | Command::Tools(_)
        | Command::Policy(_)
        | Command::Audit(_)
        | Command::Store(_)
        | Command::Completions { .. }
        | Command::ConfigSchema
        | Command::Guardian { .. } => None,
        // The operation records it.
        Command::Approvals(_) | Command::Clients(_) | Command::Scripts(_) | Command::Secrets(_) => None,
        Command::Init(args) => Some(("init", json!({ "force": args.force }))),
        Command::Mcp(args) => server_change(args.command.as_ref()?),
        Command::Admin(args) => match args.command.as_ref()? {
            AdminCommand::List | AdminCommand::Sessions => None,
            AdminCommand::Link => Some(("admin.link", json!({}))),
            AdminCommand::Remove { name } => Some(("admin.remove", json!({ "name": name }))),
            AdminCommand::SignOut { id, all } => Some(("admin.sign_out", json!({ "id": id, "all": all }))),
        },
    }
}

fn server_change(command: &McpCommand) -> Option<(&'static str, Value)> {
    let (change, name) = match command {
        McpCommand::List | McpCommand::Test { .. } | McpCommand::Status { .. } => return None,
        // The operation records it.
        McpCommand::Reload { .. } | McpCommand::Enable { .. } | McpCommand::Disable { .. } => return None,
        // Arguments and headers may contain unregistered secrets.
        McpCommand::Add(new) => (action::ADD, &new.name),
        McpCommand::Import(wanted) if wanted.yes => {
            return Some((action::IMPORT, json!({ "file": wanted.file, "only": wanted.only })));
        }
        McpCommand::Import(_) => return None,
        McpCommand::Trust(trust) if trust.revoke => return None,
        McpCommand::Trust(trust) => (action::TRUST, &trust.name),
        McpCommand::Remove { name } => (action::REMOVE, name),
        McpCommand::Auth { name, .. } => (action::LOG_IN, name),
        McpCommand::Logout { name } => (action::LOG_OUT, name),
    };
    Some((change, json!({ "name": name })))
}
