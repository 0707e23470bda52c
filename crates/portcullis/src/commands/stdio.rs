//! `portcullis --mcp`: MCP on standard input and output, as the hub or as a bridge to the one that runs.

use super::{Ending, Opened, block_on, open, overdue};
use crate::compose::compose;
use crate::config::Loaded;
use crate::{logging, print, reload};
use anyhow::{Context, Result, anyhow};
use portcullis_server::line;
use portcullis_server::local::{self, BridgeEnd, Claim};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;

/// How often, and how long apart, a hub that is just starting is tried.
pub(super) const CONNECT_TRIES: u32 = 50;
pub(super) const CONNECT_PAUSE: Duration = Duration::from_millis(100);

/// How long a client that starts the hub waits for what trusted servers say of themselves. Most say it sooner; one that is
/// slow or broken holds nobody up for longer.
const INTRODUCED_WITHIN: Duration = Duration::from_secs(1);

pub(crate) fn run(home: Option<&Path>) -> Result<ExitCode> {
    let Opened { home, loaded, version } = open(home)?;
    let log_level = logging::start(loaded.config.logging);
    for warning in &loaded.warnings {
        tracing::warn!(target: "config", "{warning}");
    }
    block_on(async {
        let mut ending = Ending::new()?;
        for _ in 0..CONNECT_TRIES {
            if let Some(claim) = local::claim(home.path()).context("the lock of the home folder")? {
                let opened = Opened { home, loaded, version }.current()?;
                return be_the_hub(opened, log_level, claim, ending).await;
            }
            if let Ok(hub) = local::connect(home.path()).await {
                return bridge(hub, &mut ending).await;
            }
            tokio::time::sleep(CONNECT_PAUSE).await;
        }
        let path = home.path().display();
        Err(anyhow!("a hub holds `{path}` but does not answer; stop it, then try again"))
    })?
}

async fn bridge(hub: UnixStream, ending: &mut Ending) -> Result<ExitCode> {
    tracing::info!(target: "hub", "Passing messages on to the hub that runs on this home.");
    let ended = tokio::select! {
        ended = local::bridge(hub, tokio::io::stdin(), tokio::io::stdout()) => ended,
        () = ending.told() => Ok(BridgeEnd::ClientLeft),
    };
    match ended {
        Ok(BridgeEnd::ClientLeft) => Ok(ExitCode::SUCCESS),
        Ok(BridgeEnd::HubLeft) | Err(_) => {
            print::note("portcullis: the hub has gone away; start it again, then reconnect");
            Ok(ExitCode::FAILURE)
        }
    }
}

async fn be_the_hub(
    opened: Opened,
    log_level: logging::LogLevel,
    claim: Claim,
    mut ending: Ending,
) -> Result<ExitCode> {
    let Opened { home, loaded: Loaded { config, .. }, version } = opened;
    let grace = config.limits.shutdown_grace;
    // Calls, connections and the socket each have it.
    overdue::watch(grace * 3)?;
    let composed = Arc::new(compose(&home, &config)?);
    super::name_holder(&claim);
    let socket = claim.listen().context("the local socket")?;
    let mut serving_socket =
        tokio::spawn(local::serve(composed.hub.clone(), socket, composed.servers.makers.are_behind()));
    tokio::spawn(reload::watch(home, version, composed.clone(), config, None, log_level));

    let hub = composed.hub.clone();
    tokio::select! {
        // Started a moment ago, and asked for their words only once.
        () = composed.servers.introduced(INTRODUCED_WITHIN) => {}
        () = ending.told() => {}
    }
    let serving = line::serve(hub.clone(), "stdio", tokio::io::stdin(), tokio::io::stdout());
    tokio::pin!(serving);
    tokio::select! {
        served = &mut serving => {
            served.context("standard input and output")?;
            wait_for_bridges(&hub, &mut ending).await;
        }
        () = ending.told() => {
            // What is under way is finished, and its answers are written.
            let _ = tokio::join!(hub.shut_down(grace), tokio::time::timeout(grace, serving));
        }
    }
    hub.shut_down(grace).await;
    let _ = tokio::time::timeout(grace, &mut serving_socket).await;
    composed.servers.stop();
    drop(claim);
    Ok(ExitCode::SUCCESS)
}

/// Others may have come to this hub by way of its socket; they are not left in the middle of their work.
async fn wait_for_bridges(hub: &portcullis_server::Hub, ending: &mut Ending) {
    if hub.has_local_guests() {
        tracing::info!(target: "hub", "Standard input has ended; serving the other processes on this home until they leave.");
    }
    while hub.has_local_guests() {
        tokio::select! {
            () = tokio::time::sleep(CONNECT_PAUSE) => {}
            () = ending.told() => return,
        }
    }
}
