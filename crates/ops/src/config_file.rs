//! Reading and editing the configuration file, with problems instead of its errors.

use crate::Problem;
use crate::config::{Config, EditError, LoadedConfig};
use crate::home::{Home, environment};

/// Loads the configuration file.
pub fn load(home: &Home) -> Result<LoadedConfig, Problem> {
    Config::load(home.path(), &environment).map_err(|errors| {
        Problem::conflict(format!("the configuration has errors: {errors}"))
            .hint("fix the file first; `portcullis doctor` lists the errors")
    })
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
