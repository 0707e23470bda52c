//! `portcullis mcp import`: servers from other applications' configuration.

use super::{McpCommandContext, explained};
use crate::cli::McpImportArgs;
use crate::commands::environment;
use crate::config::{EditError, NewServer, add_servers, check_server, preview_servers};
use crate::database;
use crate::import::{self, ImportEnvironment, ImportedFile, ImportedServer};
use crate::install::{ClientFolders, Platform};
use crate::passphrase::PassphrasePrompt;
use crate::{BadUsage, print};
use anyhow::{Context, Result, anyhow};
use portcullis_core::json::printable;
use portcullis_core::{Secret, SystemClock};
use portcullis_store::secrets::{Grant, KeyRequirement, SecretStore, check_strength, key_requirement};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Alternative names tried for a secret whose name is taken.
const NAMES_MAX: usize = 99;

/// An unreadable file and the reason.
type UnreadableFile = (PathBuf, String);

impl McpCommandContext {
    pub(super) fn import(&self, args: &McpImportArgs) -> Result<ExitCode> {
        let (mut files, unreadable) = self.files(args)?;
        check_names(&files, &args.only)?;
        let any = self.settle(&mut files, &args.only);
        let written = if args.yes && any { Some(self.take_over(&mut files, None)?) } else { None };
        self.tell(&files, &unreadable, written.as_deref());
        Ok(ExitCode::SUCCESS)
    }

    /// Skips servers that are not selected, already configured, or duplicates. Returns whether any is left.
    pub(crate) fn settle(&self, files: &mut [ImportedFile], only: &[String]) -> bool {
        for found in files.iter_mut() {
            self.choose(found, only);
        }
        // The same name in several files is one server; the first wins.
        let mut taken: Vec<String> = Vec::new();
        for found in files.iter_mut() {
            let (mut kept, mut skipped) = (Vec::new(), Vec::new());
            for server in std::mem::take(&mut found.servers) {
                if taken.contains(&server.server.name) {
                    skipped
                        .push((server.own, "duplicate: another file has a server of this name".to_owned()));
                } else {
                    taken.push(server.server.name.clone());
                    kept.push(server);
                }
            }
            found.servers = kept;
            found.skipped.extend(skipped);
        }
        !taken.is_empty()
    }

    /// Returns the readable files, and the unreadable ones with reasons.
    fn files(&self, args: &McpImportArgs) -> Result<(Vec<ImportedFile>, Vec<UnreadableFile>)> {
        let project = std::env::current_dir().ok();
        if let Some(path) = &args.file {
            let found = around(project.as_deref(), |around| import::read(path, around))
                .map_err(|why| BadUsage(format!("cannot import `{}`: {why}", path.display())))?;
            return Ok((vec![found], Vec::new()));
        }
        let (mut files, mut unreadable) = (Vec::new(), Vec::new());
        for (path, found) in in_usual_places(project.as_deref()) {
            match found {
                Ok(found) => files.push(found),
                Err(why) => unreadable.push((path, why)),
            }
        }
        Ok((files, unreadable))
    }

    /// Skips servers that are not selected, already configured, or invalid.
    fn choose(&self, found: &mut ImportedFile, only: &[String]) {
        let (mut kept, mut skipped) = (Vec::new(), Vec::new());
        for server in std::mem::take(&mut found.servers) {
            if !only.is_empty() && !only.contains(&server.own) {
                continue;
            }
            if self.config.mcp.iter().any(|known| known.name == server.server.name) {
                skipped.push((server.own, "a server of this name already exists".to_owned()));
                continue;
            }
            // Checked one by one: an invalid server must not block the others.
            match check_server(self.home.path(), &environment, &server.server) {
                // Checked before anything is stored, to avoid a partial import.
                Ok(()) => match check_grants(&server) {
                    Ok(()) => kept.push(server),
                    Err(why) => skipped.push((server.own, why)),
                },
                Err(EditError::Unfit { why, .. }) => skipped.push((server.own, why)),
                Err(other) => skipped.push((server.own, other.to_string())),
            }
        }
        found.servers = kept;
        found.skipped.extend(skipped);
    }

