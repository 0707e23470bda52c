//! A configured server as a provider, whether it is one for all clients or one for each of them.

use crate::lists::Listed;
use crate::outside;
use crate::own::Own;
use crate::server::Server;
use crate::spec::ServerSpec;
use crate::status::{Status, StatusKind};
use crate::supervise;
use crate::trust::Trust;
use crate::uses::Use;
use portcullis_core::{
    Audience, BoxFuture, Call, Catalog, Changes, Outcome, Owns, Permit, Provider, ResourceDef, Taken, Target,
    ToolError, Unruled,
};
use portcullis_store::pins::Snapshot;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// One configured server. Cheap to clone; every clone is the same server.
#[derive(Clone)]
pub struct Upstream {
    /// The one for all clients. Where each has its own, it only says what the others are to offer.
    shared: Arc<Server>,
    own: Option<Arc<Own>>,
}

impl Upstream {
    /// Starts to connect and returns at once. Outside of calls it speaks to nobody. Needs a runtime.
    pub fn start(spec: ServerSpec, changes: Changes) -> Upstream {
        Upstream::start_before(spec, changes, Audience::default())
    }

    /// Starts to connect and returns at once. Outside of calls it speaks to those clients. Needs a runtime.
    pub fn start_before(spec: ServerSpec, changes: Changes, audience: Audience) -> Upstream {
        let changed = audience.changed_roots();
        let shared = Server::new(spec, changes.clone(), audience, None, CancellationToken::new());
        let own = shared.spec.per_client.map(|per_client| Arc::new(Own::new(&shared, per_client, changes)));
        tokio::spawn(supervise::run(shared.clone()));
        tokio::spawn(outside::tell_roots(shared.clone(), own.clone(), changed));
        Upstream { shared, own }
    }

    pub fn status(&self) -> Status {
        let clients = self.own.as_ref().map(|own| own.statuses());
        Status { clients, ..self.shared.status.borrow().clone() }
    }

    /// Returns what changes whenever the status does. What it holds says nothing of the servers of single clients.
    pub fn watch(&self) -> watch::Receiver<Status> {
        self.shared.status.subscribe()
    }

    /// Returns the server as it is, to be trusted so; `None` before anything was known of it.
    pub fn seen(&self) -> Option<Arc<Snapshot>> {
        self.shared.seen()
    }

    /// Returns whether it has not said all of that yet: a list may be on its way still.
    pub fn is_seen_in_part(&self) -> bool {
        self.shared.is_seen_in_part()
    }

    /// Returns who wants to be told of changes of what: addresses, and clients. A server that takes its place is to know.
    pub fn watched(&self) -> BTreeSet<(String, String)> {
        let mut all = BTreeSet::new();
        self.each(|server| all.extend(server.watches()));
        all
    }

    /// Returns whether agents may be told what it says of itself, as far as that is known before it runs.
    pub fn tells_agents(&self) -> bool {
        match &self.shared.spec.trust {
            Trust::Always => true,
            Trust::Pinned(pins) => pins
                .of(self.name())
                .and_then(|trusted| trusted.as_it_was.instructions.clone())
                .is_some_and(|text| !text.trim().is_empty()),
        }
    }

    /// Works out again what appears of it, after a person has trusted something or taken trust back.
    pub fn look_again(&self) {
        self.each(|server| {
            server.show();
        });
    }

    /// Waits until it is known whether it can be connected.
    pub async fn settled(&self) -> Status {
        let mut status = self.watch();
        match status.wait_for(|status| status.kind != StatusKind::Starting).await {
            Ok(status) => status.clone(),
            Err(_) => Status::of(StatusKind::Disabled),
        }
    }

    /// Connects anew, now.
    pub fn again(&self) {
        self.each(Server::wish);
    }

    /// Ends the server. Its process gets a moment to end by itself.
    pub fn stop(&self) {
        self.shared.stop.cancel();
    }

    fn each(&self, mut tell: impl FnMut(&Server)) {
        tell(&self.shared);
        for server in self.own.iter().flat_map(|own| own.all()) {
            tell(&server);
        }
    }

