//! The configuration in force, to be read.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Settings {
    /// The file; nothing where there is none, and all is as by default.
    pub file: Option<String>,
    pub home: String,
    /// What the file says, with every secret masked.
    pub written: Value,
    /// What is wrong with the file as it is now, if the one in force is an older one.
    pub problem: Option<String>,
}
