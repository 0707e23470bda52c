//! Where people see what agents do, decide what waits and change what is allowed: a page, a JSON API,
//! and how to sign in to them.
//!
//! Its own trust boundary. Whoever comes here shows a session that a person opened with a password; the token of an
//! agent opens nothing here, and a session opens nothing at `/mcp`. [`desk`] is what can be seen and done, as plain
//! types that the binary fills in; [`sign_in`] is who may; [`api`] is the way in for programs, and
//! [`page`] the one for people.

pub mod api;
mod body;
mod clean;
pub mod desk;
mod headers;
pub mod page;
mod problem;
pub mod sign_in;

pub use clean::{Asked, Clean, Counter, Listening};
pub use problem::{Code, Problem};

use axum::Router;
use axum::middleware::map_response;
use portcullis_server::http::Beside;
use sign_in::SignIn;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What the paths of everything here begin with.
pub const UNDER: &[&str] = &["/admin", "/api"];

/// What every page and every route has.
#[derive(Clone)]
pub struct App {
    pub counter: Counter,
    pub sign_in: Arc<SignIn>,
    /// Cancelled when the hub stops: streams end.
    pub closing: CancellationToken,
}

/// Returns everything here.
pub fn routes(app: App) -> Router {
    api::router(app.clone()).merge(page::router(app)).layer(map_response(headers::secured))
}

/// Returns everything here, to be served beside MCP once somebody comes.
pub fn beside(app: App) -> Beside {
    Beside::new(UNDER, move || routes(app))
}

/// Returns what is served in its place where people may not come: the reason.
pub fn refusing(reason: &'static str) -> Beside {
    let refuse = move || async move { api::refusal(Problem::new(Code::Forbidden, reason)) };
    Beside::new(UNDER, move || Router::new().fallback(refuse).layer(map_response(headers::secured)))
}
