//! `portcullis admin`: administrators and their sessions.
//!
//! Works on the file, whether or not a hub runs: a process that can write it as this user can add administrators anyway.

use super::{LoadedHome, open, welcome_link};
use crate::cli::{AdminArgs, AdminCommand};
use crate::home::make_private;
use crate::{BadUsage, database, print};
use anyhow::Result;
use portcullis_core::SystemClock;
use portcullis_store::admins::{AdminError, AdminInfo, AdminStore, SessionInfo};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

pub(crate) fn run(home: Option<&Path>, args: AdminArgs, as_json: bool) -> Result<ExitCode> {
    let LoadedHome { home, loaded, .. } = open(home)?;
    let config = &loaded.config;
    make_private(&config.workspace.secure_dir())?;
    let admins = AdminStore::open(&database::open(&home, config)?, Arc::new(SystemClock));
    match args.command.unwrap_or(AdminCommand::List) {
        AdminCommand::List => list(&admins, as_json)?,
        AdminCommand::Link => {
            let link = welcome_link(config.http.listen, &admins.make_link()?);
            if as_json {
                print::json_showing(&json!({ "valid_secs": 3_600 }), &[("link", Some(&link))]);
            } else {
                let text = format!("Set a password within one hour at:\n\n  {link}\n\n");
                print::out_showing(text, &link);
            }
            if !config.admin.enabled {
                print::note("The admin page is disabled: `admin.enabled` is false.");
            }
        }
        AdminCommand::Remove { name } => {
            admins.remove(&name).map_err(explained)?;
            report(as_json, json!({ "removed": name }), &format!("Removed administrator `{name}`."));
        }
        AdminCommand::Sessions => sessions(&admins, as_json)?,
        AdminCommand::SignOut { id: Some(id), .. } => {
            admins.end_session(&id).map_err(explained)?;
            report(as_json, json!({ "ended": 1 }), "Ended the session.");
        }
        AdminCommand::SignOut { id: None, .. } => {
            let count = admins.end_sessions(None)?;
            report(as_json, json!({ "ended": count }), &format!("Ended {count} sessions."));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Maps an error to bad usage or failure.
fn explained(error: AdminError) -> anyhow::Error {
    match error {
        AdminError::Unknown(_) | AdminError::UnknownSession(_) => BadUsage(error.to_string()).into(),
        other => other.into(),
    }
}

fn report(as_json: bool, value: Value, words: &str) {
    if as_json { print::json(&value) } else { print::line(words) }
}

fn list(admins: &AdminStore, as_json: bool) -> Result<()> {
    let all = admins.list()?;
    if as_json {
        let shown = |admin: &AdminInfo| json!({ "name": admin.name, "created": admin.created.to_string(), "password_set": admin.changed.to_string() });
        print::json(&Value::Array(all.iter().map(shown).collect()));
        return Ok(());
    }
    let mut rows = vec![["NAME", "CREATED", "PASSWORD SET"].map(str::to_owned).to_vec()];
    for admin in &all {
        rows.push(vec![admin.name.clone(), admin.created.to_string(), admin.changed.to_string()]);
    }
    print::out(print::table(&rows));
    if all.is_empty() {
        print::note("No administrators yet. Print a link to set a password: portcullis admin link");
    }
    Ok(())
}

fn sessions(admins: &AdminStore, as_json: bool) -> Result<()> {
    let all = admins.sessions()?;
    if as_json {
        let shown = |session: &SessionInfo| {
            json!({
                "id": session.id,
                "admin": session.admin,
                "created": session.created.to_string(),
                "seen": session.seen.to_string(),
                "expires": session.expires.to_string(),
                "from": session.from,
                "browser": session.browser,
            })
        };
        print::json(&Value::Array(all.iter().map(shown).collect()));
        return Ok(());
    }
    let mut rows =
        vec![["ID", "NAME", "SIGNED IN", "LAST SEEN", "ADDRESS", "BROWSER"].map(str::to_owned).to_vec()];
    for session in &all {
        let (created, seen) = (session.created.to_string(), session.seen.to_string());
        let SessionInfo { id, admin, from, browser, .. } = session.clone();
        rows.push(vec![id, admin, created, seen, from, browser]);
    }
    print::out(print::table(&rows));
    if all.is_empty() {
        print::note("No sessions.");
    }
    Ok(())
}
