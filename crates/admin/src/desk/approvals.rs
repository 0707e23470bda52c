//! Calls that wait for a person.

use super::{TextChange, ToolShown};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WantedApprovals {
    /// Also those that are decided or over.
    #[serde(default)]
    pub all: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Approvals {
    /// What waits oldest first; what is over newest first.
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
    /// The rule by which a person is asked.
    pub rule: String,
    pub asked: Timestamp,
    pub expires: Timestamp,
    /// As JSON over one line, without secrets, with nothing hidden in it.
    pub arguments: String,
    /// How many characters of them are not kept.
    pub arguments_left_out: usize,
    /// Of the exact call. A decision names it.
    pub digest: String,
    pub decided: Option<DecidedBy>,
    /// Whether a yes, or another one, may still be said.
    pub may_approve: bool,
    /// Whether a no may still be said; where it is approved, that takes the yes back.
    pub may_reject: bool,
    /// Whether it may be approved for a session.
    pub may_session: bool,
    /// Whether a rule may be written for it.
    pub may_always: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DecidedBy {
    pub at: Timestamp,
    pub by: String,
    /// `once` or `session`, if it was a yes.
    pub span: Option<String>,
    pub reason: Option<String>,
}

/// All there is to know before deciding.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalWhole {
    #[serde(flatten)]
    pub brief: ApprovalBrief,
    /// The arguments over several lines.
    pub arguments_pretty: String,
    /// Why a person is asked, in a sentence.
    pub why: String,
    /// The tool as it is now; nothing if it is gone, or is none.
    pub tool: Option<ToolShown>,
    /// Whether the tool is still what it was when it was asked about. If not, the call will not run.
    pub is_as_asked: bool,
    /// The last such call that was decided about.
    pub last_time: Option<LastTime>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastTime {
    pub id: String,
    pub state: String,
    pub decided: DecidedBy,
    /// From the arguments of then to those of now.
    pub arguments: TextChange,
    /// Whether the tool is defined as it was then.
    pub same_definition: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Decide {
    pub decision: Verdict,
    /// Told to the agent, with a no. At most 500 characters.
    #[serde(default)]
    pub reason: Option<String>,
    /// The digest of the call that was looked at.
    pub digest: String,
    /// When it had been decided (`decided.at`) as it was looked at; left out if nobody had. Only with it a no becomes a
    /// yes, and a yes that is not used up is taken back.
    #[serde(default)]
    pub seen: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// This exact call, one time.
    Once,
    /// This tool for this client, until its session ends.
    Session,
    /// From now on: a rule is written into the configuration.
    Always,
    Reject,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Decided {
    pub approval: ApprovalBrief,
    /// Where a rule was written.
    pub rule_written_to: Option<String>,
    /// What happened, in a sentence.
    pub said: String,
}
