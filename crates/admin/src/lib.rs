//! The admin interface: HTML page, JSON API, and sign-in.
//!
//! A trust boundary of its own: every request needs a session opened with a password. A client token is not accepted
//! here, and a session is not accepted at `/mcp`. What can be done is in `portcullis_ops`; [`sign_in`] authenticates;
//! [`api`] serves programs and [`page`] serves people.

pub mod api;
mod body;
mod headers;
mod http_status;
pub mod page;
mod redacted_desk;
pub mod sign_in;

pub use redacted_desk::{DeskResult, RedactedDesk, RedactedEventStream, RedactedValue};

use axum::Router;
use axum::middleware::map_response;
use portcullis_ops::tool_families::LiveZone;
use portcullis_ops::{Problem, ProblemCode};
use portcullis_server::http::MountedRoutes;
use sign_in::SignIn;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Path prefixes of the admin interface, and the root, which leads to it.
pub const UNDER: &[&str] = &["/", "/admin", "/api"];

/// State shared by all pages and routes.
#[derive(Clone)]
pub struct AdminApp {
    pub counter: RedactedDesk,
    pub sign_in: Arc<SignIn>,
    /// Cancelled at shutdown, to end event streams.
    pub closing: CancellationToken,
    /// The configured time zone, in which the pages tell times.
    pub zone: LiveZone,
}

/// Returns the router of the page and the API.
pub fn routes(app: AdminApp) -> Router {
    api::router(app.clone()).merge(page::router(app)).layer(map_response(headers::add_security_headers))
}

/// Mounts the page and the API next to `/mcp`, built at the first request.
pub fn mount(app: AdminApp) -> MountedRoutes {
    MountedRoutes::new(UNDER, move || routes(app))
}

/// Mounts a 403 with the reason, where the admin interface is disabled.
pub fn mount_refusal(reason: &'static str) -> MountedRoutes {
    let refuse = move || async move { api::refusal(Problem::new(ProblemCode::Forbidden, reason)) };
    MountedRoutes::new(UNDER, move || {
        Router::new().fallback(refuse).layer(map_response(headers::add_security_headers))
    })
}
