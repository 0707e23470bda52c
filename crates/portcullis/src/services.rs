//! Services of the hub: what runs by itself beside the calls.
//!
//! [`of_a_hub`] names them all. `serve` and `stdio` start them once; a command that is a hub for one moment starts only
//! [`of_a_command`].

use crate::approval_notifier::{ApprovalNotifier, DesktopNotifier};
use crate::commands::environment;
use crate::compose::{BoundAddress, ComposedHub};
use crate::config::Config;
use crate::home::Home;
use crate::logging::LogLevelHandle;
use crate::reload;
use crate::{mcp, memory};
use portcullis_core::Service;
use portcullis_ops::hub_desk::ScriptStatusWatcher;
use portcullis_ops::reload::ConfigFileVersion;
use portcullis_ops::{ServiceBoard, secret_store, service};
use portcullis_server::AcceptLoop;
use std::sync::Arc;

/// What a hub that stays has besides its composition.
pub struct ServingHub<'a> {
    pub home: &'a Home,
    /// The configuration that it started with, and the version of its file.
    pub config: &'a Config,
    pub version: &'a ConfigFileVersion,
    pub log_level: LogLevelHandle,
    /// The HTTP listener.
    pub bound: Option<BoundAddress>,
    pub accept_loops: Vec<Arc<AcceptLoop>>,
    /// The watcher of scripts for the admin page.
    pub script_states: Option<Arc<ScriptStatusWatcher>>,
}

/// Every service of a hub that stays.
pub fn of_a_hub(composed: &Arc<ComposedHub>, process: ServingHub<'_>) -> Vec<Arc<dyn Service>> {
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
        Arc::new(ApprovalNotifier::new(
            handles,
            composed.egress.clone(),
            config.notify.clone(),
            DesktopNotifier::find(&environment),
        )),
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
