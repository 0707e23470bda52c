//! Scripts, approved by content hash.

use super::TextChange;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScriptList {
    pub scripts: Vec<ScriptBrief>,
}

/// What a script may use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptGrants {
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
    /// Hash of the current source. A decision must repeat it.
    pub sha256: String,
    /// Number of decisions so far. A decision repeats it, so that two administrators cannot overwrite each other.
    pub seen: usize,
    pub description: Option<String>,
    pub author: Option<String>,
    pub version: Option<String>,
    /// Requested grants.
    pub wanted: ScriptGrants,
    /// Approved grants.
    pub granted: ScriptGrants,
    /// The client that proposed it, if any.
    pub proposed_by: Option<String>,
    pub decided_by: Option<String>,
    pub decided_at: Option<Timestamp>,
    pub expires: Option<Timestamp>,
    /// Why it was rejected.
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScriptDetail {
    #[serde(flatten)]
    pub brief: ScriptBrief,
    pub text: String,
    /// Diff from the last approved version to the current source.
    pub change: Option<TextChange>,
    /// Newly requested grants.
    pub capabilities_added: ScriptGrants,
    /// Grants no longer requested.
    pub capabilities_removed: ScriptGrants,
    /// Why the source cannot run, if so.
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
    /// The decision on this version.
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
    /// `ok` or the error code.
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
    /// Hash of the version that was reviewed.
    pub sha256: String,
    /// Grants; at most the requested ones.
    pub grant: ScriptGrants,
    /// Lifetime, like `30d`. Default: never expires.
    #[serde(default)]
    pub expires: Option<String>,
    /// `seen` of the script that was reviewed.
    pub seen: usize,
    /// Whether the grants may exceed the requested ones. Only the command line offers it.
    #[serde(skip)]
    pub beyond_requested: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RejectScript {
    pub sha256: String,
    /// At most 500 characters.
    #[serde(default)]
    pub reason: Option<String>,
    /// `seen` of the script that was reviewed.
    pub seen: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SaveScript {
    pub text: String,
    /// Hash of the version that was edited; omitted for a new script.
    #[serde(default)]
    pub was: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreScript {
    pub sha256: String,
    /// Hash of the version that is replaced; omitted if there is none.
    #[serde(default)]
    pub was: Option<String>,
    /// `seen` of the script that was reviewed.
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
pub struct DryRunResult {
    pub value: Option<Value>,
    pub printed: String,
    pub problem: Option<ScriptProblem>,
    pub duration_us: u64,
}
