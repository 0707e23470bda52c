//! A server of its own for each client.
//!
//! Every one is a process or a connection like any other, made from the same configuration and compared with the same
//! pins. What agents are shown is what the one for all said: a client's own server that offers something else is refused
//! when that is called. It is started by its client's first call and ends when its client has gone.

use crate::server::Server;
use crate::spec::{PerClient, ServerSpec, Start};
use crate::status::{ClientStatus, StatusKind};
use crate::supervise;
use crate::uses::Use;
use portcullis_core::{Changes, Limit, ToolError};
use portcullis_store::pins::Kind;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// How long one is kept without a call, where nothing else is said. A client that thinks for longer begins anew.
const IDLE: Duration = Duration::from_secs(10 * 60);

/// The servers of single clients, by the names of the clients.
pub(crate) struct Own {
    /// What all of them are to be.
    shared: Arc<Server>,
    changes: Changes,
    clients_max: usize,
    idle: Duration,
    running: Mutex<BTreeMap<String, Arc<Server>>>,
}

impl Own {
    pub(crate) fn new(shared: &Arc<Server>, per_client: PerClient, changes: Changes) -> Own {
        let idle = shared.spec.idle_stop.unwrap_or(IDLE);
        let (shared, clients_max) = (shared.clone(), per_client.clients_max);
        Own { shared, changes, clients_max, idle, running: Mutex::default() }
    }

    /// Returns the server of a client, started if it has none yet.
    pub(crate) fn of(self: &Arc<Self>, client: &str) -> Result<Use, ToolError> {
        let mut running = self.lock();
        if let Some(server) = running.get(client) {
            // Counted under the lock under which one is ended that nobody needs.
            return Ok(Use::of(server));
        }
        let name = &self.shared.spec.name;
        if self.shared.stop.is_cancelled() {
            return Err(ToolError::unavailable(format!(
                "server `{name}` is {}",
                StatusKind::Disabled.as_str()
            )));
        }
        if running.len() >= self.clients_max {
            Limit::OwnServers.hit();
            let message = format!("server `{name}`: {} clients have one of their own already", running.len());
            let hint = format!(
                "try again when one of them has gone; `mcp.{name}.clients_max` says how many there may be, \
                 `mcp.{name}.idle_stop` how long one is kept that is not used"
            );
            return Err(ToolError::unavailable(message).hint(hint));
        }
        let spec = ServerSpec {
            start: Start::AtOnce,
            idle_stop: None,
            per_client: None,
            ..self.shared.spec.clone()
        };
        let stop = self.shared.stop.child_token();
        let server = Server::new(
            spec,
            self.changes.clone(),
            self.shared.audience.clone(),
            Some(client.to_owned()),
            stop,
        );
        // One and the same program or place: what was found out of it need not be found out again.
        server.remember(self.shared.known());
        // What it is slow to say is what the one for all said: that is what was shown to its client.
        server.takes_after(&self.shared);
        let needed = Use::of(&server);
        running.insert(client.to_owned(), server.clone());
        drop(running);
        tracing::info!(target: "upstream", server = %name, client, "A client gets a server of its own.");
        tokio::spawn(supervise::run(server.clone()));
        tokio::spawn(keep(Arc::downgrade(self), client.to_owned(), server));
        self.told();
        Ok(needed)
    }

    pub(crate) fn running(&self, client: &str) -> Option<Arc<Server>> {
        self.lock().get(client).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Server>> {
        self.lock().values().cloned().collect()
    }

    pub(crate) fn statuses(&self) -> Vec<ClientStatus> {
        let running = self.lock();
        let statuses = running.iter().map(|(client, server)| {
            let status = server.status.borrow();
            ClientStatus { client: client.clone(), kind: status.kind, reason: status.reason.clone() }
        });
        statuses.collect()
    }

    /// Ends the server of a client if nobody needs it. Returns whether it has ended, now or before.
    fn end(&self, client: &str, server: &Arc<Server>) -> bool {
        let mut running = self.lock();
        if !running.get(client).is_some_and(|known| Arc::ptr_eq(known, server)) {
            return true;
        }
        let is_over = server.uses.has_left() || server.uses.last().elapsed() >= self.idle;
        if !(is_over && server.is_quiet()) {
            return false;
        }
        running.remove(client);
        drop(running);
        tracing::info!(target: "upstream", server = %server.spec.name, client, "A client's own server ends.");
        server.stop.cancel();
        self.told();
        true
    }

    /// Lets whoever watches the one for all look again.
    fn told(&self) {
        self.shared.status.send_modify(|_| {});
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Server>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a client's own server when its client has gone, or has not needed it for long.
async fn keep(own: Weak<Own>, client: String, server: Arc<Server>) {
    let mut status = server.status.subscribe();
    loop {
        let changed = server.uses.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let Some(all) = own.upgrade() else { return };
        if all.end(&client, &server) {
            return;
        }
        // In use, it is looked at again when that ends.
        let due = server.uses.last() + all.idle;
        let look = if due > Instant::now() { due } else { Instant::now() + all.idle };
        drop(all);
        tokio::select! {
            () = tokio::time::sleep_until(look) => {}
            () = changed => {}
            () = server.stop.cancelled() => {
                let Some(all) = own.upgrade() else { return };
                all.lock().remove(&client);
                return;
            }
            told = status.changed() => {
                let Some(all) = own.upgrade() else { return };
                all.told();
                if told.is_err() {
                    return;
                }
                learn(&all.shared, &server);
            }
        }
    }
}

/// Where a client's own server offers something else than the one for all said when it last ran, that one looks again.
fn learn(shared: &Server, own: &Server) {
    let (Some(said), Some(seen)) = (shared.seen(), own.seen()) else { return };
    let is_resting = shared.status.borrow().idle;
    if is_resting && Kind::ALL.into_iter().any(|kind| said.pins(kind) != seen.pins(kind)) {
        shared.again.notify_one();
    }
}
