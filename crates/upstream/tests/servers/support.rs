//! A hub in a box with one server behind it, and a client before it.

use portcullis_core::{Changes, Effect, Pattern, Registry};
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::wait::until;
use portcullis_testkit::{BoxedHub, conformance, taken_as_it_is};
use portcullis_upstream::{HttpSpec, ServerSpec, Status, StatusKind, TransportSpec, Upstream};
use serde_json::{Value, json};
use std::net::SocketAddr;

pub(crate) fn spec(url: &str) -> ServerSpec {
    let http =
        HttpSpec { place: url.parse().unwrap(), headers: Vec::new(), oauth: None, extra_roots: Vec::new() };
    prefixed(TransportSpec::Http(http))
}

/// A server whose tools may do anything.
pub(crate) fn prefixed(transport: TransportSpec) -> ServerSpec {
    ServerSpec { prefix: "up_".to_owned(), effects: Vec::new(), ..taken_as_it_is("up", transport) }
}

/// The same, with tools that only look.
pub(crate) fn reads(url: &str) -> ServerSpec {
    ServerSpec { effects: vec![(Pattern::any(), Effect::Read)], ..spec(url) }
}

pub(crate) struct World {
    pub(crate) upstream: Upstream,
    pub(crate) address: SocketAddr,
    /// Where whoever is behind the hub says that something changed.
    pub(crate) changes: Changes,
    pub(crate) _hub: BoxedHub,
}

impl World {
    pub(crate) async fn new(spec: ServerSpec) -> World {
        let registry = Registry::default();
        let changes = registry.changes();
        let upstream = Upstream::start(spec, changes.clone());
        registry.add(upstream.clone()).unwrap();
        let hub = BoxedHub::new(registry, false).unwrap();
        let address = hub.listen(0).await.unwrap();
        World { upstream, address, changes, _hub: hub }
    }

    pub(crate) async fn connected(spec: ServerSpec) -> World {
        let world = World::new(spec).await;
        world.status(StatusKind::Connected).await;
        world
    }

    /// Waits until the server stands so.
    pub(crate) async fn status(&self, kind: StatusKind) -> Status {
        until(&format!("the server is {}", kind.as_str()), async || {
            let status = self.upstream.status();
            (status.kind == kind).then_some(status)
        })
        .await
    }

    /// A client of the older era that can be asked everything, also while a call is under way.
    pub(crate) async fn client(&self) -> McpClient {
        let mut client = McpClient::sse(self.address, "any", "2025-11-25").await;
        client.initialize(json!({ "elicitation": {}, "sampling": {}, "roots": {} })).await;
        client
    }

    /// Calls a tool, and returns its first text or the whole of its error.
    pub(crate) async fn call(&self, tool: &str) -> String {
        let result = self.client().await.call(tool, json!({})).await;
        said(&result)
    }
}

pub(crate) fn said(result: &Value) -> String {
    result["content"][0]["text"].as_str().map_or_else(|| result.to_string(), str::to_owned)
}

/// A hub with the fixtures of the conformance suite, as a server for another hub.
pub(crate) async fn conformance_hub() -> (BoxedHub, SocketAddr) {
    let registry = Registry::default();
    registry.add(conformance::family(registry.changes())).unwrap();
    let hub = BoxedHub::new(registry, false).unwrap();
    let address = hub.listen(0).await.unwrap();
    (hub, address)
}
