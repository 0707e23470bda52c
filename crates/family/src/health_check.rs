//! Health checks of a home, each with a fix.

use crate::section::{ConfigSection, Sections};
use crate::workspace_settings::WorkspaceSettings;
use portcullis_egress::AllowlistEntry;
use portcullis_store::database::Database;
use portcullis_store::secrets::SecretStore;
use serde_json::{Value, json};

/// Result of one check.
#[derive(Debug)]
pub struct HealthCheck {
    pub what: &'static str,
    pub state: CheckState,
}

impl HealthCheck {
    /// Returns the check as `--json` prints it.
    pub fn listing(&self) -> Value {
        match &self.state {
            CheckState::Good(text) => json!({ "what": self.what, "status": "ok", "detail": text }),
            CheckState::Warning(text) => json!({ "what": self.what, "status": "warning", "detail": text }),
            CheckState::Bad { problem, advice } => {
                json!({ "what": self.what, "status": "problem", "detail": problem, "advice": advice })
            }
        }
    }
}

#[derive(Debug)]
pub enum CheckState {
    Good(String),
    /// Works, but needs attention.
    Warning(String),
    Bad {
        problem: String,
        advice: String,
    },
}

/// What to do about rows that cannot be read.
const RESTORE: &str = "`portcullis store check` says more; stop the hub and restore a backup";

impl CheckState {
    pub fn bad(problem: impl Into<String>, advice: impl Into<String>) -> CheckState {
        CheckState::Bad { problem: problem.into(), advice: advice.into() }
    }

    /// Rows of the database that cannot be read.
    pub fn unreadable(problem: impl Into<String>) -> CheckState {
        CheckState::bad(problem, RESTORE)
    }

    /// Names what was checked.
    pub fn of(self, what: &'static str) -> HealthCheck {
        HealthCheck { what, state: self }
    }
}

/// What the checks of a family look at.
pub struct DoctorParts<'a> {
    pub sections: &'a Sections,
    pub workspace: &'a WorkspaceSettings,
    /// Non-public addresses that the hub may connect to.
    pub egress_exceptions: &'a [AllowlistEntry],
    /// The secret store, or why it cannot be opened.
    pub secrets: Result<&'a SecretStore, &'a str>,
    /// The database, or why it cannot be opened. A home without one has an empty one here.
    pub database: Result<&'a Database, &'a str>,
}

impl DoctorParts<'_> {
    /// Returns the settings of a section; `None` if the section turns its family on and is missing.
    pub fn section<S: ConfigSection>(&self) -> Option<&S::Settings> {
        self.sections.get::<S>()
    }
}
