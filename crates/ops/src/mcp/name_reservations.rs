//! Tool names of servers, reserved before they connect.

use crate::config::{Config, McpServerSettings};
use portcullis_core::NameReservation;
use portcullis_store::pins::PinStore;
use portcullis_upstream::pinned_names;

/// Returns the configured servers, and the tool names reserved for them before they connect.
pub fn name_reservations(config: &Config, pins: &PinStore) -> Vec<NameReservation> {
    let expected = config.mcp.iter().map(|server| {
        let McpServerSettings { prefix, rename, allow, deny, .. } = server;
        let trusted = if server.always_trusted { None } else { pins.of(&server.name) };
        let lists = |own: &str| allow.matches(own) && !deny.as_ref().is_some_and(|deny| deny.matches(own));
        let names = trusted.map(|trusted| pinned_names(&trusted, prefix, rename, lists));
        let (tools, prompts) = names.unwrap_or_default();
        let naming = format!("{:?}", (prefix, rename, allow, deny));
        NameReservation { server: server.name.clone(), prefix: prefix.clone(), naming, tools, prompts }
    });
    expected.collect()
}
