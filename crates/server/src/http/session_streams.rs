//! `GET` and `DELETE` at `/mcp`: the event streams of a session, and its end. Only for revisions with sessions.

use super::HttpApp;
use super::mcp::{SESSION_HEADER, VERSION_HEADER, text};
use super::response::{empty, event_stream, plain};
use crate::hub::Hub;
use crate::session::McpSession;
use crate::stream::PrimingEvent;
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use portcullis_core::Client;
use portcullis_wire::Revision;
use std::sync::Arc;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Opens the stream for messages without a request, or resumes a lost stream (`Last-Event-ID`).
pub(super) async fn get(
    State(app): State<HttpApp>,
    Extension(client): Extension<Arc<Client>>,
    headers: HeaderMap,
) -> Response {
    let session = match named(&app.hub, &client, &headers) {
        Ok(session) => session,
        Err(refused) => return refused,
    };
    if !text(&headers, header::ACCEPT).unwrap_or_default().contains("text/event-stream") {
        return plain(StatusCode::NOT_ACCEPTABLE, "send `Accept: text/event-stream`\n");
    }
    let found = match text(&headers, LAST_EVENT_ID) {
        Some(event_id) => session.find_stream(event_id),
        None => session.find_stream("s0-0").map(|(stream, _)| {
            let taken = stream.taken();
            (stream, taken)
        }),
    };
    let Some((stream, after)) = found else {
        return plain(StatusCode::NOT_FOUND, "that stream has expired; send the request again\n");
    };
    let prime = if session.revision().primes_streams() { PrimingEvent::Yes } else { PrimingEvent::No };
    let (was_reached, reading) = (session.is_reached(), session.reading(&stream));
    if session.is_reached() && !was_reached {
        app.hub.sessions.roots_changed(&session);
    }
    event_stream(Body::from_stream(stream.read(after, prime, Some(reading))))
}

/// Ends a session.
pub(super) async fn delete(
    State(app): State<HttpApp>,
    Extension(client): Extension<Arc<Client>>,
    headers: HeaderMap,
) -> Response {
    match named(&app.hub, &client, &headers) {
        Ok(session) => {
            app.hub.sessions.remove(&session.id);
            empty(StatusCode::NO_CONTENT)
        }
        Err(refused) => refused,
    }
}

/// Finds the session of a request without a body.
fn named(hub: &Hub, client: &Client, headers: &HeaderMap) -> Result<Arc<McpSession>, Response> {
    let version = text(headers, VERSION_HEADER).and_then(Revision::parse);
    if version.is_some_and(|version| !version.server().accepts_get()) {
        return Err(not_allowed());
    }
    let Some(id) = text(headers, SESSION_HEADER) else {
        let reason = "send `Mcp-Session-Id`, as `initialize` returned it\n";
        return Err(plain(StatusCode::BAD_REQUEST, reason));
    };
    hub.sessions.find(id, client).ok_or_else(|| {
        plain(StatusCode::NOT_FOUND, "no such session; send `initialize` to begin a new one\n")
    })
}

fn not_allowed() -> Response {
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "this protocol revision uses POST only\n");
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
    response
}
