//! Connecting to a server once, from a command, and telling what it is.

use super::{Desk, may_run, sign_in_hint};
use crate::commands::block_on;
use crate::config::{Config, McpServer};
use crate::mcp::{Makers, shown};
use crate::{print, voice};
use anyhow::{Result, anyhow};
use portcullis_core::Registry;
use portcullis_store::pins::{Kind, Pin, Snapshot};
use portcullis_upstream::{Start, Status, StatusKind, Trust, Upstream};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a server may take to be connected and listed. Wrappers like `npx` fetch packages first.
const LOOK_WITHIN: Duration = Duration::from_secs(120);
/// How much of a description a list shows.
const LIST_CHARS_MAX: usize = 70;

/// What was found.
pub(crate) struct Looked {
    pub(crate) status: Status,
    /// The server as it is, where it is connected.
    pub(crate) seen: Option<Arc<Snapshot>>,
    /// The own names and the names here.
    pub(super) tools: Vec<String>,
    pub(super) took: Duration,
    /// What to do where it does not let us in, or does not start.
    pub(super) hint: Option<String>,
}

/// As [`look_at`], from a command.
pub(super) fn look(server: &McpServer, config: &Config, makers: &Makers) -> Result<Looked> {
    block_on(look_at(server, config, makers))?
}

/// Connects, lists, and ends the connection. Nothing is called, and nothing of it is let in.
pub(crate) async fn look_at(server: &McpServer, config: &Config, makers: &Makers) -> Result<Looked> {
    let (mut spec, _) = makers.spec(server, config);
    // Here everything is to be seen, whoever trusts it.
    spec.trust = Trust::Always;
    // And as it is now, not as it was.
    (spec.start, spec.idle_stop, spec.per_client) = (Start::ToBeSeen, None, None);
    let (registry, began) = (Registry::default(), Instant::now());
    if server.place.is_none() {
        makers.guard();
    }
    let upstream = Upstream::start(spec, registry.changes());
    registry.add(upstream.clone())?;
    let status = match tokio::time::timeout(LOOK_WITHIN, upstream.settled()).await {
        Ok(status) => status,
        Err(_) => {
            let reason = Some(format!("no connection within {} s", LOOK_WITHIN.as_secs()));
            Status { reason, ..Status::of(StatusKind::Failed) }
        }
    };
    let (took, hint) = (began.elapsed(), sign_in_hint(server, status.kind.as_str()));
    let seen = upstream.seen().filter(|_| status.kind == StatusKind::Connected);
    let tools = registry.tools().iter().map(|tool| tool.name.clone()).collect();
    upstream.stop();
    // Its process gets the moment to end by itself that it has when a hub stops.
    let mut ended = upstream.watch();
    let _ = ended.wait_for(|status| status.kind == StatusKind::Disabled).await;
    Ok(Looked { status, seen, tools, took, hint })
}

impl Looked {
    /// Returns the server as it is, or says why it is not connected.
    pub(crate) fn connected(&self, name: &str) -> Result<Arc<Snapshot>> {
        self.seen.clone().ok_or_else(|| anyhow!("{}", self.failure(name)))
    }

    fn failure(&self, name: &str) -> String {
        let mut text = format!("server `{name}` is {}", self.status.sentence());
        if !self.status.stderr.is_empty() {
            text.push_str(&format!("\nit said:\n  {}", self.status.stderr.join("\n  ")));
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

    /// Returns what the server offers, for a person.
    pub(super) fn text(&self, name: &str, seen: &Snapshot) -> String {
        let server = self.status.server.as_deref().unwrap_or("it does not say");
        let mut text = format!(
            "Server `{name}` is connected: {server}, MCP {}, {} ms\n",
            self.status.revision.unwrap_or("?"),
            self.took.as_millis()
        );
        for kind in Kind::ALL {
            if seen.pins(kind).is_empty() {
                continue;
            }
            let heading = kind.as_str().to_ascii_uppercase();
            let mut rows = vec![vec![heading, "WHAT IT SAYS".to_owned()]];
            for (own, pin) in seen.pins(kind) {
                rows.push(vec![portcullis_core::json::printable(own), first_line(pin)]);
            }
            text.push_str(&format!("\n{}", print::table(&rows)));
        }
        if self.status.resources > 0 {
            text.push_str(&format!("\nand {} resources\n", self.status.resources));
        }
        if let Some(instructions) = seen.instructions.as_ref().filter(|text| !text.trim().is_empty()) {
            text.push_str(&format!("\nIt tells agents:\n  {}\n", instructions.replace('\n', "\n  ")));
        }
        text.push_str(&self.left_out());
        text
    }

    /// Returns what could not be taken, for a person.
    pub(super) fn left_out(&self) -> String {
        let left_out = self.status.dropped.iter().map(|(what, why)| format!("left out: {what}: {why}\n"));
        left_out.collect()
    }
}

/// Returns the beginning of what a definition says of itself.
fn first_line(pin: &Pin) -> String {
    let value: Value = serde_json::from_str(&pin.definition).unwrap_or_default();
    let said = value["description"].as_str().or(value["title"].as_str()).unwrap_or_default();
    // Without secrets first: half of one is not recognised.
    let said = voice::text(said);
    let line = said.lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(LIST_CHARS_MAX).collect();
    if short.len() < said.len() {
        short.push('…');
    }
    short
}

impl Desk {
    pub(super) fn test(&self, name: &str) -> Result<ExitCode> {
        let server = self.server(name)?;
        let makers = self.makers(needs_secrets(server))?;
        may_run(server, &makers).map_err(anyhow::Error::msg)?;
        let looked = look(server, &self.config, &makers)?;
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

/// Returns whether a server cannot be started without the secret store.
pub(super) fn needs_secrets(server: &McpServer) -> bool {
    let is_secret = |value: &String| value.contains("secret:");
    server.oauth.is_some()
        || server.env.iter().any(|(_, value)| is_secret(value))
        || server.headers.iter().any(|(_, value)| is_secret(value))
}
