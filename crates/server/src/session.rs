//! What a client of the older revisions has between two messages.

use crate::clean::Clean;
use crate::hub::{Hub, HubLimits, Known, SessionCounts};
use crate::stream::{Outlet, Stream};
use arc_swap::ArcSwap;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portcullis_core::{Ask, AskRefused, Audience, Client, Limit, LogLevel, Watch};
use portcullis_wire::era::{self, Offers};
use portcullis_wire::{Id, Revision, RpcError, rpc};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// How many resources one session may watch.
const SUBSCRIPTIONS_MAX: usize = 1_000;
/// How many finished streams a session keeps for a client that comes back.
const STREAMS_MAX: usize = 32;
/// How many bytes those may take together.
const STREAMS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How often sessions are looked at for being idle.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// How many questions to one client may be open.
const QUESTIONS_MAX: usize = 64;

#[derive(Debug, Clone)]
struct Negotiated {
    revision: Revision,
    offers: Offers,
    /// The same in the client's own words.
    capabilities: Map<String, Value>,
}

type QuestionResult = Result<Value, AskRefused>;

/// One session.
pub(crate) struct Session {
    pub(crate) id: String,
    /// As it is known now, which may be with another scope than when the session began.
    client: ArcSwap<Client>,
    pub(crate) transport: &'static str,
    negotiated: OnceLock<Negotiated>,
    log_level: AtomicU8,
    subscriptions: Mutex<BTreeMap<String, Watch>>,
    in_flight: Mutex<HashMap<Id, CancellationToken>>,
    questions: Mutex<HashMap<u64, oneshot::Sender<QuestionResult>>>,
    next_question: AtomicU64,
    /// Where messages go that belong to no request.
    pub(crate) home: Arc<dyn Outlet>,
    streams: Mutex<Streams>,
    started: Instant,
    last_used_ms: AtomicU64,
    /// Of all its streams; as long as there are any it is not idle.
    readers: AtomicUsize,
    /// Of its own stream.
    home_readers: AtomicUsize,
    pub(crate) closed: CancellationToken,
    /// Cancelled when no more requests will come: whoever only listens need not be told any more.
    pub(crate) input_over: CancellationToken,
}

#[derive(Default)]
struct Streams {
    next: u32,
    recent: VecDeque<(String, Arc<Stream>)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    pub(crate) fn new(
        client: Arc<Client>,
        transport: &'static str,
        home: Arc<dyn Outlet>,
    ) -> Result<Arc<Session>, RpcError> {
        let session = Session::with_streams(client, transport, home, Streams::default())?;
        // Its connection is there as long as the session is, so it is never idle.
        session.readers.store(1, Ordering::Relaxed);
        session.home_readers.store(1, Ordering::Relaxed);
        Ok(session)
    }

    /// Returns a session whose own stream can be read and taken up again.
    pub(crate) fn streaming(client: Arc<Client>, transport: &'static str) -> Result<Arc<Session>, RpcError> {
        let home = Stream::resumable();
        let name = home.named(|| "s0".to_owned()).to_owned();
        let streams = Streams { next: 1, recent: VecDeque::from([(name, home.clone())]) };
        Session::with_streams(client, transport, home, streams)
    }

