//! Tools, and calls from the admin page.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ToolList {
    pub tools: Vec<ToolDetail>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolDetail {
    pub name: String,
    pub title: String,
    pub description: String,
    /// `read`, `create`, `write` or `destroy`.
    pub effect: String,
    /// `local` or `outside`.
    pub reach: String,
    /// Its tool family or upstream server.
    pub provider: String,
    /// A JSON schema.
    pub input_schema: Value,
    pub output_schema: Option<Value>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TryTool {
    pub arguments: Value,
}

/// Result of a call from the admin page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TryToolResult {
    /// Call ID in the audit log.
    pub call: u64,
    /// The exact request, as an agent would send it.
    pub request: Value,
    /// The exact response, as an agent would get it.
    pub reply: Value,
    pub is_error: bool,
    /// `ok` or the error code.
    pub outcome: String,
    pub decision: Option<String>,
    pub rule: Option<String>,
    pub duration_us: u64,
}
