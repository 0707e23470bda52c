//! HTTP transport: streamable HTTP at `/mcp`, the older HTTP+SSE pair, and endpoints for operations.

mod body;
mod coalesced_wake;
mod host_check;
mod legacy_sse;
mod mcp;
mod ops;
mod response;
mod running_request;
mod session_streams;
mod timeouts;

pub use host_check::HostAllowlist;

use crate::hub::{Hub, HubLimits};
use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body;
use axum::http::Method;
use axum::response::Response;
use axum::routing::{get, post};
use coalesced_wake::CoalescedWake;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use portcullis_core::Limit;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use timeouts::{ConnectionState, ConnectionTimeouts, HeadersTimer, WriteTimeoutStream};
use tokio::net::TcpListener;

/// Size of the request headers. Four times the default of other servers.
const HEADER_BYTES_MAX: usize = 32 * 1024;
/// Read buffer of a connection.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// How long connections may take to close at shutdown.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);
/// Interval between log lines about refused connections. A flood of connections must not fill the log.
const WARN_EVERY: Duration = Duration::from_secs(10);
/// Pause after a failed `accept`, so that a full descriptor table does not make the loop spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The state of every handler.
#[derive(Clone)]
pub(crate) struct HttpApp {
    pub(crate) hub: Arc<Hub>,
    pub(crate) allowed: LiveHostAllowlist,
}

/// The allowed values of `Host` and `Origin`; replaced when the configuration changes.
pub type LiveHostAllowlist = Arc<ArcSwap<HostAllowlist>>;

/// Routes for people, mounted next to MCP. They authenticate their own requests: no client token is checked for
/// them, and their requests never reach the clients' routes.
#[derive(Clone)]
pub struct MountedRoutes {
    under: &'static [&'static str],
    routes: LazyRoutes,
}

/// Routes that are built at the first request, because unused ones should take no memory.
#[derive(Clone)]
struct LazyRoutes(Arc<LazyLock<TowerToHyperService<Router>, MakeRoutes>>);

type MakeRoutes = Box<dyn FnOnce() -> TowerToHyperService<Router> + Send>;

impl LazyRoutes {
    fn new(make: impl FnOnce() -> Router + Send + 'static) -> LazyRoutes {
        let make: MakeRoutes = Box::new(|| TowerToHyperService::new(make()));
        LazyRoutes(Arc::new(LazyLock::new(make)))
    }

    async fn answer(&self, request: hyper::Request<Incoming>) -> Result<Response, Infallible> {
        self.0.call(request.map(Body::new)).await
    }
}

/// The peer address of a request to [`MountedRoutes`]: of the TCP connection, not from a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddr(pub IpAddr);

impl MountedRoutes {
    /// A prefix in `under` matches whole path segments: `/admin`, but not `/administrator`.
    pub fn new(
        under: &'static [&'static str],
        make: impl FnOnce() -> Router + Send + 'static,
    ) -> MountedRoutes {
        MountedRoutes { under, routes: LazyRoutes::new(make) }
    }

    fn owns(&self, path: &str) -> bool {
        let is_below = |rest: &str| rest.is_empty() || rest.starts_with('/');
        self.under.iter().any(|prefix| path.strip_prefix(prefix).is_some_and(is_below))
    }
}

/// Handles all requests of one connection.
///
/// One instance per connection, because every request holds a reference: with one for all, the cores would contend for
/// its reference count.
struct ConnectionService {
    app: HttpApp,
    routes: LazyRoutes,
    mounted: Option<MountedRoutes>,
    connected: Arc<ConnectionState>,
    from: IpAddr,
}

impl ConnectionService {
    /// Serves one request. `Host`, `Origin` and token are checked before every route.
    async fn answer(self: Arc<Self>, mut request: hyper::Request<Incoming>) -> Result<Response, Infallible> {
        if let Err(refused) = host_check::check_host_and_origin(&self.app, &request) {
            return Ok(refused);
        }
        let mounted = self.mounted.as_ref().filter(|mounted| mounted.owns(request.uri().path()));
        if let Some(mounted) = mounted {
            request.extensions_mut().insert(PeerAddr(self.from));
            return Box::pin(mounted.routes.answer(request)).await;
        }
        let client = match host_check::check_token(&self.app, &self.connected.peer, &request) {
            Ok(client) => client,
            Err(refused) => return Ok(refused),
        };
        if let Some(client) = client {
            // The hot path skips the router, which costs as much as a layer.
            if request.method() == Method::POST && request.uri().path() == "/mcp" {
                return Ok(mcp::take(self.app.hub.clone(), client, request).await);
            }
            request.extensions_mut().insert(client);
        }
        Box::pin(self.routes.answer(request)).await
    }
}

fn routes(app: HttpApp) -> Router {
    Router::new()
        .route("/mcp", post(mcp::post).get(session_streams::get).delete(session_streams::delete))
        .route("/sse", get(legacy_sse::open))
        .route("/messages", post(legacy_sse::post))
        .route("/healthz", get(ops::healthz))
        .route("/readyz", get(ops::readyz))
        .route("/metrics", get(ops::metrics))
        .fallback(ops::not_found)
        .with_state(app)
}

/// Serves until the hub closes, then lets open requests finish.
pub async fn serve(
    hub: Arc<Hub>,
    listener: TcpListener,
    allowed: LiveHostAllowlist,
    mounted: Option<MountedRoutes>,
) {
    let app = HttpApp { hub: hub.clone(), allowed };
    let served = app.clone();
    let routes = LazyRoutes::new(move || routes(served));
    let HubLimits { headers_within, keep_alive, write_within, .. } = hub.limits;
    let times = ConnectionTimeouts { headers_within, keep_alive, write_within };
    let mut builder = http1::Builder::new();
    // Only enables the timeout; the timer of each connection sets its length.
    builder
        .header_read_timeout(headers_within)
        .max_header_size(HEADER_BYTES_MAX)
        .max_buf_size(BUFFER_BYTES_MAX);
    let mut warned: Option<Instant> = None;
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = hub.closing.cancelled() => break,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(target: "http", %error, "could not accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let connected = match hub.sources.connect(address.ip()) {
            Ok(peer) => ConnectionState::new(peer, times),
            Err(limit) => {
                if warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
                    let limit = limit.label();
                    tracing::warn!(target: "http", limit, "too many connections; closing new ones");
                    warned = Some(Instant::now());
                }
                continue;
            }
        };
        // Without this, Nagle's algorithm delays a small response by 40 ms.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(target: "http", %error, "could not set TCP_NODELAY");
        }
        let served_by = connected.peer.served_by();
        let stream = TokioIo::new(WriteTimeoutStream::new(stream, connected.clone()));
        let front = Arc::new(ConnectionService {
            app: app.clone(),
            routes: routes.clone(),
            mounted: mounted.clone(),
            connected: connected.clone(),
            from: address.ip(),
        });
        let service = service_fn(move |request| front.clone().answer(request));
        // A separate builder: a shared one would hold the state of this connection until the next one.
        let connection = builder.clone().timer(HeadersTimer(connected)).serve_connection(stream, service);
        let connection = CoalescedWake::new(Box::pin(graceful.watch(connection)));
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                if error.is_parse_too_large() {
                    Limit::HeaderBytes.hit();
                }
                // Disconnects are normal.
                tracing::debug!(target: "http", %error, "connection ended");
            }
        });
        served_by(task.abort_handle());
    }
    drop(listener);
    // `shut_down` decides how long calls may take to finish.
    hub.drained.cancelled().await;
    let _ = tokio::time::timeout(CLOSE_WITHIN, graceful.shutdown()).await;
}