    /// Writes secrets, then the servers, disabled. Returns the file. A hub passes its own store.
    pub(crate) fn take_over(
        &self,
        files: &mut [ImportedFile],
        store: Option<Arc<SecretStore>>,
    ) -> Result<PathBuf> {
        for found in files.iter_mut() {
            let comment = format!("from {}", found.path.display());
            found.servers.iter_mut().for_each(|server| server.server.comment = Some(comment.clone()));
        }
        let lifted = || files.iter().flat_map(|found| &found.servers).flat_map(|server| &server.secrets);
        let (any, any_value) = (lifted().count() > 0, lifted().any(|secret| secret.value.is_some()));
        let open = |asking| -> Result<Arc<SecretStore>> {
            let (database, clock) = (database::open(&self.config)?, Arc::new(SystemClock));
            Ok(Arc::new(crate::passphrase::open_secrets(&self.home, &self.config, &database, clock, asking)?))
        };
        let exists = key_requirement(&database::open_to_look(&self.config)?) != KeyRequirement::None;
        let store = match store {
            None if any && exists => Some(open(PassphrasePrompt::ToOpen)?),
            given => given,
        };
        if any {
            name_secrets(store.as_deref(), files)?;
        }
        // Validated before anything is stored, so that a failure leaves nothing half done.
        preview_servers(self.home.path(), &environment, &servers_of(files))
            .map_err(|error| with_secrets(error, files))?;
        let makers = self.makers(false)?;
        if any_value {
            let store = store.map_or_else(|| open(PassphrasePrompt::ToMake), Ok)?;
            let had_key = store.key_file().is_none_or(Path::exists);
            for server in files.iter().flat_map(|found| &found.servers) {
                keep_secrets(&store, server)?;
            }
            if let (false, Some(path)) = (had_key, store.key_file()) {
                let place = path.display();
                print::note(format!(
                    "Created the key `{place}`. Without it the secrets are lost: keep a backup, separate from the data."
                ));
            }
        }
        let new = servers_of(files);
        // Disabled before they are configured: a running hub must not start one in between.
        for server in &new {
            makers.pins.revoke(&server.name)?;
            makers.toggles.quarantine(&server.name)?;
        }
        add_servers(self.home.path(), &environment, &new).map_err(explained)
    }

    fn tell(&self, files: &[ImportedFile], unreadable: &[UnreadableFile], written: Option<&Path>) {
        if self.as_json {
            let files: Vec<Value> = files.iter().map(shown).collect();
            let unreadable: Vec<Value> =
                unreadable.iter().map(|(path, why)| json!({ "path": path, "why": why })).collect();
            print::configured_json(
                &json!({ "files": files, "unreadable": unreadable, "written_to": written }),
            );
            return;
        }
        for (path, why) in unreadable {
            print::note(format!("{}: {why}", path.display()));
        }
        for found in files {
            print::line(format!("{}:", found.path.display()));
            for server in &found.servers {
                let entry = server.server.shown().written().replace('\n', "\n    ");
                print::configured(format!("    {}\n", entry.trim_end()));
                print::out(details(server));
            }
            for (own, why) in &found.skipped {
                print::line(format!("  {} skipped: {why}", printable(own)));
            }
            if found.servers.is_empty() && found.skipped.is_empty() {
                print::line("  no servers");
            }
            for note in &found.notes {
                print::line(format!("  note: {note}"));
            }
        }
        let count: usize = files.iter().map(|found| found.servers.len()).sum();
        match written {
            Some(path) => {
                print::line(format!(
                    "\nImported to {}, all disabled. To review and enable one:",
                    path.display()
                ));
                for server in files.iter().flat_map(|found| &found.servers) {
                    print::line(format!("  portcullis mcp trust {}", server.server.name));
                }
            }
            None if files.is_empty() => print::note(
                "No configuration found in the usual places. Name a file: portcullis mcp import FILE",
            ),
            None if count > 0 => print::note("Dry run: nothing was written. To import, pass `--yes`."),
            None => print::note("No servers to import."),
        }
    }
}

/// Reads the files in the usual places.
pub(crate) fn in_usual_places(project: Option<&Path>) -> Vec<(PathBuf, Result<ImportedFile, String>)> {
    let places = ClientFolders::from_env(Platform::current(), &environment).ok();
    let paths = import::usual_places(places.as_ref(), project);
    let read = |path: PathBuf| {
        let found = around(project, |around| import::read(&path, around));
        (path, found)
    };
    paths.into_iter().map(read).collect()
}

