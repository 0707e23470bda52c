//! Scripts that a person approves by their content.

use super::TextChange;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Scripts {
    pub scripts: Vec<ScriptBrief>,
}

/// What a script may use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Capabilities {
    pub secrets: Vec<String>,
    pub hosts: Vec<String>,
    pub tools: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScriptBrief {
    /// Like `report.star`.
    pub name: String,
    /// `pending`, `approved`, `rejected` or `changed`.
    pub state: String,
    /// Of the bytes as they are now. A decision names it.
    pub sha256: String,
    /// How often it was decided about. Handed back with a decision, it shows that nobody else decided meanwhile.
    pub seen: usize,
    pub description: Option<String>,
    pub author: Option<String>,
    pub version: Option<String>,
    /// What the script asks for.
    pub wanted: Capabilities,
    /// What it was given.
    pub granted: Capabilities,
    /// The client that proposed it, where one did.
    pub proposed_by: Option<String>,
    pub decided_by: Option<String>,
    pub decided_at: Option<Timestamp>,
    pub expires: Option<Timestamp>,
    /// Why it was rejected.
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScriptWhole {
    #[serde(flatten)]
    pub brief: ScriptBrief,
    pub text: String,
    /// From the text that was approved last to the one of now.
    pub change: Option<TextChange>,
    /// What it asks for now and did not have.
    pub capabilities_added: Capabilities,
    /// What it had and does not ask for any more.
    pub capabilities_removed: Capabilities,
    /// What is wrong with the text, if it cannot run at all.
    pub problem: Option<ScriptProblem>,
    /// Newest first.
    pub versions: Vec<ScriptVersion>,
    /// Newest first.
    pub runs: Vec<ScriptRun>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScriptVersion {
    pub sha256: String,
    pub at: Timestamp,
    pub by: String,
    /// What was decided about it.
    pub state: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScriptText {
    pub sha256: String,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScriptRun {
    pub at: Timestamp,
    pub sha256: String,
    pub client: String,
    pub duration_us: u64,
    /// `ok`, or the code of the error.
    pub outcome: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScriptProblem {
    pub message: String,
    pub line: Option<u32>,
    pub column: Option<u32>,
    /// The lines around it.
    pub excerpt: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApproveScript {
    /// Of the bytes that were looked at.
    pub sha256: String,
    /// What it may use; never more than it asks for.
    pub grant: Capabilities,
    /// Like `30d`; for good, if left out.
    #[serde(default)]
    pub expires: Option<String>,
    /// As the script had it.
    pub seen: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RejectScript {
    pub sha256: String,
    /// At most 500 characters.
    #[serde(default)]
    pub reason: Option<String>,
    /// As the script had it.
    pub seen: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SaveScript {
    pub text: String,
    /// Of the bytes that were edited; nothing for a new script.
    #[serde(default)]
    pub was: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreScript {
    pub sha256: String,
    /// Of the bytes that were looked at, which it takes the place of; nothing if there were none.
    #[serde(default)]
    pub was: Option<String>,
    /// As the script had it.
    pub seen: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DryRun {
    pub text: String,
    #[serde(default)]
    pub function: Option<String>,
    #[serde(default)]
    pub args: Vec<Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DryRan {
    pub value: Option<Value>,
    pub printed: String,
    pub problem: Option<ScriptProblem>,
    pub duration_us: u64,
}
