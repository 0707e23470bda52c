//! Script store and sandbox of the command line and of the admin page.

use crate::config::Config;
use portcullis_store::database::Database;
use portcullis_tools::ScriptChecker;
use portcullis_tools::scripts::{ScriptSettings, ScriptStore, ScriptsSection};

/// Returns whether the hub has script tools.
pub fn is_enabled(config: &Config) -> bool {
    config.section::<ScriptsSection>().is_some_and(|settings| settings.enabled)
}

/// Opens the store of script decisions.
pub fn open(config: &Config, database: &Database) -> ScriptStore {
    settings(config).open_store(database)
}

/// The script desk of a command.
pub fn desk(config: &Config, database: &Database) -> ScriptChecker {
    settings(config).checker(database)
}

/// A hub may be built without the family.
fn settings(config: &Config) -> ScriptSettings {
    config.section::<ScriptsSection>().cloned().unwrap_or_else(ScriptSettings::off)
}
