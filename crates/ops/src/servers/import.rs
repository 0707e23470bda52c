//! Import of servers from other applications' configuration.

use super::action;
use crate::config::{Config, EditError, NewServer, add_servers, check_server, preview_servers};
use crate::config_file::edit_problem;
use crate::context::Operations;
use crate::home::environment;
use crate::secret_store::PassphrasePrompt;
use crate::secrets::new_key_warning;
use crate::{Actor, Problem};
use anyhow::{Context, anyhow};
use portcullis_core::Secret;
use portcullis_core::json::printable;
use portcullis_interop::import::{self, ImportEnvironment, ImportedFile, ImportedServer};
use portcullis_interop::install::{ClientFolders, Platform};
use portcullis_store::secrets::{Grant, KeyRequirement, SecretStore, check_strength, key_requirement};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Alternative names tried for a secret whose name is taken.
const NAMES_MAX: usize = 99;

/// Reads a file, for a person in the folder `project`.
pub fn read_file(path: &Path, project: Option<&Path>) -> Result<ImportedFile, String> {
    around(project, |around| import::read(path, around))
}

/// Reads a configuration that was pasted.
pub fn read_text(text: &str) -> Result<ImportedFile, String> {
    around(None, |around| import::of_text(Path::new("pasted text"), text, around))
}

/// Reads the files in the usual places.
pub fn read_usual_places(project: Option<&Path>) -> Vec<(PathBuf, Result<ImportedFile, String>)> {
    let places = ClientFolders::from_env(Platform::current(), &environment).ok();
    let paths = import::usual_places(places.as_ref(), project);
    let read = |path: PathBuf| {
        let found = read_file(&path, project);
        (path, found)
    };
    paths.into_iter().map(read).collect()
}

