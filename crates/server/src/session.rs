//! MCP sessions of the older protocol revisions: negotiated capabilities, subscriptions, in-flight requests, streams.

use crate::egress_filter::RedactedMessage;
use crate::hub::{AdmittedClients, Hub, HubLimits, SessionCounts};
use crate::stream::{ClientStream, MessageSink};
use arc_swap::ArcSwap;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use portcullis_core::{
    BoxFuture, Client, ClientBridge, InputRefusal, InputRequest, Limit, LogLevel, ResourceSubscription,
    Service, ServiceCtx, ServiceError, SessionDigest,
};
use portcullis_wire::era::{self, ClientCapabilities};
use portcullis_wire::{RequestId, Revision, RpcError, rpc};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Resource subscriptions of one session.
const SUBSCRIPTIONS_MAX: usize = 1_000;
/// Streams that a session keeps for a client that resumes.
const STREAMS_MAX: usize = 32;
/// Bytes of all of them.
const STREAMS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Interval of the sweep for idle sessions.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// Pending requests from the hub to one client.
const QUESTIONS_MAX: usize = 64;

#[derive(Debug, Clone)]
struct SessionNegotiation {
    revision: Revision,
    offers: ClientCapabilities,
    /// The same as raw JSON.
    capabilities: Map<String, Value>,
}

type QuestionResult = Result<Value, InputRefusal>;

/// One session.
pub(crate) struct McpSession {
    pub(crate) id: String,
    /// What the rest of the hub knows of the id.
    pub(crate) digest: SessionDigest,
    /// With its current scope, which may differ from that at the start of the session.
    client: ArcSwap<Client>,
    pub(crate) transport: &'static str,
    negotiated: OnceLock<SessionNegotiation>,
    log_level: AtomicU8,
    subscriptions: Mutex<BTreeMap<String, ResourceSubscription>>,
    in_flight: Mutex<HashMap<RequestId, CancellationToken>>,
    questions: Mutex<HashMap<u64, oneshot::Sender<QuestionResult>>>,
    next_question: AtomicU64,
    /// Receives messages that belong to no request.
    pub(crate) home: Arc<dyn MessageSink>,
    streams: Mutex<Streams>,
    started: Instant,
    last_used_ms: AtomicU64,
    /// Readers of all its streams; with any, the session is not idle.
    readers: AtomicUsize,
    /// Readers of the session's own stream.
    home_readers: AtomicUsize,
    pub(crate) closed: CancellationToken,
    /// Cancelled when the input ends, so that listening requests end too.
    pub(crate) input_over: CancellationToken,
}

#[derive(Default)]
struct Streams {
    next: u32,
    recent: VecDeque<(String, Arc<ClientStream>)>,
}

impl McpSession {
    pub(crate) fn new(
        client: Arc<Client>,
        transport: &'static str,
        home: Arc<dyn MessageSink>,
    ) -> Result<Arc<McpSession>, RpcError> {
        let session = McpSession::with_streams(client, transport, home, Streams::default())?;
        // The connection lasts as long as the session, so it is never idle.
        session.readers.store(1, Ordering::Relaxed);
        session.home_readers.store(1, Ordering::Relaxed);
        Ok(session)
    }

    /// Returns a session whose own stream can be resumed.
    pub(crate) fn streaming(
        client: Arc<Client>,
        transport: &'static str,
    ) -> Result<Arc<McpSession>, RpcError> {
        let home = ClientStream::resumable();
        let name = home.named(|| "s0".to_owned()).to_owned();
        let streams = Streams { next: 1, recent: VecDeque::from([(name, home.clone())]) };
        McpSession::with_streams(client, transport, home, streams)
    }

