//! Streamable HTTP.
//!
//! A response is plain JSON if it is the only message. The first progress notification, log message or input request
//! turns the response into an event stream.

use super::HttpApp;
use super::body::{Readable, read_body};
use super::response::{empty, json, json_in, plain, rpc_error};
use super::running_request::RunningRequest;
use crate::dispatch::{Exchange, RequestJob};
use crate::egress_filter::{EgressFilter, RedactedMessage, RpcReply};
use crate::hub::Hub;
use crate::line::{log_request, notified};
use crate::session::McpSession;
use crate::stream::{ClientStream, MessageSink, PrimingEvent};
use axum::Extension;
use axum::extract::State;
use axum::http::header::AsHeaderName;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use portcullis_core::Client;
use portcullis_wire::era::{self, RequestMeta};
use portcullis_wire::message::{self, RpcBatch};
use portcullis_wire::params::{ParamKey, Params};
use portcullis_wire::{
    IncomingFrame, Message, RequestId, Revision, RpcError, RpcMethod, RpcRequest,
    mirrored_headers as mirrored, rpc,
};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

// Typed names, because strings would be parsed for every request.
pub(super) const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const VERSION_HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");

pub(super) fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Returns the value of a header that occurs exactly once. Of two, a proxy may have checked the other.
fn only_text<K: AsHeaderName>(headers: &HeaderMap, name: K) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

pub(super) async fn post(
    State(app): State<HttpApp>,
    Extension(client): Extension<Arc<Client>>,
    request: axum::extract::Request,
) -> Response {
    take(app.hub, client, request).await
}

/// Handles a POST to `/mcp`.
pub(super) async fn take(
    hub: Arc<Hub>,
    client: Arc<Client>,
    request: axum::http::Request<impl Readable>,
) -> Response {
    // Destructured by hand: an extractor would copy the header map.
    let (Parts { headers, .. }, body) = request.into_parts();
    if let Err(refused) = acceptable(&headers) {
        return refused;
    }
    let bytes = match read_body(&hub, body).await {
        Ok(bytes) => bytes,
        Err(refused) => return refused,
    };
    let post = PostRequest { hub, client, headers };
    let begun = match message::parse(&bytes) {
        Err(malformed) => {
            let id = malformed.id.as_ref();
            return rpc_error(&post.hub.outgoing, StatusCode::BAD_REQUEST, id, malformed.error);
        }
        Ok(IncomingFrame::One(Message::Request(request))) => post.request(&request),
        Ok(IncomingFrame::One(message)) => return post.no_request(&message),
        Ok(IncomingFrame::Batch(batch)) => return Box::pin(post.batch(batch)).await,
    };
    // The job owns what it needs and may wait for a person, so the message buffer is freed.
    drop(bytes);
    match begun {
        PostOutcome::Answered(response) => response,
        PostOutcome::UnderWay(under_way) => under_way.answer().await,
    }
}

/// A request after its message was parsed: responded to, or in flight.
enum PostOutcome {
    Answered(Response),
    UnderWay(Box<PendingResponse>),
}

impl From<Response> for PostOutcome {
    fn from(response: Response) -> PostOutcome {
        PostOutcome::Answered(response)
    }
}

