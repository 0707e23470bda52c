//! What a server says: answers to those who wait for them, and what it says by itself.

use crate::asides::{Asides, Full};
use crate::cancelled_calls::CancelledCalls;
use crate::connection::RequestError;
use crate::elicitation::{self, Asker};
use crate::heard::Ear;
use crate::lists::Listed;
use crate::server::Server;
use crate::slot::{QUESTIONS_MAX, Slot};
use crate::task::Task;
use portcullis_core::{Ask, AskKind, Client, LogLevel, LogMessage, Peer, Progress};
use portcullis_egress::Url;
use portcullis_wire::message::{self, Incoming, Message};
use portcullis_wire::params::Fields;
use portcullis_wire::rpc::{self, RpcError};
use portcullis_wire::{Era, Id, era};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a server's word for where a log message comes from may be.
const LOGGER_CHARS_MAX: usize = 100;
/// How many messages a second reach clients that belong to no call. All clients get them.
const OUTSIDE_PER_SECOND_MAX: u32 = 100;
/// How many questions may be asked at once that belong to no call.
const OUTSIDE_ASKS_MAX: usize = 4;
/// How long such a question may have to wait until it is known what the server offers.
const KNOWN_WITHIN: Duration = Duration::from_secs(2);
/// Of how many addresses it is remembered who showed them, and how long their names may be.
const FOLLOWED_MAX: usize = 64;
const FOLLOWED_BYTES_MAX: usize = 1024;
/// Where a message of 2025-11-25 says which task it belongs to.
const RELATED: &str = "io.modelcontextprotocol/related-task";

/// How often a server said that its tools or prompts changed, and up to which time it was looked at.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lists {
    pub(crate) said: u64,
    pub(crate) looked: u64,
}

/// What a server asks in the middle of a call.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) id: Id,
    pub(crate) ask: Ask,
    /// The task that it belongs to, which the answer has to name.
    pub(crate) task: Option<String>,
    /// Whether the server said what it belongs to. Where it did not, it may be any call of the client that was asked.
    pub(crate) names_call: bool,
    /// Cancelled when the server wants no answer any more.
    pub(crate) void: CancellationToken,
}

impl Asked {
    /// Returns an answer in the words of the one who asked.
    pub(crate) fn worded(&self, answer: &Value) -> Vec<u8> {
        let mut answer = answer.clone();
        if let (Some(task), Some(members)) = (&self.task, answer.as_object_mut()) {
            let meta = members.entry("_meta").or_insert_with(|| json!({}));
            if let Some(meta) = meta.as_object_mut() {
                meta.insert(RELATED.to_owned(), json!({ "taskId": task }));
            }
        }
        answer.to_string().into_bytes()
    }
}

pub(crate) type Answer = Result<Box<RawValue>, RequestError>;

/// What something turned out to be that a server said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receipt {
    /// Something that somebody waits for, or can use.
    Message,
    /// A message, but nobody needed it.
    Idle,
    Noise,
}

/// One request that waits for its answer. Taken away before that, it is over.
struct Waiting {
    slot: Arc<Slot>,
    caller: Option<Listener>,
}

/// A task that the hub waits for: which request began it, and who is told and asked.
struct Tasked {
    request: u64,
    caller: Listener,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.slot.end();
    }
}

/// How much a server has said lately that belongs to no call.
#[derive(Default)]
struct Outside {
    since: Option<Instant>,
    said: u32,
}

/// Who made the call that a request is part of.
#[derive(Clone)]
pub(crate) struct Listener {
    pub(crate) client: Arc<Client>,
    pub(crate) peer: Arc<dyn Peer>,
    pub(crate) slot: Arc<Slot>,
    /// In whose words the server begins a task, where the hub asks after the one that the call may become.
    pub(crate) sees_through: Option<Era>,
}

