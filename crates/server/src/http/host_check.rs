//! Host, Origin and token checks of the HTTP transport.
//!
//! A web page in a person's browser can send requests to this machine (DNS rebinding, CSRF). It cannot set `Host` or
//! `Origin`, so both must equal an allowed value. The token is required on loopback too, because other users and
//! programs share the machine.

use super::HttpApp;
use super::response::{self, AuthChallenge, plain};
use crate::sources::{PeerConnection, TokenRefusal};
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::response::Response;
use portcullis_core::{Client, Limit};
use std::net::SocketAddr;
use std::sync::Arc;

/// The allowed values of `Host` and `Origin`.
#[derive(Debug, Clone)]
pub struct HostAllowlist {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl HostAllowlist {
    /// Returns the allowlist of a listener at `address`, with the additions of the configuration.
    pub fn new(address: SocketAddr, extra_hosts: &[String], extra_origins: &[String]) -> HostAllowlist {
        let port = address.port();
        let mut hosts = vec![address.to_string()];
        if address.ip().is_loopback() || address.ip().is_unspecified() {
            hosts.extend(["127.0.0.1", "localhost", "[::1]"].map(|name| format!("{name}:{port}")));
        }
        if address.ip().is_unspecified() {
            // 0.0.0.0 is not a valid destination; a browser that sends it was tricked.
            hosts.remove(0);
        }
        if port == 80 {
            // Clients omit the default port.
            let bare: Vec<String> =
                hosts.iter().filter_map(|host| host.strip_suffix(":80").map(str::to_owned)).collect();
            hosts.extend(bare);
        }
        hosts.extend(extra_hosts.iter().map(|host| host.to_ascii_lowercase()));
        let mut origins: Vec<String> = hosts.iter().map(|host| format!("http://{host}")).collect();
        origins.extend(extra_origins.iter().map(|origin| origin.to_ascii_lowercase()));
        HostAllowlist { hosts, origins }
    }

    fn host(&self, headers: &HeaderMap) -> bool {
        only(headers, header::HOST)
            .is_some_and(|host| self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host)))
    }

    /// Programs send no `Origin`; a browser sends one with every cross-origin request.
    fn origin(&self, headers: &HeaderMap) -> bool {
        if !headers.contains_key(header::ORIGIN) {
            return true;
        }
        only(headers, header::ORIGIN)
            .is_some_and(|origin| self.origins.iter().any(|own| own.eq_ignore_ascii_case(origin)))
    }
}

/// Returns the value of a header that occurs exactly once and is text.
fn only(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// The first check, before every route: `Host` and `Origin`.
pub(super) fn check_host_and_origin<B>(app: &HttpApp, request: &Request<B>) -> Result<(), Response> {
    let headers = request.headers();
    let refused = |why: &'static str| Err(plain(StatusCode::FORBIDDEN, why));
    let allowed = app.allowed.load();
    if !allowed.host(headers) {
        return refused("this Host is not allowed; see `http.allowed_hosts`\n");
    }
    if let Some(authority) = request.uri().authority()
        && !allowed.hosts.iter().any(|own| own.eq_ignore_ascii_case(authority.as_str()))
    {
        return refused("this request URI's host is not allowed; see `http.allowed_hosts`\n");
    }
    if !allowed.origin(headers) {
        return refused("this Origin is not allowed; see `http.allowed_origins`\n");
    }
    Ok(())
}

/// The second check, before the clients' routes. Returns the client; `None` for routes without authentication.
pub(super) fn check_token<B>(
    app: &HttpApp,
    peer: &PeerConnection,
    request: &Request<B>,
) -> Result<Option<Arc<Client>>, Response> {
    // For load balancers and supervisors; these reveal nothing private.
    if matches!(request.uri().path(), "/healthz" | "/readyz") {
        return Ok(None);
    }
    authenticate(app, peer, request.headers()).map(Some)
}

/// Authenticates the client. A request without a token is not a guess, so it does not count towards the lockout.
fn authenticate(app: &HttpApp, peer: &PeerConnection, headers: &HeaderMap) -> Result<Arc<Client>, Response> {
    let identity = &app.hub.identity;
    if !headers.contains_key(header::AUTHORIZATION) {
        return without_token(app, AuthChallenge::Missing);
    }
    let value = only(headers, header::AUTHORIZATION).and_then(|value| value.split_once(' '));
    let Some((scheme, token)) = value else { return Err(response::unauthorized(AuthChallenge::Invalid)) };
    if !scheme.eq_ignore_ascii_case("bearer") {
        return without_token(app, AuthChallenge::Invalid);
    }
    let token = token.trim();
    let found = app.hub.sources.guesses.check(peer, token, || identity.authenticate(Some(token)));
    found.map_err(|refused| match refused {
        TokenRefusal::Wrong => response::unauthorized(AuthChallenge::Invalid),
        TokenRefusal::Wait(wait) => {
            Limit::TokenFailures.hit();
            response::wait_for_token(wait)
        }
        TokenRefusal::Unchecked => response::clients_unavailable(),
    })
}

/// Admits a request without a token where the hub serves those.
fn without_token(app: &HttpApp, challenge: AuthChallenge) -> Result<Arc<Client>, Response> {
    let found = app.hub.identity.authenticate(None).map_err(|_| response::clients_unavailable())?;
    found.ok_or_else(|| response::unauthorized(challenge))
}
