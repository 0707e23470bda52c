//! Services of the hub: what runs by itself beside the calls.
//!
//! [`list`] names them all, except those that only some hubs have: `serve` and `stdio` add the reload of the configuration,
//! and the admin page adds its watcher of scripts.

use crate::compose::ComposedHub;
use crate::{mcp, memory};
use jiff::Timestamp;
use portcullis_core::{BoxFuture, Health, Service, ServiceCtx, ServiceError};
use portcullis_ops::secret_store;
use portcullis_server::Hub;
use portcullis_store::servers::StatusBoard;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Every service that each hub has.
pub(crate) fn list(composed: &ComposedHub, secure: &Path) -> Vec<Arc<dyn Service>> {
    let ComposedHub { hub, handles, live_secrets, servers, changes, .. } = composed;
    let (desk, policy, changes) = (handles.approvals.clone(), handles.policy.clone(), changes.clone());
    let (live, managed) = (live_secrets.clone(), servers.clone());
    let (servers, folder) = (servers.clone(), secure.to_owned());
    vec![
        service("approvals", move |ctx| {
            let desk = desk.clone();
            async move {
                ctx.shutdown.cancelled().await;
                // Ends the wait of every call.
                desk.close();
            }
        }),
        service("secrets", move |ctx| {
            secret_store::watch(live.clone(), managed.clone(), ctx.shutdown.cancelled_owned())
        }),
        service("servers", move |ctx| {
            mcp::watch(servers.clone(), folder.clone(), ctx.shutdown.cancelled_owned())
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
        Arc::new(ServiceBoard { hub: Arc::downgrade(hub), secure: secure.to_owned() }),
    ]
}

/// Makes a service of a function that never fails. It is called again after a panic.
pub(crate) fn service<F, Fut>(name: &'static str, run: F) -> Arc<dyn Service>
where
    F: Fn(ServiceCtx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    Arc::new(FunctionService { name, run: Box::new(move |ctx| Box::pin(run(ctx))) })
}

struct FunctionService {
    name: &'static str,
    run: Box<dyn Fn(ServiceCtx) -> BoxFuture<'static, ()> + Send + Sync>,
}

impl Service for FunctionService {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(self: Arc<Self>, ctx: ServiceCtx) -> BoxFuture<'static, Result<(), ServiceError>> {
        Box::pin(async move {
            (self.run)(ctx).await;
            Ok(())
        })
    }
}

/// Writes the state of the services to a file, where `doctor` reads it. As long as all are well there is no file.
struct ServiceBoard {
    /// Weak: the hub owns its services.
    hub: Weak<Hub>,
    secure: PathBuf,
}

/// How often the health of services is looked at. A failure is written at once.
const LOOK_EVERY: Duration = Duration::from_secs(5);

impl Service for ServiceBoard {
    fn name(&self) -> &'static str {
        "service-status"
    }

    fn run(self: Arc<Self>, ctx: ServiceCtx) -> BoxFuture<'static, Result<(), ServiceError>> {
        Box::pin(async move {
            let Some(mut changed) = self.hub.upgrade().map(|hub| hub.subscribe_services()) else {
                return Ok(());
            };
            // The problems of an earlier hub are not those of this one.
            let mut written = (!StatusBoard::of_services(&self.secure).exists()).then(Map::new);
            loop {
                let problems = self.problems();
                if written.as_ref() != Some(&problems) {
                    let board = StatusBoard::of_services(&self.secure);
                    let (value, now) = (Value::Object(problems.clone()), ctx.clock.now());
                    let at = Timestamp::try_from(now).unwrap_or_default().to_string();
                    let write = move || board.write(&value, &at, std::process::id());
                    tokio::task::spawn_blocking(write).await??;
                    written = Some(problems);
                }
                tokio::select! {
                    () = ctx.shutdown.cancelled() => return Ok(()),
                    _ = changed.changed() => {}
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
            }
        })
    }
}

impl ServiceBoard {
    fn problems(&self) -> Map<String, Value> {
        let statuses = self.hub.upgrade().map(|hub| hub.service_statuses()).unwrap_or_default();
        let problem = |status: portcullis_server::ServiceStatus| {
            let why = status.problem()?;
            let failed = status.health != Health::Ok;
            Some((
                status.name.to_owned(),
                json!({ "reason": why, "failed": failed, "restarts": status.restarts }),
            ))
        };
        statuses.into_iter().filter_map(problem).collect()
    }
}
