//! Who may talk to the hub over HTTP at all.
//!
//! A web page in a person's browser can send requests to this machine. It cannot set `Host` or `Origin`, so
//! both are compared, whole, with the few values that are ours. The token is asked for on loopback too:
//! other programs and other people are on this machine as well.

use super::App;
use super::reply::{self, plain};
use crate::sources::{Peer, Refused};
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::response::Response;
use portcullis_core::{Client, Limit};
use std::net::SocketAddr;
use std::sync::Arc;

/// The values of `Host` and `Origin` that are ours.
#[derive(Debug, Clone)]
pub struct Allowed {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Allowed {
    /// Returns what a listener at `address` answers to, with what the configuration adds.
    pub fn new(address: SocketAddr, extra_hosts: &[String], extra_origins: &[String]) -> Allowed {
        let port = address.port();
        let mut hosts = vec![address.to_string()];
        if address.ip().is_loopback() || address.ip().is_unspecified() {
            hosts.extend(["127.0.0.1", "localhost", "[::1]"].map(|name| format!("{name}:{port}")));
        }
        if address.ip().is_unspecified() {
            // Nobody's address; a browser that says it was tricked.
            hosts.remove(0);
        }
        if port == 80 {
            // Clients leave the usual port out.
            let bare: Vec<String> =
                hosts.iter().filter_map(|host| host.strip_suffix(":80").map(str::to_owned)).collect();
            hosts.extend(bare);
        }
        hosts.extend(extra_hosts.iter().map(|host| host.to_ascii_lowercase()));
        let mut origins: Vec<String> = hosts.iter().map(|host| format!("http://{host}")).collect();
        origins.extend(extra_origins.iter().map(|origin| origin.to_ascii_lowercase()));
        Allowed { hosts, origins }
    }

    fn host(&self, headers: &HeaderMap) -> bool {
        only(headers, header::HOST)
            .is_some_and(|host| self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host)))
    }

    /// Programs send no `Origin`; a browser always does where it matters.
    fn origin(&self, headers: &HeaderMap) -> bool {
        if !headers.contains_key(header::ORIGIN) {
            return true;
        }
        only(headers, header::ORIGIN)
            .is_some_and(|origin| self.origins.iter().any(|own| own.eq_ignore_ascii_case(origin)))
    }
}

/// Returns a header's value if it is there exactly once and is text.
fn only(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// The first check before every route, whoever it is for: by which name we are called, and from which page.
pub(super) fn check_sender<B>(app: &App, request: &Request<B>) -> Result<(), Response> {
    let headers = request.headers();
    let refused = |why: &'static str| Err(plain(StatusCode::FORBIDDEN, why));
    let allowed = app.allowed.load();
    if !allowed.host(headers) {
        return refused("this Host is not served here; see `http.allowed_hosts`\n");
    }
    if let Some(authority) = request.uri().authority()
        && !allowed.hosts.iter().any(|own| own.eq_ignore_ascii_case(authority.as_str()))
    {
        return refused("this address is not served here; see `http.allowed_hosts`\n");
    }
    if !allowed.origin(headers) {
        return refused("this Origin may not call; see `http.allowed_origins`\n");
    }
    Ok(())
}

/// The second check, before the routes of clients. Returns who asks; `None` where anyone may.
pub(super) fn check_token<B>(
    app: &App,
    peer: &Peer,
    request: &Request<B>,
) -> Result<Option<Arc<Client>>, Response> {
    // Load balancers and supervisors ask these; they tell nothing that is private.
    if matches!(request.uri().path(), "/healthz" | "/readyz") {
        return Ok(None);
    }
    authenticate(app, peer, request.headers()).map(Some)
}

/// Finds out who asks. A request that shows no token guesses nothing, so nothing is remembered of it.
fn authenticate(app: &App, peer: &Peer, headers: &HeaderMap) -> Result<Arc<Client>, Response> {
    let identity = &app.hub.identity;
    if !headers.contains_key(header::AUTHORIZATION) {
        return identity.authenticate(None).ok_or_else(|| reply::unauthorized(false));
    }
    let value = only(headers, header::AUTHORIZATION).and_then(|value| value.split_once(' '));
    let Some((scheme, token)) = value else { return Err(reply::unauthorized(true)) };
    if !scheme.eq_ignore_ascii_case("bearer") {
        return identity.authenticate(None).ok_or_else(|| reply::unauthorized(true));
    }
    let token = token.trim();
    let found = app.hub.sources.guesses.check(peer, token, || identity.authenticate(Some(token)));
    found.map_err(|refused| match refused {
        Refused::Wrong => reply::unauthorized(true),
        Refused::Wait(wait) => {
            Limit::TokenFailures.hit();
            reply::wait_for_token(wait)
        }
    })
}
