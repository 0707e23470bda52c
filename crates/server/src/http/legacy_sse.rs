//! HTTP+SSE transport of protocol revision 2024-11-05: an event stream down, a POST endpoint up.

use super::HttpApp;
use super::body::read_body;
use super::mcp::shutting_down;
use super::response::{empty, event_stream, plain, rpc_error};
use crate::dispatch::Exchange;
use crate::line::{log_request, notified};
use crate::session::McpSession;
use crate::stream::{ClientStream, MessageSink, PrimingEvent};
use axum::Extension;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use futures::StreamExt;
use portcullis_core::Client;
use portcullis_wire::era::RequestMeta;
use portcullis_wire::params::Params;
use portcullis_wire::{IncomingFrame, Message, RpcError, RpcRequest, message, sse};
use serde::Deserialize;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Bytes of responses that may queue for a client that does not read its stream.
const BACKLOG_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Opens the stream. Its first event has the POST endpoint.
pub(super) async fn open(State(app): State<HttpApp>, Extension(client): Extension<Arc<Client>>) -> Response {
    let stream = ClientStream::fleeting();
    let opened = McpSession::new(client, "sse", stream.clone())
        .and_then(|session| app.hub.sessions.add(&session).map(|()| session));
    let session = match opened {
        Ok(session) => session,
        Err(error) => return rpc_error(&app.hub.outgoing, StatusCode::SERVICE_UNAVAILABLE, None, error),
    };
    let endpoint = format!("/messages?session_id={}", session.id);
    let first = sse::event(None, Some("endpoint"), endpoint.as_bytes());
    let closed = session.closed.clone();
    let ended = {
        let (hub, stream) = (app.hub.clone(), stream.clone());
        // The session ends with its stream.
        move || {
            stream.finish();
            hub.sessions.remove(&session.id);
        }
    };
    let on_close = stream.clone();
    tokio::spawn(async move {
        closed.cancelled().await;
        on_close.finish();
    });
    let events = stream.read(0, PrimingEvent::No, Some(Box::new(ended)));
    event_stream(Body::from_stream(futures::stream::once(async move { Ok(first) }).chain(events)))
}

#[derive(Deserialize)]
pub(super) struct SessionQuery {
    session_id: Option<String>,
}

/// Accepts a message; the response goes to the stream.
pub(super) async fn post(
    State(app): State<HttpApp>,
    Extension(client): Extension<Arc<Client>>,
    Query(query): Query<SessionQuery>,
    body: Body,
) -> Response {
    let session = query.session_id.as_deref().and_then(|id| app.hub.sessions.find(id, &client));
    let Some(session) = session.filter(|session| session.transport == "sse") else {
        return plain(StatusCode::NOT_FOUND, "no such session; open `/sse` first\n");
    };
    if app.hub.is_closing() {
        return shutting_down(&app.hub, None);
    }
    if session.home.backlog() > BACKLOG_BYTES_MAX {
        portcullis_core::Limit::StreamBacklog.hit();
        app.hub.sessions.remove(&session.id);
        return plain(
            StatusCode::SERVICE_UNAVAILABLE,
            "the client does not read its stream; the session was closed\n",
        );
    }
    let bytes = match read_body(&app.hub, body).await {
        Ok(bytes) => bytes,
        Err(refused) => return refused,
    };
    let incoming = match message::parse(&bytes) {
        Ok(incoming) => incoming,
        Err(malformed) => {
            return rpc_error(
                &app.hub.outgoing,
                StatusCode::BAD_REQUEST,
                malformed.id.as_ref(),
                malformed.error,
            );
        }
    };
    let messages = match incoming {
        IncomingFrame::One(message) => vec![Ok(message)],
        IncomingFrame::Batch(batch) if session.revision().allows_batches() => batch.0,
        IncomingFrame::Batch(_) => {
            let reason = "this protocol revision has no batches; send one message per request";
            return rpc_error(
                &app.hub.outgoing,
                StatusCode::BAD_REQUEST,
                None,
                RpcError::invalid_request(reason),
            );
        }
    };
    for message in messages {
        match message {
            Err(malformed) => {
                let refused = app.hub.outgoing.response(malformed.id.as_ref(), Err(malformed.error));
                session.home.deliver(refused);
            }
            Ok(Message::Notification(notification)) => notified(&app.hub, &session, &notification),
            Ok(Message::Response(response)) => session.answer(&response),
            Ok(Message::Request(request)) => take(&app, &client, &session, &request),
        }
    }
    empty(StatusCode::ACCEPTED)
}

fn take(app: &HttpApp, client: &Arc<Client>, session: &Arc<McpSession>, request: &RpcRequest<'_>) {
    let (hub, cancel, id) = (app.hub.clone(), CancellationToken::new(), request.id.clone());
    let prepared = Params::parse(request.params).and_then(|params| {
        log_request(request, &params);
        let meta = RequestMeta::of(&params)?;
        let in_flight = session.begin(&id, &cancel, hub.limits.in_flight_max)?;
        let exchange = Exchange {
            id: request.id.clone(),
            hub: hub.clone(),
            // The client with its current scope, not that of the stream's start.
            client: client.clone(),
            revision: session.revision(),
            session: Some(session.clone()),
            sink: session.home.clone(),
            stream: None,
            meta,
            cancel,
        };
        Ok((exchange.prepare(request, &params), in_flight))
    });
    let home: Arc<dyn MessageSink> = session.home.clone();
    match prepared {
        Err(error) => home.deliver(hub.outgoing.response(Some(&id), Err(error))),
        Ok((job, in_flight)) => {
            let outgoing = hub.outgoing.clone();
            hub.running.spawn(async move {
                let answer = job.run().await;
                drop(in_flight);
                if let Some(answer) = answer {
                    home.deliver(outgoing.response(Some(&id), answer));
                }
            });
        }
    }
}
