//! Audit log: search, history of a call, verification.

use super::ApprovalBrief;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Omitted fields match everything.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SearchAudit {
    /// A glob.
    pub client: Option<String>,
    /// A glob.
    pub tool: Option<String>,
    /// An upstream server or native tool family.
    pub server: Option<String>,
    pub outcome: Option<String>,
    /// A duration before now (`30m`, `1h`, `7d`), or a timestamp.
    pub since: Option<String>,
    pub until: Option<String>,
    /// Substring of the record, ignoring case.
    pub text: Option<String>,
    /// A call ID.
    pub call: Option<u64>,
    /// Maximum number of records, 1 to 500. Default: 100.
    pub limit: Option<usize>,
    /// Cursor of the previous page.
    pub cursor: Option<String>,
    /// Return one record per call: its begin record, with the decision and outcome of its end record.
    pub calls: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditPage {
    /// Newest first.
    pub records: Vec<AuditRecord>,
    /// Cursor of the next page; null on the last.
    pub cursor: Option<String>,
    /// How many records were searched.
    pub searched: u64,
    pub took_us: u64,
}

/// One record of the log. Fields that a kind of record lacks are omitted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AuditRecord {
    pub seq: u64,
    pub time: String,
    /// `begin`, `end`, `call` for both in one, or `gap`, `file` and `torn`, which are about the log itself.
    pub phase: String,
    pub call: Option<u64>,
    pub client: String,
    pub origin: String,
    pub kind: String,
    pub target: String,
    pub effect: String,
    /// The arguments, redacted and truncated.
    pub args: Option<String>,
    /// The sequence number of the call's `begin` record.
    pub begin: Option<u64>,
    pub decision: Option<String>,
    pub rule: Option<String>,
    pub approval: Option<String>,
    pub outcome: Option<String>,
    pub bytes: Option<u64>,
    pub duration_us: Option<u64>,
    /// Keyed digest of the arguments.
    pub digest: Option<String>,
}

/// All records of one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallHistory {
    /// Oldest first.
    pub records: Vec<AuditRecord>,
    /// The approval that allowed it, if still stored.
    pub approval: Option<ApprovalBrief>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditVerification {
    /// Whether the hash chain is intact.
    pub intact: bool,
    /// `intact`, `modified`, or `unverifiable` if the log cannot be read.
    pub state: String,
    /// The result, in one sentence.
    pub said: String,
    pub checked: Timestamp,
    pub records: u64,
    pub files: u64,
    pub anchors: u64,
    /// The first record that was modified, or why the log cannot be verified.
    pub problem: Option<String>,
}