/// Where everything arrives that one server says.
pub(crate) struct Inbox {
    waiting: Mutex<HashMap<u64, Waiting>>,
    /// By their names at the server.
    tasks: Mutex<HashMap<String, Tasked>>,
    /// What it said by itself and is yet to be looked at.
    ear: Arc<Ear>,
    /// What the server is told beside requests.
    pub(crate) asides: Arc<Asides>,
    /// Whose inbox it is, as soon as that is known.
    server: watch::Sender<Weak<Server>>,
    /// The name and the address of the server, for what it asks.
    asker: OnceLock<(String, Option<Url>)>,
    outside: Mutex<Outside>,
    /// Calls that were cancelled and that the server may still run.
    cancelled: CancelledCalls,
    /// Lets so many questions be asked outside of calls.
    asks: Arc<Semaphore>,
    /// Who was asked to show which address to a person, the latest last.
    followed: Mutex<VecDeque<(String, Arc<dyn Peer>)>>,
    /// Whether what it offers is still what it said last.
    pub(crate) lists: watch::Sender<Lists>,
    /// The newest request to be told of changes that the server has acknowledged.
    pub(crate) acknowledged: watch::Sender<u64>,
    /// Cancelled when the server is gone.
    pub(crate) closed: CancellationToken,
    /// Cancelled when a new connection is needed. What is under way on this one goes on.
    pub(crate) retired: CancellationToken,
    why: OnceLock<&'static str>,
    /// Whether it is being found out if the server still answers. Cleared by whatever shows that it does.
    in_doubt: AtomicBool,
}

impl Inbox {
    /// Returns it with where what the server says by itself is taken from.
    pub(crate) fn new() -> (Arc<Inbox>, Arc<Ear>) {
        let ear = Arc::<Ear>::default();
        let (closed, retired) = (CancellationToken::new(), CancellationToken::new());
        let inbox = Inbox {
            waiting: Mutex::default(),
            tasks: Mutex::default(),
            ear: ear.clone(),
            asides: Arc::default(),
            server: watch::Sender::default(),
            asker: OnceLock::new(),
            outside: Mutex::default(),
            cancelled: CancelledCalls::default(),
            asks: Arc::new(Semaphore::new(OUTSIDE_ASKS_MAX)),
            followed: Mutex::default(),
            lists: watch::Sender::default(),
            acknowledged: watch::Sender::default(),
            closed,
            retired,
            why: OnceLock::new(),
            in_doubt: AtomicBool::new(false),
        };
        (Arc::new(inbox), ear)
    }

    /// Says in whose name questions are asked, before there can be any.
    pub(crate) fn asks_for(&self, asker: Asker<'_>) {
        let _ = self.asker.set((asker.name.to_owned(), asker.own.cloned()));
    }

    /// Says whose inbox it is, once it is known what the server offers.
    pub(crate) fn is_of(&self, server: &Weak<Server>) {
        self.server.send_if_modified(|known| {
            let is_news = known.strong_count() == 0;
            if is_news {
                *known = server.clone();
            }
            is_news
        });
    }

    /// Returns whether what the server offers has been looked at since it last said that it changed, as nearly always.
    pub(crate) fn is_up_to_date(&self) -> bool {
        let now = *self.lists.borrow();
        now.looked >= now.said
    }

    /// Waits until that is so, as long as it may come to be.
    pub(crate) async fn up_to_date(&self, within: Duration) -> bool {
        let mut lists = self.lists.subscribe();
        let said = lists.borrow().said;
        let looked = lists.wait_for(|lists| lists.looked >= said);
        tokio::select! {
            biased;
            looked = tokio::time::timeout(within, looked) => matches!(looked, Ok(Ok(_))),
            () = self.retired.cancelled() => false,
        }
    }

    /// Returns whether the server has a client's request that it has not answered.
    pub(crate) fn serves_call(&self) -> bool {
        self.lock().values().any(|waiting| waiting.caller.is_some())
    }

    /// Says where the answer to a request goes that is about to be made.
    pub(crate) fn expect(&self, id: u64, slot: Arc<Slot>, caller: Option<Listener>) {
        self.lock().insert(id, Waiting { slot, caller });
        // Who closes says so before it takes away what waits; so one of the two is noticed.
        if self.closed.is_cancelled() {
            self.forget(id);
        }
    }

