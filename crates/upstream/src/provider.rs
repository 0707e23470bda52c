//! A configured server as a provider, whether it is one for all clients or one for each of them.

use crate::own::Own;
use crate::server::Server;
use crate::spec::ServerSpec;
use crate::status::{Status, StatusKind};
use crate::supervise;
use crate::uses::Use;
use portcullis_core::{
    BoxFuture, Call, Catalog, Changes, Outcome, Owns, Permit, Provider, ResourceDef, Taken, TaskAsk,
    ToolError, Unruled,
};
use portcullis_store::pins::Snapshot;
use serde_json::Value;
use serde_json::value::RawValue;
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
    /// Starts to connect and returns at once. Needs a runtime.
    pub fn start(spec: ServerSpec, changes: Changes) -> Upstream {
        let shared = Server::new(spec, changes.clone(), None, CancellationToken::new());
        let own = shared.spec.per_client.map(|per_client| Arc::new(Own::new(&shared, per_client, changes)));
        tokio::spawn(supervise::run(shared.clone()));
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
        self.each(|server| server.again.notify_one());
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
        self.shared.shown.load().owns(uri).max(self.now(client).shown.load().owns(uri))
    }

    fn unruled(&self) -> Unruled {
        self.shared.spec.decision
    }

    fn watch(&self, uri: &str, client: &str, wanted: bool) {
        // Whoever wants no more needs no server for it.
        let server = if wanted { self.of(client).ok() } else { Some(Use::of(&self.now(client))) };
        match server {
            Some(server) => server.watch(uri, client, wanted),
            None => tracing::warn!(target: "upstream", server = %self.name(), client,
                "A client is not told of a resource: there are too many servers of single clients."),
        }
    }

    fn left(&self, client: &str) {
        if let Some(server) = self.own.as_ref().and_then(|own| own.running(client)) {
            server.uses.leaves();
        }
    }

    fn resources<'a>(
        &'a self,
        _: Permit,
        client: &'a str,
    ) -> BoxFuture<'a, Result<Vec<ResourceDef>, ToolError>> {
        let server = self.now(client);
        // Its own server may be on its way still; what all are to offer is what it will offer at first.
        let server = if server.is_known() { server } else { self.shared.clone() };
        let resources = server.shown.load().resources.clone();
        Box::pin(async move { Ok(resources) })
    }

    fn task(&self, _: Permit, ask: TaskAsk) -> BoxFuture<'_, Result<Box<RawValue>, ToolError>> {
        Box::pin(async move {
            let server = self.of(&ask.client)?;
            let connection = server.connected(&server.stop).await?;
            let mut more = String::new();
            if !ask.answers.is_empty() {
                let answers = Value::Object(ask.answers.into_iter().collect());
                more = format!(r#""inputResponses":{answers}"#);
            }
            let answer = connection.about_task(ask.method, &ask.id, &more, server.spec.timeout).await;
            answer.map_err(|error| error.told(&server.spec.name))
        })
    }

    fn call(&self, _: Permit, call: Call) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            let server = self.of(&call.caller.client.name)?;
            if call.ctx.peer.session().is_none() {
                server.uses.without_session();
            }
            server.call(&call).await
        })
    }
}
