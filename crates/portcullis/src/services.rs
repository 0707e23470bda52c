//! Services of the hub: what runs by itself beside the calls.
//!
//! [`of_a_hub`] names them all. `serve` and `stdio` start them once; a command that is a hub for one moment starts only
//! [`of_a_command`].

use crate::compose::{BoundAddress, ComposedHub};
use crate::config::Config;
use crate::home::Home;
use crate::logging::LogLevelHandle;
use crate::reload;
use crate::{mcp, memory};
use portcullis_core::{BoxFuture, Health, Service, ServiceCtx, ServiceError};
use portcullis_ops::hub_desk::ScriptStatusWatcher;
use portcullis_ops::reload::ConfigFileVersion;
use portcullis_ops::{ServiceBoard, secret_store, service};
use portcullis_server::Hub;
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// What a hub that stays has besides its composition.
pub(crate) struct ServingHub<'a> {
    pub(crate) home: &'a Home,
    /// The configuration that it started with, and the version of its file.
    pub(crate) config: &'a Config,
    pub(crate) version: &'a ConfigFileVersion,
    pub(crate) log_level: LogLevelHandle,
    /// The HTTP listener.
    pub(crate) bound: Option<BoundAddress>,
    pub(crate) accept_loops: Vec<Arc<AcceptLoop>>,
    /// The watcher of scripts for the admin page.
    pub(crate) script_states: Option<Arc<ScriptStatusWatcher>>,
}

/// Every service of a hub that stays.
pub(crate) fn of_a_hub(composed: &Arc<ComposedHub>, process: ServingHub<'_>) -> Vec<Arc<dyn Service>> {
    let ServingHub { home, config, version, log_level, bound, accept_loops, script_states } = process;
    let ComposedHub { hub, handles, changes, .. } = &**composed;
    let (desk, policy, changes) = (handles.approvals.clone(), handles.policy.clone(), changes.clone());
    let mut services = hub.own_services();
    services.extend(of_a_command(composed));
    services.extend([
        service("approvals", move |ctx| {
            let desk = desk.clone();
            async move {
                ctx.shutdown.cancelled().await;
                // Ends the wait of every call.
                desk.close();
            }
        }),
        service("memory", |ctx| async move {
            ctx.shutdown.run_until_cancelled(memory::give_back()).await;
        }),
        service("policy-schedule", move |ctx| {
            let announcing = portcullis_guard::announce_windows(policy.clone(), changes.clone());
            async move {
                ctx.shutdown.run_until_cancelled(announcing).await;
            }
        }),
        reload::service(home, version, composed, config, bound, log_level),
        Arc::new(ServiceBoard::new(hub, config.workspace.secure_dir())),
    ]);
    services.extend(composed.family_services.iter().cloned());
    services.extend(accept_loops.into_iter().map(|accept_loop| accept_loop as Arc<dyn Service>));
    services.extend(
        script_states.map(|states| {
            service("scripts", move |ctx| states.clone().watch(ctx.shutdown.cancelled_owned()))
        }),
    );
    services
}

/// The services of a command that is the hub for one moment: what its own calls rely on, until they are done. Secrets that another
/// process adds are redacted, and servers that it stops do stop.
pub(crate) fn of_a_command(composed: &ComposedHub) -> [Arc<dyn Service>; 2] {
    let (live, managed) = (composed.live_secrets.clone(), composed.servers.clone());
    let (servers, folder) = (composed.servers.clone(), composed.config.load().workspace.secure_dir());
    [
        service("secrets", move |ctx| {
            secret_store::watch(live.clone(), managed.clone(), ctx.calls_over.cancelled_owned())
        }),
        service("servers", move |ctx| {
            mcp::watch(servers.clone(), folder.clone(), ctx.calls_over.cancelled_owned())
        }),
    ]
}

/// An accept loop, as a service that says whether it lives. The loop itself outlasts the services at shutdown, because open
/// connections are served until their calls are done; and its listener is gone with it, so it is not started again.
pub(crate) struct AcceptLoop {
    name: &'static str,
    ended: CancellationToken,
    closing: CancellationToken,
}

impl AcceptLoop {
    pub(crate) fn new(name: &'static str, hub: &Hub) -> Arc<AcceptLoop> {
        Arc::new(AcceptLoop { name, ended: CancellationToken::new(), closing: hub.closing() })
    }

    /// Runs the loop.
    pub(crate) fn spawn(&self, serving: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        // Also after a panic.
        let ended = self.ended.clone().drop_guard();
        tokio::spawn(async move {
            let _ended = ended;
            serving.await;
        })
    }
}

impl Service for AcceptLoop {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(self: Arc<Self>, ctx: ServiceCtx) -> BoxFuture<'static, Result<(), ServiceError>> {
        Box::pin(async move {
            tokio::select! {
                () = ctx.shutdown.cancelled() => return Ok(()),
                () = self.ended.cancelled() => {}
            }
            if !ctx.shutdown.is_cancelled() {
                tracing::error!(target: "service", service = self.name, "The accept loop ended; restart the hub.");
            }
            ctx.shutdown.cancelled().await;
            Ok(())
        })
    }

    fn health(&self) -> Health {
        if self.ended.is_cancelled() && !self.closing.is_cancelled() {
            return Health::Failed("it accepts no connections any more; restart the hub".to_owned());
        }
        Health::Ok
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept_loop() -> AcceptLoop {
        AcceptLoop { name: "http", ended: CancellationToken::new(), closing: CancellationToken::new() }
    }

    #[tokio::test]
    async fn an_accept_loop_that_dies_is_a_failure_and_one_that_closes_is_not() {
        let dead = accept_loop();
        assert_eq!(dead.health(), Health::Ok);
        let died = dead.spawn(async { panic!("a mistake") }).await;
        assert!(died.is_err());
        assert!(matches!(dead.health(), Health::Failed(_)));

        let closed = accept_loop();
        closed.closing.cancel();
        closed.spawn(async {}).await.unwrap();
        assert_eq!(closed.health(), Health::Ok);
    }
}
