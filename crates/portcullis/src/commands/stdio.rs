//! `portcullis --mcp`: MCP over stdio, as the hub or as a bridge to the running one.

use super::{LoadedHome, SERVERS_END_WITHIN, block_on_watched, open};
use crate::compose::compose;
use crate::config::LoadedConfig;
use crate::services::{self, ServingHub};
use crate::{BadUsage, logging, print};
use anyhow::{Context, Result, anyhow};
use portcullis_ops::{ShutdownSignals, ShutdownWatch};
use portcullis_server::line::{self, LineCaller};
use portcullis_server::local::{self, BridgeEnd, HubAccess, HubLock};
use portcullis_server::{AcceptLoop, Hub};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;

/// How long a client that starts the hub waits for the instructions of trusted servers. A slow or broken server delays it
/// no longer.
const INTRODUCED_WITHIN: Duration = Duration::from_secs(1);

/// Serves this process's client: the local one, or the named one.
pub(crate) fn run(home: Option<&Path>, client: Option<&str>) -> Result<ExitCode> {
    make_blocking(std::io::stdin());
    make_blocking(std::io::stdout());
    let LoadedHome { home, loaded, version } = open(home)?;
    let log_level = logging::start(loaded.config.logging, print::redaction());
    for warning in &loaded.warnings {
        tracing::warn!(target: "config", "{warning}");
    }
    let shutdown = ShutdownWatch::default();
    block_on_watched(&shutdown, async {
        let mut ending = shutdown.signals()?;
        match local::claim_or_connect(home.path()).await.context("the lock of the home folder")? {
            HubAccess::Claimed(claim) => {
                let opened = LoadedHome { home, loaded, version }.current()?;
                serve_as_hub(opened, log_level, claim, client, &shutdown, ending).await
            }
            HubAccess::Connected(hub) => bridge(hub, client, &mut ending).await,
            HubAccess::Silent => {
                let path = home.path().display();
                Err(anyhow!("the hub with home `{path}` does not respond; stop it, then retry"))
            }
        }
    })?
}

/// A program in Node makes its pipes non-blocking, and those that it inherits. They are read and written by threads that wait.
fn make_blocking(stream: impl AsFd) {
    if let Ok(flags) = fcntl_getfl(&stream)
        && flags.contains(OFlags::NONBLOCK)
    {
        // What cannot be changed fails where it is used.
        let _ = fcntl_setfl(&stream, flags - OFlags::NONBLOCK);
    }
}

async fn bridge(mut hub: UnixStream, client: Option<&str>, ending: &mut ShutdownSignals) -> Result<ExitCode> {
    if let Some(client) = client {
        let named = local::name_caller(&mut hub, client).await.context("the running hub does not respond")?;
        named.map_err(|why| BadUsage(format!("client `{client}`: {why}")))?;
    }
    tracing::info!(target: "hub", "relaying to the running hub");
    let ended = tokio::select! {
        ended = local::bridge(hub, tokio::io::stdin(), tokio::io::stdout()) => ended,
        () = ending.received() => Ok(BridgeEnd::ClientLeft),
    };
    match ended {
        Ok(BridgeEnd::ClientLeft) => Ok(ExitCode::SUCCESS),
        Ok(BridgeEnd::HubLeft) | Err(_) => {
            print::note("portcullis: the hub closed the connection; restart it, then reconnect");
            Ok(ExitCode::FAILURE)
        }
    }
}

async fn serve_as_hub(
    opened: LoadedHome,
    log_level: logging::LogLevelHandle,
    claim: HubLock,
    client: Option<&str>,
    shutdown: &ShutdownWatch,
    mut ending: ShutdownSignals,
) -> Result<ExitCode> {
    let LoadedHome { home, loaded: LoadedConfig { config, .. }, version } = opened;
    let grace = config.limits.shutdown_grace;
    // Calls, connections and the socket share it.
    shutdown.exit_within(grace * 3 + SERVERS_END_WITHIN)?;
    let composed = Arc::new(compose(&home, &config, shutdown.servers())?);
    let caller = match client {
        None => LineCaller::Local,
        Some(name) => LineCaller::named(&composed.hub, name)
            .map_err(|why| BadUsage(format!("client `{name}`: {why}")))?,
    };
    super::name_holder(&claim);
    let socket = claim.listen().context("the local socket")?;
    let socket_loop = AcceptLoop::new("socket", &composed.hub);
    let process = ServingHub {
        home: &home,
        config: &config,
        version: &version,
        log_level,
        bound: None,
        accept_loops: vec![socket_loop.clone()],
        script_states: None,
    };
    composed.hub.start_services(services::of_a_hub(&composed, process))?;
    let is_behind = composed.servers.makers.descendant_check();
    let mut serving_socket = socket_loop.spawn(local::serve(composed.hub.clone(), socket, is_behind));

    let hub = composed.hub.clone();
    tokio::select! {
        // Just started; their instructions are read only once.
        () = composed.servers.introduced(INTRODUCED_WITHIN) => {}
        () = ending.received() => {}
    }
    let serving = line::serve(hub.clone(), "stdio", caller, tokio::io::stdin(), tokio::io::stdout());
    tokio::pin!(serving);
    tokio::select! {
        served = &mut serving => {
            served.context("standard input and output")?;
            wait_for_bridges(&hub, &mut ending).await;
        }
        () = ending.received() => {
            // In-flight calls finish, and their responses are written.
            let _ = tokio::join!(hub.shut_down(grace), tokio::time::timeout(grace, serving));
        }
    }
    hub.shut_down(grace).await;
    let _ = tokio::time::timeout(grace, &mut serving_socket).await;
    composed.servers.stop();
    drop(claim);
    Ok(ExitCode::SUCCESS)
}

/// Other processes may use this hub through its socket; their work is finished first.
async fn wait_for_bridges(hub: &Hub, ending: &mut ShutdownSignals) {
    if hub.has_local_guests() {
        tracing::info!(target: "hub", "stdin closed; serving other processes until they disconnect");
    }
    tokio::select! {
        () = local::guests_gone(hub) => {}
        () = ending.received() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_that_another_program_made_non_blocking_is_read_by_waiting() {
        let (reader, _writer) = std::io::pipe().unwrap();
        fcntl_setfl(&reader, OFlags::NONBLOCK).unwrap();
        make_blocking(&reader);
        assert!(!fcntl_getfl(&reader).unwrap().contains(OFlags::NONBLOCK));
    }
}
