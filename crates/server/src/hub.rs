//! The hub's server side: the state that all transports share, and shutdown.

use crate::announce::{ChangeAnnouncer, ChangeListeners};
use crate::egress_filter::EgressFilter;
use crate::request_state::Seal;
use crate::services::{DuplicateService, ServiceStatus, Services};
use crate::session::{SessionSweeper, Sessions};
use crate::sources::Sources;
use crate::tasks::Tasks;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use portcullis_core::{Client, ClientBridge, Clock, Gate, GateHandle, Scrub, Service, ServiceCtx};
use portcullis_wire::era::ServerProfile;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How much longer than calls the services may take at shutdown that calls rely on.
const AFTER_CALLS: Duration = Duration::from_millis(500);

/// The clients cannot be read at the moment, so nothing is known of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientsUnavailable;

/// Maps bearer tokens to clients.
pub trait Authenticate: Send + Sync {
    fn authenticate(&self, token: Option<&str>) -> Result<Option<Arc<Client>>, ClientsUnavailable>;

    /// Returns the client of that name as it is now, for a connection of this user that speaks as one; `None` if there is none,
    /// or if it was revoked or has expired.
    fn named(&self, name: &str) -> Result<Option<Arc<Client>>, ClientsUnavailable>;

    /// Returns all clients that would be admitted now, by name; `None` if the list cannot be read.
    fn admitted(&self) -> Option<HashMap<String, Arc<Client>>>;
}

/// A snapshot of the admitted clients.
pub(crate) struct AdmittedClients {
    /// `None` if the list cannot be read at the moment. Then every client that was known stays admitted.
    pub(crate) admitted: Option<HashMap<String, Arc<Client>>>,
    pub(crate) local: Arc<Client>,
}

impl AdmittedClients {
    /// Returns the current state of a client. A client with the same name but another token is a different client.
    pub(crate) fn now(&self, client: &Arc<Client>) -> Option<Arc<Client>> {
        let Some(admitted) = &self.admitted else { return Some(client.clone()) };
        admitted.get(&client.name).filter(|now| now.token == client.token).cloned()
    }
}

/// The state of one component, for `/readyz`.
#[derive(Debug, Clone)]
pub struct Readiness {
    pub component: &'static str,
    pub state: Result<(), String>,
}

/// Number of sessions by transport.
pub type SessionCounts = BTreeMap<&'static str, usize>;

/// The server's gauges and counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerCounts {
    pub sessions: SessionCounts,
    /// Open HTTP connections.
    pub connections: usize,
    /// Tokens that were checked and refused, since the start.
    pub token_failures: u64,
    /// Sources that are locked out now.
    pub sources_locked: usize,
}

/// Readiness and metrics. Implemented by the binary, which knows every component.
pub trait Ops: Send + Sync {
    fn readiness(&self) -> Vec<Readiness>;

    /// Returns the metrics in the Prometheus text format, redacted.
    fn metrics(&self, counts: &ServerCounts) -> String;
}

/// The client of stdio and the local socket, as the configuration has it now. Clones share state.
#[derive(Clone)]
pub struct LocalClient(Arc<ArcSwap<Client>>);

impl LocalClient {
    pub fn new(client: Arc<Client>) -> LocalClient {
        LocalClient(Arc::new(ArcSwap::new(client)))
    }

    pub fn load(&self) -> Arc<Client> {
        self.0.load_full()
    }
}

/// Bounds of the server side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HubLimits {
    pub line_bytes_max: usize,
    pub body_bytes_max: usize,
    pub sessions_max: usize,
    pub sessions_per_client_max: usize,
    pub session_idle: Duration,
    /// In-flight requests of one connection or session.
    pub in_flight_max: usize,
    pub connections_max: usize,
    pub connections_per_source_max: usize,
    /// From the first byte of a request to the end of its headers, and from connecting to that first byte.
    pub headers_within: Duration,
    pub body_within: Duration,
    /// Write timeout for a client that does not read.
    pub write_within: Duration,
    /// Idle timeout of an authenticated connection.
    pub keep_alive: Duration,
    /// Wrong tokens until a source is locked out; after half of them it is slowed down.
    pub token_failures_max: u32,
    pub token_lockout: Duration,
}

