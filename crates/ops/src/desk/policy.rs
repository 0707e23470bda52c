//! Policy rules, and the explanation of a decision.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyView {
    /// Version of the file. A change must repeat it.
    pub version: String,
    /// Time zone of hours and days.
    pub timezone: String,
    /// The first match wins.
    pub rules: Vec<RuleView>,
    /// The decisions if no rule matches.
    pub defaults: Vec<DefaultRule>,
    /// The client that `effective` is for: the one of local programs.
    pub effective_for: String,
    /// The decision on a call to each tool, by the same function that decides calls.
    pub effective: Vec<EffectiveRule>,
    /// Why the rules are read-only, if they are.
    pub read_only: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RuleView {
    /// Like `policy[0]`.
    pub name: String,
    /// Like `portcullis.toml:12`.
    pub place: Option<String>,
    #[serde(flatten)]
    pub rule: RuleText,
    /// Whether its hours, days and expiry make it active now.
    pub in_force: bool,
}

/// A rule as written. Empty or omitted fields match everything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RuleText {
    /// `allow`, `ask` or `deny`.
    pub decision: String,
    pub tools: Vec<String>,
    pub clients: Vec<String>,
    pub origins: Vec<String>,
    pub effects: Vec<String>,
    /// `local` or `outside`.
    pub reach: Option<String>,
    /// Like `22:00-06:00`.
    pub hours: Option<String>,
    /// Like `mon-fri`.
    pub days: Vec<String>,
    /// Like `2026-12-31T00:00:00Z`.
    pub until: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EffectiveRule {
    pub tool: String,
    /// The server that it comes from; null for the hub's own.
    pub server: Option<String>,
    pub effect: String,
    pub decision: String,
    /// The deciding rule, like `policy[0]`, `server:ask` or `default:read`.
    pub rule: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DefaultRule {
    pub name: String,
    pub decision: String,
    pub about: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TestPolicy {
    pub client: String,
    pub tool: String,
    #[serde(default)]
    pub arguments: Option<Value>,
    /// Default: `client`.
    #[serde(default)]
    pub origin: Option<String>,
    /// Default: now.
    #[serde(default)]
    pub at: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyExplanation {
    /// `allow`, `ask` or `deny`.
    pub decision: String,
    /// The deciding rule: one of the file, a default, `scope`, `unknown` or `identity`.
    pub rule: String,
    /// File and line of that rule.
    pub place: Option<String>,
    /// The explanation, in one sentence.
    pub why: String,
    /// Every rule up to the deciding one, and why it does not match.
    pub steps: Vec<PolicyStep>,
    /// Why the given arguments are invalid, if they are.
    pub arguments_problem: Option<String>,
    /// Similar names, if the tool is unknown.
    pub nearest: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyStep {
    pub rule: String,
    pub place: Option<String>,
    pub matches: bool,
    /// Which conditions do not match.
    pub why: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddRule {
    pub rule: RuleText,
    /// Index of the rule to insert before. Default: at the end.
    #[serde(default)]
    pub before: Option<usize>,
    pub version: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveRule {
    pub at: usize,
    pub version: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveRule {
    pub from: usize,
    /// The new index.
    pub to: usize,
    pub version: String,
}
