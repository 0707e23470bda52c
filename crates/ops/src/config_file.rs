//! Reading and editing the configuration file, with problems instead of its errors.

use crate::change::ChangeRecorder;
use crate::config::{Config, ConfigEditLock, EditError, LoadedConfig, example};
use crate::home::{Home, environment};
use crate::{Actor, Problem};
use anyhow::{Context, anyhow};
use portcullis_guard::AuditSettings;
use serde_json::json;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Loads the configuration file.
pub fn load(home: &Home) -> Result<LoadedConfig, Problem> {
    Config::load(home.path(), &environment).map_err(|errors| {
        Problem::conflict(format!("the configuration has errors: {errors}"))
            .hint("fix the file first; `portcullis doctor` lists the errors")
    })
}

/// Writes a configuration file with comments. Returns its path. `warn` tells that the outcome was not recorded.
pub fn write_example(home: &Home, overwrite: bool, by: &Actor, warn: fn(&str)) -> anyhow::Result<PathBuf> {
    // An invalid configuration, which this replaces, does not say where the audit log is.
    let Ok(loaded) = Config::load(home.path(), &environment) else { return write(home, overwrite) };
    let settings = AuditSettings::in_folder(&loaded.config.workspace.secure_dir());
    let changes = ChangeRecorder::Spool { settings, warn };
    let details = json!({ "force": overwrite });
    Ok(changes.record(by, "init", details, || write(home, overwrite).map_err(Problem::from))?)
}

fn write(home: &Home, overwrite: bool) -> anyhow::Result<PathBuf> {
    let path = home.path().join("portcullis.toml");
    // Waits for a concurrent edit.
    let _editing = ConfigEditLock::of(home.path())?;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).mode(0o600);
    if overwrite {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    let mut file = options.open(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            anyhow!("`{}` already exists; edit it, or overwrite it with `--force`", path.display())
        }
        _ => anyhow!("cannot write `{}`: {error}", path.display()),
    })?;
    file.write_all(example().as_bytes()).and_then(|()| file.sync_all()).context("writing the file")?;
    Ok(path)
}

/// Why a server in the configuration was not changed: the file, or what the hub keeps about the server.
#[derive(Debug)]
pub enum ServerEditError {
    File(EditError),
    State(Problem),
}

impl From<EditError> for ServerEditError {
    fn from(error: EditError) -> ServerEditError {
        ServerEditError::File(error)
    }
}

impl From<Problem> for ServerEditError {
    fn from(problem: Problem) -> ServerEditError {
        ServerEditError::State(problem)
    }
}

impl From<anyhow::Error> for ServerEditError {
    fn from(error: anyhow::Error) -> ServerEditError {
        ServerEditError::State(error.into())
    }
}

impl From<ServerEditError> for Problem {
    fn from(error: ServerEditError) -> Problem {
        match error {
            ServerEditError::File(error) => edit_problem(error),
            ServerEditError::State(problem) => problem,
        }
    }
}

/// An edit that was not made.
pub fn edit_problem(error: EditError) -> Problem {
    let message = error.to_string();
    match error {
        EditError::Config(_) | EditError::Unfit { .. } => Problem::invalid(message),
        EditError::Unknown(_) => Problem::not_found(message),
        EditError::Changed(_) => Problem::changed(message),
        EditError::Taken(_)
        | EditError::Form(_)
        | EditError::ByHand { .. }
        | EditError::Io { .. }
        | EditError::Held(_) => Problem::conflict(message),
    }
}
