//! Probe: connects to a server once and lists what it provides.

use super::{McpCommandContext, sign_in_hint, status_predicate};
use crate::commands::block_on;
use crate::config::{Config, McpServerSettings};
use crate::mcp::{ServerFactory, shown};
use crate::{output_redaction, print};
use anyhow::{Result, anyhow};
use portcullis_core::Registry;
use portcullis_ops::servers::may_run;
use portcullis_store::pins::{DefinitionPin, PinKind, ServerSnapshot};
use portcullis_upstream::{ServerStatus, StartPolicy, StatusKind, Trust, Upstream};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Timeout of connection and lists. Wrappers like `npx` download packages first.
const LOOK_WITHIN: Duration = Duration::from_secs(120);
/// Characters of a description in a list.
const LIST_CHARS_MAX: usize = 70;

/// Result of a probe.
pub(crate) struct ProbeReport {
    pub(crate) status: ServerStatus,
    /// Snapshot, if the server is connected.
    pub(crate) seen: Option<Arc<ServerSnapshot>>,
    /// The server's tool names, with the names in this hub.
    pub(super) tools: Vec<String>,
    pub(super) took: Duration,
    /// The fix, if it needs a login or fails to start.
    pub(super) hint: Option<String>,
}

/// As [`probe_server`], from a command.
pub(super) fn probe(
    server: &McpServerSettings,
    config: &Config,
    makers: &ServerFactory,
) -> Result<ProbeReport> {
    block_on(probe_server(server, config, makers))?
}

/// Connects, lists and disconnects. Calls nothing, exposes nothing.
pub(crate) async fn probe_server(
    server: &McpServerSettings,
    config: &Config,
    makers: &ServerFactory,
) -> Result<ProbeReport> {
    let (mut spec, _) = makers.spec(server, config);
    // Everything is listed, trusted or not.
    spec.trust = Trust::Always;
    // No cached catalog: the review needs the current state.
    (spec.start, spec.idle_stop, spec.per_client) = (StartPolicy::ToBeSeen, None, None);
    let (registry, began) = (Registry::default(), Instant::now());
    if server.place.is_none() {
        makers.guard();
    }
    let upstream = Upstream::start(spec, registry.changes());
    registry.add(upstream.clone())?;
    let status = match tokio::time::timeout(LOOK_WITHIN, upstream.settled()).await {
        Ok(status) => status,
        Err(_) => {
            let reason = Some(format!("timed out after {} s", LOOK_WITHIN.as_secs()));
            ServerStatus { reason, ..ServerStatus::of(StatusKind::Failed) }
        }
    };
    let (took, hint) = (began.elapsed(), sign_in_hint(server, status.kind.as_str()));
    let seen = upstream.snapshot().filter(|_| status.kind == StatusKind::Connected);
    let tools = registry.tools().iter().map(|tool| tool.name.clone()).collect();
    upstream.stop();
    // The process gets the same grace period as at a hub's shutdown.
    let mut ended = upstream.watch();
    let _ = ended.wait_for(|status| status.kind == StatusKind::Disabled).await;
    Ok(ProbeReport { status, seen, tools, took, hint })
}

impl ProbeReport {
    /// Returns the snapshot, or why the server is not connected.
    pub(crate) fn connected(&self, name: &str) -> Result<Arc<ServerSnapshot>> {
        self.seen.clone().ok_or_else(|| anyhow!("{}", self.failure(name)))
    }

    fn failure(&self, name: &str) -> String {
        let mut text = format!("server `{name}` {}", status_predicate(self.status.kind.as_str()));
        if let Some(reason) = &self.status.reason {
            text.push_str(&format!(": {reason}"));
        }
        if !self.status.stderr.is_empty() {
            text.push_str(&format!("\nstderr:\n  {}", self.status.stderr.join("\n  ")));
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("\n{hint}"));
        }
        text
    }

    pub(super) fn json(&self, name: &str) -> Value {
        let mut value = shown(&self.status);
        value["name"] = name.into();
        value["took_ms"] = json!(u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX));
        value["names"] = json!(self.tools);
        value["hint"] = json!(self.hint);
        value
    }

    /// Describes what the server provides.
    pub(super) fn text(&self, name: &str, seen: &ServerSnapshot) -> String {
        let server = self.status.server.as_deref().unwrap_or("unnamed");
        let mut text = format!(
            "Server `{name}` is connected: {server}, MCP {}, {} ms\n",
            self.status.revision.unwrap_or("?"),
            self.took.as_millis()
        );
        for kind in PinKind::ALL {
            if seen.pins(kind).is_empty() {
                continue;
            }
            let heading = kind.as_str().to_ascii_uppercase();
            let mut rows = vec![vec![heading, "DESCRIPTION".to_owned()]];
            for (own, pin) in seen.pins(kind) {
                rows.push(vec![portcullis_core::json::printable(own), first_line(pin)]);
            }
            text.push_str(&format!("\n{}", print::table(&rows)));
        }
        if self.status.resources > 0 {
            text.push_str(&format!("\n{} resources\n", self.status.resources));
        }
        if let Some(instructions) = seen.instructions.as_ref().filter(|text| !text.trim().is_empty()) {
            text.push_str(&format!("\nInstructions for agents:\n  {}\n", instructions.replace('\n', "\n  ")));
        }
        text.push_str(&self.left_out());
        text
    }

    /// Lists definitions that are not exposed, with the reason.
    pub(super) fn left_out(&self) -> String {
        let left_out = self.status.dropped.iter().map(|(what, why)| format!("not exposed: {what}: {why}\n"));
        left_out.collect()
    }
}

/// Returns the first line of a definition's description.
fn first_line(pin: &DefinitionPin) -> String {
    let value: Value = serde_json::from_str(&pin.definition).unwrap_or_default();
    let said = value["description"].as_str().or(value["title"].as_str()).unwrap_or_default();
    // Redacted before truncation: half a secret is not recognised.
    let said = output_redaction::text(said);
    let line = said.lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(LIST_CHARS_MAX).collect();
    if short.len() < said.len() {
        short.push('…');
    }
    short
}

impl McpCommandContext {
    pub(super) fn test(&self, name: &str) -> Result<ExitCode> {
        let server = self.server(name)?;
        let makers = self.makers(needs_secrets(server))?;
        may_run(server, &makers)?;
        let looked = probe(server, &self.config, &makers)?;
        let works = looked.seen.is_some();
        if self.as_json {
            print::json(&looked.json(name));
        } else {
            let seen = looked.connected(name)?;
            print::out(looked.text(name, &seen));
        }
        Ok(ExitCode::from(u8::from(!works)))
    }
}

/// Returns whether a server needs the secret store.
pub(super) fn needs_secrets(server: &McpServerSettings) -> bool {
    let is_secret = |value: &String| value.contains("secret:");
    server.oauth.is_some()
        || server.env.iter().any(|(_, value)| is_secret(value))
        || server.headers.iter().any(|(_, value)| is_secret(value))
}
