//! HTTP transport: streamable HTTP, and the older HTTP+SSE.
//!
//! With streamable HTTP every message is its own request and is answered on it; with HTTP+SSE responses come over
//! one stream that is opened first. Streamable HTTP is tried first; a server that does not know it is tried with
//! HTTP+SSE on the same URL. Sessions and resumed streams belong to the older era; in the newer one every request is
//! independent.

mod error_status;
mod exchange;
mod legacy_sse;
mod notification_stream;
mod response_stream;

use crate::shutdown::Shutdown;
use crate::transport::{HttpSpec, Inbound, MESSAGE_BYTES_MAX, OutboundMessage, TransportLink};
use crate::transport::{LinkError, RequestError, ServerTransport, TransportHint, TransportParts};
use exchange::HttpExchanger;
use futures::future::{BoxFuture, FutureExt};
use portcullis_core::json::printable;
use portcullis_egress::Url;
use portcullis_egress::configured_client::{BodyReadError, ConfiguredResponse, Method};
use portcullis_egress::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use portcullis_store::pins::ServerIdentity;
use portcullis_wire::{ClientDialect, Revision, mirrored_headers};
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The timeout of a notification or a response. No caller waits for it.
const ONE_WAY_WITHIN: Duration = Duration::from_secs(30);
/// The timeout of the request that ends a session.
const END_WITHIN: Duration = Duration::from_secs(5);
/// How much is read of a response that only acknowledges a message.
const ACK_BYTES_MAX: usize = 64 * 1024;
/// The longest session id.
const SESSION_BYTES_MAX: usize = 4 * 1024;

const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// How messages travel over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    Streamable,
    /// HTTP+SSE, as of 2024-11-05.
    LegacySse,
}

impl Carrier {
    fn as_str(self) -> &'static str {
        match self {
            Carrier::Streamable => "streamable",
            Carrier::LegacySse => "sse",
        }
    }

    fn of(hint: &TransportHint) -> Option<Carrier> {
        [Carrier::Streamable, Carrier::LegacySse]
            .into_iter()
            .find(|carrier| carrier.as_str() == hint.as_str())
    }
}

impl ServerTransport for HttpSpec {
    fn open(&self, parts: TransportParts<'_>) -> Result<Arc<dyn TransportLink>, String> {
        open(self, parts)
    }

    fn identity(&self) -> BoxFuture<'_, ServerIdentity> {
        Box::pin(async {
            let mut facts = ServerIdentity::from([("url".to_owned(), self.place.to_string())]);
            // Another issuer makes it another server.
            if let Some(oauth) = &self.oauth
                && let Some(issuer) = oauth.issuer().await
            {
                facts.insert("issuer".to_owned(), issuer);
            }
            facts
        })
    }

    fn is_local(&self) -> bool {
        false
    }

    fn url(&self) -> Option<&Url> {
        self.place.url()
    }
}

/// Opens the transport. Nothing is sent yet.
fn open(spec: &HttpSpec, parts: TransportParts<'_>) -> Result<Arc<dyn TransportLink>, String> {
    let TransportParts { inbound, hint, shutdown, .. } = parts;
    let exchanges = HttpExchanger::new(spec).map_err(|error| error.to_string())?;
    let end = CancellationToken::new();
    let transport = Arc::new(HttpTransport {
        exchanges,
        inbound,
        known: hint.as_ref().and_then(Carrier::of),
        session: OnceLock::new(),
        revision: OnceLock::new(),
        agreed: OnceLock::new(),
        legacy_endpoint: OnceLock::new(),
        lost: AtomicBool::new(false),
        found: Mutex::default(),
        listening: AtomicBool::new(false),
        end: end.clone(),
        shutdown: shutdown.clone(),
    });
    Ok(Arc::new(HttpLink { transport, _end: end.drop_guard() }))
}

struct HttpLink {
    transport: Arc<HttpTransport>,
    _end: DropGuard,
}

/// The state of one connection.
struct HttpTransport {
    exchanges: HttpExchanger,
    inbound: Arc<dyn Inbound>,
    /// The carrier that worked before.
    known: Option<Carrier>,
    session: OnceLock<HeaderValue>,
    revision: OnceLock<Revision>,
    /// The headers of every message, once the revision is negotiated.
    agreed: OnceLock<HeaderMap>,
    /// The endpoint of HTTP+SSE; unset with streamable HTTP.
    legacy_endpoint: OnceLock<String>,
    /// Whether the server no longer knows the session.
    lost: AtomicBool,
    /// When the server last confirmed that it knows the session.
    found: Mutex<Option<Instant>>,
    listening: AtomicBool,
    end: CancellationToken,
    shutdown: Shutdown,
}

