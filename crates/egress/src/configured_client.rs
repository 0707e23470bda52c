//! HTTP client with a connection pool for endpoints that an administrator configured, like MCP servers.
//!
//! An administrator chose the endpoint, so it may be on this machine or in the local network. Nothing leads away from it:
//! redirects are not followed, and a request has a path, never a host. Connections are pooled because the hub calls the
//! endpoint often.

mod endpoint;
mod pooled_connection;

pub use endpoint::{ConfiguredEndpoint, EndpointError};
pub use hyper::{Method, Uri};

use crate::connect::{Connector, EgressStream};
use crate::{CertificateDer, EgressError, Resolve, SystemResolver};
use bytes::Bytes;
use endpoint::EndpointAddr;
use http_body_util::Full;
use hyper::Response;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use pooled_connection::PooledConnection;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Timeout of the name lookup, and again of the connection with its TLS handshake.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Idle connections in the pool. More may be open while requests are in flight.
const IDLE_MAX: usize = 32;
/// Idle timeout of a connection, if the server sends no `Keep-Alive` header.
const IDLE_FOR: Duration = Duration::from_secs(15);
/// Upper bound of the idle timeout that a server may configured for.
const IDLE_FOR_MAX: Duration = Duration::from_secs(60);
/// Subtracted from the server's idle timeout, so that no request is sent just as the server closes the connection.
const IDLE_MARGIN: Duration = Duration::from_secs(1);
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Why there is no response.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{why}")]
pub struct ConfiguredClientError {
    pub why: String,
    /// Whether the server may have acted on the request.
    pub sent: bool,
    /// Whether the connection came from the pool: the server may just have closed it, and a retry may succeed.
    pub reused: bool,
}

impl ConfiguredClientError {
    fn unsent(why: impl Into<String>) -> ConfiguredClientError {
        ConfiguredClientError { why: why.into(), sent: false, reused: false }
    }
}

/// Why a body was not read to its end.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BodyReadError {
    #[error("the response is larger than the limit")]
    TooLarge,
    #[error(transparent)]
    Broken(#[from] ConfiguredClientError),
}

/// A request to the endpoint.
#[derive(Debug)]
pub struct ConfiguredRequest {
    pub method: Method,
    /// Path and query.
    pub to: Uri,
    /// All but `Host`.
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A client of one endpoint. Dropping it closes its idle connections.
pub struct ConfiguredClient {
    endpoint: ConfiguredEndpoint,
    host: HeaderValue,
    connector: Connector,
    resolver: SystemResolver,
    idle: Mutex<Vec<PooledConnection>>,
    sweeping: AtomicBool,
}

impl ConfiguredClient {
    /// Fails only if a certificate of `extra_roots` cannot be used.
    pub fn new(
        endpoint: ConfiguredEndpoint,
        extra_roots: Vec<CertificateDer<'static>>,
    ) -> Result<ConfiguredClient, EgressError> {
        let connector = Connector::new(extra_roots, CONNECT_WITHIN)?;
        let host = HeaderValue::from_str(&endpoint.authority())
            .map_err(|error| EgressError::Setup { why: error.to_string() })?;
        let (idle, sweeping) = (Mutex::default(), AtomicBool::new(false));
        Ok(ConfiguredClient {
            endpoint,
            host,
            connector,
            resolver: SystemResolver::default(),
            idle,
            sweeping,
        })
    }

    pub fn place(&self) -> &ConfiguredEndpoint {
        &self.endpoint
    }

    /// Sends a request and returns the head of the response. Dropping the future closes the connection.
    pub async fn send(
        self: &Arc<Self>,
        configured: ConfiguredRequest,
    ) -> Result<ConfiguredResponse, ConfiguredClientError> {
        let mut request = hyper::Request::new(Full::new(configured.body));
        *request.method_mut() = configured.method;
        *request.uri_mut() = configured.to;
        *request.headers_mut() = configured.headers;
        request.headers_mut().insert(HOST, self.host.clone());
        loop {
            let (mut connection, reused) = match self.take().await {
                Some(connection) => (connection, true),
                None => (self.open().await?, false),
            };
            match connection.send(request).await {
                Ok(response) => return self.reply(connection, response),
                // Closed before anything was written, so the request is retried on another connection.
                Err(pooled_connection::SendFailure { unsent: Some(returned), .. }) if reused => {
                    request = returned
                }
                Err(failed) => {
                    return Err(ConfiguredClientError {
                        why: failed.why,
                        sent: failed.unsent.is_none(),
                        reused,
                    });
                }
            }
        }
    }

    fn reply(
        self: &Arc<Self>,
        connection: PooledConnection,
        response: Response<Incoming>,
    ) -> Result<ConfiguredResponse, ConfiguredClientError> {
        let (head, body) = response.into_parts();
        let bytes: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        if bytes > pooled_connection::HEAD_BYTES_MAX {
            let why = format!(
                "the response has {bytes} bytes of headers, at most {}",
                pooled_connection::HEAD_BYTES_MAX
            );
            return Err(ConfiguredClientError { why, sent: true, reused: false });
        }
        let (status, headers) = (head.status.as_u16(), head.headers);
        Ok(ConfiguredResponse { status, headers, body, connection: Some(connection), client: self.clone() })
    }

