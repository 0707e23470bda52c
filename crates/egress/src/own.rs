//! A client for places that a person configured, like MCP servers.
//!
//! Whoever writes a place into the configuration has chosen it, so it may be on this machine or in the local network, and
//! it is asked often: connections are kept and used again. Nothing leads away from it: there are no redirects here, and a
//! request names a path, never a host.

mod line;
mod place;

pub use hyper::{Method, Uri};
pub use place::{Place, PlaceError};

use crate::connect::{Connector, Stream};
use crate::{CertificateDer, EgressError, Resolve, SystemResolver};
use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue};
use line::Line;
use place::Where;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long it may take to look a name up, and again to connect, with TLS.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// How many connections are kept for the next request. More may be open while more requests are under way.
const IDLE_MAX: usize = 32;
/// How long a connection is kept, where the server does not say how long it keeps it.
const IDLE_FOR: Duration = Duration::from_secs(15);
/// How long it is kept whatever the server says.
const IDLE_FOR_MAX: Duration = Duration::from_secs(60);
/// A server that keeps a connection for so long gets no request just when it gives it up.
const MARGIN: Duration = Duration::from_secs(1);
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{why}")]
pub struct OwnError {
    pub why: String,
    /// Whether the server may have acted on the request.
    pub sent: bool,
    /// Whether the connection had been used before: the server may just have closed it, and a fresh one may do.
    pub reused: bool,
}

impl OwnError {
    fn unsent(why: impl Into<String>) -> OwnError {
        OwnError { why: why.into(), sent: false, reused: false }
    }
}

/// Why a body was not read to its end.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Unread {
    #[error("the answer is larger than what is taken")]
    TooLarge,
    #[error(transparent)]
    Broken(#[from] OwnError),
}