/// `curl -d` sends the form content type with JSON; any other type that is not JSON is refused.
fn acceptable(headers: &HeaderMap) -> Result<(), Response> {
    let content_type = text(headers, header::CONTENT_TYPE).unwrap_or("application/json");
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let is_known = |known: &str| essence.eq_ignore_ascii_case(known);
    if !["application/json", "application/x-www-form-urlencoded"].into_iter().any(is_known) {
        let reason = "send `Content-Type: application/json`\n";
        return Err(plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
    }
    if !AcceptHeader::of(headers).anything {
        let reason = "send `Accept: application/json, text/event-stream`\n";
        return Err(plain(StatusCode::NOT_ACCEPTABLE, reason));
    }
    Ok(())
}

/// The content types that a client accepts. Without an `Accept` header, all.
#[derive(Debug, Clone, Copy)]
struct AcceptHeader {
    /// Whether it accepts JSON or events.
    anything: bool,
    events: bool,
}

impl AcceptHeader {
    fn of(headers: &HeaderMap) -> AcceptHeader {
        let accept = text(headers, header::ACCEPT).unwrap_or("*/*");
        // Fast path for the value that nearly all clients send.
        if accept == "application/json, text/event-stream" {
            return AcceptHeader { anything: true, events: true };
        }
        let one_of = |types: &[&str]| types.iter().any(|wanted| accept.contains(wanted));
        let events = one_of(&["*/*", "text/*", "text/event-stream"]);
        AcceptHeader {
            anything: one_of(&["*/*", "text/event-stream", "application/*", "application/json"]),
            events,
        }
    }
}

struct PostRequest {
    hub: Arc<Hub>,
    client: Arc<Client>,
    headers: HeaderMap,
}

impl PostRequest {
    /// Finds the session in the header. `Ok(None)` if there is no header.
    fn session(&self) -> Result<Option<Arc<McpSession>>, Response> {
        let Some(id) = text(&self.headers, SESSION_HEADER) else { return Ok(None) };
        match self.hub.sessions.find(id, &self.client) {
            Some(session) => Ok(Some(session)),
            None => {
                let error =
                    RpcError::invalid_request("no such session; send `initialize` to begin a new one");
                Err(rpc_error(&self.hub.outgoing, StatusCode::NOT_FOUND, None, error))
            }
        }
    }

    /// Handles a notification, or the response to a request of the hub.
    fn no_request(&self, message: &Message<'_>) -> Response {
        match (self.session(), message) {
            (Err(refused), _) => return refused,
            (Ok(Some(session)), Message::Notification(notification)) => {
                notified(&self.hub, &session, notification)
            }
            (Ok(Some(session)), Message::Response(response)) => session.answer(response),
            (Ok(_), _) => {}
        }
        empty(StatusCode::ACCEPTED)
    }

    fn request(self, request: &RpcRequest<'_>) -> PostOutcome {
        if self.hub.is_closing() {
            return shutting_down(&self.hub, Some(&request.id)).into();
        }
        let refused =
            |error| rpc_error(&self.hub.outgoing, StatusCode::BAD_REQUEST, Some(&request.id), error);
        let params = match Params::parse(request.params) {
            Ok(params) => params,
            Err(error) => return refused(error).into(),
        };
        log_request(request, &params);
        let prepared = RequestMeta::of(&params).and_then(|meta| {
            let revision = era::revision_of_http(only_text(&self.headers, VERSION_HEADER), &meta)?;
            Ok((meta, revision))
        });
        let (meta, revision) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return refused(error).into(),
        };
        match revision {
            Some(revision) if !revision.server().keeps_session() => {
                if let Err(error) = self.headers_agree(revision, request, &params) {
                    let status = status_of(revision, &error);
                    return rpc_error(&self.hub.outgoing, status, Some(&request.id), error).into();
                }
                let stream = ClientStream::fleeting();
                self.run(revision, None, stream, meta, request, &params)
            }
            revision => self.with_session(revision, meta, request, &params),
        }
    }

    fn with_session(
        self,
        revision: Option<Revision>,
        meta: RequestMeta,
        request: &RpcRequest<'_>,
        params: &Params<'_>,
    ) -> PostOutcome {
        if request.method == "initialize" {
            return self.initialize(meta, request, params);
        }
        let session = match self.session() {
            Ok(session) => session,
            Err(refused) => return refused.into(),
        };
        let (revision, stream) = match &session {
            Some(session) => (session.revision(), ClientStream::resumable()),
            None => (revision.unwrap_or(Revision::NEWEST_WITH_SESSIONS), ClientStream::fleeting()),
        };
        self.run(revision, session, stream, meta, request, params)
    }

    fn initialize(self, meta: RequestMeta, request: &RpcRequest<'_>, params: &Params<'_>) -> PostOutcome {
        let hub = self.hub.clone();
        let no_room = |error| {
            rpc_error(&hub.outgoing, StatusCode::SERVICE_UNAVAILABLE, Some(&request.id), error).into()
        };
        let session = match McpSession::streaming(self.client.clone(), "http") {
            Ok(session) => session,
            Err(error) => return no_room(error),
        };
        let stream = ClientStream::fleeting();
        let revision = Revision::NEWEST_WITH_SESSIONS;
        let mut begun = self.run(revision, Some(session.clone()), stream, meta, request, params);
        // The response to `initialize` is ready without waiting.
        if let PostOutcome::Answered(response) = &mut begun
            && session.is_initialized()
        {
            if let Err(error) = hub.sessions.add(&session) {
                return no_room(error);
            }
            if let Ok(id) = HeaderValue::from_str(&session.id) {
                response.headers_mut().insert(SESSION_HEADER, id);
            }
        }
        begun
    }

    /// Checks that the headers which repeat parts of the body agree with it.
    fn headers_agree(
        &self,
        revision: Revision,
        request: &RpcRequest<'_>,
        params: &Params<'_>,
    ) -> Result<(), RpcError> {
        let Some(method) = RpcMethod::of(revision, &request.method) else {
            return Err(RpcError::method_not_found(&request.method));
        };
        let header = |name: &str| only_text(&self.headers, name);
        mirrored::check("Mcp-Method", header("mcp-method"), &request.method)?;
        let named_by = match method {
            RpcMethod::CallTool | RpcMethod::GetPrompt => Some(ParamKey::Name),
            RpcMethod::ReadResource => Some(ParamKey::Uri),
            RpcMethod::GetTask | RpcMethod::UpdateTask | RpcMethod::CancelTask => Some(ParamKey::TaskId),
            _ => None,
        };
        let Some(key) = named_by else { return Ok(()) };
        let name = params.text(key)?;
        mirrored::check("Mcp-Name", header("mcp-name"), &name)?;
        if method == RpcMethod::CallTool
            && let Some(tool) =
                self.hub.gate.find_tool_if(&crate::dispatch::caller(&self.client), &name, |tool| {
                    mirrored::mirrors_arguments(&tool.input_schema)
                })
        {
            let arguments = params.optional_object(ParamKey::Arguments)?.unwrap_or_default();
            mirrored::check_arguments(&tool.input_schema, &arguments.into(), header)?;
        }
        Ok(())
    }

    fn run(
        self,
        revision: Revision,
        session: Option<Arc<McpSession>>,
        stream: Arc<ClientStream>,
        meta: RequestMeta,
        request: &RpcRequest<'_>,
        params: &Params<'_>,
    ) -> PostOutcome {
        let PostRequest { hub, client, mut headers } = self;
        let (id, cancel) = (request.id.clone(), CancellationToken::new());
        let begun = session.as_ref().map(|s| s.begin(&id, &cancel, hub.limits.in_flight_max)).transpose();
        let in_flight = match begun {
            Ok(in_flight) => in_flight,
            Err(error) => return rpc_error(&hub.outgoing, StatusCode::OK, Some(&id), error).into(),
        };
        let exchange = Exchange {
            id: id.clone(),
            hub: hub.clone(),
            client,
            revision,
            session: session.clone(),
            sink: stream.clone(),
            stream: Some(stream.clone()),
            meta,
            cancel: cancel.clone(),
        };
        let job = exchange.prepare(request, params);
        if let RequestJob::Ready(answer) = job {
            drop(in_flight);
            return answered(headers, &hub.outgoing, revision, &id, Some(answer)).into();
        }
        let work = async move {
            let answer = job.run().await;
            drop(in_flight);
            answer
        };
        let under_way = hub.running.token();
        let running =
            RunningRequest::new(Box::pin(work), revision, stream.clone(), id.clone(), hub, cancel, under_way);
        // A client that accepts no events gets the response without the messages before it.
        let streams = AcceptHeader::of(&headers).events;
        // The request headers are not kept for the duration of the call.
        headers.clear();
        PostOutcome::UnderWay(Box::new(PendingResponse {
            running,
            revision,
            stream,
            streams,
            session,
            id,
            headers,
        }))
    }

    /// Handles a batch, for the revisions that have it. The response is one JSON array.
    async fn batch(self, batch: RpcBatch<'_>) -> Response {
        if self.hub.is_closing() {
            return shutting_down(&self.hub, None);
        }
        let session = match self.session() {
            Ok(session) => session,
            Err(refused) => return refused,
        };
        let asked = text(&self.headers, VERSION_HEADER).and_then(Revision::parse);
        let revision = session.as_ref().map(|session| session.revision()).or(asked);
        if !revision.is_some_and(Revision::allows_batches) {
            let reason = "this protocol revision has no batches; send one message per request";
            return rpc_error(
                &self.hub.outgoing,
                StatusCode::BAD_REQUEST,
                None,
                RpcError::invalid_request(reason),
            );
        }
        let outgoing = &self.hub.outgoing;
        let mut answers = Vec::new();
        for item in batch.0 {
            match item {
                Err(malformed) => {
                    answers.push(outgoing.response(malformed.id.as_ref(), Err(malformed.error)))
                }
                Ok(Message::Request(request)) if request.method == "initialize" => {
                    let error = RpcError::invalid_request("`initialize` must not be part of a batch");
                    answers.push(outgoing.response(Some(&request.id), Err(error)));
                }
                Ok(Message::Request(request)) => {
                    let answer = self.run_one(revision, session.clone(), &request).await;
                    if let Some(answer) = answer {
                        answers.push(outgoing.response(Some(&request.id), answer));
                    }
                }
                Ok(message) => drop(self.no_request(&message)),
            }
        }
        if answers.is_empty() {
            return empty(StatusCode::ACCEPTED);
        }
        json(StatusCode::OK, RedactedMessage::batch(&answers))
    }

    async fn run_one(
        &self,
        revision: Option<Revision>,
        session: Option<Arc<McpSession>>,
        request: &RpcRequest<'_>,
    ) -> Option<RpcReply> {
        let cancel = CancellationToken::new();
        let prepared = Params::parse(request.params).and_then(|params| {
            let meta = RequestMeta::of(&params)?;
            let begun =
                session.as_ref().map(|s| s.begin(&request.id, &cancel, self.hub.limits.in_flight_max));
            let in_flight = begun.transpose()?;
            // A batch has no stream of its own; notifications go to the session's.
            let sink: Arc<dyn MessageSink> = match &session {
                Some(session) => session.home.clone(),
                None => ClientStream::fleeting(),
            };
            let exchange = Exchange {
                id: request.id.clone(),
                hub: self.hub.clone(),
                client: self.client.clone(),
                revision: revision.unwrap_or(Revision::NEWEST_WITH_BATCHES),
                session: session.clone(),
                sink,
                stream: None,
                meta,
                cancel: cancel.clone(),
            };
            Ok((exchange.prepare(request, &params), in_flight))
        });
        match prepared {
            Err(error) => Some(Err(error)),
            Ok((job, _in_flight)) => self.hub.running.track_future(job.run()).await,
        }
    }
}

