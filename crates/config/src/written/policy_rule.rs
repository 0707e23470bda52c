//! A policy rule: `[[policy]]`.

use portcullis_core::Origin;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One rule. It matches a call if all its conditions match.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenPolicyRule {
    /// Globs over tools, resources and prompts.
    #[serde(default = "anything")]
    #[schemars(length(min = 1), example = ["workspace_*"])]
    pub(crate) tools: Vec<String>,
    /// Globs over clients.
    #[serde(default = "anything")]
    #[schemars(length(min = 1), example = ["laptop"])]
    pub(crate) clients: Vec<String>,
    /// Origin of the call: client, schedule, script, chat, engine, admin. To deny or ask, also of a call that it is nested in.
    #[serde(default = "all_origins")]
    #[schemars(length(min = 1))]
    pub(crate) origins: Vec<OriginName>,
    /// Effect of the call: read, create, write, destroy.
    #[serde(default = "all_effects")]
    #[schemars(length(min = 1))]
    pub(crate) effects: Vec<EffectName>,
    /// Reach of the call: local or outside; by default both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ReachName")]
    pub(crate) reach: Option<ReachName>,
    /// Labels of the call: any of private, untrusted and outward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<LabelName>", length(min = 1), example = ["private"])]
    pub(crate) labels: Option<Vec<LabelName>>,
    /// Hours in which the rule is active; the end is exclusive and may be on the next day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", example = &"22:00-06:00")]
    pub(crate) hours: Option<String>,
    /// Days on which the rule is active, or its hours begin: mon to sun, or ranges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>", length(min = 1), example = ["mon-fri"])]
    pub(crate) days: Option<Vec<String>>,
    /// When the rule expires: a timestamp, in the hub's time zone if it names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", example = &"2026-12-31T00:00:00Z")]
    pub(crate) until: Option<String>,
    /// Decision: allow, ask (needs approval) or deny.
    pub(crate) decision: DecisionName,
}

// The variants have no doc comments: with them, the schema would list each as a separate case.

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EffectName {
    Read,
    Create,
    Write,
    Destroy,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LabelName {
    Private,
    Untrusted,
    Outward,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OriginName {
    Client,
    Schedule,
    Script,
    Chat,
    Engine,
    Admin,
}

impl OriginName {
    /// Returns the name of an origin. Exhaustive, so that a new origin is not forgotten in the configuration.
    pub(crate) fn of(origin: Origin) -> OriginName {
        match origin {
            Origin::Client => OriginName::Client,
            Origin::Schedule => OriginName::Schedule,
            Origin::Script => OriginName::Script,
            Origin::Chat => OriginName::Chat,
            Origin::Engine => OriginName::Engine,
            Origin::Admin => OriginName::Admin,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ReachName {
    Local,
    Outside,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DecisionName {
    Allow,
    Ask,
    Deny,
}

pub(super) fn anything() -> Vec<String> {
    vec!["*".to_owned()]
}

pub(super) fn all_effects() -> Vec<EffectName> {
    vec![EffectName::Read, EffectName::Create, EffectName::Write, EffectName::Destroy]
}

fn all_origins() -> Vec<OriginName> {
    Origin::ALL.map(OriginName::of).to_vec()
}