/// Reads with the environment of this process.
pub(crate) fn around<T>(project: Option<&Path>, read: impl FnOnce(&ImportEnvironment<'_>) -> T) -> T {
    let user_home = environment("HOME").map(PathBuf::from);
    let is_set = |name: &str| environment(name).is_some();
    read(&ImportEnvironment { user_home: user_home.as_deref(), project, is_set: &is_set })
}

/// Fails for a selected name that no file has, and lists the names.
fn check_names(files: &[ImportedFile], only: &[String]) -> Result<()> {
    let own = |found: &ImportedFile| {
        let skipped = found.skipped.iter().map(|(own, _)| own.clone());
        found.servers.iter().map(|server| server.own.clone()).chain(skipped).collect::<Vec<_>>()
    };
    let known: BTreeSet<String> = files.iter().flat_map(own).collect();
    let Some(missing) = only.iter().find(|name| !known.contains(*name)) else { return Ok(()) };
    let names: Vec<String> = known.iter().map(|name| format!("`{}`", printable(name))).collect();
    let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Err(BadUsage(format!("no such server: `{}`; found: {there}", printable(missing))).into())
}

/// Lists the secrets to set by hand, for an entry that is added by hand.
fn with_secrets(error: EditError, files: &[ImportedFile]) -> anyhow::Error {
    let by_hand = matches!(error, EditError::ByHand { .. });
    let lifted = files.iter().flat_map(|found| &found.servers).flat_map(|server| &server.secrets);
    let commands: Vec<String> = lifted.map(|secret| format!("  {}", secret.command())).collect();
    if !by_hand || commands.is_empty() {
        return explained(error);
    }
    let why = "Nothing was stored. Set the secrets first:";
    BadUsage(format!("{error}{why}\n{}", commands.join("\n"))).into()
}

fn servers_of(files: &[ImportedFile]) -> Vec<NewServer> {
    files.iter().flat_map(|found| &found.servers).map(|imported| imported.server.clone()).collect()
}

/// Chooses free, distinct secret names; a name taken by another value gets a number. A value to be set by hand counts as
/// different from any stored one.
fn name_secrets(store: Option<&SecretStore>, files: &mut [ImportedFile]) -> Result<()> {
    let own = |value: &Secret<String>| Secret::new(value.expose().clone());
    let known = store.map_or_else(|| Ok(Vec::new()), SecretStore::all_with_pending)?;
    let mut taken: Vec<(String, Option<Secret<String>>)> =
        known.into_iter().map(|(name, value)| (name, Some(value))).collect();
    for ImportedServer { server, secrets, .. } in files.iter_mut().flat_map(|found| &mut found.servers) {
        for lifted in secrets {
            let is_same = |other: &Option<Secret<String>>| match (other, &lifted.value) {
                (Some(other), Some(value)) => other.expose() == value.expose(),
                _ => false,
            };
            let is_free = |name: &String| taken.iter().all(|(known, value)| known != name || is_same(value));
            let numbered = (2..=NAMES_MAX).map(|number| format!("{}_{number}", lifted.name));
            let name = std::iter::once(lifted.name.clone()).chain(numbered).find(is_free);
            let name = name.ok_or_else(|| anyhow!("no free name for the secret `{}`", lifted.name))?;
            taken.push((name.clone(), lifted.value.as_ref().map(own)));
            lifted.rename(server, name);
        }
    }
    Ok(())
}

/// Explains a value that cannot become a secret because its host cannot be granted.
fn check_grants(imported: &ImportedServer) -> Result<(), String> {
    for lifted in &imported.secrets {
        lifted.grant.parse::<Grant>().map_err(|error| {
            format!("the value of `{}` cannot be stored as a secret: {error}", printable(&lifted.key))
        })?;
    }
    Ok(())
}

/// Stores the values.
fn keep_secrets(store: &SecretStore, imported: &ImportedServer) -> Result<()> {
    for lifted in &imported.secrets {
        let (name, Some(value)) = (&lifted.name, &lifted.value) else { continue };
        let grant: Grant = lifted.grant.parse().with_context(|| format!("the grant of `{name}`"))?;
        let value = Secret::new(Zeroizing::new(value.expose().clone()));
        // Registered with the redactor once the server is trusted.
        store.set_pending(name, &value, grant)?;
        // Accepted anyway: the other application's file has it in plain text.
        if let Err(weak) = check_strength(name, value.expose()) {
            print::note(format!("Warning: {weak}."));
        }
    }
    Ok(())
}

/// Describes the secrets and notes of an imported server.
fn details(imported: &ImportedServer) -> String {
    let mut text = String::new();
    for secret in imported.secrets.iter().filter(|secret| secret.value.is_some()) {
        text.push_str(&format!(
            "    {}: value moves to the secret store as {}\n",
            printable(&secret.key),
            secret.name
        ));
    }
    for note in imported.all_notes() {
        text.push_str(&format!("    note: {note}\n"));
    }
    text
}

fn shown(found: &ImportedFile) -> Value {
    let servers = found.servers.iter().map(|imported| {
        let server = imported.server.shown();
        // As configured: true, or the settings.
        let oauth = server.oauth.as_ref().map(|settings| match settings.as_slice() {
            [] => Value::from(true),
            settings => settings.iter().cloned().collect(),
        });
        json!({
            "name": server.name,
            "own_name": imported.own,
            "command": server.command,
            "args": server.args,
            "cwd": server.cwd,
            "url": server.url,
            "env": server.env.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
            "headers": server.headers.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
            "oauth": oauth,
            "timeout_ms": server.timeout_ms,
            "secrets": imported.secrets.iter().map(|secret| json!({
                "key": secret.key, "secret": secret.name, "has_value": secret.value.is_some(), "grant": secret.grant,
            })).collect::<Vec<_>>(),
            "notes": imported.all_notes(),
        })
    });
    json!({
        "path": found.path,
        "notes": found.notes,
        "servers": servers.collect::<Vec<_>>(),
        "skipped": found.skipped.iter().map(|(own, why)| json!({ "name": own, "why": why })).collect::<Vec<_>>(),
    })
}