/// A request in flight.
struct PendingResponse {
    running: RunningRequest,
    revision: Revision,
    stream: Arc<ClientStream>,
    /// Whether the response may be an event stream.
    streams: bool,
    session: Option<Arc<McpSession>>,
    id: RequestId,
    /// Empty, reused for the response headers.
    headers: HeaderMap,
}

impl PendingResponse {
    /// Waits for the response, or for the first message before it.
    async fn answer(self) -> Response {
        let PendingResponse { mut running, revision, stream, streams, session, id, headers } = self;
        tokio::select! {
            biased;
            answer = &mut running => match answer {
                // Messages were queued before the response; they go first.
                Some(answer) if streams && stream.backlog() > 0 => {
                    stream.deliver(running.hub.outgoing.response(Some(&id), answer));
                    stream.finish();
                    running.into_stream(PrimingEvent::No, session)
                }
                answer => answered(headers, &running.hub.outgoing, revision, &id, answer),
            },
            () = stream.has_event(), if streams => {
                let prime = match &session {
                    Some(session) if session.revision().primes_streams() => PrimingEvent::Yes,
                    _ => PrimingEvent::No,
                };
                running.into_stream(prime, session)
            }
        }
    }
}

/// The response to a request during shutdown.
pub(super) fn shutting_down(hub: &Hub, id: Option<&RequestId>) -> Response {
    let error = RpcError::new(rpc::SERVER_ERROR, "the hub is shutting down; try again");
    rpc_error(&hub.outgoing, StatusCode::SERVICE_UNAVAILABLE, id, error)
}

fn status_of(revision: Revision, error: &RpcError) -> StatusCode {
    StatusCode::from_u16(revision.server().http_status(error)).unwrap_or(StatusCode::OK)
}

fn answered(
    headers: HeaderMap,
    outgoing: &EgressFilter,
    revision: Revision,
    id: &RequestId,
    answer: Option<RpcReply>,
) -> Response {
    // A client that cancelled gets no result.
    let Some(answer) = answer else { return empty(StatusCode::ACCEPTED) };
    let status = answer.as_ref().err().map_or(StatusCode::OK, |error| status_of(revision, error));
    json_in(headers, status, outgoing.response(Some(id), answer))
}
