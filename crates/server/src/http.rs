//! HTTP: streamable HTTP at `/mcp`, the older HTTP+SSE pair, and what operators look at.

mod body;
mod guard;
mod legacy_sse;
mod mcp;
mod ops;
mod pace;
mod reply;
mod running;
mod streams;
mod woken;

pub use guard::Allowed;

use crate::hub::{Hub, HubLimits};
use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body;
use axum::http::Method;
use axum::response::Response;
use axum::routing::{get, post};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use pace::{Connected, HeadersTimer, Paced, Times};
use portcullis_core::Limit;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use woken::Woken;

/// How large the headers of a request may be. Four times what other servers take.
const HEADER_BYTES_MAX: usize = 32 * 1024;
/// How much of a connection is buffered at once.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// How long connections get to close once the hub stops.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);
/// How often a refused connection is worth a line in the log. Who makes many must not fill it.
const WARN_EVERY: Duration = Duration::from_secs(10);
/// How long to wait after the system refused a connection, so that a full table does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What every handler has.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) hub: Arc<Hub>,
    pub(crate) allowed: LiveAllowed,
}

/// The allowed values of `Host` and `Origin`, which a changed configuration replaces.
pub type LiveAllowed = Arc<ArcSwap<Allowed>>;

/// Pages beside MCP that are for people. They have their own idea of who may come: nothing here asks for a token, and
/// none of their requests reaches a client's routes.
#[derive(Clone)]
pub struct Beside {
    under: &'static [&'static str],
    routes: LazyRoutes,
}

/// Routes that are made when somebody first needs them. What nobody asks for takes no memory.
#[derive(Clone)]
struct LazyRoutes(Arc<LazyLock<TowerToHyperService<Router>, Make>>);

type Make = Box<dyn FnOnce() -> TowerToHyperService<Router> + Send>;

impl LazyRoutes {
    fn new(make: impl FnOnce() -> Router + Send + 'static) -> LazyRoutes {
        let make: Make = Box::new(|| TowerToHyperService::new(make()));
        LazyRoutes(Arc::new(LazyLock::new(make)))
    }

    async fn answer(&self, request: hyper::Request<Incoming>) -> Result<Response, Infallible> {
        self.0.call(request.map(Body::new)).await
    }
}

/// Where a request for [`Beside`] comes from: the other end of the connection, whatever its headers say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CameFrom(pub IpAddr);

impl Beside {
    /// What the paths `under` begin with is each a whole part: `/admin`, and not `/administrator`.
    pub fn new(under: &'static [&'static str], make: impl FnOnce() -> Router + Send + 'static) -> Beside {
        Beside { under, routes: LazyRoutes::new(make) }
    }

    fn owns(&self, path: &str) -> bool {
        let is_below = |rest: &str| rest.is_empty() || rest.starts_with('/');
        self.under.iter().any(|prefix| path.strip_prefix(prefix).is_some_and(is_below))
    }
}

/// Where every request of one connection arrives.
///
/// Each connection has its own, because every request holds on to it: were there one for all, the processors would
/// take turns at its counter.
struct Front {
    app: App,
    routes: LazyRoutes,
    beside: Option<Beside>,
    connected: Arc<Connected>,
    from: IpAddr,
}

impl Front {
    /// Answers one request. The check of Host, Origin and token comes before every route.
    async fn answer(self: Arc<Self>, mut request: hyper::Request<Incoming>) -> Result<Response, Infallible> {
        if let Err(refused) = guard::check_sender(&self.app, &request) {
            return Ok(refused);
        }
        let beside = self.beside.as_ref().filter(|beside| beside.owns(request.uri().path()));
        if let Some(beside) = beside {
            request.extensions_mut().insert(CameFrom(self.from));
            return Box::pin(beside.routes.answer(request)).await;
        }
        let client = match guard::check_token(&self.app, &self.connected.peer, &request) {
            Ok(client) => client,
            Err(refused) => return Ok(refused),
        };
        if let Some(client) = client {
            // What clients do all day goes straight to its place: finding it costs as much as a guard.
            if request.method() == Method::POST && request.uri().path() == "/mcp" {
                return Ok(mcp::take(self.app.hub.clone(), client, request).await);
            }
            request.extensions_mut().insert(client);
        }
        Box::pin(self.routes.answer(request)).await
    }
}

fn routes(app: App) -> Router {
    Router::new()
        .route("/mcp", post(mcp::post).get(streams::get).delete(streams::delete))
        .route("/sse", get(legacy_sse::open))
        .route("/messages", post(legacy_sse::post))
        .route("/healthz", get(ops::healthz))
        .route("/readyz", get(ops::readyz))
        .route("/metrics", get(ops::metrics))
        .fallback(ops::not_found)
        .with_state(app)
}

/// Serves until the hub closes; then lets open requests finish.
pub async fn serve(hub: Arc<Hub>, listener: TcpListener, allowed: LiveAllowed, beside: Option<Beside>) {
    let app = App { hub: hub.clone(), allowed };
    let served = app.clone();
    let routes = LazyRoutes::new(move || routes(served));
    let HubLimits { headers_within, keep_alive, write_within, .. } = hub.limits;
    let times = Times { headers_within, keep_alive, write_within };
    let mut builder = http1::Builder::new();
    // That there is a time is what counts here; how long it is, the timer of each connection says.
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
                tracing::warn!(target: "http", %error, "A connection could not be accepted.");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let connected = match hub.sources.connect(address.ip()) {
            Ok(peer) => Connected::new(peer, times),
            Err(limit) => {
                if warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
                    let limit = limit.label();
                    tracing::warn!(target: "http", limit, "Too many connections; new ones are closed.");
                    warned = Some(Instant::now());
                }
                continue;
            }
        };
        // Without this a small answer waits for the acknowledgement of the one before it: 40 ms each.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(target: "http", %error, "no TCP_NODELAY");
        }
        let served_by = connected.peer.served_by();
        let stream = TokioIo::new(Paced::new(stream, connected.clone()));
        let front = Arc::new(Front {
            app: app.clone(),
            routes: routes.clone(),
            beside: beside.clone(),
            connected: connected.clone(),
            from: address.ip(),
        });
        let service = service_fn(move |request| front.clone().answer(request));
        // A builder of its own: the common one would keep the connection's place until the next one comes.
        let connection = builder.clone().timer(HeadersTimer(connected)).serve_connection(stream, service);
        let connection = Woken::new(Box::pin(graceful.watch(connection)));
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                if error.is_parse_too_large() {
                    Limit::HeaderBytes.hit();
                }
                // Clients come and go; this is no fault of the hub.
                tracing::debug!(target: "http", %error, "a connection ended");
            }
        });
        served_by(task.abort_handle());
    }
    drop(listener);
    // How long calls may take to finish is not decided here.
    hub.drained.cancelled().await;
    let _ = tokio::time::timeout(CLOSE_WITHIN, graceful.shutdown()).await;
}
