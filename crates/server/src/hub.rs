//! What all transports share.

use crate::announce::Listeners;
use crate::clean::Outgoing;
use crate::seal::Seal;
use crate::session::Sessions;
use crate::sources::Sources;
use crate::tasks::Tasks;
use arc_swap::ArcSwap;
use portcullis_core::{Audience, Client, Clock, Gate, Scrub};
use portcullis_wire::era::ServerFace;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Finds out who a bearer token belongs to.
pub trait Authenticate: Send + Sync {
    fn authenticate(&self, token: Option<&str>) -> Option<Arc<Client>>;

    /// Returns everyone who would be let in now, by name, as far as that can be known.
    fn admitted(&self) -> Option<HashMap<String, Arc<Client>>>;
}

/// Who may have something open between two requests, as of one look.
pub(crate) struct Known {
    /// Nothing where that cannot be known now. Then nobody has to go who was known before.
    pub(crate) admitted: Option<HashMap<String, Arc<Client>>>,
    pub(crate) local: Arc<Client>,
}

impl Known {
    /// Returns a client with a token as it is known now. Another token of the same name is somebody else's.
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

/// How many sessions there are, by transport.
pub type SessionCounts = BTreeMap<&'static str, usize>;

/// What the server itself counts, as it is now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerCounts {
    pub sessions: SessionCounts,
    /// HTTP connections that are open.
    pub connections: usize,
    /// Tokens that were looked at and were not good, since the start.
    pub token_failures: u64,
    /// Sources of which no token is looked at now.
    pub sources_locked: usize,
}

/// What operators see. Composed by the binary, which knows every component.
pub trait Ops: Send + Sync {
    fn readiness(&self) -> Vec<Readiness>;

    /// Returns the metrics as text for Prometheus, without what must not leave.
    fn metrics(&self, counts: &ServerCounts) -> String;
}

/// Bounds of the server side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HubLimits {
    pub line_bytes_max: usize,
    pub body_bytes_max: usize,
    pub sessions_max: usize,
    pub sessions_per_client_max: usize,
    pub session_idle: Duration,
    /// Requests that one connection or session may have under way.
    pub in_flight_max: usize,
    pub connections_max: usize,
    pub connections_per_source_max: usize,
    /// From the first byte of a request to the end of its headers, and from connecting to that first byte.
    pub headers_within: Duration,
    pub body_within: Duration,
    /// How long a client that does not read is waited for.
    pub write_within: Duration,
    /// How long a connection that has shown a good token may wait for its next request.
    pub keep_alive: Duration,
    /// Wrong tokens after which a source is locked; it is slowed down after half of them.
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

/// What a hub is made of.
pub struct HubParts {
    pub gate: Arc<Gate>,
    pub identity: Arc<dyn Authenticate>,
    /// Who calls on stdio and on the local socket.
    pub local_client: Arc<Client>,
    pub ops: Arc<dyn Ops>,
    pub clock: Arc<dyn Clock>,
    pub face: ServerFace,
    pub limits: HubLimits,
    /// Knows what must not leave.
    pub scrub: Arc<dyn Scrub>,
}

/// One running hub.
pub struct Hub {
    pub(crate) gate: Arc<Gate>,
    pub(crate) identity: Arc<dyn Authenticate>,
    pub(crate) local_client: ArcSwap<Client>,
    pub(crate) ops: Arc<dyn Ops>,
    pub(crate) face: ServerFace,
    pub(crate) limits: HubLimits,
    pub(crate) sessions: Sessions,
    pub(crate) sources: Sources,
    pub(crate) listeners: Listeners,
    /// The clients of the last look, each by what tells its token from others.
    seen_clients: Mutex<HashMap<String, Option<u64>>>,
    pub(crate) tasks: Tasks,
    pub(crate) seal: Seal,
    pub(crate) outgoing: Outgoing,
    pub(crate) clock: Arc<dyn Clock>,
    /// Calls under way; shutdown waits for them.
    pub(crate) running: TaskTracker,
    /// Cancelled when no new work is taken.
    pub(crate) closing: CancellationToken,
    /// Cancelled when the work that was under way then is done, or has had its time.
    pub(crate) drained: CancellationToken,
}

