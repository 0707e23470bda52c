//! What is different between two texts, line by line.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TextChange {
    /// Nothing where there was none before.
    pub before: Option<String>,
    /// Nothing where there is none any more.
    pub after: Option<String>,
    /// Both together, in order.
    pub lines: Vec<DiffLine>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiffLine {
    pub how: DiffKind,
    /// Without its line end.
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiffKind {
    Same,
    Added,
    Removed,
}

impl DiffKind {
    pub fn as_str(self) -> &'static str {
        match self {
            DiffKind::Same => "same",
            DiffKind::Added => "added",
            DiffKind::Removed => "removed",
        }
    }
}