    /// Nobody waits for this any more. Returns whether somebody did.
    pub(crate) fn forget(&self, id: u64) -> bool {
        let Some(waiting) = self.lock().remove(&id) else { return false };
        if let Some(caller) = &waiting.caller {
            self.cancelled.note(id, caller.client.clone());
        }
        true
    }

    /// Takes a message of the server's, and says whether it was one. `about` is the request on whose stream it came, where
    /// it has one.
    pub(crate) fn receive(&self, bytes: &[u8], about: Option<u64>) -> Receipt {
        match message::parse(bytes) {
            Ok(Incoming::One(message)) => receipt(self.take(message, about)),
            Ok(Incoming::Batch(batch)) => {
                if batch.0.iter().all(Result::is_err) {
                    return Receipt::Noise;
                }
                let taken = batch.0.into_iter().flatten().map(|message| self.take(message, about));
                receipt(taken.fold(false, |any, is_needed| any | is_needed))
            }
            Err(malformed) => {
                tracing::debug!(target: "upstream", error = %malformed.error.message, "a server sent what is no message");
                Receipt::Noise
            }
        }
    }

    /// Ends the request whose answer was too long to be taken.
    pub(crate) fn too_long(&self, id: u64, bytes: u64, ended: bool) {
        let Some(waiting) = self.lock().remove(&id) else { return };
        self.is_alive();
        waiting.slot.answer(Err(RequestError::TooLong { bytes, ended }));
    }

    /// Returns whether anybody needed it.
    fn take(&self, message: Message<'_>, about: Option<u64>) -> bool {
        match message {
            Message::Response(response) => {
                let Id::Number(id) = &response.id else { return false };
                let Some(waiting) = self.lock().remove(id) else {
                    self.cancelled.ended(*id);
                    return false;
                };
                self.is_alive();
                let answer = match response.outcome {
                    Ok(result) => {
                        self.begin_task(*id, &waiting, result);
                        Ok(result.to_owned())
                    }
                    Err(error) => {
                        self.asks_to_follow(&waiting, error);
                        Err(RequestError::refused(error))
                    }
                };
                waiting.slot.answer(answer);
                true
            }
            Message::Notification(notification) => {
                let params = notification.params;
                match notification.method.as_ref() {
                    "notifications/progress" => self.progress(params),
                    "notifications/cancelled" => {
                        self.withdrawn(params);
                        false
                    }
                    "notifications/message" => self.log(params, about),
                    "notifications/tools/list_changed" => self.changed(Listed::Tools),
                    "notifications/prompts/list_changed" => self.changed(Listed::Prompts),
                    "notifications/resources/list_changed" => self.changed(Listed::Resources),
                    "notifications/subscriptions/acknowledged" => self.acknowledged(params, about),
                    "notifications/resources/updated" => self.updated(params),
                    "notifications/elicitation/complete" => {
                        self.elicited(params);
                        false
                    }
                    _ => false,
                }
            }
            Message::Request(request) => {
                // As often as a server likes to ask whether we are here, but not as fast.
                let is_needed = request.method != "ping";
                self.question(request.id, &request.method, request.params, about);
                is_needed
            }
        }
    }

    /// Begins to doubt that the server still answers.
    pub(crate) fn doubt(&self) {
        self.in_doubt.store(true, Ordering::Release);
    }

    /// Ends the doubt. Returns whether nothing has removed it meanwhile.
    pub(crate) fn is_silent(&self) -> bool {
        self.in_doubt.swap(false, Ordering::AcqRel)
    }

    fn is_alive(&self) {
        if self.in_doubt.load(Ordering::Relaxed) {
            self.in_doubt.store(false, Ordering::Release);
        }
    }

    /// Remembers whose task it is that a call became: at once, because the next message may be about it.
    fn begin_task(&self, request: u64, waiting: &Waiting, result: &RawValue) {
        let Some(caller) = &waiting.caller else { return };
        if let Some(task) = caller.sees_through.and_then(|era| Task::begun(era, result)) {
            self.tasks().insert(task.id, Tasked { request, caller: caller.clone() });
        }
    }

