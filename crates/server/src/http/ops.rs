//! Health, readiness and metrics endpoints.

use super::HttpApp;
use super::response::{self, json, plain};
use crate::egress_filter::RedactedMessage;
use crate::services::ServiceState;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use portcullis_core::{Client, Health};
use serde_json::Map;
use std::sync::Arc;

/// Liveness.
pub(super) async fn healthz() -> Response {
    plain(StatusCode::OK, "ok\n")
}

/// Readiness of each component, with the reason if it failed.
pub(super) async fn readyz(State(app): State<HttpApp>) -> Response {
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
    let mut services = Map::new();
    for service in app.hub.service_statuses() {
        // A service that is started again does not make the hub unready: calls do not depend on it.
        ready &= service.health == Health::Ok;
        // Public, so the error itself, which may name a path, is for the log and `doctor`.
        let reason = match (&service.state, &service.health) {
            (ServiceState::Restarting(_), _) => {
                Some("it failed and is started again; see the hub's log".to_owned())
            }
            (_, Health::Failed(why)) => Some(why.clone()),
            (ServiceState::Running | ServiceState::Ended, Health::Ok) => None,
        };
        let shown = match reason {
            None => serde_json::json!({ "status": "ok" }),
            Some(reason) => {
                let status = if service.health == Health::Ok { "degraded" } else { "failed" };
                serde_json::json!({ "status": status, "reason": reason, "restarts": service.restarts })
            }
        };
        services.insert(service.name.to_owned(), shown);
    }
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let word = if ready { "ready" } else { "not ready" };
    let body = serde_json::json!({ "status": word, "components": components, "services": services });
    json(status, app.hub.outgoing.page(body))
}

/// Metrics contain the names of all tools, so only a client that may see every tool gets them.
pub(super) async fn metrics(
    State(app): State<HttpApp>,
    Extension(client): Extension<Arc<Client>>,
) -> Response {
    if !client.scope.is_everything() {
        return plain(StatusCode::FORBIDDEN, "metrics need a client whose scope allows everything\n");
    }
    let text = app.hub.ops.metrics(&app.hub.counts());
    // The binary renders the metrics, and redacts the names in them.
    response::metrics(RedactedMessage::already_redacted(text.into()))
}

pub(super) async fn not_found() -> Response {
    plain(StatusCode::NOT_FOUND, "not found; MCP is at /mcp\n")
}
