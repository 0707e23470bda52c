//! A configured upstream server as a provider, shared or with an instance for each client.

use crate::rpc::ListKind;
use crate::spec::ServerSpec;
use crate::status::{ServerStatus, StartProgress, StatusKind};
use crate::supervise::{PerClientServers, ServerLease, UpstreamServer, roots_watcher, supervisor};
use crate::trust::Trust;
use portcullis_core::{
    BoxFuture, Call, Caller, Catalog, ChangeNotifier, ClientBridge, DefaultDecision, NameConflict, Outcome,
    Permit, Provider, ResourceClaim, ResourceDef, Target, ToolError, WatchState,
};
use portcullis_store::pins::ServerSnapshot;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// One configured server. Cheap to clone; every clone is the same server.
#[derive(Clone)]
pub struct Upstream {
    /// The instance for all clients. Where each has its own, it only provides the catalog.
    shared: Arc<UpstreamServer>,
    own: Option<Arc<PerClientServers>>,
}

impl Upstream {
    /// Starts to connect and returns at once. The server reaches no client outside of calls. Needs a runtime.
    pub fn start(spec: ServerSpec, changes: ChangeNotifier) -> Upstream {
        Upstream::start_before(spec, changes, ClientBridge::default())
    }

    /// Starts to connect and returns at once. Outside of calls the server reaches these clients. Needs a runtime.
    pub fn start_before(spec: ServerSpec, changes: ChangeNotifier, audience: ClientBridge) -> Upstream {
        let changed = audience.changed_roots();
        let shared = UpstreamServer::new(spec, changes.clone(), audience, None, CancellationToken::new());
        let own = shared
            .spec
            .per_client
            .map(|per_client| Arc::new(PerClientServers::new(&shared, per_client, changes)));
        tokio::spawn(supervisor::run(shared.clone()));
        tokio::spawn(roots_watcher::watch_roots(shared.clone(), own.clone(), changed));
        Upstream { shared, own }
    }

    pub fn status(&self) -> ServerStatus {
        let clients = self.own.as_ref().map(|own| own.statuses());
        ServerStatus { clients, ..self.shared.reach.status.borrow().clone() }
    }

    /// Returns how far its start is, for a person who waits.
    pub fn start_progress(&self) -> StartProgress {
        self.shared.reach.start_progress()
    }

    /// Returns a receiver of the status. Changes of per-client instances are signalled, but not contained.
    pub fn watch(&self) -> watch::Receiver<ServerStatus> {
        self.shared.reach.status.subscribe()
    }

    /// Returns the server as it is, for an administrator to trust; `None` before anything is known of it.
    pub fn snapshot(&self) -> Option<Arc<ServerSnapshot>> {
        self.shared.catalog.snapshot()
    }

    /// Returns whether a list is still missing.
    pub fn is_seen_in_part(&self) -> bool {
        self.shared.is_seen_in_part()
    }

    /// Returns watched URIs with their clients, for the server that replaces this one.
    pub fn watched(&self) -> BTreeSet<(String, String)> {
        let mut all = BTreeSet::new();
        self.each(|server| all.extend(server.subscriptions.all()));
        all
    }

    /// Returns whether agents see its instructions, as far as that is known before it runs.
    pub fn tells_agents(&self) -> bool {
        match &self.shared.spec.trust {
            Trust::Always => true,
            Trust::Pinned(pins) => pins
                .of(self.name())
                .and_then(|trusted| trusted.snapshot.instructions.clone())
                .is_some_and(|text| !text.trim().is_empty()),
        }
    }

    /// Computes the catalog again, after trust was granted or revoked.
    pub fn recompute_catalog(&self) {
        self.each(|server| {
            server.recompute_catalog();
        });
    }

    /// Waits until it is connected or has failed.
    pub async fn settled(&self) -> ServerStatus {
        let mut status = self.watch();
        match status.wait_for(|status| status.kind != StatusKind::Starting).await {
            Ok(status) => status.clone(),
            Err(_) => ServerStatus::of(StatusKind::Disabled),
        }
    }

    pub fn reconnect(&self) {
        self.each(|server| server.reach.request_reconnect());
    }

    /// Stops the server. Its process gets a grace period.
    pub fn stop(&self) {
        self.shared.stop.cancel();
    }

    fn each(&self, mut tell: impl FnMut(&UpstreamServer)) {
        tell(&self.shared);
        for server in self.own.iter().flat_map(|own| own.all()) {
            tell(&server);
        }
    }

