//! Per-client servers: each client has its own instance.
//!
//! Each is a process or a connection like any other, with the same configuration and the same pins. Agents see the
//! catalog of the shared instance; a call to an instance that offers something else is refused. It is started by its
//! client's first call and stops when its client has gone.

use super::server::{ServerLease, UpstreamServer};
use super::supervisor;
use crate::spec::{PerClient, ServerSpec, StartPolicy};
use crate::status::{ClientStatus, StatusKind};
use parking_lot::Mutex;
use portcullis_core::{ChangeNotifier, Limit, ToolError};
use portcullis_store::pins::PinKind;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// The default idle time. A client that pauses for longer gets a new instance.
const IDLE: Duration = Duration::from_secs(10 * 60);

/// The instances, by client name.
pub(crate) struct PerClientServers {
    /// The instance that provides the catalog.
    shared: Arc<UpstreamServer>,
    changes: ChangeNotifier,
    clients_max: usize,
    idle: Duration,
    running: Mutex<BTreeMap<String, Arc<UpstreamServer>>>,
}

impl PerClientServers {
    pub(crate) fn new(
        shared: &Arc<UpstreamServer>,
        per_client: PerClient,
        changes: ChangeNotifier,
    ) -> PerClientServers {
        let idle = shared.spec.idle_stop.unwrap_or(IDLE);
        let (shared, clients_max) = (shared.clone(), per_client.clients_max);
        PerClientServers { shared, changes, clients_max, idle, running: Mutex::default() }
    }

    /// Returns a lease on the instance of a client, started if it has none yet.
    pub(crate) fn of(self: &Arc<Self>, client: &str) -> Result<ServerLease, ToolError> {
        let mut running = self.running.lock();
        if let Some(server) = running.get(client) {
            // Leased under the lock under which idle instances are stopped.
            return Ok(ServerLease::of(server));
        }
        let name = &self.shared.spec.name;
        if self.shared.stop.is_cancelled() {
            return Err(ToolError::unavailable(format!(
                "server `{name}` {}",
                StatusKind::Disabled.predicate()
            )));
        }
        if running.len() >= self.clients_max {
            Limit::OwnServers.hit();
            let message =
                format!("server `{name}`: {} clients have their own instance already", running.len());
            let hint = format!(
                "try again when one of them has gone; `mcp.{name}.clients_max` says how many there may be, \
                 `mcp.{name}.idle_stop` how long one is kept that is not used"
            );
            return Err(ToolError::unavailable(message).hint(hint));
        }
        let spec = ServerSpec {
            start: StartPolicy::AtOnce,
            idle_stop: None,
            per_client: None,
            ..self.shared.spec.clone()
        };
        let stop = self.shared.stop.child_token();
        let server = UpstreamServer::new(
            spec,
            self.changes.clone(),
            self.shared.audience.clients.clone(),
            Some(client.to_owned()),
            stop,
        );
        // The same program or URL: the probe for era and carrier need not be repeated.
        server.reach.set_hint(self.shared.reach.hint());
        // Until it has listed its own, it has the catalog that its client was shown.
        server.catalog.inherit(&self.shared.catalog);
        let needed = ServerLease::of(&server);
        running.insert(client.to_owned(), server.clone());
        drop(running);
        tracing::info!(target: "upstream", server = %name, client, "per-client server started");
        tokio::spawn(supervisor::run(server.clone()));
        tokio::spawn(keep(Arc::downgrade(self), client.to_owned(), server));
        self.signal_watchers();
        Ok(needed)
    }

    pub(crate) fn running(&self, client: &str) -> Option<Arc<UpstreamServer>> {
        self.running.lock().get(client).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<UpstreamServer>> {
        self.running.lock().values().cloned().collect()
    }

    pub(crate) fn statuses(&self) -> Vec<ClientStatus> {
        let running = self.running.lock();
        let statuses = running.iter().map(|(client, server)| {
            let status = server.reach.status.borrow();
            ClientStatus { client: client.clone(), kind: status.kind, reason: status.reason.clone() }
        });
        statuses.collect()
    }

    /// Stops the instance of a client if it is not needed. Returns whether it has stopped, now or before.
    fn end(&self, client: &str, server: &Arc<UpstreamServer>) -> bool {
        let mut running = self.running.lock();
        if !running.get(client).is_some_and(|known| Arc::ptr_eq(known, server)) {
            return true;
        }
        let is_over = server.leases.has_left() || server.leases.last().elapsed() >= self.idle;
        if !(is_over && server.is_quiet()) {
            return false;
        }
        running.remove(client);
        drop(running);
        tracing::info!(target: "upstream", server = %server.spec.name, client, "per-client server stopped");
        server.stop.cancel();
        self.signal_watchers();
        true
    }

    /// Signals watchers of the shared status.
    fn signal_watchers(&self) {
        self.shared.reach.status.send_modify(|_| {});
    }
}

/// Stops an instance when its client has gone, or has not needed it for long.
async fn keep(own: Weak<PerClientServers>, client: String, server: Arc<UpstreamServer>) {
    let mut status = server.reach.status.subscribe();
    loop {
        let changed = server.leases.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let Some(all) = own.upgrade() else { return };
        if all.end(&client, &server) {
            return;
        }
        // While it is in use, the end of the lease notifies.
        let due = server.leases.last() + all.idle;
        let look = if due > Instant::now() { due } else { Instant::now() + all.idle };
        drop(all);
        tokio::select! {
            () = tokio::time::sleep_until(look) => {}
            () = changed => {}
            () = server.stop.cancelled() => {
                let Some(all) = own.upgrade() else { return };
                all.running.lock().remove(&client);
                return;
            }
            changed = status.changed() => {
                let Some(all) = own.upgrade() else { return };
                all.signal_watchers();
                if changed.is_err() {
                    return;
                }
                learn(&all.shared, &server);
            }
        }
    }
}

/// Where an instance offers something else than the cached catalog, the shared one connects and reads it again.
fn learn(shared: &UpstreamServer, own: &UpstreamServer) {
    let (Some(said), Some(seen)) = (shared.catalog.snapshot(), own.catalog.snapshot()) else { return };
    let is_resting = shared.reach.status.borrow().idle;
    if is_resting && PinKind::ALL.into_iter().any(|kind| said.pins(kind) != seen.pins(kind)) {
        shared.reach.reconnect();
    }
}