impl Default for HubLimits {
    fn default() -> Self {
        HubLimits {
            line_bytes_max: 4 * 1024 * 1024,
            body_bytes_max: 4 * 1024 * 1024,
            sessions_max: 10_000,
            sessions_per_client_max: 2_000,
            session_idle: Duration::from_secs(30 * 60),
            in_flight_max: 256,
            connections_max: 4_000,
            connections_per_source_max: 3_000,
            headers_within: Duration::from_secs(10),
            body_within: Duration::from_secs(12),
            write_within: Duration::from_secs(30),
            keep_alive: Duration::from_secs(75),
            token_failures_max: 10,
            token_lockout: Duration::from_secs(15 * 60),
        }
    }
}

/// The components of a hub.
pub struct HubParts {
    pub gate: Arc<Gate>,
    pub identity: Arc<dyn Authenticate>,
    /// The client of stdio and the local socket.
    pub local_client: LocalClient,
    pub ops: Arc<dyn Ops>,
    pub clock: Arc<dyn Clock>,
    pub face: ServerProfile,
    pub limits: HubLimits,
    /// Redacts secrets.
    pub scrub: Arc<dyn Scrub>,
}

/// One running hub.
pub struct Hub {
    pub(crate) gate: Arc<Gate>,
    pub(crate) identity: Arc<dyn Authenticate>,
    pub(crate) local_client: LocalClient,
    /// Open connections of the local socket.
    pub(crate) local_guests: AtomicUsize,
    pub(crate) ops: Arc<dyn Ops>,
    pub(crate) face: ServerProfile,
    pub(crate) limits: HubLimits,
    pub(crate) sessions: Sessions,
    pub(crate) sources: Sources,
    pub(crate) listeners: ChangeListeners,
    /// The clients of the last snapshot, with their token ids.
    seen_clients: Mutex<HashMap<String, Option<u64>>>,
    pub(crate) tasks: Tasks,
    pub(crate) seal: Seal,
    pub(crate) outgoing: EgressFilter,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) services: Services,
    /// Calls in flight; shutdown waits for them.
    pub(crate) running: TaskTracker,
    /// Cancelled when the hub stops accepting work.
    pub(crate) closing: CancellationToken,
    /// Cancelled when the calls in flight are done, or their grace period is over.
    calls_over: CancellationToken,
    /// Cancelled when the work in flight is done, or its grace period is over.
    pub(crate) drained: CancellationToken,
}

impl Hub {
    /// Builds a hub. Nothing runs by itself before [`Hub::start_services`].
    pub fn new(parts: HubParts) -> std::io::Result<Arc<Hub>> {
        let gate = parts.gate.clone();
        Ok(Arc::new(Hub {
            sessions: Sessions::new(parts.limits, move |client| gate.client_disconnected(client)),
            sources: Sources::new(&parts.limits, parts.clock.clone()),
            listeners: ChangeListeners::default(),
            tasks: Tasks::default(),
            seen_clients: Mutex::default(),
            seal: Seal::new(parts.clock.clone())?,
            outgoing: EgressFilter::new(parts.scrub),
            gate: parts.gate,
            identity: parts.identity,
            local_client: parts.local_client,
            local_guests: AtomicUsize::new(0),
            ops: parts.ops,
            face: parts.face,
            limits: parts.limits,
            clock: parts.clock,
            services: Services::default(),
            running: TaskTracker::new(),
            closing: CancellationToken::new(),
            calls_over: CancellationToken::new(),
            drained: CancellationToken::new(),
        }))
    }

    /// Returns the services that keep this hub's own state: change notifications, and the end of what is idle or revoked.
    pub fn own_services(self: &Arc<Hub>) -> Vec<Arc<dyn Service>> {
        vec![Arc::new(ChangeAnnouncer::of(self)), Arc::new(SessionSweeper::of(self))]
    }

