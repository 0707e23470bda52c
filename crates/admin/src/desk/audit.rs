//! What happened.

use super::ApprovalBrief;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is left out takes all.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SearchAudit {
    /// A glob.
    pub client: Option<String>,
    /// A glob.
    pub tool: Option<String>,
    pub outcome: Option<String>,
    /// So long ago (`30m`, `1h`, `7d`), or a date with a time.
    pub since: Option<String>,
    pub until: Option<String>,
    /// Stands anywhere in the record. Case is ignored.
    pub text: Option<String>,
    /// The number of a call.
    pub call: Option<u64>,
    /// How many records, 1 to 500; 100 if left out.
    pub limit: Option<usize>,
    /// Where the page before ended.
    pub cursor: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditPage {
    /// Newest first.
    pub records: Vec<AuditRecord>,
    /// For the next page; nothing if this is the last.
    pub cursor: Option<String>,
    /// How many records were looked at.
    pub searched: u64,
    pub took_us: u64,
}

/// One line of the log. What a kind of record does not have is left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AuditRecord {
    pub seq: u64,
    pub time: String,
    /// `begin`, `end`, or `gap`, `file` and `torn`, which are about the log itself.
    pub phase: String,
    pub call: Option<u64>,
    pub client: String,
    pub origin: String,
    pub kind: String,
    pub target: String,
    pub effect: String,
    /// The beginning of the arguments, without secrets.
    pub args: Option<String>,
    /// The number of the record with which the call began.
    pub begin: Option<u64>,
    pub decision: Option<String>,
    pub rule: Option<String>,
    pub approval: Option<String>,
    pub outcome: Option<String>,
    pub bytes: Option<u64>,
    pub duration_us: Option<u64>,
    /// A digest of the arguments, with a key.
    pub digest: Option<String>,
}

/// One call from its beginning to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Story {
    /// Oldest first.
    pub records: Vec<AuditRecord>,
    /// The approval that let it run, where it is still known.
    pub approval: Option<ApprovalBrief>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditVerified {
    /// Whether the log is as it was written.
    pub intact: bool,
    pub checked: Timestamp,
    pub records: u64,
    pub files: u64,
    pub anchors: u64,
    /// The first record that is not as it was written, or why the log cannot be checked.
    pub problem: Option<String>,
}
