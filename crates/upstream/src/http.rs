//! A server that is reached over HTTP.
//!
//! Two ways lead to one: streamable HTTP, where every message is a request of its own and is answered on it, and the
//! older HTTP+SSE, where answers come over one stream that is opened first. The first is tried first; a server that
//! does not know it is asked the older way, on the same address. Sessions, and streams that are taken up again, are of
//! the older era; in the newer one every request stands alone.

mod exchange;
mod listen;
mod old;
mod refused;
mod stream;

use crate::connection::{LinkError, RequestError};
use crate::inbox::Inbox;
use crate::link::{Carrier, Credentials, Link, MESSAGE_BYTES_MAX, Outgoing};
use crate::spec::HttpSpec;
use crate::stdio;
use exchange::Exchanges;
use futures::future::{BoxFuture, FutureExt};
use portcullis_core::json::printable;
use portcullis_egress::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use portcullis_egress::own::{Method, Reply, Unread};
use portcullis_wire::{Era, Revision, header};
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long what is only said, not asked, may take. Nobody waits for it.
const ASIDE_WITHIN: Duration = Duration::from_secs(30);
/// How long a server may take to hear that a session is over.
const END_WITHIN: Duration = Duration::from_secs(5);
/// How much is read of an answer that says no more than that a message arrived.
const TAKEN_BYTES_MAX: usize = 64 * 1024;
/// The longest name of a session.
const SESSION_BYTES_MAX: usize = 4 * 1024;

const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Makes the way to a server. Nothing is sent yet. `known` is what worked before.
pub(crate) fn open(
    spec: &HttpSpec,
    inbox: Arc<Inbox>,
    credentials: Option<Arc<dyn Credentials>>,
    known: Option<Carrier>,
) -> Result<Arc<dyn Link>, String> {
    let exchanges = Exchanges::new(spec, credentials).map_err(|error| error.to_string())?;
    let end = CancellationToken::new();
    let way = Arc::new(Way {
        exchanges,
        inbox,
        known,
        session: OnceLock::new(),
        revision: OnceLock::new(),
        agreed: OnceLock::new(),
        old: OnceLock::new(),
        lost: AtomicBool::new(false),
        found: Mutex::default(),
        listening: AtomicBool::new(false),
        end: end.clone(),
    });
    Ok(Arc::new(HttpLink { way, _end: end.drop_guard() }))
}

struct HttpLink {
    way: Arc<Way>,
    _end: DropGuard,
}

/// The way to one server, and what was agreed on it.
struct Way {
    exchanges: Exchanges,
    inbox: Arc<Inbox>,
    known: Option<Carrier>,
    session: OnceLock<HeaderValue>,
    revision: OnceLock<Revision>,
    /// What every message says outside of it, once all is agreed.
    agreed: OnceLock<HeaderMap>,
    /// Where messages go the older way; `None` as long as the newer way is used.
    old: OnceLock<String>,
    /// The server does not know the session any more.
    lost: AtomicBool,
    /// When the server last said, because it was asked, that it still knows the session.
    found: Mutex<Option<Instant>>,
    listening: AtomicBool,
    end: CancellationToken,
}

impl Link for HttpLink {
    fn send<'a>(&'a self, message: Outgoing<'a>) -> BoxFuture<'a, Result<(), RequestError>> {
        let way = &self.way;
        Box::pin(async move {
            if message.id.is_some() {
                return way.send(&message).await;
            }
            let late = LinkError::Failed {
                why: format!("the server did not take a message within {} s", ASIDE_WITHIN.as_secs()),
                sent: true,
            };
            let sent = tokio::time::timeout(ASIDE_WITHIN, way.send(&message)).await;
            sent.unwrap_or(Err(RequestError::Link(late)))?;
            if message.method == Some("notifications/initialized") && way.old.get().is_none() {
                way.listen();
            }
            Ok(())
        })
    }

    fn speaks(&self, revision: Revision) {
        let _ = self.way.revision.set(revision);
    }

    fn hears_giving_up(&self) -> bool {
        // While nothing is agreed there is nothing that could be taken back.
        self.way.era() != Some(Era::Sessions)
    }

    fn carrier(&self) -> Carrier {
        if self.way.old.get().is_some() { Carrier::Sse } else { Carrier::Usual }
    }
}

impl Way {
    fn era(&self) -> Option<Era> {
        self.revision.get().map(|revision| revision.era())
    }

    async fn send(self: &Arc<Self>, message: &Outgoing<'_>) -> Result<(), RequestError> {
        if self.lost.load(Ordering::Relaxed) {
            return Err(RequestError::Link(LinkError::SessionLost));
        }
        if message.method == Some("initialize") && self.old.get().is_none() {
            return self.first(message).await;
        }
        match self.old.get() {
            Some(endpoint) => self.post_old(endpoint, message).await,
            None => self.post(message).await,
        }
    }