    /// Starts services. They are supervised until shutdown.
    pub fn start_services(&self, services: Vec<Arc<dyn Service>>) -> Result<(), DuplicateService> {
        let gate = GateHandle::default();
        gate.connect(&self.gate);
        let (shutdown, calls_over) = (self.closing.clone(), self.calls_over.clone());
        self.services.start(services, &ServiceCtx { shutdown, calls_over, clock: self.clock.clone(), gate })
    }

    /// Returns the state of each service.
    pub fn service_statuses(&self) -> Vec<ServiceStatus> {
        self.services.statuses()
    }

    /// Returns a receiver that is notified when a service fails or runs again.
    pub fn subscribe_services(&self) -> watch::Receiver<()> {
        self.services.subscribe()
    }

    /// Stops accepting work, waits for calls in flight and services for at most `grace`, and returns whether all finished.
    pub async fn shut_down(&self, grace: Duration) -> bool {
        self.closing.cancel();
        self.running.close();
        let calls = async {
            let calls = tokio::time::timeout(grace, self.running.wait()).await;
            self.calls_over.cancel();
            calls
        };
        let (calls, services) = tokio::join!(calls, self.services.drained(grace + AFTER_CALLS));
        if !services.is_empty() {
            tracing::warn!(target: "service", services = services.join(", "), "Services did not end in time.");
        }
        let all_done = calls.is_ok() && services.is_empty();
        self.sessions.close_all();
        self.listeners.close_all();
        self.drained.cancel();
        all_done
    }

    /// Registers this hub as the receiver of messages that upstream servers send outside of calls.
    pub fn attends(self: &Arc<Self>, audience: &ClientBridge) {
        let _ = self.sessions.audience.set(audience.clone());
        let hub = Arc::downgrade(self);
        audience.attach(hub);
    }

    /// Returns the state of each component.
    pub fn readiness(&self) -> Vec<Readiness> {
        self.ops.readiness()
    }

    /// Returns the counters.
    pub fn counts(&self) -> ServerCounts {
        ServerCounts {
            sessions: self.sessions.counts(),
            connections: self.sources.connections(),
            token_failures: self.sources.token_failures(),
            sources_locked: self.sources.locked(),
        }
    }

    /// Changes the scope of the local client, from its next request on.
    pub fn set_local_client(&self, client: Arc<Client>) {
        self.local_client.0.store(client);
        self.refresh_clients();
    }

    /// Reloads the admitted clients and their scopes. Sessions and streams of revoked clients end.
    pub fn refresh_clients(&self) {
        let known = AdmittedClients { admitted: self.identity.admitted(), local: self.local_client.load() };
        self.sessions.follow(&known);
        self.listeners.follow(&known);
        for (name, token) in self.vanished(&known) {
            self.tasks.forget_of(&name, token);
            self.gate.client_removed(&name);
        }
    }

    /// Returns the clients that were revoked since the last snapshot, by name and token.
    fn vanished(&self, known: &AdmittedClients) -> Vec<(String, Option<u64>)> {
        let Some(admitted) = &known.admitted else { return Vec::new() };
        let now = admitted.values().map(|client| (client.name.clone(), client.token)).collect();
        let mut seen = self.seen_clients.lock();
        let before = std::mem::replace(&mut *seen, now);
        before.into_iter().filter(|(name, token)| seen.get(name) != Some(token)).collect()
    }

    /// Returns the token that is cancelled when the hub stops accepting work.
    pub fn closing(&self) -> CancellationToken {
        self.closing.clone()
    }

    /// Resolves when the hub stops accepting work.
    pub async fn closed(&self) {
        self.closing.cancelled().await;
    }

    /// Returns whether other processes use this hub through its socket.
    pub fn has_local_guests(&self) -> bool {
        self.local_guests.load(Ordering::Acquire) > 0
    }

    pub fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // Ends the services of a hub that was never shut down.
        self.closing.cancel();
        self.calls_over.cancel();
    }
}
