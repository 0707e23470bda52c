//! Approvals: calls that need a decision by an administrator.

use super::{TextChange, ToolDetail};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalFilter {
    /// Include decided and expired approvals.
    #[serde(default)]
    pub all: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalList {
    /// Pending first, oldest first; then the others, newest first.
    pub approvals: Vec<ApprovalBrief>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalBrief {
    pub id: String,
    /// `pending`, `approved`, `rejected`, `used` or `expired`.
    pub state: String,
    pub client: String,
    pub origin: String,
    pub kind: String,
    pub target: String,
    pub effect: String,
    /// `local` or `outside`.
    pub reach: String,
    /// The rule that requires approval.
    pub rule: String,
    pub asked: Timestamp,
    pub expires: Timestamp,
    /// JSON on one line, redacted, with hidden characters escaped.
    pub arguments: String,
    /// How many characters were truncated.
    pub arguments_left_out: usize,
    /// The arguments as a person reads them: texts as blocks, a file write as a diff against the current file. Redacted;
    /// hidden characters are in it as they are.
    pub arguments_text: String,
    /// Digest of the exact call. A decision must repeat it.
    pub digest: String,
    pub decided: Option<DecisionInfo>,
    /// Whether it can still be approved.
    pub may_approve: bool,
    /// Whether it can still be rejected; for an approved call, that revokes the approval.
    pub may_reject: bool,
    /// Whether it can be approved for a session.
    pub may_session: bool,
    /// Whether it can become an allow rule.
    pub may_always: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DecisionInfo {
    pub at: Timestamp,
    pub by: String,
    /// `once` or `session`, if it was approved.
    pub span: Option<String>,
    pub reason: Option<String>,
}

/// An approval with everything needed for the decision.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalDetail {
    #[serde(flatten)]
    pub brief: ApprovalBrief,
    /// The arguments as indented JSON.
    pub arguments_pretty: String,
    /// Why the call needs approval, in one sentence.
    pub why: String,
    /// The current tool definition; null if the tool is gone or the call is not of a tool.
    pub tool: Option<ToolDetail>,
    /// Whether the tool definition is unchanged since the request. If not, the call will not run.
    pub is_as_asked: bool,
    /// The previous decision on the same client and tool.
    pub last_time: Option<PreviousDecision>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PreviousDecision {
    pub id: String,
    pub state: String,
    pub decided: DecisionInfo,
    /// Diff from the previous arguments to the current ones.
    pub arguments: TextChange,
    /// Whether the tool definition is unchanged since then.
    pub same_definition: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DecideApproval {
    pub decision: ApprovalChoice,
    /// Reason for a rejection, sent to the agent. At most 500 characters.
    #[serde(default)]
    pub reason: Option<String>,
    /// The digest of the call that was reviewed.
    pub digest: String,
    /// `decided.at` of the approval as it was reviewed; omitted if it was pending. Required to approve a rejected call
    /// or to revoke an unused approval.
    #[serde(default)]
    pub seen: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalChoice {
    /// This exact call, once.
    Once,
    /// This tool, for this client, until its session ends.
    Session,
    /// Always: adds an allow rule to the configuration.
    Always,
    Reject,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DecisionReceipt {
    pub approval: ApprovalBrief,
    /// The file that the rule was written to.
    pub rule_written_to: Option<String>,
    /// What was done, in one sentence.
    pub said: String,
}