    async fn open(&self) -> Result<PooledConnection, ConfiguredClientError> {
        let unsent =
            |why: String| ConfiguredClientError::unsent(format!("`{}`: {why}", self.endpoint.shown()));
        let stream = match &self.endpoint.at {
            EndpointAddr::Socket(path) => self.connector.open_socket(path).await.map_err(unsent)?,
            EndpointAddr::Host { name, port, tls } => {
                let addresses = self.addresses(name, *port).await.map_err(unsent)?;
                let tls = tls.then(|| self.endpoint.server_name()).transpose().map_err(unsent)?;
                self.connector.open_configured(&addresses, tls).await.map_err(unsent)?
            }
        };
        self.begin(stream).await.map_err(unsent)
    }

    async fn begin(&self, stream: EgressStream) -> Result<PooledConnection, String> {
        PooledConnection::begin(stream).await
    }

    async fn addresses(&self, name: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
        if let Some(address) = self.endpoint.literal() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let found = tokio::time::timeout(CONNECT_WITHIN, self.resolver.resolve(name.to_owned())).await;
        let found = found.map_err(|_| "DNS lookup timed out".to_owned())?;
        let found = found.map_err(|error| format!("DNS lookup failed: {error}"))?;
        Ok(found.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }

    /// Returns a usable connection from the pool: the newest, because it is the least likely to be closed.
    async fn take(&self) -> Option<PooledConnection> {
        loop {
            let mut connection = self.idle.lock().pop()?;
            if connection.good_until > Instant::now() && connection.is_idle().await {
                return Some(connection);
            }
        }
    }

    fn keep(self: &Arc<Self>, mut connection: PooledConnection, headers: &HeaderMap) {
        let closes = headers.get(CONNECTION).is_some_and(|value| value.as_bytes() == b"close");
        let idle_for = match headers.get(KEEP_ALIVE).and_then(|value| value.to_str().ok()) {
            Some(header) => {
                keep_alive_timeout(header).map_or(IDLE_FOR, |secs| secs.saturating_sub(IDLE_MARGIN))
            }
            None => IDLE_FOR,
        };
        if closes || idle_for.is_zero() {
            return;
        }
        connection.good_until = Instant::now() + idle_for.min(IDLE_FOR_MAX);
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
        drop(idle);
        self.sweep();
    }

    /// Starts a task that closes expired connections, unless one is running. It ends when the pool is empty.
    fn sweep(self: &Arc<Self>) {
        if self.sweeping.swap(true, Ordering::Relaxed) {
            return;
        }
        let client = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(IDLE_FOR).await;
                let Some(client) = client.upgrade() else { return };
                let mut idle = client.idle.lock();
                let now = Instant::now();
                idle.retain(|connection| connection.good_until > now);
                if idle.is_empty() {
                    client.sweeping.store(false, Ordering::Relaxed);
                    return;
                }
            }
        });
    }
}

/// Returns the timeout of a `Keep-Alive` header like `timeout=5, max=100`.
fn keep_alive_timeout(header: &str) -> Option<Duration> {
    let timeout = header.split(',').find_map(|part| part.trim().strip_prefix("timeout="))?;
    timeout.trim().parse().ok().map(Duration::from_secs)
}

/// A response whose body is not read yet. Dropped before the end of the body, it closes its connection.
pub struct ConfiguredResponse {
    pub status: u16,
    pub headers: HeaderMap,
    body: Incoming,
    connection: Option<PooledConnection>,
    client: Arc<ConfiguredClient>,
}

impl ConfiguredResponse {
    /// Returns the next chunk of the body, or `None` at its end. Cancel-safe.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, ConfiguredClientError> {
        let Some(connection) = &mut self.connection else { return Ok(None) };
        match connection.piece(&mut self.body).await {
            Ok(Some(piece)) => Ok(Some(piece)),
            Ok(None) => {
                if let Some(mut connection) = self.connection.take()
                    && connection.is_idle().await
                {
                    self.client.keep(connection, &self.headers);
                }
                Ok(None)
            }
            Err(why) => {
                self.connection = None;
                Err(ConfiguredClientError { why, sent: true, reused: false })
            }
        }
    }

    /// Returns the whole body, if it has no more than `bytes_max`.
    pub async fn read(&mut self, bytes_max: usize) -> Result<Bytes, BodyReadError> {
        let Some(first) = self.piece().await? else { return Ok(Bytes::new()) };
        if first.len() > bytes_max {
            return Err(BodyReadError::TooLarge);
        }
        // Nearly always there is one chunk, which needs no copy.
        let Some(second) = self.piece().await? else { return Ok(first) };
        let mut whole = Vec::with_capacity((first.len() + second.len()) * 2);
        whole.extend_from_slice(&first);
        let mut next = Some(second);
        while let Some(piece) = next {
            if whole.len() + piece.len() > bytes_max {
                return Err(BodyReadError::TooLarge);
            }
            whole.extend_from_slice(&piece);
            next = self.piece().await?;
        }
        Ok(whole.into())
    }
}