    fn with_streams(
        client: Arc<Client>,
        transport: &'static str,
        home: Arc<dyn Outlet>,
        streams: Streams,
    ) -> Result<Arc<Session>, RpcError> {
        Ok(Arc::new(Session {
            id: random_id()?,
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

    /// Remembers what `initialize` agreed on. Only the first one counts.
    pub(crate) fn negotiate(
        &self,
        revision: Revision,
        capabilities: Map<String, Value>,
    ) -> Result<(), RpcError> {
        let offers = Offers::of(&capabilities);
        self.negotiated
            .set(Negotiated { revision, offers, capabilities })
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

    /// Returns whether its client is the local one, who shows no token.
    fn is_local(&self) -> bool {
        !matches!(self.transport, "http" | "sse")
    }

    /// Returns whether somebody reads what belongs to no request.
    pub(crate) fn is_reached(&self) -> bool {
        self.home_readers.load(Ordering::Relaxed) > 0
    }

    /// Counts a reader of one of its streams, until what this returns is called or dropped. It is not idle so long.
    pub(crate) fn reading(self: &Arc<Self>, stream: &Stream) -> Box<dyn FnOnce() + Send> {
        let of_home = std::ptr::addr_eq(Arc::as_ptr(&self.home), std::ptr::from_ref(stream));
        self.readers.fetch_add(1, Ordering::Relaxed);
        if of_home {
            self.home_readers.fetch_add(1, Ordering::Relaxed);
        }
        let reading = Reading { session: self.clone(), of_home };
        Box::new(move || drop(reading))
    }

    pub(crate) fn began(&self) -> Instant {
        self.started
    }

    pub(crate) fn offers(&self) -> Offers {
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

    /// Subscribes to a resource. A client that asks again is judged again.
    pub(crate) fn subscribe(
        &self,
        uri: String,
        watch: impl FnOnce(&str) -> Result<Watch, RpcError>,
    ) -> Result<(), RpcError> {
        let mut subscriptions = lock(&self.subscriptions);
        // Under the lock under which they go when it is closed.
        if self.closed.is_cancelled() {
            return Err(RpcError::invalid_request("the session is closed; send `initialize` again"));
        }
        if subscriptions.len() >= SUBSCRIPTIONS_MAX && !subscriptions.contains_key(&uri) {
            Limit::Subscriptions.hit();
            let reason =
                format!("at most {SUBSCRIPTIONS_MAX} resources can be watched; unsubscribe some first");
            return Err(RpcError::invalid_params(reason));
        }
        let watch = watch(&uri)?;
        subscriptions.insert(uri, watch);
        Ok(())
    }

    pub(crate) fn unsubscribe(&self, uri: &str) {
        lock(&self.subscriptions).remove(uri);
    }

    pub(crate) fn watches(&self, uri: &str) -> bool {
        lock(&self.subscriptions).contains_key(uri)
    }

    pub(crate) fn watched(&self) -> Vec<String> {
        lock(&self.subscriptions).keys().cloned().collect()
    }

    /// Notes a request as under way, so that it can be cancelled by its id.
    pub(crate) fn begin(
        self: &Arc<Self>,
        id: &Id,
        cancel: &CancellationToken,
        max: usize,
    ) -> Result<InFlight, RpcError> {
        let mut in_flight = lock(&self.in_flight);
        if in_flight.contains_key(id) {
            return Err(RpcError::invalid_request("`id` is in use by a request that is still under way"));
        }
        if in_flight.len() >= max {
            Limit::InFlight.hit();
            let reason = format!("{max} requests are under way already; wait for some to finish");
            return Err(RpcError::new(rpc::SERVER_ERROR, reason));
        }
        // As long as it is under way the session is not idle, and its end is noted.
        in_flight.insert(id.clone(), cancel.clone());
        Ok(InFlight { session: self.clone(), id: id.clone() })
    }

    /// Cancels a request. One that has finished is none of anyone's business any more.
    pub(crate) fn cancel(&self, id: &Id) {
        if let Some(cancel) = lock(&self.in_flight).get(id) {
            cancel.cancel();
        }
    }

    /// Sends a question to the client and returns where its answer will come.
    pub(crate) fn ask(
        &self,
        ask: &Ask,
        outlet: &dyn Outlet,
    ) -> Result<(u64, oneshot::Receiver<QuestionResult>), String> {
        let id = self.next_question.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        {
            let mut questions = lock(&self.questions);
            questions.retain(|_, sender| !sender.is_closed());
            if questions.len() >= QUESTIONS_MAX {
                Limit::Questions.hit();
                return Err(format!("{QUESTIONS_MAX} questions to this client are open already"));
            }
            questions.insert(id, sender);
        }
        let params = era::ask_params(ask, || random_id().ok());
        outlet.deliver(Clean::guarded(rpc::request(id, era::ask_method(ask.kind), &params)));
        Ok((id, receiver))
    }

    /// Takes a question back, and returns whether it was still open.
    pub(crate) fn withdraw(&self, question: u64) -> bool {
        lock(&self.questions).remove(&question).is_some()
    }

    /// Takes the client's answer to a question. An answer to no question is ignored.
    pub(crate) fn answer(&self, response: &portcullis_wire::Response<'_>) {
        let Id::Number(id) = &response.id else { return };
        let Some(sender) = lock(&self.questions).remove(id) else { return };
        let result = match response.outcome {
            Ok(raw) => portcullis_core::json::parse_exact(raw.get())
                .map_err(|error| AskRefused::Failed(error.to_string())),
            Err(raw) => Err(rpc::said(raw).map_or_else(
                || AskRefused::Failed(portcullis_core::json::printable(raw.get())),
                AskRefused::Refused,
            )),
        };
        // The call that asked may be gone.
        let _ = sender.send(result);
    }

    /// Keeps the stream of one request, so that the client can come back to it.
    pub(crate) fn keep_stream(&self, stream: &Arc<Stream>) {
        if !stream.is_resumable() {
            return;
        }
        let mut streams = lock(&self.streams);
        let name = stream.named(|| format!("s{}", streams.next)).to_owned();
        streams.next += 1;
        streams.recent.push_back((name, stream.clone()));
        // The session's own stream stays, and so does the new one; of the others the oldest goes.
        let bytes =
            |streams: &Streams| streams.recent.iter().map(|(_, stream)| stream.bytes()).sum::<usize>();
        while streams.recent.len() > 2
            && (streams.recent.len() > STREAMS_MAX || bytes(&streams) > STREAMS_BYTES_MAX)
        {
            // One that is done first: an answer that is still to come would have nowhere to go.
            let done = streams.recent.iter().skip(1).position(|(_, stream)| stream.is_done());
            let at = done.map_or(1, |at| at + 1);
            streams.recent.remove(at);
        }
    }

    /// Finds the stream that an event id belongs to, and the event's number.
    pub(crate) fn find_stream(&self, event_id: &str) -> Option<(Arc<Stream>, u64)> {
        let (name, seq) = event_id.rsplit_once('-')?;
        let streams = lock(&self.streams);
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
        lock(&self.in_flight).is_empty() && self.readers.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn close(&self) {
        self.closed.cancel();
        self.input_over.cancel();
        for (_, cancel) in lock(&self.in_flight).drain() {
            cancel.cancel();
        }
        lock(&self.questions).clear();
        // Whoever still holds the session, for what it was asked last, does not watch anything by that.
        let watches = std::mem::take(&mut *lock(&self.subscriptions));
        drop(watches);
        for (_, stream) in &lock(&self.streams).recent {
            stream.finish();
        }
    }
}

/// A stream of a session that is read, until this is dropped.
struct Reading {
    session: Arc<Session>,
    of_home: bool,
}

impl Drop for Reading {
    fn drop(&mut self) {
        if self.of_home {
            self.session.home_readers.fetch_sub(1, Ordering::Relaxed);
        }
        self.session.readers.fetch_sub(1, Ordering::Relaxed);
        self.session.touch();
    }
}

/// A request under way; gone from the table when dropped.
pub(crate) struct InFlight {
    session: Arc<Session>,
    id: Id,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        lock(&self.session.in_flight).remove(&self.id);
        self.session.touch();
    }
}

/// All sessions of a hub.
pub(crate) struct Sessions {
    all: Mutex<HashMap<String, Arc<Session>>>,
    limits: HubLimits,
    /// Told of clients that have closed their last one.
    left: Box<Left>,
    /// Told of clients that have other folders than before.
    pub(crate) audience: OnceLock<Audience>,
}

type Left = dyn Fn(&str) + Send + Sync;

impl Sessions {
    pub(crate) fn new(limits: HubLimits, left: impl Fn(&str) + Send + Sync + 'static) -> Sessions {
        Sessions { all: Mutex::default(), limits, left: Box::new(left), audience: OnceLock::new() }
    }

    /// Adds a session, or says why there is no room.
    ///
    /// A client that fills its share loses its own idlest session; nobody else's is touched.
    pub(crate) fn add(&self, session: &Arc<Session>) -> Result<(), RpcError> {
        let client = session.client();
        let mut all = lock(&self.all);
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

    /// Finds a client's own session. Someone else's is not found.
    pub(crate) fn find(&self, id: &str, client: &Client) -> Option<Arc<Session>> {
        let session = lock(&self.all).get(id).cloned()?;
        session.client().is(client).then(|| {
            session.touch();
            session
        })
    }

    pub(crate) fn remove(&self, id: &str) -> bool {
        let removed = lock(&self.all).remove(id);
        if let Some(session) = &removed {
            session.close();
            self.leaves(&session.client().name);
            self.roots_changed(session);
        }
        removed.is_some()
    }

    /// Tells that a client has left, if it has no session any more.
    fn leaves(&self, name: &str) {
        let was_last = !lock(&self.all).values().any(|session| session.is_of(name));
        if was_last {
            (self.left)(name);
        }
    }

    /// Hears that the folders of a client are others, or that it is there now, or no longer.
    pub(crate) fn roots_changed(&self, session: &Session) {
        if let Some(audience) = self.audience.get().filter(|_| session.offers().roots) {
            audience.roots_changed(&session.client().name);
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        lock(&self.all).values().cloned().collect()
    }

    pub(crate) fn close_all(&self) {
        for (_, session) in lock(&self.all).drain() {
            session.close();
        }
    }

    pub(crate) fn counts(&self) -> SessionCounts {
        let mut counts = SessionCounts::new();
        for session in lock(&self.all).values() {
            *counts.entry(session.transport).or_default() += 1;
        }
        counts
    }

    /// Closes the sessions of clients that are known no more; the others see what they may see now. The local client has
    /// no token to lose.
    pub(crate) fn follow(&self, known: &Known) {
        for session in self.all() {
            let was = session.client();
            let now = if session.is_local() { Some(known.local.clone()) } else { known.now(&was) };
            let Some(now) = now else {
                self.remove(&session.id);
                continue;
            };
            let is_called_otherwise = now.name != was.name;
            session.client.store(now);
            // The local client is called what the configuration says.
            if is_called_otherwise {
                self.leaves(&was.name);
            }
        }
    }

    fn sweep(&self) {
        let idle_max = self.limits.session_idle;
        let idle: Vec<String> = lock(&self.all)
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

/// Closes idle sessions from time to time, as long as the hub lives.
pub(crate) fn start_sweeping(hub: &Arc<Hub>) {
    let (hub, closing) = (Arc::downgrade(hub), hub.closing.clone());
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = closing.cancelled() => return,
                () = tokio::time::sleep(SWEEP_EVERY) => {}
            }
            let Some(hub) = hub.upgrade() else { return };
            hub.sessions.sweep();
            hub.look_at_clients();
            hub.tasks.sweep();
        }
    });
}

/// Returns 192 random bits as text. An id that can be guessed is a session that can be taken.
pub(crate) fn random_id() -> Result<String, RpcError> {
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).map_err(|error| {
        tracing::error!(target: "mcp", %error, "The system gives no random numbers.");
        RpcError::new(rpc::INTERNAL_ERROR, "the hub cannot make an id now; try again")
    })?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::{
        AskKind, BoxFuture, Call, Caller, Catalog, Gate, Layer, Next, Outcome, Owns, Pattern, Permit,
        Provider, Registry, Scope, Shows, ToolError, WatchRefusal,
    };

    fn client() -> Arc<Client> {
        Arc::new(Client { name: "test".to_owned(), scope: Scope::everything(), token: None })
    }

    #[test]
    fn an_idle_session_ends_and_is_counted() {
        let sessions =
            Sessions::new(HubLimits { session_idle: Duration::ZERO, ..HubLimits::default() }, |_| {});
        let session = Session::streaming(client(), "http").unwrap();
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
        let told = left.clone();
        let sessions = Sessions::new(HubLimits::default(), move |name| lock(&told).push(name.to_owned()));
        let http = Session::streaming(named("ada", "*", Some(1)), "http").unwrap();
        let line = Session::new(named("local", "*", None), "stdio", Stream::fleeting()).unwrap();
        for session in [&http, &line] {
            sessions.add(session).unwrap();
        }
        let sees = |session: &Session| session.client().scope.allow.globs()[0].to_string();
        let look = |ada: Arc<Client>, local: Arc<Client>| {
            sessions.follow(&Known { admitted: Some(HashMap::from([("ada".to_owned(), ada)])), local });
        };
        look(named("ada", "a_*", Some(1)), named("here", "l_*", None));
        assert_eq!([sees(&http), sees(&line)], ["a_*", "l_*"]);
        assert_eq!(*lock(&left), ["local"], "called otherwise from now on");
        look(named("ada", "a_*", Some(2)), named("here", "l_*", None));
        assert!(http.closed.is_cancelled(), "somebody else has the name now");
        assert!(!line.closed.is_cancelled());
        assert_eq!(*lock(&left), ["local", "ada"]);
    }

    /// Has one resource, and notes who begins and ceases to watch it.
    #[derive(Default)]
    struct Watched(Arc<Mutex<Vec<bool>>>);

    impl Provider for Watched {
        fn name(&self) -> &str {
            "watched"
        }

        fn catalog(&self) -> Catalog {
            Catalog::default()
        }

        fn owns_resource(&self, _: &str, _: &str) -> Owns {
            Owns::Listed
        }

        fn watch(&self, _: &str, _: &str, wanted: bool) {
            lock(&self.0).push(wanted);
        }

        fn call(&self, _: Permit, _: Box<Call>) -> BoxFuture<'_, Outcome> {
            Box::pin(async { Err(ToolError::internal("nobody calls it")) })
        }
    }

    #[test]
    fn a_closed_session_watches_nothing_whoever_still_holds_it() {
        let (registry, provider) = (Registry::default(), Watched::default());
        let heard = provider.0.clone();
        registry.add(provider).unwrap();
        let gate = Gate::new(registry, Vec::new());
        let session = Session::streaming(client(), "http").unwrap();
        let caller = crate::dispatch::caller(&session.client());
        let subscribe = || {
            session.subscribe("x://a".to_owned(), |uri| {
                gate.watch(&caller, uri).map_err(|_| RpcError::invalid_params("refused"))
            })
        };
        subscribe().unwrap();
        assert_eq!(*lock(&heard), [true]);
        session.close();
        assert_eq!(*lock(&heard), [true, false]);
        assert!(subscribe().is_err());
        assert_eq!(*lock(&heard), [true, false]);
    }

    /// A layer that shows and lets only what it is told.
    struct Strict {
        shows: bool,
        lets: bool,
    }

    impl Layer for Strict {
        fn call<'a>(&'a self, call: Box<Call>, next: Next<'a>) -> BoxFuture<'a, Outcome> {
            next.run(call)
        }

        fn shows<'a>(&'a self, _: &'a Caller) -> Shows<'a> {
            Box::new(|_| self.shows)
        }

        fn lets<'a>(&'a self, _: &'a Caller) -> Shows<'a> {
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
            let heard = provider.0.clone();
            registry.add(provider).unwrap();
            let gate = Gate::new(registry, vec![Box::new(Strict { shows, lets })]);
            let session = Session::streaming(client(), "http").unwrap();
            let caller = crate::dispatch::caller(&session.client());
            let watch = gate.watch(&caller, "x://a");
            assert_eq!(watch.as_ref().err().copied(), refusal);
            // The address of a resource that is refused never reaches its owner.
            assert_eq!(lock(&heard).is_empty(), refusal.is_some());
        }
    }

    #[test]
    fn a_client_that_reads_only_an_answer_is_not_reached_and_not_idle() {
        let session = Session::streaming(client(), "http").unwrap();
        let (home, _) = session.find_stream("s0-0").unwrap();
        let answer = session.reading(&Stream::resumable());
        assert!(!session.is_reached() && !session.is_idle());
        let down = session.reading(&home);
        drop(answer);
        assert!(session.is_reached() && !session.is_idle());
        drop(down);
        assert!(!session.is_reached() && session.is_idle());
    }

    #[test]
    fn a_client_is_asked_so_many_questions_at_once_and_no_more() {
        let session = Session::streaming(client(), "http").unwrap();
        let ask = Ask { kind: AskKind::Elicit, params: Value::Null };
        let stream = Stream::fleeting();
        let before = Limit::Questions.hits();
        let mut waiting: Vec<_> = (0..QUESTIONS_MAX).map(|_| session.ask(&ask, &*stream).unwrap()).collect();
        assert!(session.ask(&ask, &*stream).is_err());
        assert!(Limit::Questions.hits() > before);
        // Nobody waits for one of them any more.
        waiting.pop();
        assert!(session.ask(&ask, &*stream).is_ok());
    }
}