    /// Sends the first message of a session: by the way that is known to work, else by both in turn.
    async fn first(self: &Arc<Self>, message: &Outgoing<'_>) -> Result<(), RequestError> {
        if self.known == Some(Carrier::Sse) {
            return self.begin_old(message).await;
        }
        let newer = match self.post(message).await {
            Err(RequestError::Link(LinkError::Unsuitable { status, why })) if self.is_old(status) => why,
            other => return other,
        };
        let Err(older) = self.begin_old(message).await else { return Ok(()) };
        // Which of the two was meant is for a person to say, so both are told.
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

    /// Returns whether a server that answers so may be one of the older way. Such servers were never made to be asked
    /// like this, and answer with whatever their framework has: a page, a redirect, a fault.
    fn is_old(&self, status: u16) -> bool {
        // One that worked the newer way before is only out of order.
        let is_known = self.known == Some(Carrier::Usual) && status >= 500;
        // Who is not let in would not be let in there either.
        status != 403 && !is_known
    }

    /// Sends a message and hands what comes back to the inbox.
    async fn post(self: &Arc<Self>, message: &Outgoing<'_>) -> Result<(), RequestError> {
        let headers = self.headers(Some(message));
        let mut reply = self
            .exchanges
            .make_again(Method::POST, &headers, message.bytes.clone(), message.is_safe())
            .await?;
        if reply.status >= 300 {
            return Err(self.refused(reply, Some(message)).await);
        }
        if message.method == Some("initialize") {
            self.begin_session(&reply)?;
        }
        let Some(id) = message.id else {
            // Read, so that the connection can be used again.
            let _ = reply.read(TAKEN_BYTES_MAX).await;
            return Ok(());
        };
        match kind(&reply) {
            Kind::Events => self.follow(reply, id).await,
            Kind::Json => {
                let body = reply.read(MESSAGE_BYTES_MAX).await.map_err(|unread| match unread {
                    Unread::TooLarge => stream::TOO_LONG,
                    Unread::Broken(error) => exchange::failed(error),
                })?;
                self.inbox.receive(&body, Some(id));
                self.answered(id, reply.status)
            }
            Kind::Other(what) => Err(RequestError::Link(LinkError::Unsuitable {
                status: reply.status,
                why: format!("the server answered with {what}, which is no MCP"),
            })),
        }
    }

    fn answered(&self, id: u64, status: u16) -> Result<(), RequestError> {
        if !self.inbox.awaits(id) {
            return Ok(());
        }
        let why = "the server's answer is none to the question".to_owned();
        Err(RequestError::Link(LinkError::Unsuitable { status, why }))
    }

    fn begin_session(self: &Arc<Self>, reply: &Reply) -> Result<(), RequestError> {
        let Some(session) = reply.headers.get(SESSION) else { return Ok(()) };
        if session.len() > SESSION_BYTES_MAX {
            let why = format!("the session's name has {} bytes, at most {SESSION_BYTES_MAX}", session.len());
            return Err(RequestError::Link(LinkError::Failed { why, sent: true }));
        }
        let mut session = session.clone();
        session.set_sensitive(true);
        if self.session.set(session).is_ok() {
            // Not when the link is dropped: a hub that ends waits for this.
            stdio::see_out(self.clone().end_session());
        }
        Ok(())
    }

    /// Waits for the end of the connection, or of the hub, and tells the server that the session is over.
    async fn end_session(self: Arc<Self>) {
        tokio::select! {
            () = self.end.cancelled() => {}
            () = stdio::told_to_end() => {}
        }
        if self.lost.load(Ordering::Relaxed) {
            return;
        }
        let headers = self.headers(None);
        let deleting = self.exchanges.make(Method::DELETE, None, &headers, Default::default());
        // A server that does not want to hear it, or is gone, forgets the session by itself.
        let _ = tokio::time::timeout(END_WITHIN, deleting).await;
    }

    /// Returns the headers that say what a message is, outside of it; without one, those of a request that carries none.
    fn headers(&self, message: Option<&Outgoing<'_>>) -> Cow<'_, HeaderMap> {
        let Some(message) = message else { return Cow::Owned(self.known_headers(HeaderMap::new(), None)) };
        let usual = || self.exchanges.usual().clone();
        // The newer era begins with this question, before anything is agreed.
        let asked = (message.method == Some("server/discover")).then_some(Revision::V2026_07_28);
        let Some(revision) = self.revision.get().copied().or(asked) else {
            return Cow::Owned(self.known_headers(usual(), None));
        };
        let agreed = match asked {
            Some(_) => Cow::Owned(self.known_headers(usual(), asked)),
            // The same for every message from now on.
            None => Cow::Borrowed(self.agreed.get_or_init(|| self.known_headers(usual(), None))),
        };
        if revision.era() == Era::Sessions {
            return agreed;
        }
        let mut headers = agreed.into_owned();
        let mut add = |name: HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::from_str(&header::encode(value)) {
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

    /// Adds what was agreed: the session, and the revision, where none is asked for.
    fn known_headers(&self, mut headers: HeaderMap, asked: Option<Revision>) -> HeaderMap {
        if let Some(session) = self.session.get() {
            headers.insert(SESSION, session.clone());
        }
        if let Some(revision) = self.revision.get().copied().or(asked) {
            headers.insert(VERSION, HeaderValue::from_static(revision.as_str()));
        }
        headers
    }

    /// The session is over. Who is under way hears it by itself; a new connection is made.
    fn lose(&self) -> RequestError {
        self.lost.store(true, Ordering::Relaxed);
        self.inbox.retire();
        RequestError::Link(LinkError::SessionLost)
    }
}

/// What an answer is.
enum Kind {
    Json,
    Events,
    Other(String),
}

fn kind(reply: &Reply) -> Kind {
    let said = reply.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let what = said.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match what.as_str() {
        "application/json" => Kind::Json,
        "text/event-stream" => Kind::Events,
        "" => Kind::Other(format!("status {} and nothing else", reply.status)),
        _ => Kind::Other(format!("`{}`", printable(&what))),
    }
}

/// Reads what is left of an answer whose end is near, so that its connection can be used again. Nobody waits for it.
fn finish(mut reply: Reply) {
    if let Some(Ok(None) | Err(_)) = reply.piece().now_or_never() {
        return;
    }
    tokio::spawn(async move {
        let rest = reply.read(TAKEN_BYTES_MAX);
        let _ = tokio::time::timeout(END_WITHIN, rest).await;
    });
}