    fn with_streams(
        client: Arc<Client>,
        transport: &'static str,
        home: Arc<dyn MessageSink>,
        streams: Streams,
    ) -> Result<Arc<McpSession>, RpcError> {
        let id = random_id()?;
        Ok(Arc::new(McpSession {
            digest: SessionDigest::of(&id),
            id,
            client: ArcSwap::new(client),
            transport,
            negotiated: OnceLock::new(),
            log_level: AtomicU8::new(LogLevel::Info as u8),
            subscriptions: Mutex::default(),
            in_flight: Mutex::default(),
            questions: Mutex::default(),
            next_question: AtomicU64::new(1),
            home,
            streams: Mutex::new(streams),
            started: Instant::now(),
            last_used_ms: AtomicU64::new(0),
            readers: AtomicUsize::new(0),
            home_readers: AtomicUsize::new(0),
            closed: CancellationToken::new(),
            input_over: CancellationToken::new(),
        }))
    }

    /// Stores the result of `initialize`. Only the first one counts.
    pub(crate) fn negotiate(
        &self,
        revision: Revision,
        capabilities: Map<String, Value>,
    ) -> Result<(), RpcError> {
        let offers = ClientCapabilities::of(&capabilities);
        self.negotiated
            .set(SessionNegotiation { revision, offers, capabilities })
            .map_err(|_| RpcError::invalid_request("the session is initialized already"))
    }

    pub(crate) fn is_initialized(&self) -> bool {
        self.negotiated.get().is_some()
    }

    pub(crate) fn revision(&self) -> Revision {
        self.negotiated.get().map_or(Revision::NEWEST_WITH_SESSIONS, |negotiated| negotiated.revision)
    }

    pub(crate) fn client(&self) -> Arc<Client> {
        self.client.load_full()
    }

    fn is_of(&self, name: &str) -> bool {
        self.client.load().name == name
    }

    /// Returns whether this is the local client, which has no token.
    fn is_local(&self) -> bool {
        !matches!(self.transport, "http" | "sse") && self.client.load().token.is_none()
    }

    /// Returns whether a client reads the session's own stream.
    pub(crate) fn is_reached(&self) -> bool {
        self.home_readers.load(Ordering::Relaxed) > 0
    }

    /// Counts a reader of a stream until the returned function is called or dropped. Meanwhile the session is not
    /// idle.
    pub(crate) fn reading(self: &Arc<Self>, stream: &ClientStream) -> Box<dyn FnOnce() + Send> {
        let of_home = std::ptr::addr_eq(Arc::as_ptr(&self.home), std::ptr::from_ref(stream));
        self.readers.fetch_add(1, Ordering::Relaxed);
        if of_home {
            self.home_readers.fetch_add(1, Ordering::Relaxed);
        }
        let reading = StreamReaderGuard { session: self.clone(), of_home };
        Box::new(move || drop(reading))
    }

    pub(crate) fn began(&self) -> Instant {
        self.started
    }

    pub(crate) fn offers(&self) -> ClientCapabilities {
        self.negotiated.get().map(|negotiated| negotiated.offers).unwrap_or_default()
    }

    pub(crate) fn capabilities(&self) -> Value {
        Value::Object(
            self.negotiated.get().map(|negotiated| negotiated.capabilities.clone()).unwrap_or_default(),
        )
    }

    pub(crate) fn log_level(&self) -> Option<LogLevel> {
        let level = self.log_level.load(Ordering::Relaxed);
        LogLevel::ALL.into_iter().find(|known| *known as u8 == level)
    }

    pub(crate) fn set_log_level(&self, level: LogLevel) {
        self.log_level.store(level as u8, Ordering::Relaxed);
    }

    pub(crate) fn wants_log(&self, level: LogLevel) -> bool {
        level as u8 >= self.log_level.load(Ordering::Relaxed)
    }