/// What is asked.
#[derive(Debug)]
pub struct Ask {
    pub method: Method,
    /// Path and query.
    pub to: Uri,
    /// All but `Host`.
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// The way to one place. Connections that are idle end when it is dropped.
pub struct Own {
    place: Place,
    host: HeaderValue,
    connector: Connector,
    resolver: SystemResolver,
    idle: Mutex<Vec<Line>>,
    sweeping: AtomicBool,
}

impl Own {
    /// Fails only if a certificate of `extra_roots` cannot be used.
    pub fn new(place: Place, extra_roots: Vec<CertificateDer<'static>>) -> Result<Own, EgressError> {
        let connector = Connector::new(extra_roots, CONNECT_WITHIN)?;
        let host = HeaderValue::from_str(&place.authority())
            .map_err(|error| EgressError::Setup { why: error.to_string() })?;
        let (idle, sweeping) = (Mutex::default(), AtomicBool::new(false));
        Ok(Own { place, host, connector, resolver: SystemResolver::default(), idle, sweeping })
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Sends a request and waits for the head of the answer. No longer than who waits: dropping it ends the connection.
    pub async fn send(self: &Arc<Self>, ask: Ask) -> Result<Reply, OwnError> {
        let mut request = hyper::Request::new(Full::new(ask.body));
        *request.method_mut() = ask.method;
        *request.uri_mut() = ask.to;
        *request.headers_mut() = ask.headers;
        request.headers_mut().insert(HOST, self.host.clone());
        loop {
            let (mut line, reused) = match self.take().await {
                Some(line) => (line, true),
                None => (self.open().await?, false),
            };
            match line.send(request).await {
                Ok(answer) => return self.reply(line, answer),
                // Closed before anything was written: the next one may do.
                Err(line::Failed { unsent: Some(back), .. }) if reused => request = back,
                Err(failed) => {
                    return Err(OwnError { why: failed.why, sent: failed.unsent.is_none(), reused });
                }
            }
        }
    }

    fn reply(self: &Arc<Self>, line: Line, answer: Response<Incoming>) -> Result<Reply, OwnError> {
        let (head, body) = answer.into_parts();
        let bytes: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        if bytes > line::HEAD_BYTES_MAX {
            let why = format!("the answer has {bytes} bytes of headers, at most {}", line::HEAD_BYTES_MAX);
            return Err(OwnError { why, sent: true, reused: false });
        }
        let (status, headers) = (head.status.as_u16(), head.headers);
        Ok(Reply { status, headers, body, line: Some(line), own: self.clone() })
    }

    async fn open(&self) -> Result<Line, OwnError> {
        let unsent = |why: String| OwnError::unsent(format!("`{}`: {why}", self.place.shown()));
        let stream = match &self.place.at {
            Where::Socket(path) => self.connector.open_socket(path).await.map_err(unsent)?,
            Where::Host { name, port, tls } => {
                let addresses = self.addresses(name, *port).await.map_err(unsent)?;
                let tls = tls.then(|| self.place.server_name()).transpose().map_err(unsent)?;
                self.connector.open_own(&addresses, tls).await.map_err(unsent)?
            }
        };
        self.begin(stream).await.map_err(unsent)
    }

    async fn begin(&self, stream: Stream) -> Result<Line, String> {
        Line::begin(stream).await
    }

    async fn addresses(&self, name: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
        if let Some(address) = self.place.literal() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let found = tokio::time::timeout(CONNECT_WITHIN, self.resolver.resolve(name.to_owned())).await;
        let found = found.map_err(|_| "the name could not be looked up in time".to_owned())?;
        let found = found.map_err(|error| format!("the name could not be looked up: {error}"))?;
        Ok(found.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }

    /// Returns a kept connection that is still good: the newest, which is the least likely to be closed.
    async fn take(&self) -> Option<Line> {
        loop {
            let mut line = self.lock().pop()?;
            if line.good_until > Instant::now() && line.is_idle().await {
                return Some(line);
            }
        }
    }

    fn keep(self: &Arc<Self>, mut line: Line, headers: &HeaderMap) {
        let closes = headers.get(CONNECTION).is_some_and(|value| value.as_bytes() == b"close");
        let keeps_for = match headers.get(KEEP_ALIVE).and_then(|value| value.to_str().ok()) {
            Some(said) => kept_for(said).map_or(IDLE_FOR, |secs| secs.saturating_sub(MARGIN)),
            None => IDLE_FOR,
        };
        if closes || keeps_for.is_zero() {
            return;
        }
        line.good_until = Instant::now() + keeps_for.min(IDLE_FOR_MAX);
        let mut idle = self.lock();
        if idle.len() < IDLE_MAX {
            idle.push(line);
        }
        drop(idle);
        self.sweep();
    }

    /// Sees to it that connections which nobody asks for any more are closed.
    fn sweep(self: &Arc<Self>) {
        if self.sweeping.swap(true, Ordering::Relaxed) {
            return;
        }
        let own = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(IDLE_FOR).await;
                let Some(own) = own.upgrade() else { return };
                let mut idle = own.lock();
                let now = Instant::now();
                idle.retain(|line| line.good_until > now);
                if idle.is_empty() {
                    own.sweeping.store(false, Ordering::Relaxed);
                    return;
                }
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Line>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns for how long a server says that it keeps a connection: `timeout=5, max=100`.
fn kept_for(said: &str) -> Option<Duration> {
    let timeout = said.split(',').find_map(|part| part.trim().strip_prefix("timeout="))?;
    timeout.trim().parse().ok().map(Duration::from_secs)
}

/// An answer; its body is still to come. Dropped before its end, it takes the connection with it.
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    body: Incoming,
    line: Option<Line>,
    own: Arc<Own>,
}

impl Reply {
    /// Returns the next piece of the body, or `None` at its end. Cancel-safe.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, OwnError> {
        let Some(line) = &mut self.line else { return Ok(None) };
        match line.piece(&mut self.body).await {
            Ok(Some(piece)) => Ok(Some(piece)),
            Ok(None) => {
                if let Some(mut line) = self.line.take()
                    && line.is_idle().await
                {
                    self.own.keep(line, &self.headers);
                }
                Ok(None)
            }
            Err(why) => {
                self.line = None;
                Err(OwnError { why, sent: true, reused: false })
            }
        }
    }

    /// Returns the whole body, if it has no more than `bytes_max`.
    pub async fn read(&mut self, bytes_max: usize) -> Result<Bytes, Unread> {
        let Some(first) = self.piece().await? else { return Ok(Bytes::new()) };
        if first.len() > bytes_max {
            return Err(Unread::TooLarge);
        }
        // Nearly always there is one piece, which needs no copy.
        let Some(second) = self.piece().await? else { return Ok(first) };
        let mut whole = Vec::with_capacity((first.len() + second.len()) * 2);
        whole.extend_from_slice(&first);
        let mut next = Some(second);
        while let Some(piece) = next {
            if whole.len() + piece.len() > bytes_max {
                return Err(Unread::TooLarge);
            }
            whole.extend_from_slice(&piece);
            next = self.piece().await?;
        }
        Ok(whole.into())
    }
}
