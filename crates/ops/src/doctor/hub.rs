//! Whether the hub runs and answers.

use super::CheckState;
use crate::config::Config;
use crate::home::Home;
use anyhow::Result;
use portcullis_core::counted;
use portcullis_server::local;

/// What was found of the hub of a home.
pub(super) enum HubState {
    Stopped,
    Running {
        tools: usize,
    },
    /// It runs and does not answer, for this reason.
    Silent(String),
}

impl HubState {
    pub(super) async fn of(
        home: &Home,
        count_tools: impl AsyncFnOnce(&Home) -> Result<usize>,
    ) -> Result<HubState> {
        if local::claim(home.path())?.is_some() {
            return Ok(HubState::Stopped);
        }
        Ok(match count_tools(home).await {
            Ok(tools) => HubState::Running { tools },
            Err(error) => HubState::Silent(format!("{error:#}")),
        })
    }

    pub(super) fn answers(&self) -> bool {
        matches!(self, HubState::Running { .. })
    }
}

pub(super) fn check_hub(config: &Config, hub: HubState) -> CheckState {
    match hub {
        HubState::Running { tools } => CheckState::Good(format!("running, {}", counted(tools, "tool"))),
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