    /// Subscribes to a resource. A repeated subscription is authorized again.
    pub(crate) fn subscribe(
        &self,
        uri: String,
        watch: impl FnOnce(&str) -> Result<ResourceSubscription, RpcError>,
    ) -> Result<(), RpcError> {
        let mut subscriptions = self.subscriptions.lock();
        // Checked under the lock that `close` takes to remove subscriptions.
        if self.closed.is_cancelled() {
            return Err(RpcError::invalid_request("the session is closed; send `initialize` again"));
        }
        if subscriptions.len() >= SUBSCRIPTIONS_MAX && !subscriptions.contains_key(&uri) {
            Limit::Subscriptions.hit();
            let reason = format!(
                "at most {SUBSCRIPTIONS_MAX} resource subscriptions are allowed; unsubscribe some first"
            );
            return Err(RpcError::invalid_params(reason));
        }
        let watch = watch(&uri)?;
        subscriptions.insert(uri, watch);
        Ok(())
    }

    pub(crate) fn unsubscribe(&self, uri: &str) {
        self.subscriptions.lock().remove(uri);
    }

    pub(crate) fn watches(&self, uri: &str) -> bool {
        self.subscriptions.lock().contains_key(uri)
    }

    pub(crate) fn watched(&self) -> Vec<String> {
        self.subscriptions.lock().keys().cloned().collect()
    }

    /// Registers an in-flight request, so that it can be cancelled by its id.
    pub(crate) fn begin(
        self: &Arc<Self>,
        id: &RequestId,
        cancel: &CancellationToken,
        max: usize,
    ) -> Result<InFlightRequestGuard, RpcError> {
        let mut in_flight = self.in_flight.lock();
        if in_flight.contains_key(id) {
            return Err(RpcError::invalid_request("`id` is in use by a request in flight"));
        }
        if in_flight.len() >= max {
            Limit::InFlight.hit();
            let reason = format!("{max} requests are in flight already; wait for some to finish");
            return Err(RpcError::new(rpc::SERVER_ERROR, reason));
        }
        // While it is in flight the session is not idle, and its end updates the idle time.
        in_flight.insert(id.clone(), cancel.clone());
        Ok(InFlightRequestGuard { session: self.clone(), id: id.clone() })
    }

    /// Cancels a request. One that has finished is ignored.
    pub(crate) fn cancel(&self, id: &RequestId) {
        if let Some(cancel) = self.in_flight.lock().get(id) {
            cancel.cancel();
        }
    }

    /// Sends a request to the client and returns its id and the receiver of the answer.
    pub(crate) fn ask(
        &self,
        ask: &InputRequest,
        sink: &dyn MessageSink,
    ) -> Result<(u64, oneshot::Receiver<QuestionResult>), String> {
        let id = self.next_question.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        {
            let mut questions = self.questions.lock();
            questions.retain(|_, sender| !sender.is_closed());
            if questions.len() >= QUESTIONS_MAX {
                Limit::Questions.hit();
                return Err(format!("{QUESTIONS_MAX} requests to this client are pending already"));
            }
            questions.insert(id, sender);
        }
        let params = era::ask_params(ask, || random_id().ok());
        sink.deliver(RedactedMessage::already_redacted(rpc::request(id, era::ask_method(ask.kind), &params)));
        Ok((id, receiver))
    }

    /// Removes a pending request, and returns whether it was there.
    pub(crate) fn withdraw(&self, question: u64) -> bool {
        self.questions.lock().remove(&question).is_some()
    }

    /// Handles the client's response. One with an unknown id is ignored.
    pub(crate) fn answer(&self, response: &portcullis_wire::RpcResponse<'_>) {
        let RequestId::Number(id) = &response.id else { return };
        let Some(sender) = self.questions.lock().remove(id) else { return };
        let result = match response.outcome {
            Ok(raw) => portcullis_core::json::parse_exact(raw.get())
                .map_err(|error| InputRefusal::Failed(error.to_string())),
            Err(raw) => Err(rpc::parse_foreign_error(raw).map_or_else(
                || InputRefusal::Failed(portcullis_core::json::printable(raw.get())),
                InputRefusal::Refused,
            )),
        };
        // The call that asked may have ended.
        let _ = sender.send(result);
    }