impl Hub {
    /// Puts a hub together and starts telling its clients of changes. Needs a runtime.
    pub fn new(parts: HubParts) -> std::io::Result<Arc<Hub>> {
        let gate = parts.gate.clone();
        let hub = Arc::new(Hub {
            sessions: Sessions::new(parts.limits, move |client| gate.left(client)),
            sources: Sources::new(&parts.limits, parts.clock.clone()),
            listeners: Listeners::default(),
            tasks: Tasks::default(),
            seen_clients: Mutex::default(),
            seal: Seal::new(parts.clock.clone())?,
            outgoing: Outgoing::new(parts.scrub),
            gate: parts.gate,
            identity: parts.identity,
            local_client: ArcSwap::new(parts.local_client),
            ops: parts.ops,
            face: parts.face,
            limits: parts.limits,
            clock: parts.clock,
            running: TaskTracker::new(),
            closing: CancellationToken::new(),
            drained: CancellationToken::new(),
        });
        crate::announce::start(&hub);
        crate::session::start_sweeping(&hub);
        Ok(hub)
    }

    /// Takes no new work, lets calls under way finish for at most `grace`, then returns whether all did.
    pub async fn shut_down(&self, grace: Duration) -> bool {
        self.closing.cancel();
        self.running.close();
        let all_done = tokio::time::timeout(grace, self.running.wait()).await.is_ok();
        self.sessions.close_all();
        self.listeners.close_all();
        self.drained.cancel();
        all_done
    }

    /// Stands for its clients from now on, towards servers that speak outside of calls.
    pub fn attends(self: &Arc<Self>, audience: &Audience) {
        let _ = self.sessions.audience.set(audience.clone());
        let hub = Arc::downgrade(self);
        audience.is_known_by(hub);
    }

    /// Returns how each part stands.
    pub fn readiness(&self) -> Vec<Readiness> {
        self.ops.readiness()
    }

    /// Returns what the server counts.
    pub fn counts(&self) -> ServerCounts {
        ServerCounts {
            sessions: self.sessions.counts(),
            connections: self.sources.connections(),
            token_failures: self.sources.token_failures(),
            sources_locked: self.sources.locked(),
        }
    }

    /// Changes what the local client may do, from its next request on.
    pub fn set_local_client(&self, client: Arc<Client>) {
        self.local_client.store(client);
        self.look_at_clients();
    }

    /// Looks again who is known and what they may see. What others have open ends.
    pub fn look_at_clients(&self) {
        let known = Known { admitted: self.identity.admitted(), local: self.local_client.load_full() };
        self.sessions.follow(&known);
        self.listeners.follow(&known);
        for (name, token) in self.vanished(&known) {
            self.tasks.forget_of(&name, token);
            self.gate.gone(&name);
        }
    }

    /// Returns the clients with a token that were known at the last look and are not any more, by name and token.
    fn vanished(&self, known: &Known) -> Vec<(String, Option<u64>)> {
        let Some(admitted) = &known.admitted else { return Vec::new() };
        let now = admitted.values().map(|client| (client.name.clone(), client.token)).collect();
        let mut seen = self.seen_clients.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *seen, now);
        before.into_iter().filter(|(name, token)| seen.get(name) != Some(token)).collect()
    }

    /// Resolves when the hub takes no more work.
    pub async fn closed(&self) {
        self.closing.cancelled().await;
    }

    /// Returns whether other processes use this hub by way of its socket.
    pub fn has_local_guests(&self) -> bool {
        self.sessions.counts().get("socket").is_some_and(|count| *count > 0)
    }

    pub fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }
}
