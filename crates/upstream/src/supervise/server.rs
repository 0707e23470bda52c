//! One instance of an upstream server, for all clients or for one: its catalog, its reachability and its leases.

mod calls;
mod tasks;
mod unsolicited;

use super::leases::Leases;
use super::reachability::Reachability;
use crate::call::SuspendedCalls;
use crate::catalog::{AdvertisedCatalog, CatalogState, ChangedLists};
use crate::rpc::elicitation::AskingServer;
use crate::rpc::{Connection, UnsolicitedHandler};
use crate::spec::ServerSpec;
use crate::status::{ServerStatus, StatusKind};
use crate::subscribe::ResourceSubscriptions;
use crate::transport::ServerInstanceId;
use portcullis_core::{
    CatalogChange, ChangeNotifier, ClientBridge, List, NameConflict, ToolError, WatchState,
};
use portcullis_wire::SubscriptionStyle;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use tokio_util::sync::CancellationToken;
use unsolicited::Audience;

pub(crate) struct UpstreamServer {
    me: Weak<UpstreamServer>,
    pub(crate) spec: ServerSpec,
    /// The client that it is for, where it is not for all of them.
    pub(crate) client: Option<String>,
    changes: ChangeNotifier,
    pub(crate) catalog: CatalogState,
    pub(crate) reach: Reachability,
    pub(crate) subscriptions: Arc<ResourceSubscriptions>,
    pub(crate) audience: Audience,
    pub(crate) leases: Leases,
    suspended: Arc<SuspendedCalls>,
    /// Cancelled when the server is no longer wanted.
    pub(crate) stop: CancellationToken,
}

impl UpstreamServer {
    /// Makes a server that is not started yet; `client` is the one that it is for, if it is for one only.
    pub(crate) fn new(
        spec: ServerSpec,
        changes: ChangeNotifier,
        clients: ClientBridge,
        client: Option<String>,
        stop: CancellationToken,
    ) -> Arc<UpstreamServer> {
        let subscriptions = Arc::new(ResourceSubscriptions::new(changes.clone(), client.clone()));
        Arc::new_cyclic(|me| UpstreamServer {
            me: me.clone(),
            spec,
            client,
            changes,
            catalog: CatalogState::default(),
            reach: Reachability::default(),
            subscriptions,
            audience: Audience::new(clients),
            leases: Leases::default(),
            suspended: Arc::default(),
            stop,
        })
    }

    /// Returns the owner of its processes. The instance that replaces this one has the same.
    pub(crate) fn instance_id(&self) -> ServerInstanceId {
        (self.spec.name.clone(), self.client.clone())
    }

