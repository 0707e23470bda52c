//! One server: what it offers now, and the road of a call to it.

mod tasks;
mod watches;

use crate::catalog::{self, Offer, OwnTool, Said, Shown};
use crate::clean::clean_text;
use crate::connection::{Connection, LinkError, RequestError};
use crate::drive::{Failure, Named, Parked, Request, drive};
use crate::elicitation::{self, Asker};
use crate::guardian::Whose;
use crate::link::{Carrier, Credentials};
use crate::linked::Linked;
use crate::lists::Listed;
use crate::live::Live;
use crate::names::public_names;
use crate::spec::{ServerSpec, TransportSpec};
use crate::status::{Status, StatusKind};
use crate::trust::{Quarantined, Trust};
use crate::uses::Uses;
use arc_swap::{ArcSwap, ArcSwapOption};
use portcullis_core::json::{self, is_mistakable, printable};
use portcullis_core::{
    Audience, Call, Change, Changes, CompletionOf, Effect, ErrorKind, ForeignError, List, Outcome, Output,
    Owns, Taken, Target, ToolDef, ToolError,
};
use portcullis_store::pins::{Identity, Kind, Snapshot, Standing, Trusted};
use portcullis_wire::Era;
use portcullis_wire::header::Mirror;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a call waits for a server that is just being started or reached again.
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);
/// How long it waits for one that is started for it. As long as the greeting may take.
const STARTED_WITHIN: Duration = Duration::from_secs(60);
/// How long a server that left a call without an answer may take to answer anything at all: as long as a call may, within
/// these. One that does one thing at a time gets that long to be done with what it does.
const ASKED_AFTER_MIN: Duration = Duration::from_secs(1);
const ASKED_AFTER_MAX: Duration = Duration::from_secs(60);
/// How often a call is made again that the server has certainly not acted on.
const ATTEMPTS_MAX: usize = 3;

/// One server that runs, or is to run: for all clients, or for one of them.
pub(crate) struct Server {
    me: Weak<Server>,
    pub(crate) spec: ServerSpec,
    /// The client that it is for, where it is not for all of them.
    pub(crate) client: Option<String>,
    changes: Changes,
    /// Whom it speaks to outside of calls.
    pub(crate) audience: Audience,
    /// Whether a client has other folders, and it was not told yet.
    pub(crate) roots_news: AtomicBool,
    /// What it said last. Held while what appears of it is worked out, so that no older view replaces a newer one.
    offered: Mutex<Option<Arc<Offered>>>,
    pub(crate) shown: ArcSwap<Shown>,
    /// Which names of what it shows are others'.
    taken: ArcSwap<Vec<Taken>>,
    /// What agents are told of it.
    pub(crate) instructions: ArcSwapOption<String>,
    pub(crate) live: Live,
    pub(crate) status: watch::Sender<Status>,
    /// How often it could not be started or reached.
    failures: AtomicU64,
    /// When it is tried again, after it could not be.
    retry_at: Mutex<Option<Instant>>,
    pub(crate) uses: Uses,
    pub(crate) linked: Linked,
    /// Whether a call was refused because nobody is logged in, and none was answered since then.
    is_locked_out: AtomicBool,
    /// Whether it does not run because nobody needs it.
    resting: AtomicBool,
    parked: Arc<Parked>,
    known: Mutex<Option<Known>>,
    /// What shows the server who we are.
    pub(crate) credentials: Option<Arc<dyn Credentials>>,
    /// Which clients want to be told of which resources.
    watched: Mutex<BTreeSet<(String, String)>>,
    /// What of it may have changed since the last connection was lost.
    unheard: Mutex<BTreeSet<String>>,
    pub(crate) watch_changed: Notify,
    /// Whether a list that is late is still waited for.
    pub(crate) awaits_lists: AtomicBool,
    /// What a server of the older era said to whoever wants to be told of a resource.
    pub(crate) subscribed: watch::Sender<Subscribed>,
    /// Told when the server is to be tried again now.
    pub(crate) again: Notify,
    /// Whether that is what a person wants, and no sign that anything went wrong.
    wished: AtomicBool,
    /// Cancelled when the server is no longer wanted.
    pub(crate) stop: CancellationToken,
}