impl TransportLink for HttpLink {
    fn send<'a>(&'a self, message: OutboundMessage<'a>) -> BoxFuture<'a, Result<(), RequestError>> {
        let transport = &self.transport;
        Box::pin(async move {
            if message.id.is_some() {
                return transport.send(&message).await;
            }
            let late = LinkError::Failed {
                why: format!("the server did not accept a message within {} s", ONE_WAY_WITHIN.as_secs()),
                sent: true,
            };
            let sent = tokio::time::timeout(ONE_WAY_WITHIN, transport.send(&message)).await;
            sent.unwrap_or(Err(RequestError::Link(late)))?;
            if message.method == Some("notifications/initialized")
                && transport.legacy_endpoint.get().is_none()
            {
                transport.listen();
            }
            Ok(())
        })
    }

    fn set_revision(&self, revision: Revision) {
        let _ = self.transport.revision.set(revision);
    }

    fn cancels_on_drop(&self) -> bool {
        // Before the handshake is done there is nothing to cancel.
        self.transport.dialect().is_none_or(ClientDialect::cancels_on_disconnect)
    }

    fn hint(&self) -> Option<TransportHint> {
        let is_legacy = self.transport.legacy_endpoint.get().is_some();
        let carrier = if is_legacy { Carrier::LegacySse } else { Carrier::Streamable };
        Some(TransportHint::new(carrier.as_str()))
    }
}

