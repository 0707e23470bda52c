//! What a person decided about the tools of a server: the effect of each, and what a call gets where no rule matches.

use super::{DefinitionPin, ServerSnapshot, TrustedServer};
use portcullis_core::{DefaultDecision, Effect};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// What a call to a tool of a server gets where no rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrustPolicy {
    /// Reads are allowed, and a person is asked about everything else.
    #[default]
    AskChanges,
    Allow,
    Ask,
}

impl TrustPolicy {
    pub const ALL: [TrustPolicy; 3] = [TrustPolicy::AskChanges, TrustPolicy::Allow, TrustPolicy::Ask];

    pub fn as_str(self) -> &'static str {
        match self {
            TrustPolicy::AskChanges => "ask-changes",
            TrustPolicy::Allow => "allow",
            TrustPolicy::Ask => "ask",
        }
    }

    /// Returns the policy in words, for a person who chooses.
    pub fn label(self) -> &'static str {
        match self {
            TrustPolicy::AskChanges => "ask before changes",
            TrustPolicy::Allow => "allow everything",
            TrustPolicy::Ask => "ask always",
        }
    }

    /// Returns the decision about a tool with this effect.
    pub fn decision(self, effect: Effect) -> DefaultDecision {
        match self {
            TrustPolicy::AskChanges if effect.has_side_effects() => DefaultDecision::Ask,
            TrustPolicy::AskChanges | TrustPolicy::Allow => DefaultDecision::Allow,
            TrustPolicy::Ask => DefaultDecision::Ask,
        }
    }
}

impl fmt::Display for TrustPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for TrustPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<TrustPolicy, String> {
        TrustPolicy::ALL
            .into_iter()
            .find(|policy| policy.as_str() == text)
            .ok_or_else(|| format!("`{text}` is not a policy; expected ask-changes, allow or ask"))
    }
}

/// The hints that a definition advertises about its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AdvertisedHints {
    pub read_only: Option<bool>,
    pub destructive: Option<bool>,
}

impl AdvertisedHints {
    pub fn of(pin: &DefinitionPin) -> AdvertisedHints {
        let definition: Value = serde_json::from_str(&pin.definition).unwrap_or_default();
        let hint = |name: &str| definition["annotations"][name].as_bool();
        AdvertisedHints { read_only: hint("readOnlyHint"), destructive: hint("destructiveHint") }
    }

    /// Returns the effect to propose. A tool without hints may do anything, and where they contradict, the worse counts.
    pub fn effect(self) -> Effect {
        match (self.read_only, self.destructive) {
            (Some(true), Some(true)) => Effect::Destroy,
            (Some(true), _) => Effect::Read,
            (_, Some(false)) => Effect::Write,
            _ => Effect::Destroy,
        }
    }
}

impl fmt::Display for AdvertisedHints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |hint: Option<bool>, yes: &'static str, no: &'static str| {
            hint.map(|hint| if hint { yes } else { no })
        };
        let hints = [
            said(self.read_only, "read-only", "changes things"),
            said(self.destructive, "destructive", "not destructive"),
        ];
        let hints: Vec<&str> = hints.into_iter().flatten().collect();
        f.write_str(if hints.is_empty() { "nothing" } else { "" })?;
        f.write_str(&hints.join(", "))
    }
}

/// The effect of one tool, for exactly one definition of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewedEffect {
    /// The definition, as in its pin. A program that does not know reviews may have pinned another one since.
    pub sha256: String,
    #[serde(serialize_with = "write_effect", deserialize_with = "read_effect")]
    pub effect: Effect,
}

fn write_effect<S: Serializer>(effect: &Effect, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(effect.as_str())
}

/// An effect of a newer program counts as the worst.
fn read_effect<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Effect, D::Error> {
    Ok(String::deserialize(deserializer)?.parse().unwrap_or(Effect::Destroy))
}

/// What a person decided about the tools of a server when trusting it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ToolReview {
    pub policy: TrustPolicy,
    /// By the server's names.
    #[serde(default)]
    pub effects: BTreeMap<String, ReviewedEffect>,
}

impl ToolReview {
    /// Returns what to propose for a server: what was chosen before for definitions that are the same, and the
    /// advertised effect for the others. A definition that changed is not proposed below what was chosen for its name: a
    /// server that changes its words does not undo the choice of a person.
    pub fn proposed(seen: &ServerSnapshot, before: Option<&TrustedServer>) -> ToolReview {
        let policy = before.and_then(|before| before.review.as_ref()).map(|review| review.policy);
        let effects = seen.tools.iter().map(|(name, pin)| {
            let advertised = AdvertisedHints::of(pin).effect();
            let effect = match before.and_then(|before| before.review.as_ref()?.effects.get(name)) {
                Some(chosen) if chosen.sha256 == pin.sha256 => chosen.effect,
                Some(chosen) => chosen.effect.max(advertised),
                None => advertised,
            };
            (name.clone(), ReviewedEffect { sha256: pin.sha256.clone(), effect })
        });
        ToolReview { policy: policy.unwrap_or_default(), effects: effects.collect() }
    }
}