    /// Forgets the task that a request became, and returns its name.
    pub(crate) fn end_task(&self, request: u64) -> Option<String> {
        let mut tasks = self.tasks();
        let name = tasks.iter().find(|(_, task)| task.request == request).map(|(name, _)| name.clone())?;
        tasks.remove(&name);
        Some(name)
    }

    fn tasks(&self) -> MutexGuard<'_, HashMap<String, Tasked>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears that a list changed. Returns whether that is of any use.
    fn changed(&self, list: Listed) -> bool {
        // First: whoever takes what was counted finds it.
        let is_needed = self.ear.changed(list);
        if list != Listed::Resources {
            // At once: a call that comes after these words must not be made by what was known before.
            self.lists.send_modify(|lists| lists.said += 1);
        }
        is_needed
    }

    /// Hears that what the server says by itself is heard again, and was not for a while: anything may have changed.
    pub(crate) fn heard_again(&self) {
        let server = self.server.borrow().upgrade();
        for uri in server.iter().flat_map(|server| server.watched()) {
            self.ear.updated(uri);
        }
        self.ear.missed();
        // As if it had said so itself.
        self.lists.send_modify(|lists| lists.said += 1);
    }

    /// Hears that the server tells now what a request asked it to tell. Returns whether it says which.
    fn acknowledged(&self, params: Option<&RawValue>, about: Option<u64>) -> bool {
        let named = || value(params)?["_meta"][era::META_SUBSCRIPTION].as_u64();
        let Some(id) = about.or_else(named) else { return false };
        self.acknowledged.send_if_modified(|last| {
            let is_news = *last < id;
            *last = id.max(*last);
            is_news
        })
    }

    fn progress(&self, params: Option<&RawValue>) -> bool {
        let token = fields(params).and_then(|fields| fields.get("progressToken")?.get().parse().ok());
        let Some(id) = token else { return false };
        self.is_alive();
        let listener = {
            let waiting = self.lock();
            let Some(waiting) = waiting.get(&id) else { return false };
            waiting.slot.alive();
            waiting.caller.clone()
        };
        // A sign of life it is in any case; who listens is told what can be read.
        let (Some(listener), Some(Value::Object(mut said))) = (listener, value(params)) else { return true };
        if said.get("progress").is_some_and(Value::is_number) {
            said.shift_remove("progressToken");
            without_meta(&mut said, RELATED);
            listener.peer.progress(Progress { said });
        }
        true
    }

    fn log(&self, params: Option<&RawValue>, about: Option<u64>) -> bool {
        let Some(Value::Object(mut said)) = value(params) else { return false };
        let level = said.get("level").and_then(Value::as_str).and_then(LogLevel::parse);
        let Some(level) = level else { return false };
        let (task, listener) = self.concerned(&mut said, about);
        if let Some(Value::String(logger)) = said.get_mut("logger")
            && let Some((at, _)) = logger.char_indices().nth(LOGGER_CHARS_MAX)
        {
            logger.truncate(at);
        }
        let message = LogMessage { level, said };
        // It may be about a cancelled call that the server still runs.
        let says_of_what = about.is_some() || task.is_some();
        if !says_of_what && self.cancelled.may_concern_another(listener.as_ref().map(|one| &*one.client)) {
            return false;
        }
        match listener {
            Some(listener) => listener.peer.log(message),
            // Of nothing in particular.
            None if about.is_none() && task.is_none() && self.may_speak_outside() => {
                let server = self.server.borrow().upgrade();
                server.into_iter().for_each(|server| server.log(&message));
            }
            None => return false,
        }
        true
    }

    /// Returns whether what the server says cannot be about a call, and is not too much.
    fn may_speak_outside(&self) -> bool {
        if self.lock().values().any(|waiting| waiting.caller.is_some()) {
            return false;
        }
        let mut outside = self.outside.lock().unwrap_or_else(PoisonError::into_inner);
        if outside.since.is_none_or(|since| since.elapsed() >= Duration::from_secs(1)) {
            *outside = Outside { since: Some(Instant::now()), said: 0 };
        }
        outside.said += 1;
        outside.said <= OUTSIDE_PER_SECOND_MAX
    }