impl HttpTransport {
    fn dialect(&self) -> Option<&'static dyn ClientDialect> {
        self.revision.get().map(|revision| revision.client())
    }

    async fn send(self: &Arc<Self>, message: &OutboundMessage<'_>) -> Result<(), RequestError> {
        if self.lost.load(Ordering::Relaxed) {
            return Err(RequestError::Link(LinkError::SessionLost));
        }
        if message.method == Some("initialize") && self.legacy_endpoint.get().is_none() {
            return self.send_first(message).await;
        }
        match self.legacy_endpoint.get() {
            Some(endpoint) => self.post_legacy(endpoint, message).await,
            None => self.post(message).await,
        }
    }

    /// Sends the first message of a session, with the carrier that is known to work, else with each in turn.
    async fn send_first(self: &Arc<Self>, message: &OutboundMessage<'_>) -> Result<(), RequestError> {
        if self.known == Some(Carrier::LegacySse) {
            return self.begin_legacy(message).await;
        }
        let newer = match self.post(message).await {
            Err(RequestError::Link(LinkError::Unsuitable { status, why })) if self.may_be_legacy(status) => {
                why
            }
            other => return other,
        };
        let Err(older) = self.begin_legacy(message).await else { return Ok(()) };
        // Which of the two was meant only a person knows, so the error has both.
        Err(match older {
            RequestError::Link(auth @ (LinkError::NeedsAuth(_) | LinkError::NeedsRegistration(_))) => {
                RequestError::Link(auth)
            }
            older => RequestError::Link(LinkError::Failed {
                why: format!("over streamable HTTP, {newer}; over HTTP+SSE, {older}"),
                sent: false,
            }),
        })
    }

    /// Returns whether a server with this response may be one of HTTP+SSE. Such servers were not made for a POST
    /// here, and answer with what their framework has: a page, a redirect, an error.
    fn may_be_legacy(&self, status: u16) -> bool {
        // A server that worked with streamable HTTP before is only out of order.
        let is_known = self.known == Some(Carrier::Streamable) && status >= 500;
        // A server that forbids this would forbid HTTP+SSE too.
        status != 403 && !is_known
    }

    /// Sends a message and hands the response to the demultiplexer.
    async fn post(self: &Arc<Self>, message: &OutboundMessage<'_>) -> Result<(), RequestError> {
        let headers = self.headers(Some(message));
        let mut reply = self
            .exchanges
            .send_with_retry(Method::POST, &headers, message.bytes.clone(), message.is_idempotent())
            .await?;
        if reply.status >= 300 {
            return Err(self.refused(reply, Some(message)).await);
        }
        if message.method == Some("initialize") {
            self.begin_session(&reply)?;
        }
        let Some(id) = message.id else {
            // Read to the end, so that the connection can be reused.
            let _ = reply.read(ACK_BYTES_MAX).await;
            return Ok(());
        };
        match kind(&reply) {
            ResponseFormat::Events => self.follow(reply, id).await,
            ResponseFormat::Json => {
                let body = reply.read(MESSAGE_BYTES_MAX).await.map_err(|unread| match unread {
                    BodyReadError::TooLarge => response_stream::TOO_LONG,
                    BodyReadError::Broken(error) => exchange::failed(error),
                })?;
                self.inbound.receive(&body, Some(id));
                self.answered(id, reply.status)
            }
            ResponseFormat::Other(what) => Err(RequestError::Link(LinkError::Unsuitable {
                status: reply.status,
                why: format!("the server responded with {what}, which is not MCP"),
            })),
        }
    }

    fn answered(&self, id: u64, status: u16) -> Result<(), RequestError> {
        if !self.inbound.awaits(id) {
            return Ok(());
        }
        let why = "the server's response is to another request".to_owned();
        Err(RequestError::Link(LinkError::Unsuitable { status, why }))
    }

    fn begin_session(self: &Arc<Self>, reply: &ConfiguredResponse) -> Result<(), RequestError> {
        let Some(session) = reply.headers.get(SESSION) else { return Ok(()) };
        if session.len() > SESSION_BYTES_MAX {
            let why = format!("the session id has {} bytes, the limit is {SESSION_BYTES_MAX}", session.len());
            return Err(RequestError::Link(LinkError::Failed { why, sent: true }));
        }
        let mut session = session.clone();
        session.set_sensitive(true);
        if self.session.set(session).is_ok() {
            // Not on drop: shutdown waits for this.
            self.shutdown.spawn(self.clone().end_session());
        }
        Ok(())
    }

    /// Waits for the end of the connection, or for shutdown, and ends the session at the server.
    async fn end_session(self: Arc<Self>) {
        tokio::select! {
            () = self.end.cancelled() => {}
            () = self.shutdown.requested() => {}
        }
        if self.lost.load(Ordering::Relaxed) {
            return;
        }
        let headers = self.headers(None);
        let deleting = self.exchanges.make(Method::DELETE, None, &headers, Default::default());
        // A server that refuses this, or is gone, expires the session by itself.
        let _ = tokio::time::timeout(END_WITHIN, deleting).await;
    }

    /// Returns the headers of a message; without one, those of a request that carries none.
    fn headers(&self, message: Option<&OutboundMessage<'_>>) -> Cow<'_, HeaderMap> {
        let Some(message) = message else { return Cow::Owned(self.known_headers(HeaderMap::new(), None)) };
        let usual = || self.exchanges.usual().clone();
        let asked = message.method.and_then(Revision::implied_by);
        let Some(revision) = self.revision.get().copied().or(asked) else {
            return Cow::Owned(self.known_headers(usual(), None));
        };
        let agreed = match asked {
            Some(_) => Cow::Owned(self.known_headers(usual(), asked)),
            // The same for every message from now on.
            None => Cow::Borrowed(self.agreed.get_or_init(|| self.known_headers(usual(), None))),
        };
        if !revision.client().mirrors_in_headers() {
            return agreed;
        }
        let mut headers = agreed.into_owned();
        let mut add = |name: HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::from_str(&mirrored_headers::encode(value)) {
                headers.insert(name, value);
            }
        };
        if let Some(method) = message.method {
            add(METHOD, method);
        }
        if let Some(name) = message.name {
            add(NAME, name);
        }
        for (name, value) in message.headers {
            if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
                add(name, value);
            }
        }
        Cow::Owned(headers)
    }

    /// Adds the session, and the negotiated revision or else `asked`.
    fn known_headers(&self, mut headers: HeaderMap, asked: Option<Revision>) -> HeaderMap {
        if let Some(session) = self.session.get() {
            headers.insert(SESSION, session.clone());
        }
        if let Some(revision) = self.revision.get().copied().or(asked) {
            headers.insert(VERSION, HeaderValue::from_static(revision.as_str()));
        }
        headers
    }

    /// The session is lost. Requests in flight find out by themselves; a new connection is needed.
    fn lose(&self) -> RequestError {
        self.lost.store(true, Ordering::Relaxed);
        self.inbound.lifecycle().retire();
        RequestError::Link(LinkError::SessionLost)
    }
}

/// The content type of a response.
enum ResponseFormat {
    Json,
    Events,
    Other(String),
}

fn kind(reply: &ConfiguredResponse) -> ResponseFormat {
    let said = reply.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let what = said.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match what.as_str() {
        "application/json" => ResponseFormat::Json,
        "text/event-stream" => ResponseFormat::Events,
        "" => ResponseFormat::Other(format!("status {} and nothing else", reply.status)),
        _ => ResponseFormat::Other(format!("`{}`", printable(&what))),
    }
}

/// Reads the rest of a response in the background, so that its connection can be reused.
fn finish(mut reply: ConfiguredResponse) {
    if let Some(Ok(None) | Err(_)) = reply.piece().now_or_never() {
        return;
    }
    tokio::spawn(async move {
        let rest = reply.read(ACK_BYTES_MAX);
        let _ = tokio::time::timeout(END_WITHIN, rest).await;
    });
}
