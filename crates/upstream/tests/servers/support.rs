//! A hub in a box with one upstream server and a client.

use portcullis_core::{ChangeNotifier, Effect, Pattern, Registry};
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::wait::until;
use portcullis_testkit::{BoxedHub, conformance, taken_as_it_is};
use portcullis_upstream::{
    HeaderSpec, HttpSpec, ServerSpec, ServerStatus, ServerTransport, StatusKind, Upstream,
};
use serde_json::{Value, json};
use std::net::SocketAddr;

pub(crate) fn spec(url: &str) -> ServerSpec {
    with_headers(url, Vec::new())
}

/// The same, with headers on every request.
pub(crate) fn with_headers(url: &str, headers: Vec<HeaderSpec>) -> ServerSpec {
    prefixed(HttpSpec { place: url.parse().unwrap(), headers, oauth: None, extra_roots: Vec::new() })
}

/// A server with destructive tools.
pub(crate) fn prefixed(transport: impl ServerTransport + 'static) -> ServerSpec {
    ServerSpec { prefix: "up_".to_owned(), effects: Vec::new(), ..taken_as_it_is("up", transport) }
}

/// The same, with read-only tools.
pub(crate) fn reads(url: &str) -> ServerSpec {
    ServerSpec { effects: vec![(Pattern::any(), Effect::Read)], ..spec(url) }
}

pub(crate) struct UpstreamFixture {
    pub(crate) upstream: Upstream,
    pub(crate) address: SocketAddr,
    /// Where providers announce changes.
    pub(crate) changes: ChangeNotifier,
    pub(crate) _hub: BoxedHub,
}

impl UpstreamFixture {
    pub(crate) async fn new(spec: ServerSpec) -> UpstreamFixture {
        let registry = Registry::default();
        let changes = registry.changes();
        let upstream = Upstream::start(spec, changes.clone());
        registry.add(upstream.clone()).unwrap();
        let hub = BoxedHub::new(registry, false).unwrap();
        let address = hub.listen(0).await.unwrap();
        UpstreamFixture { upstream, address, changes, _hub: hub }
    }

    pub(crate) async fn connected(spec: ServerSpec) -> UpstreamFixture {
        let world = UpstreamFixture::new(spec).await;
        world.status(StatusKind::Connected).await;
        world
    }

    /// Waits until the server has this status.
    pub(crate) async fn status(&self, kind: StatusKind) -> ServerStatus {
        until(&format!("the server is {}", kind.as_str()), async || {
            let status = self.upstream.status();
            (status.kind == kind).then_some(status)
        })
        .await
    }

    /// A client of the older era that supports every question, also during a call.
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