    fn updated(&self, params: Option<&RawValue>) -> bool {
        let Some(Value::Object(mut said)) = value(params) else { return false };
        let Some(uri) = said.get("uri").and_then(Value::as_str).map(str::to_owned) else { return false };
        // Between the server and the hub.
        without_meta(&mut said, era::META_SUBSCRIPTION);
        let Some(server) = self.server.borrow().upgrade() else { return false };
        let watched = server.watched_of(&uri);
        if watched.is_empty() {
            // Another server's resource is not its to speak of, and nobody waits for word of any other.
            return false;
        }
        // What is no more than a name is told as any change is.
        let told = said.len() > 1 && server.updated(&uri, watched, said);
        told || self.ear.updated(uri)
    }

    /// Remembers who was asked to show an address to a person, as a question or by an error.
    fn follows(&self, id: &Value, peer: &Arc<dyn Peer>) {
        let Some(id) = id.as_str().filter(|id| id.len() <= FOLLOWED_BYTES_MAX) else { return };
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        if followed.len() >= FOLLOWED_MAX {
            followed.pop_front();
        }
        followed.push_back((id.to_owned(), peer.clone()));
    }

    fn asks_to_follow(&self, waiting: &Waiting, error: &RawValue) {
        let Some(caller) = &waiting.caller else { return };
        // Few errors have to be taken apart to see that.
        if !error.get().contains("elicitationId") {
            return;
        }
        let Ok(error) = serde_json::from_str::<Value>(error.get()) else { return };
        for elicitation in error["data"]["elicitations"].as_array().into_iter().flatten() {
            self.follows(&elicitation["elicitationId"], &caller.peer);
        }
    }

    /// A person has followed an address. Whoever showed it is told.
    fn elicited(&self, params: Option<&RawValue>) {
        let Some(Value::Object(said)) = value(params) else { return };
        let Some(id) = said.get("elicitationId").and_then(Value::as_str) else { return };
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let found = followed.iter().position(|(known, _)| known == id).and_then(|at| followed.remove(at));
        drop(followed);
        if let Some((_, peer)) = found {
            peer.elicited(said);
        }
    }

    /// Returns for whom the server speaks, and of which task. Clients do not know that task, so they are not told of it.
    fn concerned(
        &self,
        params: &mut Map<String, Value>,
        about: Option<u64>,
    ) -> (Option<String>, Option<Listener>) {
        let related = without_meta(params, RELATED);
        let task = related.as_ref().and_then(|related| related["taskId"].as_str()).map(str::to_owned);
        let listener = match &task {
            Some(task) => self.tasks().get(task).map(|task| task.caller.clone()),
            None => self.listener(about),
        };
        (task, listener)
    }

    /// Returns for whom the server speaks: who waits for the request that it spoke about, or, where it does not say, the
    /// one client that is waiting. What is meant for one client is never told to another.
    fn listener(&self, about: Option<u64>) -> Option<Listener> {
        let waiting = self.lock();
        if let Some(about) = about {
            return waiting.get(&about)?.caller.clone();
        }
        only(&waiting, |_| true)
    }

    /// Returns whom a question is for that the server does not say, where calls of several clients are under way: the
    /// one client that is there. The others have been asked already, and the server waits for what they bring back.
    fn present(&self) -> Option<Listener> {
        only(&self.lock(), |caller| !caller.slot.is_away())
    }

