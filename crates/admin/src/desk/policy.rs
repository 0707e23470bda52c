//! The rules, and what they make of a call.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyShown {
    /// Of the file. A change names it.
    pub version: String,
    /// Where hours and days are told.
    pub timezone: String,
    /// The first that matches wins.
    pub rules: Vec<RuleShown>,
    /// What holds where no rule matches.
    pub defaults: Vec<DefaultRule>,
    /// Why rules cannot be changed from here, if so.
    pub read_only: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RuleShown {
    /// Like `policy[0]`.
    pub name: String,
    /// Like `portcullis.toml:12`.
    pub place: Option<String>,
    #[serde(flatten)]
    pub rule: RuleText,
    /// Whether its hours, days and end let it speak now.
    pub in_force: bool,
}

/// A rule as it is written. What is empty or left out takes all.
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
    /// `client` if left out.
    #[serde(default)]
    pub origin: Option<String>,
    /// Now, if left out.
    #[serde(default)]
    pub at: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyAnswer {
    /// `allow`, `ask` or `deny`.
    pub decision: String,
    /// Which rule decides: a rule of the file, a default, `scope`, `unknown` or `identity`.
    pub rule: String,
    /// Where that rule stands.
    pub place: Option<String>,
    /// In a sentence.
    pub why: String,
    /// Every rule up to the one that decides, and why it does not match.
    pub steps: Vec<PolicyStep>,
    /// What is wrong with the arguments, if any were given.
    pub arguments_problem: Option<String>,
    /// Names like the one that nobody knows.
    pub nearest: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyStep {
    pub rule: String,
    pub place: Option<String>,
    pub matches: bool,
    /// Which of its parts do not match.
    pub why: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddRule {
    pub rule: RuleText,
    /// Before which rule it goes, by its number; after all others, if left out.
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
    /// The number that it has afterwards.
    pub to: usize,
    pub version: String,
}
