//! Reading and editing the configuration file, with problems instead of its errors.

use crate::change::ChangeRecorder;
use crate::config::{self, Config, ConfigEditLock, EditError, InitMode, InitOutcome, LoadedConfig};
use crate::home::{Home, environment};
use crate::{Actor, Problem};
use portcullis_guard::AuditSettings;
use serde_json::json;

/// Loads the configuration file.
pub fn load(home: &Home) -> Result<LoadedConfig, Problem> {
    Config::load(home.path(), &environment).map_err(|errors| {
        Problem::conflict(format!("the configuration has errors: {errors}"))
            .hint("fix the file first; `portcullis doctor` lists the errors")
    })
}

/// Writes, completes or replaces the configuration file. `warn` tells that the outcome was not recorded.
pub fn init(home: &Home, mode: InitMode, by: &Actor, warn: fn(&str)) -> Result<InitOutcome, Problem> {
    let make = || {
        // Waits for a concurrent edit.
        let editing = ConfigEditLock::of(home.path()).map_err(edit_problem)?;
        config::init(&editing, &environment, mode).map_err(edit_problem)
    };
    // An invalid configuration, which is replaced or left alone, does not say where the audit log is.
    let Ok(loaded) = Config::load(home.path(), &environment) else { return make() };
    let settings = AuditSettings::in_folder(&loaded.config.workspace.secure_dir());
    let changes = ChangeRecorder::Spool { settings, warn };
    changes.record(by, "init", json!({ "force": mode == InitMode::Replace }), make)
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
        EditError::OtherFormat(_)
        | EditError::Taken(_)
        | EditError::Form(_)
        | EditError::ByHand { .. }
        | EditError::Io { .. }
        | EditError::Held(_) => Problem::conflict(message),
    }
}
