//! Other servers, as the hub that runs says they stand.

use super::{Finding, State, bad};
use crate::config::Config;
use portcullis_store::servers::StatusBoard;
use serde_json::Value;

/// How many names are told.
const NAMES_MAX: usize = 5;

/// Returns one finding for each server that somebody has to do something about, or one that all is well.
pub(super) fn look(config: &Config, hub_runs: bool) -> Vec<Finding> {
    let finding = |state| Finding { what: "servers", state };
    let count = config.mcp.len();
    if !hub_runs {
        let text = format!("{count} configured; how they stand is known while a hub runs");
        return vec![finding(State::Good(text))];
    }
    let board = match StatusBoard::open(&config.workspace.secure_dir()).read() {
        Ok(board) => board.unwrap_or_default(),
        Err(error) => return vec![finding(bad(error.to_string(), "restart the hub, which writes it anew"))],
    };
    let told: Vec<State> = config
        .mcp
        .iter()
        .filter_map(|server| stands(&server.name, &board["servers"][&server.name]))
        .collect();
    if told.is_empty() {
        return vec![finding(State::Good(format!("{count} configured; nothing waits for you")))];
    }
    told.into_iter().map(finding).collect()
}

fn stands(name: &str, server: &Value) -> Option<State> {
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
            "`{name}`: {} wait until you look: {}; `portcullis mcp trust {name} --diff`",
            waiting.len(),
            names.join(", ")
        )));
    }
    match server["status"].as_str() {
        Some(status @ ("failed" | "needs_auth" | "needs_client_registration")) => {
            let reason = server["reason"].as_str().unwrap_or("no reason is known");
            Some(State::Warning(format!("`{name}` is {status}: {reason}; `portcullis mcp status {name}`")))
        }
        _ => None,
    }
}