    fn question(&self, id: Id, method: &str, params: Option<&RawValue>, about: Option<u64>) {
        let kind = match method {
            "ping" => return self.answer(&id, Ok(b"{}".to_vec())),
            method if method == era::ask_method(AskKind::Elicit) => AskKind::Elicit,
            method if method == era::ask_method(AskKind::Sample) => AskKind::Sample,
            method if method == era::ask_method(AskKind::Roots) => AskKind::Roots,
            method => return self.answer(&id, Err(RpcError::method_not_found(method))),
        };
        let mut params = match params {
            None => Value::Null,
            Some(raw) => match serde_json::from_str(raw.get()) {
                Ok(params) => params,
                Err(error) => return self.answer(&id, Err(RpcError::invalid_params(error))),
            },
        };
        if !era::is_askable(kind, &params) {
            return self.answer(&id, Err(RpcError::invalid_params("they must be an object")));
        }
        let mut none = Map::new();
        let (task, listener) = self.concerned(params.as_object_mut().unwrap_or(&mut none), about);
        let of_nothing = about.is_none() && task.is_none();
        let Some(listener) = listener.or_else(|| of_nothing.then(|| self.present()).flatten()) else {
            // Many servers ask for folders right after the greeting, for nobody in particular.
            if kind == AskKind::Roots {
                return self.roots_outside(id);
            }
            let refused = RpcError::new(
                rpc::INVALID_REQUEST,
                "nobody can be asked: no call is under way, or calls of several clients are; \
                 `per_client = true` gives each client a server of its own",
            );
            return self.answer(&id, Err(refused));
        };
        let mut ask = Ask { kind, params };
        if let Err(why) = self.make_presentable(&mut ask) {
            return self.answer(&id, Err(RpcError::invalid_params(why)));
        }
        if kind == AskKind::Elicit {
            self.follows(&ask.params["elicitationId"], &listener.peer);
        }
        let (names_call, void) = (!of_nothing, CancellationToken::new());
        let asked = Asked { id, ask, task, names_call, void };
        if let Err(asked) = listener.slot.ask(asked) {
            let message = format!("at most {QUESTIONS_MAX} questions at once, while the call is under way");
            self.answer(&asked.id, Err(RpcError::new(rpc::INVALID_REQUEST, message)));
        }
    }

    /// Makes a question of the server fit to be shown, or says why nobody is asked.
    pub(crate) fn make_presentable(&self, ask: &mut Ask) -> Result<(), String> {
        let (name, own) = self.asker.get().ok_or("it is not known who asks")?;
        elicitation::present(Asker { name, own: own.as_ref() }, ask)
    }

    /// Hands a question whose call is over on to another call of that client, or gives it back where there is none: the call that
    /// asks may be one that still waits.
    pub(crate) fn hand_on(&self, asked: Asked, client: &Client) -> Result<(), Asked> {
        if asked.names_call {
            return Err(asked);
        }
        // Held until it is asked: a call that ends now looks for what it has left open after it was taken away here.
        let waiting = self.lock();
        match only(&waiting, |caller| caller.client.is(client)) {
            Some(listener) => listener.slot.ask(asked),
            None => Err(asked),
        }
    }

    /// Asks whoever the server is for which folders there are. Where nobody is to be asked, there are none.
    pub(crate) fn roots_outside(&self, id: Id) {
        let none = br#"{"roots":[]}"#.to_vec();
        let Ok(permit) = self.asks.clone().try_acquire_owned() else { return self.answer(&id, Ok(none)) };
        let asides = self.asides.clone();
        let mut known = self.server.subscribe();
        tokio::spawn(async move {
            // At the greeting it is not known yet whether the server is trusted.
            let known = known.wait_for(|server| server.strong_count() > 0);
            let known = tokio::time::timeout(KNOWN_WITHIN, known).await;
            let server = known.ok().and_then(Result::ok).and_then(|server| server.upgrade());
            let roots = match server {
                Some(server) => server.roots().await,
                None => None,
            };
            let answer = roots.map_or(none, |roots| roots.to_string().into_bytes());
            drop(permit);
            // Few enough to be lost where nothing is taken.
            let _ = asides.say(None, rpc::response(Some(&id), Ok(answer)));
        });
    }

