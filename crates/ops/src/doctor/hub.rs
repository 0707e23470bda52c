//! Whether the hub runs and answers.

use super::CheckState;
use crate::config::Config;

/// What was found of the hub of a home.
pub enum HubState {
    Stopped,
    Running {
        tools: usize,
    },
    /// It runs and does not answer, for this reason.
    Silent(String),
}

impl HubState {
    pub fn answers(&self) -> bool {
        matches!(self, HubState::Running { .. })
    }
}

pub fn check_hub(config: &Config, hub: HubState) -> CheckState {
    match hub {
        HubState::Running { tools } => CheckState::Good(format!("running, {tools} tools")),
        HubState::Silent(why) => {
            CheckState::bad(format!("running, but: {why}"), "check the hub's log, or restart it")
        }
        HubState::Stopped => {
            let address = config.http.listen;
            // Only a check: released at once.
            match std::net::TcpListener::bind(address) {
                Ok(_) => CheckState::Good(format!("not running; {address} is free")),
                Err(error) => CheckState::bad(
                    format!("not running, and {address}: {error}"),
                    "choose a port with MCP_HTTP_PORT or `http.listen`",
                ),
            }
        }
    }
}
