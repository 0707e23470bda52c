//! Pinned definitions: what a server had when an administrator trusted it, without connecting to it.

use super::names::public_names;
use super::{RawCatalog, RawDefinition, expose};
use crate::spec::ServerSpec;
use crate::trust::Trust;
use portcullis_core::ToolDef;
use portcullis_store::pins::{PinKind, PinStatus, TrustedServer};
use serde_json::value::RawValue;
use std::sync::Arc;

/// Returns the tools that a server had when an administrator trusted it.
pub fn pinned_tools(spec: &ServerSpec) -> Vec<Arc<ToolDef>> {
    let Trust::Pinned(pins) = &spec.trust else { return Vec::new() };
    let Some(trusted) = pins.of(&spec.name) else { return Vec::new() };
    let said = trusted.snapshot.tools.iter().filter_map(|(own, pin)| {
        let raw = RawValue::from_string(pin.definition.clone()).ok()?;
        Some(RawDefinition { own: own.clone(), raw })
    });
    let offer = RawCatalog { tools: said.collect(), ..RawCatalog::default() };
    expose(&offer, spec, |_, _| PinStatus::Trusted, true).tools
}

/// Returns the public names of the tools and prompts that a server had when an administrator trusted it.
pub fn pinned_names(
    trusted: &TrustedServer,
    prefix: &str,
    rename: &[(String, String)],
    lists: impl Fn(&str) -> bool,
) -> (Vec<String>, Vec<String>) {
    let own = |kind| trusted.snapshot.pins(kind).keys().map(String::as_str);
    let tools = public_names(prefix, rename, own(PinKind::Tool).filter(|own| lists(own)));
    let prompts = public_names(prefix, &[], own(PinKind::Prompt));
    (tools.into_values().collect(), prompts.into_values().collect())
}
