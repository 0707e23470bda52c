//! Check of upstream servers, from the status file of the running hub.

use super::{Finding, State, bad};
use crate::config::Config;
use portcullis_ops::servers::status_predicate;
use portcullis_store::servers::StatusBoard;
use serde_json::Value;

/// Names listed per server.
const NAMES_MAX: usize = 5;

/// Returns one finding for each server with a problem, or one that all are fine.
pub(super) fn look(config: &Config, hub_runs: bool) -> Vec<Finding> {
    let finding = |state| Finding { what: "servers", state };
    let count = config.mcp.len();
    if !hub_runs {
        let text = format!("{count} configured; start the hub to see their status");
        return vec![finding(State::Good(text))];
    }
    let board = match StatusBoard::open(&config.workspace.secure_dir()).read() {
        Ok(board) => board.unwrap_or_default(),
        Err(error) => {
            return vec![finding(bad(error.to_string(), "restart the hub, which rewrites the file"))];
        }
    };
    let problems: Vec<State> =
        config.mcp.iter().filter_map(|server| check(&server.name, &board["servers"][&server.name])).collect();
    if problems.is_empty() {
        return vec![finding(State::Good(format!("{count} configured; no problems")))];
    }
    problems.into_iter().map(finding).collect()
}

fn check(name: &str, server: &Value) -> Option<State> {
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
        return Some(State::Warning(format!(
            "`{name}`: {} to review: {}; run `portcullis mcp trust {name} --diff`",
            waiting.len(),
            names.join(", ")
        )));
    }
    match server["status"].as_str() {
        Some(status @ ("failed" | "needs_auth" | "needs_client_registration")) => {
            let reason = server["reason"].as_str().unwrap_or("unknown reason");
            Some(State::Warning(format!(
                "`{name}` {}: {reason}; run `portcullis mcp status {name}`",
                status_predicate(status)
            )))
        }
        _ => None,
    }
}