    /// Returns a lease on the instance for a client's requests.
    fn of(&self, client: &str) -> Result<ServerLease, ToolError> {
        match &self.own {
            Some(own) => own.of(client),
            None => Ok(ServerLease::of(&self.shared)),
        }
    }

    /// Returns the instance that a client has now: its own while that runs.
    fn now(&self, client: &str) -> Arc<UpstreamServer> {
        let own = self.own.as_ref().and_then(|own| own.running(client));
        own.unwrap_or_else(|| self.shared.clone())
    }
}

impl Provider for Upstream {
    fn name(&self) -> &str {
        &self.shared.spec.name
    }

    fn catalog(&self) -> Catalog {
        let shown = self.shared.catalog.exposed.load();
        Catalog {
            tools: shown.tools.clone(),
            prompts: shown.prompts.clone(),
            templates: shown.templates.clone(),
            resources: shown.resources.iter().map(|resource| resource.uri.clone()).collect(),
            second: shown.second.clone(),
            tools_are_late: shown.late.contains(&ListKind::Tools),
            prompts_are_late: shown.late.contains(&ListKind::Prompts),
        }
    }

    fn instructions(&self) -> Option<String> {
        self.shared.catalog.instructions.load().as_ref().map(|text| (**text).clone())
    }

    fn prefix(&self) -> Option<&str> {
        Some(&self.shared.spec.prefix)
    }

    fn is_known(&self) -> bool {
        self.shared.catalog.exposed.load().is_known
    }

    fn on_name_conflicts(&self, taken: Vec<NameConflict>) {
        self.shared.set_name_conflicts(taken);
    }

    fn owns_resource(&self, uri: &str, client: &str) -> ResourceClaim {
        let now = self.now(client);
        let owns = self.shared.catalog.exposed.load().owns(uri).max(now.catalog.exposed.load().owns(uri));
        let owns = if owns == ResourceClaim::Not && now.catalog.links.has(uri) {
            ResourceClaim::Linked
        } else {
            owns
        };
        // It replaced the server that the client subscribed at, and has not listed its resources yet.
        let is_watched = || now.subscriptions.all().contains(&(uri.to_owned(), client.to_owned()));
        let is_watched = || !now.catalog.has_listed(ListKind::Resources) && is_watched();
        if owns == ResourceClaim::Not && is_watched() { ResourceClaim::Listed } else { owns }
    }

    fn default_decision(&self) -> DefaultDecision {
        let spec = &self.shared.spec;
        let trusted = spec.trust.trusted(&spec.name);
        spec.tool_rules(trusted.as_deref()).read_decision()
    }

    fn watch(&self, uri: &str, client: &str, state: WatchState) {
        if state == WatchState::Ended {
            // To unsubscribe needs no instance.
            return self.now(client).watch(uri, client, state);
        }
        match self.of(client) {
            Ok(server) => server.watch(uri, client, state),
            Err(_) => tracing::warn!(target: "upstream", server = %self.name(), client,
                "subscription dropped: too many per-client servers"),
        }
    }

    fn check_subscription<'a>(
        &'a self,
        _: Permit,
        uri: &'a str,
        client: &'a str,
    ) -> BoxFuture<'a, Result<(), ToolError>> {
        Box::pin(async move {
            // Too many instances is the same error as for a call.
            let server = self.of(client)?;
            server.subscription_result(uri).await
        })
    }

    fn client_disconnected(&self, client: &str) {
        if let Some(server) = self.own.as_ref().and_then(|own| own.running(client)) {
            server.leases.client_left();
        }
    }

    fn client_removed(&self, client: &str) {
        if let Some(server) = self.own.as_ref().and_then(|own| own.running(client)) {
            server.leases.client_removed();
        }
    }

    fn resources<'a>(
        &'a self,
        _: Permit,
        caller: &'a Caller,
    ) -> BoxFuture<'a, Result<Vec<ResourceDef>, ToolError>> {
        let server = self.now(&caller.client.name);
        // The client's own instance may not be up yet; it will offer what the shared one does.
        let server =
            if server.catalog.has_listed(ListKind::Resources) { server } else { self.shared.clone() };
        let resources = server.catalog.exposed.load().resources.clone();
        Box::pin(async move { Ok(resources) })
    }

    fn call(&self, _: Permit, call: Box<Call>) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            let server = self.of(&call.caller().client.name)?;
            if let Target::Task(ask, task) = &call.target {
                return server.task_operation(&call, *ask, &task.own).await;
            }
            if call.ctx.peer.session().is_none() {
                server.leases.without_session();
            }
            server.call(&call).await
        })
    }
}