    /// Returns the server that a client's requests go to.
    fn of(&self, client: &str) -> Result<Use, ToolError> {
        match &self.own {
            Some(own) => own.of(client),
            None => Ok(Use::of(&self.shared)),
        }
    }

    /// Returns the server that a client has now, which is its own as long as that runs.
    fn now(&self, client: &str) -> Arc<Server> {
        let own = self.own.as_ref().and_then(|own| own.running(client));
        own.unwrap_or_else(|| self.shared.clone())
    }
}

impl Provider for Upstream {
    fn name(&self) -> &str {
        &self.shared.spec.name
    }

    fn catalog(&self) -> Catalog {
        let shown = self.shared.shown.load();
        Catalog {
            tools: shown.tools.clone(),
            prompts: shown.prompts.clone(),
            templates: shown.templates.clone(),
            resources: shown.resources.iter().map(|resource| resource.uri.clone()).collect(),
            second: shown.second.clone(),
            tools_are_late: shown.late.contains(&Listed::Tools),
            prompts_are_late: shown.late.contains(&Listed::Prompts),
        }
    }

    fn instructions(&self) -> Option<String> {
        self.shared.instructions.load().as_ref().map(|text| (**text).clone())
    }

    fn prefix(&self) -> Option<&str> {
        Some(&self.shared.spec.prefix)
    }

    fn is_known(&self) -> bool {
        self.shared.shown.load().is_known
    }

    fn outranked(&self, taken: Vec<Taken>) {
        self.shared.outranked(taken);
    }

    fn owns_resource(&self, uri: &str, client: &str) -> Owns {
        let now = self.now(client);
        let owns = self.shared.shown.load().owns(uri).max(now.shown.load().owns(uri));
        let owns = if owns == Owns::Not && now.linked.has(uri) { Owns::Linked } else { owns };
        // It took the place of one that a client was told by, and has not said yet what it has.
        let is_watched = || now.watches().contains(&(uri.to_owned(), client.to_owned()));
        let is_watched = || !now.has_said(Listed::Resources) && is_watched();
        if owns == Owns::Not && is_watched() { Owns::Listed } else { owns }
    }

    fn unruled(&self) -> Unruled {
        self.shared.spec.decision
    }

    fn watch(&self, uri: &str, client: &str, wanted: bool) {
        if !wanted {
            // Whoever wants no more needs no server for it, and is not back for that.
            return self.now(client).watch(uri, client, false);
        }
        match self.of(client) {
            Ok(server) => server.watch(uri, client, true),
            Err(_) => tracing::warn!(target: "upstream", server = %self.name(), client,
                "A client is not told of a resource: there are too many servers of single clients."),
        }
    }

    fn watching<'a>(
        &'a self,
        _: Permit,
        uri: &'a str,
        client: &'a str,
    ) -> BoxFuture<'a, Result<(), ToolError>> {
        Box::pin(async move {
            // One of its own that it cannot have is told as it is for calls.
            let server = self.of(client)?;
            server.is_told(uri).await
        })
    }

    fn left(&self, client: &str) {
        if let Some(server) = self.own.as_ref().and_then(|own| own.running(client)) {
            server.uses.leaves();
        }
    }

    fn gone(&self, client: &str) {
        if let Some(server) = self.own.as_ref().and_then(|own| own.running(client)) {
            server.uses.has_gone();
        }
    }

    fn resources<'a>(
        &'a self,
        _: Permit,
        client: &'a str,
    ) -> BoxFuture<'a, Result<Vec<ResourceDef>, ToolError>> {
        let server = self.now(client);
        // Its own server may be on its way still; what all are to offer is what it will offer at first.
        let server = if server.has_said(Listed::Resources) { server } else { self.shared.clone() };
        let resources = server.shown.load().resources.clone();
        Box::pin(async move { Ok(resources) })
    }

    fn call(&self, _: Permit, call: Box<Call>) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            let server = self.of(&call.caller.client.name)?;
            if let Target::Task(ask, task) = &call.target {
                return server.ask_after(&call, *ask, &task.own).await;
            }
            if call.ctx.peer.session().is_none() {
                server.uses.without_session();
            }
            server.call(&call).await
        })
    }
}
