//! Status of servers: in words, and as the running hub last wrote it.

use crate::Problem;
use crate::config::McpServerSettings;
use crate::context::Operations;
use portcullis_store::pins::TrustedServer;
use portcullis_store::servers::StatusBoard;
use serde_json::{Value, json};

/// Returns a server status as people read it.
pub fn status_label(status: &str) -> String {
    match status {
        "needs_auth" => "needs login".to_owned(),
        other => other.replace('_', " "),
    }
}

/// Returns the fix for a server that needs authentication.
pub fn sign_in_hint(server: &McpServerSettings, status: &str) -> Option<String> {
    let name = &server.name;
    let header = server.headers.iter().find(|(header, _)| header == "authorization");
    match (status, &server.oauth, header) {
        ("needs_auth", Some(_), _) => Some(format!("log in: portcullis mcp auth {name}")),
        ("needs_auth", None, Some(_)) => Some(format!(
            "the server rejects the `Authorization` header in `mcp.{name}.headers`; correct it, or replace it by `oauth = true`"
        )),
        ("needs_auth", None, None) => Some(format!(
            "add `oauth = true` to `mcp.{name}` in the configuration, then: portcullis mcp auth {name}"
        )),
        _ => None,
    }
}

/// Returns what to do about a server that was trusted before effects were chosen, if nothing is configured instead.
pub fn unchosen_effects(server: &McpServerSettings, trusted: Option<&TrustedServer>) -> Option<String> {
    let name = &server.name;
    let is_old = trusted.is_some_and(|trusted| trusted.review.is_none());
    (is_old && !server.always_trusted && server.decision.is_none()).then(|| {
        format!(
            "`{name}` was trusted before effects were chosen: all its tools are allowed unasked, and count as destroy where no effect is configured; run `portcullis mcp trust {name}`"
        )
    })
}

/// The status of servers, for a process that is not the hub.
pub struct ServerStatusReport {
    /// When the hub last wrote it.
    pub written: Option<String>,
    /// Each as [`mcp::shown`](crate::mcp::shown), with its name and the fix.
    pub servers: Vec<Value>,
}

impl Operations {
    /// Reads the status of the configured servers, or of one, from the file that a hub writes. Without a running hub the
    /// file is stale, and does not count.
    pub fn server_statuses(&self, name: Option<&str>, hub_runs: bool) -> Result<ServerStatusReport, Problem> {
        let (config, factory) = (self.config(), self.server_factory()?);
        let board = StatusBoard::open(&config.workspace.secure_dir()).read();
        let board = board.map_err(anyhow::Error::from)?.unwrap_or_default();
        let wanted = config.mcp.iter().filter(|server| name.is_none_or(|name| name == server.name));
        let servers = wanted.map(|server| {
            let known = board["servers"].get(&server.name).filter(|_| hub_runs);
            let mut entry = known.cloned().unwrap_or_else(|| {
                let status = match (factory.is_wanted(server), hub_runs) {
                    (false, _) => "disabled",
                    (true, true) => "starting",
                    (true, false) => "not running",
                };
                json!({ "status": status })
            });
            entry["name"] = server.name.clone().into();
            let sign_in = sign_in_hint(server, entry["status"].as_str().unwrap_or_default());
            entry["hint"] =
                json!(sign_in.or_else(|| unchosen_effects(server, factory.trusted(server).as_deref())));
            entry
        });
        let servers = servers.collect();
        Ok(ServerStatusReport { written: board["written"].as_str().map(str::to_owned), servers })
    }
}
