//! Connects to the running hub, or to a hub in this process.

use super::{end_servers, environment};
use crate::compose::{ComposedHub, compose};
use crate::config::Config;
use crate::home::Home;
use crate::services;
use anyhow::{Context, Result, bail};
use portcullis_ops::ShutdownWatch;
use portcullis_server::line::{self, LineCaller};
use portcullis_server::local::{self, HubAccess, HubClient};
use std::io;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Pipe buffer per direction for a hub in this process.
const PIPE_BYTES: usize = 256 * 1024;
/// How long to wait for servers that were just started.
const SERVERS_WITHIN: Duration = Duration::from_secs(30);
/// How long calls and services of a hub in this process may take to end. The command has its results by then.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// Connects, does the work of a command, and closes.
pub(crate) async fn with_hub<T>(
    home: &Home,
    work: impl AsyncFnOnce(&mut HubClient) -> Result<T>,
) -> Result<T> {
    let (mut link, own) = open(home).await?;
    let done = work(&mut link).await;
    if let Some(own) = own {
        own.close().await;
    }
    done
}

/// A hub for one command.
struct OwnHub {
    composed: ComposedHub,
    shutdown: ShutdownWatch,
    /// The connection to it.
    serving: JoinHandle<io::Result<()>>,
    claim: local::HubLock,
}

impl OwnHub {
    /// Shuts down in order: calls and services, the connection, the servers, and last the lock.
    async fn close(self) {
        self.composed.hub.shut_down(CLOSE_WITHIN).await;
        // Its end closes the connection.
        let _ = timeout(CLOSE_WITHIN, self.serving).await;
        self.composed.servers.stop();
        end_servers(&self.shutdown).await;
        drop(self.composed);
        drop(self.claim);
    }
}

async fn open(home: &Home) -> Result<(HubClient, Option<OwnHub>)> {
    let claim = match local::claim_or_connect(home.path()).await.context("the lock of the home folder")? {
        HubAccess::Claimed(claim) => claim,
        HubAccess::Connected(stream) => {
            let (from, to) = stream.into_split();
            return Ok((HubClient::new(from, to), None));
        }
        HubAccess::Silent => bail!("the running hub does not respond"),
    };
    let shutdown = ShutdownWatch::default();
    // As it is now that no other process is the hub: rules may have changed since the command began.
    let config = &Config::load(home.path(), &environment)?.config;
    let composed = compose(home, config, shutdown.servers())?;
    composed.hub.start_services(services::of_a_command(&composed).into())?;
    // They were started with the hub just now.
    composed.servers.settled(SERVERS_WITHIN).await;
    let (mine, theirs) = tokio::io::duplex(PIPE_BYTES);
    let (from, to) = tokio::io::split(theirs);
    let serving = tokio::spawn(line::serve(composed.hub.clone(), "stdio", LineCaller::Local, from, to));
    let (from, to) = tokio::io::split(mine);
    Ok((HubClient::new(from, to), Some(OwnHub { composed, shutdown, serving, claim })))
}
