//! `portcullis mcp status`: status of the servers in the running hub.

use super::McpCommandContext;
use crate::print;
use anyhow::Result;
use portcullis_ops::servers::{ServerStatusReport, find_server, status_label};
use serde_json::{Value, json};
use std::process::ExitCode;

impl McpCommandContext {
    pub(super) fn status(&self, name: Option<&str>) -> Result<ExitCode> {
        if let Some(name) = name {
            find_server(&self.config, name)?;
        }
        let running = self.hub_runs()?;
        let ServerStatusReport { written, servers } = self.ops.server_statuses(name, running)?;
        if self.as_json {
            print::json(&json!({ "hub_running": running, "written": written, "servers": servers }));
            return Ok(ExitCode::SUCCESS);
        }
        print::table_out(&rows(&servers));
        for server in &servers {
            print::out(details(server, name.is_some()));
        }
        if !running {
            let last = match &written {
                Some(at) => format!("; last status update: {at}"),
                None => String::new(),
            };
            print::note(format!("No hub is running{last}. Start one: portcullis serve"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn rows(servers: &[Value]) -> Vec<Vec<String>> {
    let heading = ["SERVER", "STATUS", "TOOLS", "PROMPTS", "RESOURCES", "NEEDS REVIEW", "MCP"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for server in servers {
        let text = |key: &str| server[key].as_str().unwrap_or("-").to_owned();
        let number =
            |key: &str| server[key].as_u64().map_or_else(|| "-".to_owned(), |count| count.to_string());
        let waiting =
            server["quarantined"].as_array().map_or_else(|| "-".to_owned(), |all| all.len().to_string());
        rows.push(vec![
            text("name"),
            format!(
                "{}{}",
                status_label(&text("status")),
                if server["idle"] == true { " (idle)" } else { "" }
            ),
            number("tools"),
            number("prompts"),
            number("resources"),
            waiting,
            text("revision"),
        ]);
    }
    rows
}

/// Returns the problems of a server, each with a fix.
fn details(server: &Value, all: bool) -> String {
    let name = server["name"].as_str().unwrap_or_default();
    let list = |key: &str| server[key].as_array().cloned().unwrap_or_default();
    let mut text = String::new();
    if let Some(reason) = server["reason"].as_str() {
        text.push_str(&format!("\n{name}: {reason}\n"));
        for line in list("stderr").iter().filter_map(Value::as_str) {
            text.push_str(&format!("  {line}\n"));
        }
    }
    if let Some(hint) = server["hint"].as_str() {
        text.push_str(&format!("  {hint}\n"));
    }
    if let Some(clients) = server["clients"].as_array() {
        text.push_str(&format!("\n{name}: one instance per client, now {}\n", clients.len()));
        for one in clients {
            let part = |key: &str| one[key].as_str().unwrap_or_default();
            let why = one["reason"].as_str().map(|reason| format!(": {reason}")).unwrap_or_default();
            text.push_str(&format!("  {} {}{why}\n", part("client"), status_label(part("status"))));
        }
    }
    let waiting = list("quarantined");
    if !waiting.is_empty() {
        text.push_str(&format!("\n{name}: these need review: portcullis mcp trust {name} --diff\n"));
        for what in &waiting {
            let part = |key: &str| what[key].as_str().unwrap_or_default();
            text.push_str(&format!("  {} {} ({})\n", part("kind"), part("name"), part("why")));
        }
    }
    for what in list("dropped").iter().filter(|_| all) {
        let part = |key: &str| what[key].as_str().unwrap_or_default();
        text.push_str(&format!("\n{name}: not exposed: {}: {}\n", part("name"), part("why")));
    }
    text
}
