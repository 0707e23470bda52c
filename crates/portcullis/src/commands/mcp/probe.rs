//! `portcullis mcp test`: connects to a server once and shows what it provides.

use super::McpCommandContext;
use crate::commands::{environment, this_user};
use crate::config::{Config, McpServerSettings};
use crate::print;
use crate::status_line::StatusLine;
use anyhow::Result;
use portcullis_core::counted;
use portcullis_ops::servers::probe::ProbeReport;
use portcullis_ops::servers::trust::definition_text;
use portcullis_ops::servers::{EnvRemedy, cleared_environment_hint, find_server, may_run};
use portcullis_store::pins::{DefinitionPin, PinKind, ServerSnapshot};
use portcullis_upstream::{StartPhase, StartProgress};
use std::process::ExitCode;
use std::time::Duration;

/// Characters of a description in a list.
const LIST_CHARS_MAX: usize = 70;

/// Describes what the server provides.
pub(super) fn probe_text(report: &ProbeReport, seen: &ServerSnapshot) -> String {
    let server = report.status.server.as_deref().unwrap_or("unnamed");
    let mut text = format!(
        "Server `{}` is connected: {server}, MCP {}, {} ms\n",
        report.name,
        report.status.revision.unwrap_or("?"),
        report.took.as_millis()
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
    if report.status.resources > 0 {
        text.push_str(&format!("\n{}\n", counted(report.status.resources, "resource")));
    }
    if let Some(instructions) = seen.instructions.as_ref().filter(|text| !text.trim().is_empty()) {
        text.push_str(&format!("\nInstructions for agents:\n  {}\n", instructions.replace('\n', "\n  ")));
    }
    text.push_str(&left_out(report));
    text
}

/// Lists definitions that are not exposed, with the reason.
pub(super) fn left_out(report: &ProbeReport) -> String {
    let left_out = report.status.dropped.iter().map(|(what, why)| format!("not exposed: {what}: {why}\n"));
    left_out.collect()
}

/// Describes how far the start of a server is.
fn progress_text(name: &str, took: Duration, progress: &StartProgress) -> String {
    let phase = progress.phase.map_or("starting", StartPhase::as_str);
    let mut text = format!("{name}: {phase}, {} s", took.as_secs());
    if let Some(line) = &progress.last_line {
        text.push_str(&format!(": {line}"));
    }
    text
}

/// Returns the first line of a definition's description.
fn first_line(pin: &DefinitionPin) -> String {
    // Redacted before truncation: half a secret is not recognised.
    let said = print::redaction().text(&definition_text(pin));
    let line = said.lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(LIST_CHARS_MAX).collect();
    if short.len() < said.len() {
        short.push('…');
    }
    short
}

impl McpCommandContext {
    /// Connects to a server once. `config` may be one that is not in force yet.
    pub(super) fn probe(
        &self,
        server: &McpServerSettings,
        config: &Config,
        remedy: EnvRemedy,
    ) -> Result<ProbeReport> {
        let line = if self.as_json { None } else { StatusLine::open() };
        let show = |took, progress: &StartProgress| {
            if let Some(line) = &line {
                line.show(&progress_text(&server.name, took, progress));
            }
        };
        let show = line.is_some().then_some(&show as _);
        let mut looked = self.block_on(self.ops.probe_server(server, config, show, &this_user()))??;
        let missed = cleared_environment_hint(server, &looked.status, &environment, remedy);
        let hints: Vec<String> = looked.hint.take().into_iter().chain(missed).collect();
        looked.hint = (!hints.is_empty()).then(|| hints.join("\n"));
        Ok(looked)
    }

    pub(super) fn test(&self, name: &str) -> Result<ExitCode> {
        let server = find_server(&self.config, name)?;
        let makers = self.ops.server_factory_for(server)?;
        may_run(server, makers)?;
        let looked = self.probe(server, &self.config, EnvRemedy::Setting)?;
        let works = looked.seen.is_some();
        if self.as_json {
            print::json(&looked.listing());
        } else {
            let seen = looked.connected()?;
            print::out(probe_text(&looked, &seen));
        }
        Ok(ExitCode::from(u8::from(!works)))
    }
}