/// What a server said of itself on one connection.
pub(crate) struct Offered {
    pub(crate) offer: Offer,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) name: Option<String>,
    pub(crate) revision: Option<&'static str>,
}

/// By address: whether the server tells of its changes, or how it refused.
pub(crate) type Subscribed = BTreeMap<String, Result<(), ForeignError>>;

/// What a server speaks, and how it is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) era: Era,
    pub(crate) carrier: Carrier,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Makes a server that is not started yet; `client` is the one that it is for, if it is for one only.
    pub(crate) fn new(
        spec: ServerSpec,
        changes: Changes,
        audience: Audience,
        client: Option<String>,
        stop: CancellationToken,
    ) -> Arc<Server> {
        let credentials = match &spec.transport {
            TransportSpec::Stdio(_) => None,
            TransportSpec::Http(http) => http.oauth.clone().map(|oauth| oauth as Arc<dyn Credentials>),
        };
        Arc::new_cyclic(|me| Server {
            me: me.clone(),
            spec,
            client,
            changes,
            audience,
            roots_news: AtomicBool::new(false),
            offered: Mutex::default(),
            shown: ArcSwap::default(),
            taken: ArcSwap::default(),
            instructions: ArcSwapOption::empty(),
            live: Live::default(),
            status: watch::Sender::new(Status::of(StatusKind::Starting)),
            failures: AtomicU64::new(0),
            retry_at: Mutex::default(),
            uses: Uses::default(),
            linked: Linked::default(),
            is_locked_out: AtomicBool::new(false),
            resting: AtomicBool::new(false),
            parked: Arc::default(),
            known: Mutex::default(),
            credentials,
            watched: Mutex::default(),
            unheard: Mutex::default(),
            watch_changed: Notify::new(),
            awaits_lists: AtomicBool::new(false),
            subscribed: watch::Sender::default(),
            again: Notify::new(),
            wished: AtomicBool::new(false),
            stop,
        })
    }

    /// Returns whose its processes are. One that takes its place says the same.
    pub(crate) fn whose(&self) -> Whose {
        (self.spec.name.clone(), self.client.clone())
    }

    /// Returns the server as it is, to be trusted so; `None` before anything was known of it.
    pub(crate) fn seen(&self) -> Option<Arc<Snapshot>> {
        lock(&self.offered).as_ref().map(|offered| offered.snapshot.clone())
    }

    /// Returns whether there is more of it to come: a list is late, and not yet given up.
    pub(crate) fn is_seen_in_part(&self) -> bool {
        let is_awaited = || self.awaits_lists.load(Ordering::Relaxed);
        let is_part = |offered: &Arc<Offered>| !offered.offer.is_whole() && is_awaited();
        self.status.borrow().kind == StatusKind::Connected
            && lock(&self.offered).as_ref().is_some_and(is_part)
    }

    /// What is known from the last connection, so that the next one need not find it out.
    pub(crate) fn known(&self) -> Option<Known> {
        *lock(&self.known)
    }

    pub(crate) fn remember(&self, known: Option<Known>) {
        *lock(&self.known) = known;
    }

    /// Waits until somebody calls it, or wants to be told of a resource.
    pub(crate) async fn needed(&self) {
        self.uses.needed(|| !lock(&self.watched).is_empty()).await;
    }

    /// Returns whether ending it now would take nothing away from anybody.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.uses.any() && !self.uses.any_task() && self.parked.is_empty() && lock(&self.watched).is_empty()
    }

    /// Returns whether it is started when somebody needs it, so that whoever does has to wait that long.
    fn is_started_at_need(&self) -> bool {
        self.ends_unneeded() || self.spec.is_lazy()
    }

    /// Returns whether it is ended when nobody needs it.
    fn ends_unneeded(&self) -> bool {
        self.client.is_some() || self.spec.idle_stop.is_some()
    }

    /// Says whether it rests: it does not run, and what it offers is known and can be called.
    pub(crate) fn rests(&self, resting: bool) {
        self.resting.store(resting, Ordering::Release);
        if resting {
            self.show();
        } else {
            self.status.send_modify(|status| (status.kind, status.idle) = (StatusKind::Starting, false));
        }
    }

    /// Hears that it could not be started or reached, and when that is tried again.
    pub(crate) fn fails(&self, status: Status, retry_at: Instant) {
        self.failures.fetch_add(1, Ordering::AcqRel);
        *lock(&self.retry_at) = Some(retry_at);
        // Last: those who wait look when it changes.
        self.status.send_replace(status);
    }

    /// Hears that it is to be connected anew, because somebody wants it so.
    pub(crate) fn wish(&self) {
        self.wished.store(true, Ordering::Release);
        self.again.notify_one();
    }

    /// Returns whether that was so since it was last asked.
    pub(crate) fn was_wished(&self) -> bool {
        self.wished.swap(false, Ordering::AcqRel)
    }

    /// Hears that it is tried now, whatever was said of when.
    pub(crate) fn tries(&self) {
        *lock(&self.retry_at) = None;
    }

    /// Returns whether nothing will come of waiting until then for a server that failed `failures` times before.
    fn is_hopeless(&self, failures: u64, until: Instant) -> bool {
        // It was started for whoever waits, and could not be; or it is left alone for longer.
        let tried = self.failures.load(Ordering::Acquire) > failures;
        (tried && self.is_started_at_need()) || lock(&self.retry_at).is_some_and(|at| at > until)
    }

    /// Returns whether anything is known of what it offers.
    pub(crate) fn is_known(&self) -> bool {
        lock(&self.offered).is_some()
    }

    /// Returns whether it has said itself what it has of this kind.
    pub(crate) fn has_said(&self, list: Listed) -> bool {
        lock(&self.offered).as_ref().is_some_and(|offered| !offered.offer.late.contains(&list))
    }

    /// Returns what it offered last, if it was this one then.
    pub(crate) fn last_offer(&self, identity: &Identity) -> Offer {
        let offered = lock(&self.offered).clone();
        offered
            .filter(|offered| offered.snapshot.identity == *identity)
            .map_or_else(Offer::default, |offered| offered.offer.clone())
    }

    /// Takes what it offered when it last ran.
    pub(crate) fn recalls(&self, offered: Offered) {
        *lock(&self.offered) = Some(Arc::new(offered));
    }

    /// Takes what another one of the same kind said for what this one will say, until it has.
    pub(crate) fn takes_after(&self, other: &Server) {
        let Some(said) = lock(&other.offered).clone() else { return };
        let offer = Offer { late: BTreeSet::from(Listed::ALL), ..said.offer.clone() };
        let (snapshot, name, revision) = (said.snapshot.clone(), said.name.clone(), said.revision);
        self.recalls(Offered { offer, snapshot, name, revision });
    }

    /// Takes what a server said on a new connection, or again on the same.
    ///
    /// Returns whether anything appears otherwise than before.
    pub(crate) fn offers(&self, offered: Offered, connection: &Arc<Connection>) -> bool {
        *lock(&self.offered) = Some(Arc::new(offered));
        connection.inbox.is_of(&self.me);
        // A call that waits for the connection finds what it is made by.
        let changed = self.show_before(|| self.live.put(connection));
        self.tell_roots();
        changed
    }

    /// Shows nothing any more.
    pub(crate) fn withdraw(&self) {
        let mut offered = lock(&self.offered);
        *offered = None;
        self.instructions.store(None);
        self.shown.store(Arc::default());
        drop(offered);
        self.announce(true, true, true);
    }

    /// Works out what appears of what the server said, tells how it stands and who wants to know.
    pub(crate) fn show(&self) -> bool {
        self.show_before(|| {})
    }

    /// The same, and does something as soon as that appears, before anybody is told.
    fn show_before(&self, then: impl FnOnce()) -> bool {
        let offered = lock(&self.offered);
        let Some(said) = offered.as_ref() else { return false };
        let (spec, seen) = (&self.spec, &said.snapshot);
        let (name, trust) = (spec.name.as_str(), &spec.trust);
        let is_known = trust.knows(name, &seen.identity);
        let standing = |kind: Kind, own: &str| trust.standing(name, seen, kind, own);
        let mut shown = catalog::show(&said.offer, spec, standing, is_known);
        let told = seen.instructions.clone().filter(|text| !text.trim().is_empty());
        let is_trusted = told.is_none() || trust.instructions_stand(name, seen);
        if !is_trusted {
            let why = if is_known { Standing::Changed } else { Standing::Server };
            shown.quarantined.push(Quarantined::new("instructions", "", why));
        }
        let differing = trust.differing(name, &seen.identity);
        if !differing.is_empty() {
            for what in &mut shown.quarantined {
                what.why = format!("another server than the trusted one: {}", differing.join(", "));
            }
        }
        let told = told.filter(|_| is_trusted).map(|mut text| {
            clean_text(&mut text);
            Arc::new(text)
        });
        self.instructions.store(told);
        let before = self.shown.load_full();
        if !shown.quarantined.is_empty() && shown.quarantined != before.quarantined {
            let waiting: Vec<&str> = shown.quarantined.iter().map(|what| what.name.as_str()).collect();
            tracing::warn!(target: "upstream", server = %name, waiting = %waiting.join(" "),
                "Something waits until a person has looked: `portcullis mcp trust {name}`.");
        }
        let digests = |shown: &Shown| shown.tools.iter().map(|tool| tool.digest()).collect::<Vec<_>>();
        let tools = digests(&before) != digests(&shown);
        // Names that were kept for them are free then, though nothing else is different.
        let come = before.late.contains(&Listed::Prompts) && !shown.late.contains(&Listed::Prompts);
        let prompts = come || before.prompts != shown.prompts;
        let resources = before.resources != shown.resources || before.templates != shown.templates;
        let status = Status {
            server: said.name.clone(),
            revision: said.revision,
            quarantined: shown.quarantined.clone(),
            ..Status::of(StatusKind::Connected)
        };
        self.shown.store(Arc::new(shown));
        then();
        // First: whoever waits for the status finds the tools.
        self.announce(tools, prompts, resources);
        let idle = self.resting.load(Ordering::Acquire);
        let status = Status { idle, ..status };
        if idle || self.live.is_there() {
            self.status.send_if_modified(|current| {
                let mut status = status;
                self.count(&mut status);
                let changed = *current != status;
                *current = status;
                changed
            });
        }
        tools || prompts || resources
    }

    /// Hears which of its names are others'.
    pub(crate) fn outranked(&self, taken: Vec<Taken>) {
        if **self.taken.load() == taken {
            return;
        }
        if !taken.is_empty() {
            let names: Vec<&str> = taken.iter().map(|one| one.name.as_str()).collect();
            tracing::warn!(target: "upstream", server = %self.spec.name, names = %names.join(" "),
                "Something does not appear under its name, which is another's.");
        }
        self.taken.store(Arc::new(taken));
        self.status.send_if_modified(|status| {
            let is_connected = status.kind == StatusKind::Connected;
            if is_connected {
                self.count(status);
            }
            is_connected
        });
    }

    /// Says in the status how much appears, and what does not. Called while nobody else changes the status, so that the
    /// last word is said of what is known last.
    fn count(&self, status: &mut Status) {
        let (shown, taken) = (self.shown.load(), self.taken.load());
        let outranked =
            |kind: &str| taken.iter().filter(|one| one.kind == kind && one.instead.is_none()).count();
        let tools = shown.tool_names.len() - shown.second.len();
        status.tools = tools.saturating_sub(outranked("tool"));
        status.prompts = shown.prompts.len().saturating_sub(outranked("prompt"));
        status.resources = shown.resources.len().saturating_sub(outranked("resource"));
        status.dropped.clone_from(&shown.dropped);
        let others = taken.iter().map(|one| (printable(shown.own_name(one.kind, &one.name)), one.why()));
        status.dropped.extend(others);
    }

    fn announce(&self, tools: bool, prompts: bool, resources: bool) {
        let changes = [(tools, List::Tools), (prompts, List::Prompts), (resources, List::Resources)];
        for (_, list) in changes.into_iter().filter(|(changed, _)| *changed) {
            self.tell(list);
        }
    }

    /// Tells those whom it concerns. What one client's own server offers is compared with what all were shown when it is
    /// called, so of its lists only the resources are told of, and only to that client.
    pub(crate) fn tell(&self, list: List) {
        let change = match (&self.client, list) {
            (None, list) => Change::ListOf(list, self.spec.name.clone()),
            (Some(client), List::Resources) => Change::ResourcesOf(client.clone()),
            (Some(_), List::Tools | List::Prompts) => return,
        };
        self.changes.announce(change);
    }

    /// Tells those who watch a resource, or what it is a part of, that it changed.
    pub(crate) fn tell_updated(&self, uri: String) {
        let watched = self.watched_of(&uri);
        if !watched.is_empty() {
            let client = self.client.clone();
            self.changes.announce(Change::ResourceUpdatedOf { client, uri, watched });
        }
    }

    /// Returns whether a person has let it in, as it is now.
    pub(crate) fn is_trusted(&self) -> bool {
        let Some(offered) = lock(&self.offered).clone() else { return false };
        self.spec.trust.knows(&self.spec.name, &offered.snapshot.identity)
    }

    /// Says whether what the call was decided by is what a person has looked at, at this moment.
    fn still_stands(&self, call: &Call) -> Result<(), ToolError> {
        let Some(offered) = lock(&self.offered).clone() else { return Ok(()) };
        let (seen, name, trust) = (&offered.snapshot, self.spec.name.as_str(), &self.spec.trust);
        let shown = self.shown.load();
        let stands = match &call.target {
            Target::Tool(tool) => match shown.tool_names.get(tool) {
                Some(own) => {
                    let same = call.tool().is_none_or(|asked| {
                        Arc::ptr_eq(asked, &own.def) || asked.digest() == own.def.digest()
                    });
                    same && trust.standing(name, seen, Kind::Tool, &own.name) == Standing::Trusted
                }
                None => false,
            },
            Target::Prompt(prompt) | Target::Completion(CompletionOf::Prompt(prompt)) => shown
                .prompt_names
                .get(prompt)
                .is_some_and(|own| trust.standing(name, seen, Kind::Prompt, own) == Standing::Trusted),
            // What is listed comes with the server; what only fits a form comes with the form.
            Target::Resource(uri) if shown.owns(uri) == Owns::ByForm => {
                let mut forms = shown.forms_of(uri);
                forms.any(|form| trust.standing(name, seen, Kind::Template, form) == Standing::Trusted)
            }
            Target::Resource(_) => trust.knows(name, &seen.identity),
            // Its call was made when the tool stood.
            Target::Task(..) => true,
            Target::Completion(CompletionOf::Template(form)) => {
                trust.standing(name, seen, Kind::Template, form) == Standing::Trusted
            }
        };
        if stands {
            return Ok(());
        }
        let (kind, what) = (call.target.kind(), call.target.name());
        Err(ToolError::unavailable(format!("{kind} `{what}` is not what a person has looked at"))
            .hint(format!("ask a person to run `portcullis mcp trust {name}`, then list again")))
    }

    pub(crate) async fn call(&self, call: &Call) -> Outcome {
        let mut attempts = 1;
        let timeout = self.spec.timeout;
        // Counted once for all attempts: whoever waits was promised one time, and not one for each.
        let mut began: Option<Instant> = None;
        // In a box: every call makes room for it, and few have it.
        let mut failed: Option<Box<RequestError>> = None;
        loop {
            let connection = match self.live.get() {
                Some(connection) => connection,
                // Elsewhere, because few calls wait for it and every call would make room for it.
                None => Box::pin(self.connected_in_time(call, &mut began, &mut failed)).await?,
            };
            if !connection.inbox.is_up_to_date()
                && !Box::pin(self.up_to_date(&connection, &mut began)).await?
            {
                // Whoever keeps the server knows that already, and makes another one.
                self.live.give_up(&connection);
                continue;
            }
            // After every wait: the server may be another one by now, or trusted no longer.
            self.still_stands(call)?;
            let mut request = self.request(call)?;
            request.timeout = self.left(began);
            began.get_or_insert_with(Instant::now);
            let error = match drive(&connection, &self.parked, call, request)?.run().await {
                Ok(result) if result.get().starts_with('{') => {
                    if self.ends_unneeded() && connection.is_modern() {
                        self.uses.tasks_in(&result);
                    }
                    self.linked.look(&result);
                    if self.is_locked_out.load(Ordering::Relaxed) {
                        self.is_let_in();
                    }
                    return self.presented(result);
                }
                Ok(_) => {
                    let message = format!("server `{}` answered with what is no result", self.spec.name);
                    return Err(ToolError::new(ErrorKind::Upstream, message));
                }
                Err(Failure::Told(error)) => return Err(error),
                // What was left of the time is nobody's concern.
                Err(Failure::Request(RequestError::Timeout(_))) => RequestError::Timeout(timeout),
                Err(Failure::Request(error)) => error,
            };
            // Made again only where the server has not acted on it, or where acting twice does no harm.
            let again = match &error {
                RequestError::Link(LinkError::SessionLost | LinkError::Failed { sent: false, .. }) => true,
                RequestError::Closed | RequestError::Link(LinkError::Failed { sent: true, .. }) => {
                    call.effect() == Effect::Read
                }
                _ => false,
            };
            if !again || attempts >= ATTEMPTS_MAX {
                self.learns_from(&error, &connection);
                return Err(self.told(error));
            }
            attempts += 1;
            // Whoever finds out first that it is over says so.
            if self.live.give_up(&connection) {
                self.again.notify_one();
            }
            failed = Some(Box::new(error));
        }
    }

    /// Tells an error of the server's, with the URLs in it made fit to be shown.
    fn told(&self, error: RequestError) -> ToolError {
        let name = &self.spec.name;
        elicitation::present_error(Asker::of(&self.spec), error).map_or_else(
            |why| ToolError::new(ErrorKind::Upstream, format!("server `{name}` is not passed on: {why}")),
            |error| error.told(name),
        )
    }

    /// Passes a result on, with the questions in it made fit to be shown.
    fn presented(&self, result: Box<RawValue>) -> Outcome {
        match elicitation::present_result(Asker::of(&self.spec), &result) {
            Ok(presented) => Ok(Output::Raw(presented.unwrap_or(result))),
            Err(why) => {
                let message = format!("server `{}` is not passed on: {why}", self.spec.name);
                Err(ToolError::new(ErrorKind::Upstream, message))
            }
        }
    }

    /// Returns how much is left of the time for a call.
    fn left(&self, began: Option<Instant>) -> Duration {
        self.spec.timeout.saturating_sub(began.map_or(Duration::ZERO, |began| began.elapsed()))
    }

    /// A call was answered: whoever had to log in has done so, or only one tool wants it.
    fn is_let_in(&self) {
        self.is_locked_out.store(false, Ordering::Relaxed);
        self.status.send_if_modified(|status| {
            let is_news = status.kind == StatusKind::NeedsAuth && self.live.get().is_some();
            if is_news {
                (status.kind, status.reason) = (StatusKind::Connected, None);
            }
            is_news
        });
    }

    /// Looks what the end of a call says of the server.
    fn learns_from(&self, error: &RequestError, connection: &Arc<Connection>) {
        if let RequestError::Link(LinkError::NeedsAuth(_)) = error {
            // Until somebody has logged in, or it is seen to do without.
            self.is_locked_out.store(true, Ordering::Relaxed);
            self.status.send_if_modified(|status| {
                let is_news = status.kind == StatusKind::Connected && !status.idle;
                if is_news {
                    (status.kind, status.reason) = (StatusKind::NeedsAuth, Some(error.to_string()));
                }
                is_news
            });
        }
        if !matches!(error, RequestError::Timeout(_)) {
            return;
        }
        let (connection, stop) = (connection.clone(), self.stop.clone());
        let within = self.spec.timeout.clamp(ASKED_AFTER_MIN, ASKED_AFTER_MAX);
        tokio::spawn(async move {
            tokio::select! {
                () = connection.is_asked_after(within) => {}
                // Not held any longer than it is used.
                () = connection.inbox.retired.cancelled() => {}
                () = stop.cancelled() => {}
            }
        });
    }

    /// Returns the connection, if there is one in time: the wait is part of the call, but for a server that is started for it.
    /// Otherwise says why there is none, or, where nothing is known of that, why the attempt before this one `failed`.
    async fn connected_in_time(
        &self,
        call: &Call,
        began: &mut Option<Instant>,
        failed: &mut Option<Box<RequestError>>,
    ) -> Result<Arc<Connection>, ToolError> {
        let before = match began {
            None if self.is_started_at_need() => None,
            began => Some(*began.get_or_insert_with(Instant::now) + self.spec.timeout),
        };
        let connected = self.connected(&call.ctx.cancel, before).await;
        connected.map_err(|error| match failed.take() {
            Some(failed) if self.status.borrow().reason.is_none() => failed.told(&self.spec.name),
            _ => error,
        })
    }

    /// Waits until it is known what the server offers since it said that this changed, as long as the call may take. Returns
    /// whether that comes to be known on this connection.
    async fn up_to_date(
        &self,
        connection: &Connection,
        began: &mut Option<Instant>,
    ) -> Result<bool, ToolError> {
        began.get_or_insert_with(Instant::now);
        if connection.inbox.up_to_date(self.left(*began).min(CONNECTED_WITHIN)).await {
            return Ok(true);
        }
        if connection.inbox.retired.is_cancelled() {
            return Ok(false);
        }
        let message = format!("server `{}` changes what it offers and is not done yet", self.spec.name);
        Err(ToolError::unavailable(message).hint("try again in a minute"))
    }

    /// Returns the connection, or says why there is none. It is waited for as long as that is worth it, and not after `before`.
    pub(crate) async fn connected(
        &self,
        cancel: &CancellationToken,
        before: Option<Instant>,
    ) -> Result<Arc<Connection>, ToolError> {
        if let Some(connection) = self.live.get() {
            return Ok(connection);
        }
        let (mut live, mut status, began) = (self.live.watch(), self.status.subscribe(), Instant::now());
        let failures = self.failures.load(Ordering::Acquire);
        let until = |within: Duration| before.map_or(began + within, |before| before.min(began + within));
        loop {
            // Marked as seen before the look, so that whatever changes after it is told.
            live.borrow_and_update();
            let kind = status.borrow_and_update().kind;
            if let Some(connection) = self.live.get() {
                return Ok(connection);
            }
            let within = match kind {
                // Nothing will come of waiting: a person has to log in first.
                StatusKind::NeedsAuth | StatusKind::NeedsClientRegistration => break,
                StatusKind::Failed if self.is_hopeless(failures, until(CONNECTED_WITHIN)) => break,
                StatusKind::Failed | StatusKind::Disabled => CONNECTED_WITHIN,
                _ if self.is_started_at_need() => STARTED_WITHIN,
                StatusKind::Starting | StatusKind::Connected => CONNECTED_WITHIN,
            };
            tokio::select! {
                changed = live.changed() => if changed.is_err() { break },
                changed = status.changed() => if changed.is_err() { break },
                () = cancel.cancelled() => break,
                () = self.stop.cancelled() => break,
                () = tokio::time::sleep_until(until(within)) => break,
            }
        }
        let sentence = self.status.borrow().sentence();
        let error = ToolError::unavailable(format!("server `{}` is {sentence}", self.spec.name));
        Err(match self.stop.is_cancelled() {
            true => error.hint("list again: it is no longer offered"),
            false => error.hint("it is tried again by itself; `portcullis mcp status` says more"),
        })
    }

    /// Says the call in the server's own names.
    fn request(&self, call: &Call) -> Result<Request, ToolError> {
        let shown = self.shown.load();
        let unknown = || ToolError::unknown(call.target.kind(), call.target.name());
        let arguments = call.arguments.raw().get();
        let text = |text: &str| Value::from(text).to_string();
        let (method, params, name, headers) = match &call.target {
            Target::Tool(name) => {
                let own = shown.tool_names.get(name).ok_or_else(unknown)?;
                let params = format!(r#""name":{},"arguments":{arguments}"#, own.quoted);
                ("tools/call", params, Some(Named::Tool(own.clone())), mirrored(own, call))
            }
            Target::Prompt(name) => {
                let own = shown.prompt_names.get(name).ok_or_else(unknown)?;
                let params = format!(r#""name":{},"arguments":{arguments}"#, text(own));
                ("prompts/get", params, Some(Named::Other(own.clone())), Vec::new())
            }
            Target::Resource(uri) => {
                let params = format!(r#""uri":{}"#, text(uri));
                ("resources/read", params, Some(Named::Other(uri.clone())), Vec::new())
            }
            // Asked after in another way.
            Target::Task(..) => return Err(unknown()),
            Target::Completion(of) => {
                let mut params = json::parse_exact(arguments)
                    .map_err(|error| ToolError::invalid_args(error.to_string()))?;
                if let CompletionOf::Prompt(name) = of {
                    let own = shown.prompt_names.get(name).ok_or_else(unknown)?;
                    params["ref"]["name"] = own.as_str().into();
                }
                let members = params.as_object_mut().ok_or_else(unknown)?;
                let of = members.get("ref").and_then(Value::as_object).into_iter().flatten();
                let is_other =
                    |name: &str| ["type", "name", "uri"].iter().any(|own| is_mistakable(name, own));
                if of.into_iter().any(|(name, _)| is_other(name)) {
                    return Err(ToolError::invalid_args("`ref` says what is meant twice")
                        .hint("leave out what could be taken for its `type`, `name` or `uri`"));
                }
                members.remove("_meta");
                let inside = params.to_string();
                ("completion/complete", inside[1..inside.len() - 1].to_owned(), None, Vec::new())
            }
        };
        let (timeout, silence) = (self.spec.timeout, self.spec.timeout);
        Ok(Request { method, params, name, headers, timeout, silence })
    }
}

/// Returns the tools of a server as they were when a person trusted it, without asking it.
pub fn pinned_tools(spec: &ServerSpec) -> Vec<Arc<ToolDef>> {
    let Trust::Pinned(pins) = &spec.trust else { return Vec::new() };
    let Some(trusted) = pins.of(&spec.name) else { return Vec::new() };
    let said = trusted.as_it_was.tools.iter().filter_map(|(own, pin)| {
        let raw = RawValue::from_string(pin.definition.clone()).ok()?;
        Some(Said { own: own.clone(), raw })
    });
    let offer = Offer { tools: said.collect(), ..Offer::default() };
    catalog::show(&offer, spec, |_, _| Standing::Trusted, true).tools
}

/// Returns the names of the tools and of the prompts that a server had when a person trusted it.
pub fn pinned_names(
    trusted: &Trusted,
    prefix: &str,
    rename: &[(String, String)],
    lists: impl Fn(&str) -> bool,
) -> (Vec<String>, Vec<String>) {
    let own = |kind| trusted.as_it_was.pins(kind).keys().map(String::as_str);
    let tools = public_names(prefix, rename, own(Kind::Tool).filter(|own| lists(own)));
    let prompts = public_names(prefix, &[], own(Kind::Prompt));
    (tools.into_values().collect(), prompts.into_values().collect())
}

/// Returns the headers that the tool wants some of its arguments in.
fn mirrored(own: &OwnTool, call: &Call) -> Vec<(String, String)> {
    if own.headers.is_empty() {
        return Vec::new();
    }
    let Ok(arguments) = call.arguments.value() else { return Vec::new() };
    let shown = |mirror: &Mirror| Some((mirror.header().to_owned(), mirror.value(arguments)?));
    own.headers.iter().filter_map(shown).collect()
}
