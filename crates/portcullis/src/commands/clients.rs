//! `portcullis clients`: add, list, revoke.

use super::{environment, open_operations, this_user};
use crate::cli::{AddArgs, ClientsArgs, ClientsCommand, SnippetArgs, TransportArg};
use crate::home::Home;
use crate::install::{ClientApp, ClientFolders, Endpoint, Platform, Transport};
use crate::{BadUsage, print};
use anyhow::{Context, Result};
use portcullis_core::json::printable;
use portcullis_core::{Secret, SystemClock, ToolView};
use portcullis_ops::Operations;
use portcullis_ops::desk::AddClient;
use portcullis_ops::listing::ClientListing;
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(home: Option<&Path>, args: ClientsArgs, as_json: bool) -> Result<ExitCode> {
    let ops = open_operations(home)?;
    match args.command.unwrap_or(ClientsCommand::List) {
        ClientsCommand::Add(args) => add(&ops, args, as_json),
        ClientsCommand::List => list(&ops, as_json),
        ClientsCommand::Revoke { name } => revoke(&ops, &name, as_json),
        ClientsCommand::Snippet(args) => snippet(&ops, &args, as_json),
    }
}

fn add(ops: &Operations, args: AddArgs, as_json: bool) -> Result<ExitCode> {
    let new = AddClient {
        name: args.name,
        allow: args.allow,
        deny: args.deny,
        effects: args.effects.iter().map(|effect| effect.as_str().to_owned()).collect(),
        tools: Some(ToolView::from(args.tools).as_str().to_owned()),
        expires: args.expires,
    };
    let (info, token) = ops.add_client(new, &this_user())?;
    let url = &ops.url;
    let installed = install_all(&ops.home, url, &info.name, &token, &args.install, args.transport, args.yes);
    if as_json {
        print::json_showing(&json!(ClientListing::of(&info)), &[("token", Some(token.expose()))]);
    } else {
        let (name, token) = (&info.name, token.expose());
        let text = format!(
            "Added client `{name}` for {url}. Copy the token now; it is not shown again:\n\n  {token}\n\n"
        );
        print::out_showing(text, token);
        if args.install.is_empty() {
            let names = ClientApp::ALL.map(ClientApp::as_str).join("|");
            print::line(format!(
                "To configure an application: portcullis clients add NAME --install {names}"
            ));
        }
    }
    installed.map(|()| ExitCode::SUCCESS)
}

fn install_all(
    home: &Home,
    url: &str,
    client: &str,
    token: &Secret<String>,
    apps: &[ClientApp],
    transport: Option<TransportArg>,
    yes: bool,
) -> Result<()> {
    if apps.is_empty() {
        return Ok(());
    }
    let places = ClientFolders::from_env(Platform::current(), &environment)?;
    let endpoint = Endpoint::of_this_program(home.path(), url, client, token);
    for app in apps {
        let wanted = transport.map_or(Transport::Http, Transport::from);
        if let Some(note) = app.note(wanted).filter(|_| transport.is_some()) {
            print::note(note);
        }
        let plan = app.plan(wanted, &endpoint, &places).with_context(|| {
            format!("{}; paste it yourself:\n{}", app.as_str(), app.snippet(wanted, &endpoint))
        })?;
        if plan.is_done() {
            print::note(format!("{}: no changes needed", plan.path.display()));
            continue;
        }
        print::note_showing(plan.diff(), token.expose());
        // Without a terminal, naming the application is the confirmation.
        if !yes && print::confirm("Apply this change?")? == Some(false) {
            print::note("No changes made.");
            continue;
        }
        match plan.apply(&SystemClock)? {
            Some(backup) => {
                print::note(format!("Changed {}; backup: {}.", plan.path.display(), backup.display()));
            }
            None => print::note(format!("Wrote {}.", plan.path.display())),
        }
    }
    Ok(())
}

fn snippet(ops: &Operations, args: &SnippetArgs, as_json: bool) -> Result<ExitCode> {
    let name = args.name.as_str();
    if !ops.list_clients()?.iter().any(|info| info.name == name) {
        let advice = "`portcullis clients list` shows them; `portcullis clients add NAME` adds one";
        let name = printable(name);
        return Err(BadUsage(format!("no client is named `{name}`; {advice}")).into());
    }
    let transport = Transport::from(args.transport);
    let folders = ClientFolders::from_env(Platform::current(), &environment)?;
    let endpoint = Endpoint::without_token(ops.home.path(), &ops.url, name);
    let apps: Vec<ClientApp> = args.app.map_or_else(|| ClientApp::ALL.to_vec(), |app| vec![app]);
    if as_json {
        let listed = apps.iter().map(|app| {
            json!({
                "app": app.as_str(),
                "file": app.path(&folders),
                "snippet": app.snippet(transport, &endpoint),
                "command": app.add_command(transport, &endpoint),
                "note": app.note(transport),
            })
        });
        print::json(&json!({ "client": name, "applications": listed.collect::<Vec<_>>() }));
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    for app in apps {
        text.push_str(&format!("# {}: {}\n", app.title(), app.path(&folders).display()));
        if let Some(note) = app.note(transport) {
            text.push_str(&format!("# {note}\n"));
        }
        text.push_str(&app.snippet(transport, &endpoint));
        if let Some(command) = app.add_command(transport, &endpoint) {
            text.push_str(&format!("# or with its own command:\n{command}\n"));
        }
        text.push('\n');
    }
    text.push_str(&format!(
        "To change the file for you: portcullis clients add NAME --install {}\n",
        args.app.map_or("APP", ClientApp::as_str)
    ));
    print::out(text);
    Ok(ExitCode::SUCCESS)
}

fn list(ops: &Operations, as_json: bool) -> Result<ExitCode> {
    let clients = ops.list_clients()?;
    if as_json {
        print::json(&json!(clients.iter().map(ClientListing::of).collect::<Vec<_>>()));
        return Ok(ExitCode::SUCCESS);
    }
    let heading = ["CLIENT", "TOKEN", "ALLOW", "DENY", "EFFECTS", "TOOLS", "CREATED", "EXPIRES"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for info in &clients {
        let effects: Vec<&str> = info.effects.iter().map(|effect| effect.as_str()).collect();
        let expires = match info.expires {
            None => "never".to_owned(),
            Some(expires) if info.is_expired(&SystemClock) => format!("{expires} (expired)"),
            Some(expires) => expires.to_string(),
        };
        rows.push(vec![
            info.name.clone(),
            format!("pcl_{}…", info.token_hint),
            info.allow.join(" "),
            if info.deny.is_empty() { "-".to_owned() } else { info.deny.join(" ") },
            effects.join(","),
            info.tools.as_str().to_owned(),
            info.created.to_string(),
            expires,
        ]);
    }
    print::table_out(&rows);
    if clients.is_empty() {
        print::note("No clients yet. Add one: portcullis clients add NAME");
    }
    Ok(ExitCode::SUCCESS)
}

fn revoke(ops: &Operations, name: &str, as_json: bool) -> Result<ExitCode> {
    let revoked = ops.revoke_client(name, &this_user())?;
    print::either(as_json, &json!({ "revoked": revoked.0.name }), revoked.sentence());
    Ok(ExitCode::SUCCESS)
}
