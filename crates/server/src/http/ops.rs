//! What operators and supervisors look at.

use super::App;
use super::reply::{self, json, plain};
use crate::clean::Clean;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use portcullis_core::Client;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The process lives and answers.
pub(super) async fn healthz() -> Response {
    plain(StatusCode::OK, "ok\n")
}

/// Each component, with the reason where it does not work.
pub(super) async fn readyz(State(app): State<App>) -> Response {
    let mut components = Map::new();
    let mut ready = !app.hub.is_closing();
    for readiness in app.hub.ops.readiness() {
        ready &= readiness.state.is_ok();
        let shown = match readiness.state {
            Ok(()) => serde_json::json!({ "status": "ok" }),
            Err(reason) => serde_json::json!({ "status": "failed", "reason": reason }),
        };
        components.insert(readiness.component.to_owned(), shown);
    }
    if app.hub.is_closing() {
        let reason = "the hub is shutting down";
        components.insert("hub".to_owned(), serde_json::json!({ "status": "failed", "reason": reason }));
    }
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let word = if ready { "ready" } else { "not ready" };
    let body = serde_json::json!({ "status": word, "components": Value::Object(components) });
    json(status, app.hub.outgoing.page(body))
}

/// The numbers name every tool, so only a client that may see every tool gets them.
pub(super) async fn metrics(State(app): State<App>, Extension(client): Extension<Arc<Client>>) -> Response {
    if !client.scope.is_everything() {
        return plain(StatusCode::FORBIDDEN, "metrics need a client that may see and do everything\n");
    }
    let text = app.hub.ops.metrics(&app.hub.counts());
    // Whoever composes the hub knows where in the page names stand, and has taken secrets out of them.
    reply::metrics(Clean::guarded(text.into()))
}

pub(super) async fn not_found() -> Response {
    plain(StatusCode::NOT_FOUND, "nothing here; MCP is at /mcp\n")
}
