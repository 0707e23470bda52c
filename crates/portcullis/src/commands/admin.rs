//! `portcullis admin`: administrators and their sessions.
//!
//! Works on the file, whether or not a hub runs: a process that can write it as this user can add administrators anyway.

use super::{LoadedHome, open, this_user, welcome_link};
use crate::cli::{AdminArgs, AdminCommand};
use crate::{bad_name, database, print};
use anyhow::Result;
use portcullis_core::SystemClock;
use portcullis_guard::AuditSettings;
use portcullis_ops::admins::{Administrators, EndedSessions};
use portcullis_ops::change::ChangeRecorder;
use portcullis_ops::listing::{AdminListing, SessionListing};
use portcullis_store::admins::{AdminStore, SessionInfo};
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

pub(crate) fn run(home: Option<&Path>, args: AdminArgs, as_json: bool) -> Result<ExitCode> {
    let LoadedHome { home, loaded, .. } = open(home)?;
    let config = &loaded.config;
    let store = Arc::new(AdminStore::open(&database::open(&home, config)?, Arc::new(SystemClock)));
    let settings = AuditSettings::in_folder(&config.workspace.secure_dir());
    let changes = ChangeRecorder::Spool { settings, warn: |warning| print::note(warning) };
    let (admins, by) = (Administrators::new(store, changes), this_user());
    match args.command.unwrap_or(AdminCommand::List) {
        AdminCommand::List => list(&admins, as_json)?,
        AdminCommand::Link => {
            let link = welcome_link(config.http.listen, &admins.make_link(&by)?);
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
            let removed = admins.remove(&name, &by).map_err(bad_name)?;
            print::either(as_json, &json!({ "removed": name }), removed.sentence());
        }
        AdminCommand::Sessions => sessions(&admins, as_json)?,
        AdminCommand::SignOut { id: Some(id), .. } => {
            ended(as_json, admins.end_session(&id, &by).map_err(bad_name)?);
        }
        AdminCommand::SignOut { id: None, .. } => {
            ended(as_json, admins.end_all_sessions(&by)?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn ended(as_json: bool, ended: EndedSessions) {
    print::either(as_json, &json!({ "ended": ended.count() }), ended.sentence());
}

fn list(admins: &Administrators, as_json: bool) -> Result<()> {
    let all = admins.list()?;
    if as_json {
        print::json(&json!(all.iter().map(AdminListing::of).collect::<Vec<_>>()));
        return Ok(());
    }
    let mut rows = vec![["NAME", "CREATED", "PASSWORD SET"].map(str::to_owned).to_vec()];
    for admin in &all {
        rows.push(vec![admin.name.clone(), admin.created.to_string(), admin.changed.to_string()]);
    }
    print::table_out(&rows);
    if all.is_empty() {
        print::note("No administrators yet. Print a link to set a password: portcullis admin link");
    }
    Ok(())
}

fn sessions(admins: &Administrators, as_json: bool) -> Result<()> {
    let all = admins.sessions()?;
    if as_json {
        print::json(&json!(all.iter().map(SessionListing::of).collect::<Vec<_>>()));
        return Ok(());
    }
    let mut rows =
        vec![["ID", "NAME", "SIGNED IN", "LAST SEEN", "ADDRESS", "BROWSER"].map(str::to_owned).to_vec()];
    for session in &all {
        let (created, seen) = (session.created.to_string(), session.seen.to_string());
        let SessionInfo { id, admin, from, browser, .. } = session.clone();
        rows.push(vec![id, admin, created, seen, from, browser]);
    }
    print::table_out(&rows);
    if all.is_empty() {
        print::note("No sessions.");
    }
    Ok(())
}