    /// The server takes a question back. Whichever call it was asked for knows it by its id.
    fn withdrawn(&self, params: Option<&RawValue>) {
        let id = fields(params).and_then(|fields| Id::parse(fields.get("requestId")?.get()));
        let Some(id) = id else { return };
        let calls = self.lock().values().filter_map(|waiting| waiting.caller.clone()).collect::<Vec<_>>();
        let tasks = self.tasks().values().map(|task| task.caller.clone()).collect::<Vec<_>>();
        for caller in calls.iter().chain(&tasks) {
            caller.slot.withdraw(&id);
        }
    }

    /// Answers a question of the server's.
    pub(crate) fn answer(&self, id: &Id, answer: rpc::Answer) {
        if self.closed.is_cancelled() {
            return;
        }
        if let Err(Full) = self.asides.say(None, rpc::response(Some(id), answer)) {
            self.end("it asks and does not take the answers");
        }
    }

    /// Ends the connection for a reason of ours.
    fn end(&self, why: &'static str) {
        let _ = self.why.set(why);
        self.close();
    }

    /// Ends every request that waits: the server is gone.
    pub(crate) fn close(&self) {
        self.closed.cancel();
        self.retired.cancel();
        self.lock().clear();
    }

    /// Takes no new requests. Those under way find out by themselves how they end.
    pub(crate) fn retire(&self) {
        self.retired.cancel();
    }

    /// The same, because of something that a person should know.
    pub(crate) fn retire_for(&self, why: &'static str) {
        let _ = self.why.set(why);
        self.retire();
    }

    /// Returns why the connection was given up, where that was for a reason of ours.
    pub(crate) fn given_up_for(&self) -> Option<&'static str> {
        self.why.get().copied()
    }

    /// The server ended the stream that the answer is to come by, and will answer on another.
    pub(crate) fn lets_go(&self, id: u64) {
        let caller = self.lock().get(&id).and_then(|waiting| waiting.caller.clone());
        if let Some(caller) = caller {
            caller.peer.let_go();
        }
    }

    /// Tells another peer what concerns a call from now on: its client has come back with a new request.
    pub(crate) fn goes_on(&self, slot: &Arc<Slot>, peer: &Arc<dyn Peer>) {
        let mut waiting = self.lock();
        for caller in waiting.values_mut().filter_map(|waiting| waiting.caller.as_mut()) {
            if Arc::ptr_eq(&caller.slot, slot) {
                caller.peer = peer.clone();
            }
        }
    }

    /// Returns whether somebody still waits for the answer to this.
    pub(crate) fn awaits(&self, id: u64) -> bool {
        self.lock().contains_key(&id)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the newest call of the one client whose calls fit; `None` where several clients have some.
fn only(waiting: &HashMap<u64, Waiting>, fits: impl Fn(&Listener) -> bool) -> Option<Listener> {
    let mut only = None::<(u64, &Listener)>;
    for (id, waiting) in waiting {
        let Some(caller) = waiting.caller.as_ref().filter(|caller| fits(caller)) else { continue };
        match only {
            Some((_, other)) if !other.client.is(&caller.client) => return None,
            Some((other, _)) if other > *id => {}
            _ => only = Some((*id, caller)),
        }
    }
    only.map(|(_, caller)| caller.clone())
}

fn receipt(is_needed: bool) -> Receipt {
    if is_needed { Receipt::Message } else { Receipt::Idle }
}

/// Takes a member of `_meta` away that is not for clients.
fn without_meta(params: &mut Map<String, Value>, key: &str) -> Option<Value> {
    let meta = params.get_mut("_meta")?.as_object_mut()?;
    let taken = meta.shift_remove(key)?;
    if meta.is_empty() {
        params.shift_remove("_meta");
    }
    Some(taken)
}

/// Returns what there is without reading it: text that nobody can read hides no more than itself.
fn fields(params: Option<&RawValue>) -> Option<Fields<'_>> {
    params.and_then(|raw| serde_json::from_str(raw.get()).ok())
}

fn value(params: Option<&RawValue>) -> Option<Value> {
    params.and_then(|raw| serde_json::from_str(raw.get()).ok())
}

#[cfg(test)]
#[path = "inbox_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "late_logs_tests.rs"]
mod late_logs_tests;
