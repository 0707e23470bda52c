//! The configuration in force, read-only.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SettingsView {
    /// The file; null if there is none and the defaults apply.
    pub file: Option<String>,
    pub home: String,
    /// Contents of the file, redacted.
    pub written: Value,
    /// The error in the file, if an older configuration is still in force.
    pub problem: Option<String>,
}