/// Reads with the environment of this process.
fn around<T>(project: Option<&Path>, read: impl FnOnce(&ImportEnvironment<'_>) -> T) -> T {
    let user_home = environment("HOME").map(PathBuf::from);
    let is_set = |name: &str| environment(name).is_some();
    read(&ImportEnvironment { user_home: user_home.as_deref(), project, is_set: &is_set })
}

/// Fails for a selected name that no file has, and lists the names.
pub fn check_names(files: &[ImportedFile], only: &[String]) -> Result<(), Problem> {
    let own = |found: &ImportedFile| {
        let skipped = found.skipped.iter().map(|(own, _)| own.clone());
        found.servers.iter().map(|server| server.own.clone()).chain(skipped).collect::<Vec<_>>()
    };
    let known: BTreeSet<String> = files.iter().flat_map(own).collect();
    let Some(missing) = only.iter().find(|name| !known.contains(*name)) else { return Ok(()) };
    let names: Vec<String> = known.iter().map(|name| format!("`{}`", printable(name))).collect();
    let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Err(Problem::invalid(format!("no such server: `{}`; found: {there}", printable(missing))))
}

/// Servers that were imported.
#[derive(Debug)]
pub struct ServerImport {
    /// The configuration file.
    pub path: PathBuf,
}

impl ServerImport {
    /// Returns what was done, and what is left to do.
    pub fn sentence(&self) -> String {
        format!("Imported to {}, all disabled. Review the servers, then trust them.", self.path.display())
    }
}

impl Operations {
    /// Skips servers that are not selected, already configured, or duplicates. Returns whether any is left.
    pub fn select_imports(&self, config: &Config, files: &mut [ImportedFile], only: &[String]) -> bool {
        for found in files.iter_mut() {
            self.choose(config, found, only);
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

    /// Skips servers that are not selected, already configured, or invalid.
    fn choose(&self, config: &Config, found: &mut ImportedFile, only: &[String]) {
        let (mut kept, mut skipped) = (Vec::new(), Vec::new());
        for server in std::mem::take(&mut found.servers) {
            if !only.is_empty() && !only.contains(&server.own) {
                continue;
            }
            if config.mcp.iter().any(|known| known.name == server.server.name) {
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

    /// Stores the secrets, then writes the servers, disabled until their review.
    pub fn import_servers(&self, files: &mut [ImportedFile], by: &Actor) -> Result<ServerImport, Problem> {
        let from: Vec<_> = files.iter().map(|found| found.path.display().to_string()).collect();
        let names: Vec<_> = servers_of(files).into_iter().map(|server| server.name).collect();
        self.record(by, action::IMPORT, json!({ "files": from, "names": names }), || {
            Ok(ServerImport { path: self.write_imported(files)? })
        })
    }

    fn write_imported(&self, files: &mut [ImportedFile]) -> Result<PathBuf, Problem> {
        for found in files.iter_mut() {
            let comment = format!("from {}", found.path.display());
            found.servers.iter_mut().for_each(|server| server.server.comment = Some(comment.clone()));
        }
        let lifted = || files.iter().flat_map(|found| &found.servers).flat_map(|server| &server.secrets);
        let (any, any_value) = (lifted().count() > 0, lifted().any(|secret| secret.value.is_some()));
        if any {
            let exists = key_requirement(self.database()) != KeyRequirement::None;
            let store = exists.then(|| self.unlock_secrets(PassphrasePrompt::ToOpen)).transpose()?;
            name_secrets(store.map(AsRef::as_ref), files)?;
        }
        // Validated before anything is stored, so that a failure leaves nothing half done.
        preview_servers(self.home.path(), &environment, &servers_of(files))
            .map_err(|error| with_secrets(error, files))?;
        if any_value {
            let store = self.unlock_secrets(PassphrasePrompt::ToMake)?;
            let had_key = store.key_file().is_none_or(Path::exists);
            for server in files.iter().flat_map(|found| &found.servers) {
                self.keep_secrets(store, server)?;
            }
            if let (false, Some(path)) = (had_key, store.key_file()) {
                self.warn(&new_key_warning(path));
            }
        }
        let new = servers_of(files);
        for server in &new {
            self.quarantine_server(&server.name)?;
        }
        let path = add_servers(self.home.path(), &environment, &new).map_err(import_problem)?;
        self.apply_secrets();
        Ok(path)
    }

    /// Stores the values.
    fn keep_secrets(&self, store: &SecretStore, imported: &ImportedServer) -> anyhow::Result<()> {
        for lifted in &imported.secrets {
            let (name, Some(value)) = (&lifted.name, &lifted.value) else { continue };
            let grant: Grant = lifted.grant.parse().with_context(|| format!("the grant of `{name}`"))?;
            let value = Secret::new(Zeroizing::new(value.expose().clone()));
            // Registered with the redactor once the server is trusted.
            store.set_pending(name, &value, grant)?;
            // Accepted anyway: the other application's file has it in plain text.
            if let Err(weak) = check_strength(name, value.expose()) {
                self.warn(&format!("Warning: {weak}."));
            }
        }
        Ok(())
    }
}

/// An entry that cannot be added is the fault of what is imported.
fn import_problem(error: EditError) -> Problem {
    match error {
        EditError::Taken(_) | EditError::Unknown(_) | EditError::ByHand { .. } => {
            Problem::invalid(error.to_string())
        }
        error => edit_problem(error),
    }
}

/// Lists the secrets to set by hand, for an entry that is added by hand.
fn with_secrets(error: EditError, files: &[ImportedFile]) -> Problem {
    let by_hand = matches!(error, EditError::ByHand { .. });
    let lifted = files.iter().flat_map(|found| &found.servers).flat_map(|server| &server.secrets);
    let commands: Vec<String> = lifted.map(|secret| format!("  {}", secret.command())).collect();
    if !by_hand || commands.is_empty() {
        return import_problem(error);
    }
    let why = "Nothing was stored. Set the secrets first:";
    Problem::invalid(format!("{error}{why}\n{}", commands.join("\n")))
}

fn servers_of(files: &[ImportedFile]) -> Vec<NewServer> {
    files.iter().flat_map(|found| &found.servers).map(|imported| imported.server.clone()).collect()
}

/// Chooses free, distinct secret names; a name taken by another value gets a number. A value to be set by hand counts as
/// different from any stored one.
fn name_secrets(store: Option<&SecretStore>, files: &mut [ImportedFile]) -> anyhow::Result<()> {
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
