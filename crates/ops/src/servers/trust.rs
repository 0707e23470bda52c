//! Trust: review of what a server provides, and pinning of its definitions.

use super::{ReviewChoices, action, find_server};
use crate::config::McpServerSettings;
use crate::config::secret_detection::{shown_args, shown_url};
use crate::context::Operations;
use crate::desk::TrustServer;
use crate::mcp::ServerFactory;
use crate::{Actor, Problem};
use portcullis_core::json::printable;
use portcullis_store::pins::{
    DefinitionPin, PinDifference, ServerSnapshot, ToolReview, TrustedServer, differences, digest,
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The kind of a change in command or URL.
const IDENTITY: &str = "identity";
/// Effects that the record of a review names.
const RECORDED_EFFECTS_MAX: usize = 50;
/// Bytes of their text. A record is one line of the audit log, whose length is limited.
const RECORDED_EFFECTS_BYTES_MAX: usize = 16 * 1024;
/// Shown if both sides look alike.
const HIDDEN_DIFFERS: &str = "changed in a redacted part";

/// What a server provides now, against what was trusted.
pub struct ServerReview {
    pub trusted: Option<Arc<TrustedServer>>,
    /// Changes since then; everything if it is not trusted.
    pub differences: Vec<PinDifference>,
    /// The policy and the effects to propose.
    pub proposed: ToolReview,
}

impl ServerReview {
    pub fn of(name: &str, seen: &ServerSnapshot, factory: &ServerFactory) -> ServerReview {
        let trusted = factory.pins.of(name);
        let nothing = ServerSnapshot::default();
        let known = trusted.as_ref().map_or(&nothing, |trusted| &trusted.snapshot);
        let differences = differences(known, seen);
        let proposed = ToolReview::proposed(seen, trusted.as_deref());
        ServerReview { trusted, differences, proposed }
    }

    /// Returns whether exactly this is trusted.
    pub fn is_unchanged(&self) -> bool {
        self.trusted.is_some() && self.differences.is_empty()
    }

    /// Returns whether exactly this is trusted, with these choices.
    pub fn is_settled(&self, chosen: &ToolReview) -> bool {
        let known = self.trusted.as_ref().and_then(|trusted| trusted.review.as_ref());
        self.is_unchanged() && known == Some(chosen)
    }
}

/// What a running hub has seen of a server.
#[derive(Default)]
pub struct SeenServer {
    pub snapshot: Option<Arc<ServerSnapshot>>,
    /// Whether it still lists its definitions. Pinning a partial list would send the rest back to review.
    pub is_partial: bool,
}

/// A server that was trusted.
#[derive(Debug)]
pub struct ServerTrust {
    pub name: String,
    /// Whether the review enabled it.
    pub is_enabled_now: bool,
}

impl ServerTrust {
    /// Returns what was done, in one sentence.
    pub fn sentence(&self) -> String {
        trusted_sentence(&self.name, self.is_enabled_now)
    }
}

/// Adds the chosen effects to the details of a record: by tool, as far as the limits allow, and how many more there are.
fn name_effects<'a>(details: &mut Value, chosen: impl ExactSizeIterator<Item = (&'a str, &'a str)>) {
    let all = chosen.len();
    let mut named = Map::new();
    let mut bytes = 0;
    for (tool, effect) in chosen.take(RECORDED_EFFECTS_MAX) {
        let (tool, effect) = (printable(tool), printable(effect));
        bytes += tool.len() + effect.len();
        if bytes > RECORDED_EFFECTS_BYTES_MAX {
            break;
        }
        named.insert(tool, effect.into());
    }
    if all > named.len() {
        details["more_effects"] = (all - named.len()).into();
    }
    details["effects"] = named.into();
}

/// Digest of a snapshot, for optimistic concurrency.
pub fn snapshot_mark(seen: &ServerSnapshot) -> String {
    digest(&serde_json::to_string(seen).unwrap_or_default())
}

impl Operations {
    /// Pins what a person has reviewed, and enables a server that was disabled until then.
    pub fn trust_server(
        &self,
        server: &McpServerSettings,
        seen: &ServerSnapshot,
        chosen: ToolReview,
        by: &Actor,
    ) -> Result<ServerTrust, Problem> {
        let mut details =
            json!({ "name": server.name, "seen": snapshot_mark(seen), "policy": chosen.policy.as_str() });
        name_effects(
            &mut details,
            chosen.effects.iter().map(|(tool, reviewed)| (tool.as_str(), reviewed.effect.as_str())),
        );
        self.record(by, action::TRUST, details, || self.pin(server, seen, chosen, by))
    }

    /// As [`trust_server`](Self::trust_server), if the server still is what the person saw.
    pub fn trust_reviewed(
        &self,
        name: &str,
        seen: SeenServer,
        reviewed: &TrustServer,
        by: &Actor,
    ) -> Result<ServerTrust, Problem> {
        let effects = reviewed.effects.iter().map(|(tool, effect)| (tool.as_str(), effect.as_str()));
        let mut details = json!({ "name": name, "seen": reviewed.seen, "policy": reviewed.policy });
        name_effects(&mut details, effects.clone());
        self.record(by, action::TRUST, details, || {
            let choices = ReviewChoices::parse(reviewed.policy.as_deref(), effects)?;
            let config = self.config();
            let server = find_server(&config, name)?;
            if seen.is_partial {
                return Err(Problem::conflict(format!("`{name}` is still listing its tools")).hint(format!(
                    "retry in a moment, or run `portcullis mcp trust {name}`, which waits longer"
                )));
            }
            let seen = seen.snapshot.ok_or_else(|| {
                Problem::conflict(format!("`{name}` was not reviewed yet"))
                    .hint("connect and review it first")
            })?;
            if snapshot_mark(&seen) != reviewed.seen {
                return Err(Problem::changed(format!("`{name}` changed since it was shown"))
                    .hint("review it again, then decide"));
            }
            let before = self.server_factory()?.pins.of(name);
            let chosen = choices.apply(ToolReview::proposed(&seen, before.as_deref()), &seen)?;
            self.pin(server, &seen, chosen, by)
        })
    }

