//! Configured servers, as `--json` prints them.

use crate::config::McpServerSettings;
use crate::config::secret_detection::{shown_args, shown_url};
use crate::mcp::ServerFactory;
use serde_json::{Value, json};
use std::time::Duration;

/// Secrets in its command line, URL, environment and headers are masked or left out.
pub fn server_listing(server: &McpServerSettings, makers: &ServerFactory) -> Value {
    let trusted = makers.pins.of(&server.name);
    let in_ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    json!({
        "name": server.name,
        "enabled": makers.is_wanted(server),
        "enabled_in_configuration": server.enabled,
        "unseen": makers.is_unreviewed(server),
        "command": server.command,
        "args": shown_args(&server.args),
        "cwd": server.cwd,
        "url": server.place.as_ref().map(|place| shown_url(&place.to_string())),
        "headers": server.headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        "oauth": server.oauth.is_some(),
        "env": server.env.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "timeout_ms": in_ms(server.timeout),
        "start_timeout_ms": in_ms(server.start_timeout),
        "start": if server.lazy { "lazy" } else { "now" },
        "idle_stop_ms": server.idle_stop.map(in_ms),
        "per_client": server.per_client.is_some(),
        "clients_max": server.per_client,
        "prefix": server.prefix,
        "trust": if server.always_trusted { "always" } else { "ask" },
        "trusted_since": trusted.as_ref().map(|trusted| trusted.since.to_string()),
        "trusted_by": trusted.as_ref().map(|trusted| trusted.by.clone()),
    })
}