    /// Keeps the stream of a request, so that the client can resume it.
    pub(crate) fn keep_stream(&self, stream: &Arc<ClientStream>) {
        if !stream.is_resumable() {
            return;
        }
        let mut streams = self.streams.lock();
        let name = stream.named(|| format!("s{}", streams.next)).to_owned();
        streams.next += 1;
        streams.recent.push_back((name, stream.clone()));
        // The session's own stream and the new one stay; of the others the oldest is evicted.
        let bytes =
            |streams: &Streams| streams.recent.iter().map(|(_, stream)| stream.bytes()).sum::<usize>();
        while streams.recent.len() > 2
            && (streams.recent.len() > STREAMS_MAX || bytes(&streams) > STREAMS_BYTES_MAX)
        {
            // A finished stream first: a pending response would be lost with its stream.
            let done = streams.recent.iter().skip(1).position(|(_, stream)| stream.is_done());
            let at = done.map_or(1, |at| at + 1);
            streams.recent.remove(at);
        }
    }

    /// Finds the stream of an event id, and the event's number.
    pub(crate) fn find_stream(&self, event_id: &str) -> Option<(Arc<ClientStream>, u64)> {
        let (name, seq) = event_id.rsplit_once('-')?;
        let streams = self.streams.lock();
        let (_, stream) = streams.recent.iter().find(|(kept, _)| kept == name)?;
        Some((stream.clone(), seq.parse().ok()?))
    }

