//! Checks of upstream servers and of services, from the status files of the running hub.

use super::{CheckState, HealthCheck};
use crate::config::{Config, McpServerSettings};
use crate::servers::unchosen_effects;
use portcullis_store::pins::PinStore;
use portcullis_store::servers::StatusBoard;
use portcullis_upstream::StatusKind;
use serde_json::Value;

/// Names listed per server.
const NAMES_MAX: usize = 5;

/// Returns one finding for each server with a problem, or one that all are fine.
pub(super) fn check_servers(config: &Config, pins: Option<&PinStore>, hub_runs: bool) -> Vec<HealthCheck> {
    let mut checks = check_status(config, hub_runs);
    if let Some(pins) = pins {
        checks.extend(config.mcp.iter().filter_map(|server| check_effects(server, pins)));
    }
    checks
}

fn check_effects(server: &McpServerSettings, pins: &PinStore) -> Option<HealthCheck> {
    let finding = unchosen_effects(server, pins.of(&server.name).as_deref())?;
    Some(HealthCheck { what: "servers", state: CheckState::Warning(finding) })
}

fn check_status(config: &Config, hub_runs: bool) -> Vec<HealthCheck> {
    let finding = |state| HealthCheck { what: "servers", state };
    let count = config.mcp.len();
    if !hub_runs {
        let text = format!("{count} configured; start the hub to see their status");
        return vec![finding(CheckState::Good(text))];
    }
    let board = match StatusBoard::open(&config.workspace.secure_dir()).read() {
        Ok(board) => board.unwrap_or_default(),
        Err(error) => {
            return vec![finding(CheckState::bad(
                error.to_string(),
                "restart the hub, which rewrites the file",
            ))];
        }
    };
    let problems: Vec<CheckState> =
        config.mcp.iter().filter_map(|server| check(&server.name, &board["servers"][&server.name])).collect();
    if problems.is_empty() {
        return vec![finding(CheckState::Good(format!("{count} configured; no problems")))];
    }
    problems.into_iter().map(finding).collect()
}

fn check(name: &str, server: &Value) -> Option<CheckState> {
    let waiting = server["quarantined"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !waiting.is_empty() {
        let named = |what: &Value| {
            let part = |key: &str| what[key].as_str().unwrap_or_default().to_owned();
            format!("{} {}", part("kind"), part("name")).trim_end().to_owned()
        };
        let mut names: Vec<String> = waiting.iter().take(NAMES_MAX).map(named).collect();
        if waiting.len() > NAMES_MAX {
            names.push("…".to_owned());
        }
        return Some(CheckState::Warning(format!(
            "`{name}`: {} to review: {}; run `portcullis mcp trust {name} --diff`",
            waiting.len(),
            names.join(", ")
        )));
    }
    match server["status"].as_str().and_then(StatusKind::parse) {
        Some(status @ (StatusKind::Failed | StatusKind::NeedsAuth | StatusKind::NeedsClientRegistration)) => {
            let reason = server["reason"].as_str().unwrap_or("unknown reason");
            Some(CheckState::Warning(format!(
                "`{name}` {}: {reason}; run `portcullis mcp status {name}`",
                status.predicate()
            )))
        }
        _ => None,
    }
}

/// Returns a finding for each service with a problem, as last written by the running hub.
pub(super) fn check_services(config: &Config, hub_pid: Option<u32>) -> Vec<HealthCheck> {
    let board = StatusBoard::of_services(&config.workspace.secure_dir());
    let board = board.read().ok().flatten().unwrap_or_default();
    if hub_pid.is_none() || board["pid"].as_i64() != hub_pid.map(i64::from) {
        return Vec::new();
    }
    let services = board["services"].as_object().into_iter().flatten();
    let check = |(name, value): (&String, &Value)| {
        let why = value["reason"].as_str().unwrap_or("unknown reason");
        let advice = "see the hub's log for the cause; the hub retries with backoff";
        CheckState::bad(format!("`{name}`: {why}"), advice).of("services")
    };
    services.map(check).collect()
}