    /// Returns the server in whose name people are asked.
    pub(crate) fn asker(&self) -> AskingServer<'_> {
        AskingServer { name: &self.spec.name, url: self.spec.transport.url() }
    }

    /// Returns whether a list is late, and still waited for.
    pub(crate) fn is_seen_in_part(&self) -> bool {
        self.reach.status.borrow().kind == StatusKind::Connected && self.catalog.is_partial()
    }

    /// Waits until a client calls it, or watches one of its resources.
    pub(crate) async fn needed(&self) {
        self.leases.needed(|| !self.subscriptions.is_empty()).await;
    }

    /// Returns whether stopping it now would end nothing that a client waits for.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.leases.any()
            && !self.leases.any_task()
            && self.suspended.is_empty()
            && self.subscriptions.is_empty()
    }

    /// Returns whether it is started on demand, so that a call waits for the start.
    fn starts_on_demand(&self) -> bool {
        self.stops_when_idle() || self.spec.is_lazy()
    }

    fn stops_when_idle(&self) -> bool {
        self.client.is_some() || self.spec.idle_stop.is_some()
    }

    /// Takes note that it does not run until it is needed. Its catalog stays exposed.
    pub(crate) fn set_idle(&self) {
        self.reach.set_idle();
        self.recompute_catalog();
    }

    /// Takes what the server advertised on a new connection, or again on the same.
    ///
    /// Returns whether any list changed.
    pub(crate) fn set_catalog(&self, advertised: AdvertisedCatalog, connection: &Arc<Connection>) -> bool {
        self.catalog.set_advertised(advertised);
        let me: Weak<dyn UnsolicitedHandler> = self.me.clone();
        connection.demux.unsolicited.set_handler(me);
        // Before anything is announced: a call that waits for the connection finds the definitions that it is made by.
        let changed = self.recompute_then(|| self.reach.live.put(connection));
        self.announce_roots();
        changed
    }

    /// Exposes nothing any more.
    pub(crate) fn withdraw(&self) {
        self.catalog.clear();
        self.announce_lists(ChangedLists::ALL);
    }

    /// Computes what clients see, and announces what changed. Returns whether any list did.
    pub(crate) fn recompute_catalog(&self) -> bool {
        self.recompute_then(|| {})
    }

    fn recompute_then(&self, then: impl FnOnce()) -> bool {
        self.catalog.recompute(&self.spec, |changed, status| {
            then();
            // Before the status: those who wait for the status find the tools.
            self.announce_lists(changed);
            let idle = self.reach.is_idle();
            let mut status = ServerStatus { idle, ..status };
            if idle || self.reach.live.is_there() {
                self.reach.status.send_if_modified(|current| {
                    self.catalog.count(&mut status);
                    let changed = *current != status;
                    *current = status;
                    changed
                });
            }
        })
    }

    /// Takes note of names that other providers have.
    pub(crate) fn set_name_conflicts(&self, conflicts: Vec<NameConflict>) {
        if !self.catalog.set_conflicts(&self.spec.name, conflicts) {
            return;
        }
        self.reach.status.send_if_modified(|status| {
            let is_connected = status.kind == StatusKind::Connected;
            if is_connected {
                self.catalog.count(status);
            }
            is_connected
        });
    }

    fn announce_lists(&self, changed: ChangedLists) {
        changed.iter().for_each(|list| self.announce_list(list));
    }

    /// Announces a changed list. What a per-client server offers is compared with the shared catalog when it is called,
    /// so of its lists only the resources are announced, and only to its client.
    pub(crate) fn announce_list(&self, list: List) {
        let change = match (&self.client, list) {
            (None, list) => CatalogChange::ListOf(list, self.spec.name.clone()),
            (Some(client), List::Resources) => CatalogChange::ResourcesOf(client.clone()),
            (Some(_), List::Tools | List::Prompts) => return,
        };
        self.changes.announce(change);
    }

    /// Subscribes a client to a resource, or unsubscribes it.
    pub(crate) fn watch(&self, uri: &str, client: &str, state: WatchState) {
        if self.subscriptions.set(uri, client, state) {
            self.leases.changed.notify_waiters();
        }
    }

    /// Returns why a server of the older era refused a subscription. One that cannot be asked now is asked later.
    pub(crate) async fn subscription_result(&self, uri: &str) -> Result<(), ToolError> {
        let Some(connection) =
            self.reach.live.get().filter(|connection| {
                connection.dialect().subscription_style() == SubscriptionStyle::PerResource
            })
        else {
            return Ok(());
        };
        let mut results = self.subscriptions.results.subscribe();
        let result = tokio::select! {
            results = results.wait_for(|results| results.contains_key(uri)) => {
                results.ok().and_then(|results| results.get(uri).cloned())
            }
            () = connection.demux.life.retired.cancelled() => None,
            () = self.stop.cancelled() => None,
        };
        match result {
            Some(Err(error)) => Err(ToolError::foreign(&self.spec.name, error)),
            Some(Ok(())) | None => Ok(()),
        }
    }
}

/// Keeps the server needed while it is held.
pub(crate) struct ServerLease(Arc<UpstreamServer>);

impl ServerLease {
    pub(crate) fn of(server: &Arc<UpstreamServer>) -> ServerLease {
        server.leases.begin();
        ServerLease(server.clone())
    }
}

impl Deref for ServerLease {
    type Target = UpstreamServer;

    fn deref(&self) -> &UpstreamServer {
        &self.0
    }
}

impl Drop for ServerLease {
    fn drop(&mut self) {
        self.0.leases.end();
    }
}