    pub(crate) fn touch(&self) {
        self.last_used_ms.store(self.started.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    fn idle_for(&self) -> Duration {
        let used = Duration::from_millis(self.last_used_ms.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(used)
    }

    fn is_idle(&self) -> bool {
        self.in_flight.lock().is_empty() && self.readers.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn close(&self) {
        self.closed.cancel();
        self.input_over.cancel();
        for (_, cancel) in self.in_flight.lock().drain() {
            cancel.cancel();
        }
        self.questions.lock().clear();
        // A caller that still holds the session must not keep its subscriptions alive.
        let watches = std::mem::take(&mut *self.subscriptions.lock());
        drop(watches);
        for (_, stream) in &self.streams.lock().recent {
            stream.finish();
        }
    }
}

/// Counts as a reader of a stream until dropped.
struct StreamReaderGuard {
    session: Arc<McpSession>,
    of_home: bool,
}

impl Drop for StreamReaderGuard {
    fn drop(&mut self) {
        if self.of_home {
            self.session.home_readers.fetch_sub(1, Ordering::Relaxed);
        }
        self.session.readers.fetch_sub(1, Ordering::Relaxed);
        self.session.touch();
    }
}

/// An in-flight request; removed from the table when dropped.
pub(crate) struct InFlightRequestGuard {
    session: Arc<McpSession>,
    id: RequestId,
}

impl Drop for InFlightRequestGuard {
    fn drop(&mut self) {
        self.session.in_flight.lock().remove(&self.id);
        self.session.touch();
    }
}

/// All sessions of a hub.
pub(crate) struct Sessions {
    all: Mutex<HashMap<String, Arc<McpSession>>>,
    limits: HubLimits,
    /// Called when a client has closed its last session.
    left: Box<ClientLeftHook>,
    /// Notified when a client's roots change.
    pub(crate) audience: OnceLock<ClientBridge>,
}

type ClientLeftHook = dyn Fn(&str) + Send + Sync;

impl Sessions {
    pub(crate) fn new(limits: HubLimits, left: impl Fn(&str) + Send + Sync + 'static) -> Sessions {
        Sessions { all: Mutex::default(), limits, left: Box::new(left), audience: OnceLock::new() }
    }

    /// Adds a session, or fails if the limit is reached.
    ///
    /// A client at its limit loses its own most idle session, never another client's.
    pub(crate) fn add(&self, session: &Arc<McpSession>) -> Result<(), RpcError> {
        let client = session.client();
        let mut all = self.all.lock();
        let own = all.values().filter(|other| other.is_of(&client.name)).count();
        let own_full = own >= self.limits.sessions_per_client_max;
        if own_full || all.len() >= self.limits.sessions_max {
            if own_full {
                Limit::SessionsPerClient.hit()
            } else {
                Limit::Sessions.hit()
            }
            let mine = all.values().filter(|s| s.is_of(&client.name) && s.is_idle());
            match mine.max_by_key(|s| s.idle_for()).map(|s| s.id.clone()) {
                Some(id) => {
                    if let Some(evicted) = all.remove(&id) {
                        evicted.close();
                    }
                }
                None => {
                    let reason = "too many sessions are open; close one and try again";
                    return Err(RpcError::new(rpc::SERVER_ERROR, reason));
                }
            }
        }
        all.insert(session.id.clone(), session.clone());
        Ok(())
    }

    /// Finds a session of this client. Another client's session is not found.
    pub(crate) fn find(&self, id: &str, client: &Client) -> Option<Arc<McpSession>> {
        let session = self.all.lock().get(id).cloned()?;
        session.client().is(client).then(|| {
            session.touch();
            session
        })
    }

    pub(crate) fn remove(&self, id: &str) -> bool {
        let removed = self.all.lock().remove(id);
        if let Some(session) = &removed {
            session.close();
            self.leaves(&session.client().name);
            self.roots_changed(session);
        }
        removed.is_some()
    }

    /// Calls the hook if a client has no session any more.
    fn leaves(&self, name: &str) {
        let was_last = !self.all.lock().values().any(|session| session.is_of(name));
        if was_last {
            (self.left)(name);
        }
    }

    /// Notifies that a client's roots changed, or that the client connected or disconnected.
    pub(crate) fn roots_changed(&self, session: &McpSession) {
        if let Some(audience) = self.audience.get().filter(|_| session.offers().roots) {
            audience.roots_changed(&session.client().name);
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<McpSession>> {
        self.all.lock().values().cloned().collect()
    }

    pub(crate) fn close_all(&self) {
        for (_, session) in self.all.lock().drain() {
            session.close();
        }
    }

    pub(crate) fn counts(&self) -> SessionCounts {
        let mut counts = SessionCounts::new();
        for session in self.all.lock().values() {
            *counts.entry(session.transport).or_default() += 1;
        }
        counts
    }

    /// Closes the sessions of clients that are no longer admitted, and updates the scope of the others. The local
    /// client has no token that could be revoked.
    pub(crate) fn follow(&self, known: &AdmittedClients) {
        for session in self.all() {
            let was = session.client();
            let now = if session.is_local() { Some(known.local.clone()) } else { known.now(&was) };
            let Some(now) = now else {
                self.remove(&session.id);
                continue;
            };
            let is_called_otherwise = now.name != was.name;
            session.client.store(now);
            // The configuration may have renamed the local client.
            if is_called_otherwise {
                self.leaves(&was.name);
            }
        }
    }

    fn sweep(&self) {
        let idle_max = self.limits.session_idle;
        let idle: Vec<String> = self
            .all
            .lock()
            .values()
            .filter(|session| {
                session.transport == "http" && session.is_idle() && session.idle_for() > idle_max
            })
            .map(|session| session.id.clone())
            .collect();
        for id in idle {
            tracing::debug!(target: "mcp", session = %&id[..6], "closing an idle session");
            Limit::SessionIdle.hit();
            self.remove(&id);
        }
    }
}

/// The service that ends what is idle or revoked: sessions, streams and tasks.
pub(crate) struct SessionSweeper {
    /// Weak: the hub owns its services.
    hub: Weak<Hub>,
}

impl SessionSweeper {
    pub(crate) fn of(hub: &Arc<Hub>) -> SessionSweeper {
        SessionSweeper { hub: Arc::downgrade(hub) }
    }
}

impl Service for SessionSweeper {
    fn name(&self) -> &'static str {
        "sessions"
    }

    fn run(self: Arc<Self>, ctx: ServiceCtx) -> BoxFuture<'static, Result<(), ServiceError>> {
        Box::pin(async move {
            loop {
                tokio::select! {
                    () = ctx.shutdown.cancelled() => return Ok(()),
                    () = tokio::time::sleep(SWEEP_EVERY) => {}
                }
                let hub = self.hub.upgrade().ok_or("the hub is gone")?;
                hub.sessions.sweep();
                hub.refresh_clients();
                hub.tasks.sweep();
            }
        })
    }
}

/// Returns 192 random bits as text. A guessable id would allow session hijacking.
pub(crate) fn random_id() -> Result<String, RpcError> {
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).map_err(|error| {
        tracing::error!(target: "mcp", %error, "could not get random bytes from the system");
        RpcError::new(rpc::INTERNAL_ERROR, "the hub cannot create an id; try again")
    })?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::{
        BoxFuture, Call, Caller, Catalog, Gate, InputRequestKind, Layer, Next, Outcome, Pattern, Permit,
        Provider, Registry, ResourceClaim, Scope, ToolError, VisibilityFilter, WatchRefusal, WatchState,
    };

    fn client() -> Arc<Client> {
        Arc::new(Client { name: "test".to_owned(), scope: Scope::everything(), token: None })
    }

    #[test]
    fn an_idle_session_ends_and_is_counted() {
        let sessions =
            Sessions::new(HubLimits { session_idle: Duration::ZERO, ..HubLimits::default() }, |_| {});
        let session = McpSession::streaming(client(), "http").unwrap();
        sessions.add(&session).unwrap();
        let before = Limit::SessionIdle.hits();
        while session.idle_for().is_zero() {}
        sessions.sweep();
        assert!(session.closed.is_cancelled());
        assert!(Limit::SessionIdle.hits() > before);
    }

    #[test]
    fn a_session_follows_its_client_and_ends_with_its_token() {
        let named = |name: &str, allow: &str, token: Option<u64>| {
            let scope = Scope { allow: Pattern::new(&[allow]).unwrap(), ..Scope::everything() };
            Arc::new(Client { name: name.to_owned(), scope, token })
        };
        let left = Arc::new(Mutex::new(Vec::new()));
        let left_names = left.clone();
        let sessions =
            Sessions::new(HubLimits::default(), move |name| left_names.lock().push(name.to_owned()));
        let http = McpSession::streaming(named("ada", "*", Some(1)), "http").unwrap();
        let line = McpSession::new(named("local", "*", None), "stdio", ClientStream::fleeting()).unwrap();
        for session in [&http, &line] {
            sessions.add(session).unwrap();
        }
        let sees = |session: &McpSession| session.client().scope.allow.globs()[0].to_string();
        let look = |ada: Arc<Client>, local: Arc<Client>| {
            sessions
                .follow(&AdmittedClients { admitted: Some(HashMap::from([("ada".to_owned(), ada)])), local });
        };
        look(named("ada", "a_*", Some(1)), named("here", "l_*", None));
        assert_eq!([sees(&http), sees(&line)], ["a_*", "l_*"]);
        assert_eq!(*left.lock(), ["local"], "called otherwise from now on");
        look(named("ada", "a_*", Some(2)), named("here", "l_*", None));
        assert!(http.closed.is_cancelled(), "another client has the name now");
        assert!(!line.closed.is_cancelled());
        assert_eq!(*left.lock(), ["local", "ada"]);
    }

    /// Has one resource, and records its subscriptions.
    #[derive(Default)]
    struct Watched(Arc<Mutex<Vec<bool>>>);

    impl Provider for Watched {
        fn name(&self) -> &str {
            "watched"
        }

        fn catalog(&self) -> Catalog {
            Catalog::default()
        }

        fn owns_resource(&self, _: &str, _: &str) -> ResourceClaim {
            ResourceClaim::Listed
        }

        fn watch(&self, _: &str, _: &str, state: WatchState) {
            self.0.lock().push(state == WatchState::Wanted);
        }

        fn call(&self, _: Permit, _: Box<Call>) -> BoxFuture<'_, Outcome> {
            Box::pin(async { Err(ToolError::internal("never called")) })
        }
    }

    #[test]
    fn a_closed_session_watches_nothing_whoever_still_holds_it() {
        let (registry, provider) = (Registry::default(), Watched::default());
        let watches_seen = provider.0.clone();
        registry.add(provider).unwrap();
        let gate = Gate::new(registry, Vec::new());
        let session = McpSession::streaming(client(), "http").unwrap();
        let caller = crate::dispatch::caller(&session.client());
        let subscribe = || {
            session.subscribe("x://a".to_owned(), |uri| {
                gate.watch(&caller, uri).map_err(|_| RpcError::invalid_params("refused"))
            })
        };
        subscribe().unwrap();
        assert_eq!(*watches_seen.lock(), [true]);
        session.close();
        assert_eq!(*watches_seen.lock(), [true, false]);
        assert!(subscribe().is_err());
        assert_eq!(*watches_seen.lock(), [true, false]);
    }

    /// A layer with fixed decisions on visibility and unattended use.
    struct Strict {
        shows: bool,
        lets: bool,
    }

    impl Layer for Strict {
        fn call<'a>(&'a self, call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome> {
            next.run(call)
        }

        fn visibility_filter<'a>(&'a self, _: &'a Caller) -> VisibilityFilter<'a> {
            Box::new(|_| self.shows)
        }

        fn unattended_filter<'a>(&'a self, _: &'a Caller) -> VisibilityFilter<'a> {
            Box::new(|_| self.lets)
        }
    }

    #[test]
    fn the_gate_itself_refuses_a_watch_that_a_layer_refuses() {
        for (shows, lets, refusal) in [
            (true, true, None),
            (false, false, Some(WatchRefusal::Unknown)),
            (true, false, Some(WatchRefusal::NeedsApproval)),
        ] {
            let (registry, provider) = (Registry::default(), Watched::default());
            let watches_seen = provider.0.clone();
            registry.add(provider).unwrap();
            let gate = Gate::new(registry, vec![Box::new(Strict { shows, lets })]);
            let session = McpSession::streaming(client(), "http").unwrap();
            let caller = crate::dispatch::caller(&session.client());
            let watch = gate.watch(&caller, "x://a");
            assert_eq!(watch.as_ref().err().copied(), refusal);
            // The URI of a refused resource never reaches its owner.
            assert_eq!(watches_seen.lock().is_empty(), refusal.is_some());
        }
    }

    #[test]
    fn a_client_that_reads_only_an_answer_is_not_reached_and_not_idle() {
        let session = McpSession::streaming(client(), "http").unwrap();
        let (home, _) = session.find_stream("s0-0").unwrap();
        let answer = session.reading(&ClientStream::resumable());
        assert!(!session.is_reached() && !session.is_idle());
        let down = session.reading(&home);
        drop(answer);
        assert!(session.is_reached() && !session.is_idle());
        drop(down);
        assert!(!session.is_reached() && session.is_idle());
    }

    #[test]
    fn a_client_is_asked_so_many_questions_at_once_and_no_more() {
        let session = McpSession::streaming(client(), "http").unwrap();
        let ask = InputRequest { kind: InputRequestKind::Elicit, params: Value::Null };
        let stream = ClientStream::fleeting();
        let before = Limit::Questions.hits();
        let mut waiting: Vec<_> = (0..QUESTIONS_MAX).map(|_| session.ask(&ask, &*stream).unwrap()).collect();
        assert!(session.ask(&ask, &*stream).is_err());
        assert!(Limit::Questions.hits() > before);
        // One of them was dropped.
        waiting.pop();
        assert!(session.ask(&ask, &*stream).is_ok());
    }
}