impl TrustedServer {
    /// Returns the effect that a person chose for a tool as it is pinned.
    pub fn reviewed_effect(&self, tool: &str) -> Option<Effect> {
        let reviewed = self.review.as_ref()?.effects.get(tool)?;
        let pin = self.snapshot.tools.get(tool)?;
        (reviewed.sha256 == pin.sha256).then_some(reviewed.effect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use serde_json::json;

    fn pin(annotations: &Value) -> DefinitionPin {
        let definition = json!({ "name": "pay", "inputSchema": {}, "annotations": annotations });
        DefinitionPin::of(&definition.to_string()).unwrap()
    }

    fn seen(annotations: &Value) -> ServerSnapshot {
        let tools = BTreeMap::from([("pay".to_owned(), pin(annotations))]);
        ServerSnapshot { tools, ..ServerSnapshot::default() }
    }

    fn trusted(seen: &ServerSnapshot, review: Option<ToolReview>) -> TrustedServer {
        TrustedServer { since: Timestamp::default(), by: "me".to_owned(), snapshot: seen.clone(), review }
    }

    #[test]
    fn the_proposed_effect_follows_the_annotations_and_is_the_worst_without() {
        for (annotations, expected, words) in [
            (json!(null), Effect::Destroy, "nothing"),
            (json!({ "title": "Pay" }), Effect::Destroy, "nothing"),
            (json!({ "readOnlyHint": true }), Effect::Read, "read-only"),
            (json!({ "readOnlyHint": "true" }), Effect::Destroy, "nothing"),
            (json!({ "readOnlyHint": false }), Effect::Destroy, "changes things"),
            (json!({ "destructiveHint": false }), Effect::Write, "not destructive"),
            (
                json!({ "readOnlyHint": false, "destructiveHint": false }),
                Effect::Write,
                "changes things, not destructive",
            ),
            (
                json!({ "readOnlyHint": true, "destructiveHint": true }),
                Effect::Destroy,
                "read-only, destructive",
            ),
            (json!({ "destructiveHint": true }), Effect::Destroy, "destructive"),
        ] {
            let hints = AdvertisedHints::of(&pin(&annotations));
            assert_eq!((hints.effect(), hints.to_string().as_str()), (expected, words), "{annotations}");
        }
    }

    #[test]
    fn only_reads_are_allowed_unasked_unless_a_person_chose_so() {
        use DefaultDecision::{Allow, Ask};
        let decisions = TrustPolicy::ALL.map(|policy| Effect::ALL.map(|effect| policy.decision(effect)));
        assert_eq!(decisions, [[Allow, Ask, Ask, Ask], [Allow; 4], [Ask; 4]]);
        assert_eq!(TrustPolicy::default(), TrustPolicy::AskChanges);
        for policy in TrustPolicy::ALL {
            assert_eq!(policy.as_str().parse(), Ok(policy));
            assert_eq!(json!(policy), policy.as_str());
        }
    }

    #[test]
    fn a_choice_holds_for_the_definition_that_was_seen() {
        let first = seen(&json!({}));
        let mut review = ToolReview::proposed(&first, None);
        assert_eq!(review.effects["pay"].effect, Effect::Destroy);
        review.effects.get_mut("pay").unwrap().effect = Effect::Create;
        review.policy = TrustPolicy::Allow;
        let before = trusted(&first, Some(review.clone()));
        assert_eq!(before.reviewed_effect("pay"), Some(Effect::Create));
        assert_eq!(ToolReview::proposed(&first, Some(&before)), review);
        // A changed annotation is a changed definition.
        let now = seen(&json!({ "readOnlyHint": true }));
        let proposed = ToolReview::proposed(&now, Some(&before));
        assert_eq!((proposed.policy, proposed.effects["pay"].effect), (TrustPolicy::Allow, Effect::Create));
        // One that says worse than what was chosen counts.
        let worse = ToolReview::proposed(&seen(&json!({ "destructiveHint": true })), Some(&before));
        assert_eq!(worse.effects["pay"].effect, Effect::Destroy);
        let other = trusted(&now, Some(review));
        assert_eq!((other.reviewed_effect("pay"), other.reviewed_effect("see")), (None, None));
        assert_eq!(trusted(&now, None).reviewed_effect("pay"), None);
    }

    #[test]
    fn rows_of_earlier_and_later_programs_are_read() {
        let old = json!({ "since": "2026-01-01T00:00:00Z", "by": "me", "as_it_was": seen(&json!({})) });
        let old: TrustedServer = serde_json::from_value(old).unwrap();
        assert_eq!(old.review, None);
        assert!(!json!(old).as_object().unwrap().contains_key("review"));
        let new =
            json!({ "policy": "ask", "more": 1, "effects": { "pay": { "sha256": "x", "effect": "erase" } } });
        let new: ToolReview = serde_json::from_value(new).unwrap();
        assert_eq!((new.policy, new.effects["pay"].effect), (TrustPolicy::Ask, Effect::Destroy));
    }
}