    fn pin(
        &self,
        server: &McpServerSettings,
        seen: &ServerSnapshot,
        chosen: ToolReview,
        by: &Actor,
    ) -> Result<ServerTrust, Problem> {
        let (factory, name) = (self.server_factory()?, server.name.clone());
        factory.activate_secrets(server).map_err(anyhow::Error::from)?;
        factory.pins.trust(&name, seen.clone(), chosen, &by.to_string()).map_err(anyhow::Error::from)?;
        let toggle = factory.toggles.of(&name);
        // A server disabled by a person stays disabled.
        if !toggle.unseen {
            return Ok(ServerTrust { name, is_enabled_now: false });
        }
        factory.toggles.mark_reviewed(&name).map_err(anyhow::Error::from)?;
        Ok(ServerTrust { name, is_enabled_now: toggle.enabled == Some(false) })
    }
}

/// Returns what was done, in one sentence.
pub fn trusted_sentence(name: &str, is_enabled_now: bool) -> String {
    let on = if is_enabled_now { " and enabled" } else { "" };
    format!("Server `{name}` is trusted{on}. Later changes need review.")
}

/// Returns the description of a definition, or its title.
pub fn definition_text(pin: &DefinitionPin) -> String {
    let value: Value = serde_json::from_str(&pin.definition).unwrap_or_default();
    value["description"].as_str().or(value["title"].as_str()).unwrap_or_default().to_owned()
}

/// Returns what became of a definition.
pub fn change_word(one: &PinDifference) -> &'static str {
    match (&one.before, &one.after) {
        (None, _) => "new",
        (_, None) => "gone",
        _ => "changed",
    }
}

/// Returns whether a change is in the command or URL, not in a definition. Such a value is shown as configured.
pub fn is_configured(kind: &str, name: &str) -> bool {
    kind == IDENTITY && ["command", "args", "url"].contains(&name)
}

/// Returns both sides of a change, redacted: a command or URL may contain secrets.
fn sides(one: &PinDifference) -> (Option<String>, Option<String>) {
    let args = |text: &str| {
        let args: Vec<String> = serde_json::from_str(text).unwrap_or_default();
        json!(shown_args(&args)).to_string()
    };
    let shown = |text: &Option<String>| match (one.kind, one.name.as_str(), text) {
        (IDENTITY, "args", Some(text)) => Some(args(text)),
        (IDENTITY, "url", Some(text)) => Some(shown_url(text)),
        (_, _, text) => text.clone(),
    };
    (shown(&one.before), shown(&one.after))
}

/// Returns a change as `--json` prints it; on demand with both sides.
pub fn difference_listing(one: &PinDifference, whole: bool) -> Value {
    let mut value = json!({ "kind": one.kind, "name": one.name, "change": change_word(one) });
    if whole {
        let (before, after) = sides(one);
        if before == after {
            value["note"] = HIDDEN_DIFFERS.into();
        }
        value["before"] = json!(before);
        value["after"] = json!(after);
    }
    value
}

/// As [`sides`], as indented JSON.
pub fn lines(one: &PinDifference) -> (Option<String>, Option<String>) {
    let (before, after) = sides(one);
    let is_hidden = before == after;
    let pretty = |side: Option<String>| side.map(|text| pretty(&text));
    let (before, mut after) = (pretty(before), pretty(after));
    if let Some(after) = after.as_mut().filter(|_| is_hidden) {
        after.push_str(&format!("({HIDDEN_DIFFERS})\n"));
    }
    (before, after)
}

/// Returns a definition as indented JSON, so that a change is a line of the diff.
fn pretty(text: &str) -> String {
    let lines = match serde_json::from_str::<Value>(text) {
        Ok(value @ (Value::Object(_) | Value::Array(_))) => format!("{value:#}"),
        _ => text.to_owned(),
    };
    format!("{lines}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_names_a_bounded_number_of_effects() {
        let mut details = json!({ "name": "shop" });
        name_effects(&mut details, [("get_*", "read"), ("pay", "destroy")].into_iter());
        assert_eq!(details, json!({ "name": "shop", "effects": { "get_*": "read", "pay": "destroy" } }));

        let tools: Vec<String> =
            (0..RECORDED_EFFECTS_MAX + 3).map(|number| format!("tool_{number}")).collect();
        let mut details = json!({});
        name_effects(&mut details, tools.iter().map(|tool| (tool.as_str(), "write")));
        assert_eq!(details["effects"].as_object().map(Map::len), Some(RECORDED_EFFECTS_MAX));
        assert_eq!(details["more_effects"], 3);

        // Each hidden character takes several bytes.
        let tools: Vec<String> =
            (0..RECORDED_EFFECTS_MAX).map(|number| format!("{number}{}", "\u{200b}".repeat(150))).collect();
        let mut details = json!({});
        name_effects(&mut details, tools.iter().map(|tool| (tool.as_str(), "write")));
        let named = details["effects"].as_object().map_or(0, Map::len);
        assert_eq!(details["more_effects"], RECORDED_EFFECTS_MAX - named);
        assert!(named > 0 && details.to_string().len() < 2 * RECORDED_EFFECTS_BYTES_MAX, "{named}");
    }
}
