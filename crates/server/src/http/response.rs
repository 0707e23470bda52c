//! HTTP responses.

use crate::egress_filter::{EgressFilter, RedactedMessage};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use portcullis_wire::{RequestId, RpcError};
use std::time::Duration;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

fn with(status: StatusCode, content_type: HeaderValue, body: Body) -> Response {
    with_headers(HeaderMap::new(), status, content_type, body)
}

fn with_headers(
    mut headers: HeaderMap,
    status: StatusCode,
    content_type: HeaderValue,
    body: Body,
) -> Response {
    headers.insert(header::CONTENT_TYPE, content_type);
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// A constant text.
pub(super) fn plain(status: StatusCode, text: &'static str) -> Response {
    let text = Body::from(RedactedMessage::words(text).into_bytes());
    with(status, HeaderValue::from_static("text/plain; charset=utf-8"), text)
}

pub(super) fn json(status: StatusCode, body: RedactedMessage) -> Response {
    with(status, JSON, Body::from(body.into_bytes()))
}

/// The same in an existing header map, which hyper reuses for the next request.
pub(super) fn json_in(mut headers: HeaderMap, status: StatusCode, body: RedactedMessage) -> Response {
    headers.clear();
    with_headers(headers, status, JSON, Body::from(body.into_bytes()))
}

/// Metrics for Prometheus.
pub(super) fn metrics(page: RedactedMessage) -> Response {
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    with(StatusCode::OK, HeaderValue::from_static(content_type), Body::from(page.into_bytes()))
}

pub(super) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// A JSON-RPC error as the whole response.
pub(super) fn rpc_error(
    outgoing: &EgressFilter,
    status: StatusCode,
    id: Option<&RequestId>,
    error: RpcError,
) -> Response {
    json(status, outgoing.response(id, Err(error)))
}

pub(super) fn event_stream(body: Body) -> Response {
    let mut response = with(StatusCode::OK, HeaderValue::from_static("text/event-stream"), body);
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // A buffering proxy would delay input requests to the client.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Why a request is challenged to authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AuthChallenge {
    /// It has no token.
    Missing,
    /// Its token is not valid.
    Invalid,
}

/// 401 with a challenge.
pub(super) fn unauthorized(challenge: AuthChallenge) -> Response {
    let text = "a client token is required: `Authorization: Bearer pcl_…`; create one with `portcullis clients add NAME`\n";
    let mut response = plain(StatusCode::UNAUTHORIZED, text);
    let challenge = match challenge {
        AuthChallenge::Invalid => r#"Bearer realm="portcullis", error="invalid_token""#,
        AuthChallenge::Missing => r#"Bearer realm="portcullis""#,
    };
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    response
}

/// When a client tries again whose token could not be checked. The clients are read again within a second.
const UNAVAILABLE_RETRY_SECONDS: u64 = 2;

/// 503 where the clients cannot be read; the token was not checked.
pub(super) fn clients_unavailable() -> Response {
    let text = "the clients cannot be read at the moment, so this token was not checked; wait for `Retry-After` seconds; an \
        administrator finds the cause with `portcullis doctor`\n";
    let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, text);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(UNAVAILABLE_RETRY_SECONDS));
    response
}

/// 429 for a source that is locked out; the token was not checked.
pub(super) fn wait_for_token(wait: Duration) -> Response {
    // Rounded up, so that a retry after that many seconds is allowed.
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let text = "too many wrong tokens from this address, so this one was not checked; wait for `Retry-After` seconds, then \
        send a token from `portcullis clients add NAME`; clients that authenticated before are not affected\n";
    let mut response = plain(StatusCode::TOO_MANY_REQUESTS, text);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}
