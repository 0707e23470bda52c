//! What agents can call.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Tools {
    pub tools: Vec<ToolShown>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolShown {
    pub name: String,
    pub title: String,
    pub description: String,
    /// `read`, `create`, `write` or `destroy`.
    pub effect: String,
    /// `local` or `outside`.
    pub reach: String,
    /// Which family or server it belongs to.
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

/// A call that was made from here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tried {
    /// Its number in the audit log.
    pub call: u64,
    /// The exact request, as an agent would send it.
    pub request: Value,
    /// The exact reply, as an agent would get it.
    pub reply: Value,
    pub is_error: bool,
    /// `ok`, or the code of the error.
    pub outcome: String,
    pub decision: Option<String>,
    pub rule: Option<String>,
    pub duration_us: u64,
}
