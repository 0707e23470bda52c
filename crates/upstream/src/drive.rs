//! The road of one call to a server, with all the questions that the server has on the way.
//!
//! A server of the older era asks in the middle of a call and waits; one of the newer era ends the round with its
//! questions and is called again. Clients are the same two kinds. All four pairs meet here:
//!
//! | server | client waits | client calls again |
//! |---|---|---|
//! | waits | asked, answered | the call is parked until the client is back |
//! | called again | asked, then called again | the round ends with the server's questions and its state |

use crate::catalog::OwnTool;
use crate::connection::{Ask as Outward, Connection, RequestError, add};
use crate::elicitation;
use crate::inbox::{Answer, Asked, Inbox, Listener};
use crate::slot::{QUESTIONS_MAX, Slot};
use crate::task::{self, TaskPeer, Tasking};
use futures::FutureExt;
use futures::stream::{FuturesUnordered, StreamExt};
use portcullis_core::{
    Answers, Ask, AskKind, AskRefused, Call, Client, ErrorKind, ForeignError, InputRequired, Limit, OWN_KEYS,
    Peer, Question, Target, ToolError, json,
};
use portcullis_wire::era;
use portcullis_wire::params::Fields;
use portcullis_wire::rpc::{self, RpcError};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

/// How often a server may ask before it has to come to an end.
const ROUNDS_MAX: usize = 32;
/// How long a call is kept for a client that has to come back with answers.
const PARKED_FOR: Duration = Duration::from_secs(300);
/// How many calls of one server may be kept so.
const PARKED_MAX: usize = 256;
/// How many of them may be one client's, so that one who never comes back leaves room for others.
const PARKED_PER_CLIENT_MAX: usize = 64;
/// Under which keys a client is asked to show addresses that a person has to follow before the call.
const ADDRESS_KEYS: &str = "address_";

/// What is asked of a server, apart from how it goes on.
pub(crate) struct Request {
    pub(crate) method: &'static str,
    /// The inside of `params`.
    pub(crate) params: String,
    /// What is named: a tool, a prompt, an address.
    pub(crate) name: Option<Named>,
    pub(crate) headers: Vec<(String, String)>,
    /// How much is left of the time for the call.
    pub(crate) timeout: Duration,
    /// How long the server may be silent.
    pub(crate) silence: Duration,
}

/// A name, as it is kept already where there is one.
pub(crate) enum Named {
    Tool(Arc<OwnTool>),
    Other(String),
}

impl Named {
    fn as_str(&self) -> &str {
        match self {
            Named::Tool(own) => &own.name,
            Named::Other(name) => name,
        }
    }
}

impl Request {
    /// Returns whether it may become a task that the hub waits for: `Some(true)` where it has to be asked for.
    fn as_task(&self, connection: &Connection, peer: &dyn Peer) -> Option<bool> {
        let Some(Named::Tool(own)) = &self.name else { return None };
        match connection.is_modern() {
            // A client of the newer era says itself whether it understands tasks, and asks after its own.
            true => peer.round().is_none().then_some(false),
            false => (own.runs_as_task && connection.runs_tasks()).then_some(true),
        }
    }
}

/// What a round leaves for the next one.
#[derive(Serialize, Deserialize)]
enum Left {
    /// The server's own words.
    Server { state: Option<String> },
    /// The name of a call that is parked here.
    Parked(String),
    /// The call is made anew once a person has followed addresses.
    Anew,
}

type Running = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A request that was sent. What it is made of owns all that it needs, so that it can be kept while its client is away.
struct Sent {
    running: Running,
    slot: Arc<Slot>,
    /// Who is told of it, where it may become a task.
    task: Option<Arc<TaskPeer>>,
    connection: Arc<Connection>,
    /// Whose it is.
    client: Arc<Client>,
}

/// A question may be open when its call is over, and may have had nothing to do with it: on a line, most servers do not say which
/// call asks. Then it is asked on another call of the client, and refused with the last one.
impl Drop for Sent {
    fn drop(&mut self) {
        // First of all the server hears that the call is given up, where it is.
        self.running = Box::pin(std::future::pending());
        let inbox = &self.connection.inbox;
        for asked in self.slot.left_open() {
            let Err(asked) = inbox.hand_on(asked, &self.client) else { continue };
            match asked.ask.kind {
                AskKind::Roots => inbox.roots_outside(asked.id),
                AskKind::Elicit | AskKind::Sample => {
                    let refused =
                        RpcError::new(rpc::INVALID_REQUEST, "the call is over; nobody can be asked");
                    inbox.answer(&asked.id, Err(refused));
                }
            }
        }
    }
}

/// A call that goes on as soon as its client has answered.
struct ParkedCall {
    sent: Sent,
    open: Vec<(String, Asked)>,
    asked: usize,
}

/// A call that is kept, and what sees to it that it is not kept for too long.
struct Kept {
    call: ParkedCall,
    _ends: AbortOnDropHandle<()>,
}

/// Runs on by itself, and ends with whoever holds it: at once, and not when the runtime gets to it, so that the server hears
/// of that before anything else.
struct Apart {
    running: Arc<Mutex<Option<Running>>>,
    task: JoinHandle<Answer>,
}

impl Apart {
    fn new(running: Running) -> Apart {
        let running = Arc::new(Mutex::new(Some(running)));
        let held = running.clone();
        let task = tokio::spawn(poll_fn(move |context| match &mut *locked(&held) {
            Some(running) => running.as_mut().poll(context),
            None => Poll::Ready(Err(RequestError::Closed)),
        }));
        Apart { running, task }
    }

    async fn answer(mut self) -> Answer {
        (&mut self.task).await.unwrap_or(Err(RequestError::Closed))
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.task.abort();
        let running = locked(&self.running).take();
        drop(running);
    }
}

/// The calls of one server that wait for their clients.
#[derive(Default)]
pub(crate) struct Parked(Mutex<HashMap<String, Kept>>);

impl Parked {
    /// Keeps a call until its client is back, is gone for good, or has taken too long.
    fn keep(self: &Arc<Self>, call: ParkedCall, peer: Arc<dyn Peer>) -> Result<String, ToolError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| ToolError::internal(error.to_string()))?;
        let key: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut all = self.lock();
        let is_same = |kept: &&Kept| kept.call.sent.client.is(&call.sent.client);
        if all.len() >= PARKED_MAX || all.values().filter(is_same).count() >= PARKED_PER_CLIENT_MAX {
            Limit::Questions.hit();
            return Err(ToolError::unavailable("too many calls wait for answers of their clients")
                .hint("try again later"));
        }
        call.sent.slot.goes_away(true);
        let (parked, name): (Weak<Parked>, String) = (Arc::downgrade(self), key.clone());
        let ends = tokio::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(PARKED_FOR) => {}
                () = peer.gone() => {}
            }
            // Dropped: the server is told that nobody waits any more, and that nobody answers what it asked.
            if let Some(parked) = parked.upgrade() {
                let _late = parked.lock().remove(&name);
            }
        });
        all.insert(key.clone(), Kept { call, _ends: AbortOnDropHandle::new(ends) });
        Ok(key)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn take(&self, key: &str) -> Option<ParkedCall> {
        let Kept { call, .. } = self.lock().remove(key)?;
        call.sent.slot.goes_away(false);
        Some(call)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Kept>> {
        locked(&self.0)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why there is no result.
pub(crate) enum Failure {
    Request(RequestError),
    Told(ToolError),
}

impl From<ToolError> for Failure {
    fn from(error: ToolError) -> Failure {
        Failure::Told(error)
    }
}

/// Makes the call, or goes on with one that is parked.
pub(crate) fn drive<'a>(
    connection: &Arc<Connection>,
    parked: &'a Arc<Parked>,
    call: &'a Call,
    request: Request,
) -> Result<Drive<'a>, ToolError> {
    let request = Arc::new(request);
    let peer = &call.ctx.peer;
    let left = peer.state().and_then(|state| serde_json::from_str::<Left>(state).ok());
    let own = |key: &&String| !key.starts_with(OWN_KEYS);
    let drive = match (left, peer.round()) {
        (Some(Left::Parked(key)), Some(answers)) => {
            let kept = parked.take(&key).ok_or_else(|| {
                ToolError::unavailable("the call that was to go on has ended meanwhile")
                    .hint("make the call again from the beginning")
            })?;
            let ParkedCall { mut sent, open, asked } = kept;
            // Before the server can go on: what it says from now on is for this request.
            match &sent.task {
                Some(task) => task.goes_on(peer),
                None => sent.connection.inbox.goes_on(&sent.slot, peer),
            }
            let mut unanswered = Vec::new();
            // One that the server has taken back needs no answer.
            for (key, asked) in open.into_iter().filter(|(_, asked)| !asked.void.is_cancelled()) {
                match answers.get(&key).filter(|answer| asked.ask.kind.is_answer(answer)) {
                    Some(answer) => {
                        reply(&sent.connection, &asked, Some(answer));
                        sent.slot.answered(&asked.id);
                    }
                    None => unanswered.push((key, asked)),
                }
            }
            sent.slot.alive();
            // A call that has ended meanwhile needs no answers either.
            if let Some(answer) = (&mut sent.running).now_or_never() {
                sent.running = Box::pin(std::future::ready(answer));
                unanswered.clear();
            }
            let mut drive = Drive { parked, call, request, sent, asked, rounds: 0 };
            // To say nothing is not to say no: what is still open is asked again.
            if !unanswered.is_empty() {
                return Err(drive.park(unanswered)?);
            }
            drive
        }
        (Some(Left::Anew), Some(answers)) => {
            followed(answers)?;
            Drive::begin(connection, parked, call, request, None)
        }
        // What a client brings is the server's to judge, whether it was asked for here or not.
        (left, Some(answers)) if left.is_some() || answers.keys().any(|key| own(&key)) => {
            let state = match left {
                Some(Left::Server { state }) => state,
                _ => None,
            };
            Drive::begin(connection, parked, call, request, Some((state, answers.clone())))
        }
        // The server has begun already, and would begin once more.
        (Some(_), None) => {
            return Err(ToolError::unavailable("the call cannot go on in this way")
                .hint("make the call again from the beginning"));
        }
        _ => Drive::begin(connection, parked, call, request, None),
    };
    Ok(drive)
}

/// A call under way. A caller that gives up drops it, and the server hears that; but a call that is parked outlives the
/// round that began it.
pub(crate) struct Drive<'a> {
    parked: &'a Arc<Parked>,
    call: &'a Call,
    request: Arc<Request>,
    sent: Sent,
    /// How many questions there were, so that each has a name of its own.
    asked: usize,
    /// How often there were some.
    rounds: usize,
}

/// What happens next.
enum Next {
    Answer(Answer),
    Asked(Vec<Asked>),
}

impl<'a> Drive<'a> {
    fn begin(
        connection: &Arc<Connection>,
        parked: &'a Arc<Parked>,
        call: &'a Call,
        request: Arc<Request>,
        earlier: Option<(Option<String>, Answers)>,
    ) -> Drive<'a> {
        let sent = start(connection, call, &request, earlier, request.timeout);
        Drive { parked, call, request, sent, asked: 0, rounds: 0 }
    }

    /// Sees the call to its end, or to the end of this round.
    pub(crate) async fn run(&mut self) -> Result<Box<RawValue>, Failure> {
        loop {
            let answer = match self.next().await {
                Next::Answer(answer) => answer,
                // Elsewhere, as below: few calls are asked about, and every call would make room for it.
                Next::Asked(asked) => match Box::pin(self.ask_while_it_waits(asked)).await? {
                    Some(answer) => answer,
                    None => continue,
                },
            };
            let result = answer.map_err(|error| self.failed(error))?;
            match questions_of(&self.sent.connection.inbox, &result)? {
                None => return Ok(result),
                Some(asking) => Box::pin(self.ask_for_next_round(asking)).await?,
            }
        }
    }

    async fn next(&mut self) -> Next {
        tokio::select! {
            biased;
            answer = &mut self.sent.running => Next::Answer(answer),
            asked = self.sent.slot.questions() => Next::Asked(asked),
        }
    }

    /// Tells why there is no result. Where a server of the older era wants a person to follow addresses first, a client of
    /// rounds is asked that in the way it knows.
    fn failed(&self, error: RequestError) -> Failure {
        let peer = &*self.call.ctx.peer;
        if let RequestError::Refused(said) = &error
            && !self.sent.connection.is_modern()
            && peer.round().is_some()
            && let Some(mut questions) = addresses(said)
            && questions
                .iter_mut()
                .all(|question| self.sent.connection.inbox.make_presentable(&mut question.ask).is_ok())
            && questions.iter().all(|question| peer.accepts(&question.ask))
        {
            return Failure::Told(ends_round(peer, questions, &Left::Anew, Map::new()));
        }
        Failure::Request(error)
    }

    /// Counts how often the server asks.
    fn once_more(&mut self) -> Result<(), ToolError> {
        self.rounds += 1;
        match self.rounds {
            0..=ROUNDS_MAX => Ok(()),
            _ => {
                let message = format!("the server asked more than {ROUNDS_MAX} times");
                Err(ToolError::new(ErrorKind::Upstream, message))
            }
        }
    }

    /// A server of the newer era has ended its round. Calls it again, or ends ours.
    async fn ask_for_next_round(&mut self, asking: Asking) -> Result<(), ToolError> {
        let Asking { questions, state, more } = asking;
        self.once_more()?;
        let peer = &self.call.ctx.peer;
        if peer.round().is_some() {
            return Err(ends_round(&**peer, questions, &Left::Server { state }, more));
        }
        not_offered(&**peer, &questions)?;
        let answers = ask_each(&**peer, questions).await?;
        // The server was not silent, and the time that the client took is not the server's.
        let timeout = self.request.silence;
        self.sent = start(&self.sent.connection, self.call, &self.request, Some((state, answers)), timeout);
        Ok(())
    }

    /// A server of the older era waits for answers. Gets them, or parks the call until the client is back.
    ///
    /// The server may need them no longer before they are there. What it answers to the call then is returned at once,
    /// and whoever was asked hears that the questions are void.
    async fn ask_while_it_waits(&mut self, asked: Vec<Asked>) -> Result<Option<Answer>, ToolError> {
        let open = self.open(asked)?;
        if open.is_empty() {
            return Ok(None);
        }
        let call = self.call;
        let peer = &*call.ctx.peer;
        if peer.round().is_some() {
            return Err(self.park(open)?);
        }
        let mut asking: FuturesUnordered<_> =
            open.into_iter().map(|(key, asked)| put(peer, key, asked)).collect();
        while !asking.is_empty() {
            tokio::select! {
                biased;
                answer = &mut self.sent.running => return Ok(Some(answer)),
                () = call.ctx.cancel.cancelled() => return Err(ToolError::cancelled()),
                asked = self.sent.slot.questions() => {
                    let more = self.open(asked)?;
                    asking.extend(more.into_iter().map(|(key, asked)| put(peer, key, asked)));
                }
                Some((asked, answer)) = asking.next() => {
                    match answer {
                        // The server has taken it back.
                        None => {}
                        Some(Ok(answer)) => reply(&self.sent.connection, &asked, answer.as_ref()),
                        // The server decides what it does without an answer.
                        Some(Err(refused)) => {
                            let refused = not_answered(asked.ask.kind, refused);
                            self.sent.connection.inbox.answer(&asked.id, Err(refused));
                        }
                    }
                    self.sent.slot.answered(&asked.id);
                }
            }
        }
        // The time that the client took is not the server's.
        self.sent.slot.alive();
        Ok(None)
    }

    /// Returns what the client can be asked, each with a key of its own, and refuses the rest.
    fn open(&mut self, asked: Vec<Asked>) -> Result<Vec<(String, Asked)>, ToolError> {
        self.once_more()?;
        let peer = &self.call.ctx.peer;
        // The server was told that it could ask, because some clients can be; what it does without is its own to decide.
        let (asked, refused): (Vec<_>, Vec<_>) =
            asked.into_iter().partition(|asked| peer.accepts(&asked.ask));
        for asked in refused {
            let refused = era::not_offered(&asked.ask, peer.offers(asked.ask.kind));
            self.sent.connection.inbox.answer(&asked.id, Err(refused));
            self.sent.slot.answered(&asked.id);
        }
        let named = asked.into_iter().map(|asked| {
            self.asked += 1;
            (format!("{}_{}", kind_name(asked.ask.kind), self.asked), asked)
        });
        Ok(named.collect())
    }

    /// Keeps the call until the client is back, and returns what tells the client so. Meanwhile the server is listened to.
    fn park(&mut self, open: Vec<(String, Asked)>) -> Result<ToolError, ToolError> {
        let peer = &self.call.ctx.peer;
        let questions = open.iter().map(|(key, asked)| Question { key: key.clone(), ask: asked.ask.clone() });
        let questions: Vec<Question> = questions.collect();
        let running = std::mem::replace(&mut self.sent.running, Box::pin(std::future::pending()));
        let running: Running = Box::pin(Apart::new(running).answer());
        let (slot, task) = (std::mem::take(&mut self.sent.slot), self.sent.task.clone());
        let (connection, client) = (self.sent.connection.clone(), self.sent.client.clone());
        let sent = Sent { running, slot, task, connection, client };
        let key = self.parked.keep(ParkedCall { sent, open, asked: self.asked }, peer.clone())?;
        Ok(ends_round(&**peer, questions, &Left::Parked(key), Map::new()))
    }
}

/// Puts one question to the client. `None` where the server does not want to know any more.
async fn put(
    peer: &dyn Peer,
    key: String,
    asked: Asked,
) -> (Asked, Option<Result<Option<Value>, AskRefused>>) {
    let question = Question { key: key.clone(), ask: asked.ask.clone() };
    let answer = tokio::select! {
        biased;
        () = asked.void.cancelled() => None,
        answers = peer.ask(vec![question]) => Some(answers.map(|mut answers| answers.remove(&key))),
    };
    (asked, answer)
}

/// Puts questions of a server of the newer era to a client that can be asked while the call waits, all of them before the
/// first answer. Where the client does not show one to its person, nobody has chosen anything.
pub(crate) async fn ask_each(peer: &dyn Peer, questions: Vec<Question>) -> Result<Answers, AskRefused> {
    let asking = questions.into_iter().map(async |question| {
        let (key, kind) = (question.key.clone(), question.ask.kind);
        match peer.ask(vec![question]).await {
            Err(AskRefused::Refused(_)) if kind == AskKind::Elicit => {
                Ok(Answers::from([(key, json!({ "action": "cancel" }))]))
            }
            answers => answers,
        }
    });
    let answers = futures::future::try_join_all(asking).await?;
    Ok(answers.into_iter().flatten().collect())
}

/// Returns the addresses that a person has to follow before the call, if that is what an error says.
fn addresses(said: &ForeignError) -> Option<Vec<Question>> {
    #[derive(Deserialize)]
    struct Data {
        elicitations: Vec<Value>,
    }
    if said.code != i64::from(rpc::URL_ELICITATION_REQUIRED) {
        return None;
    }
    let Data { elicitations } = serde_json::from_str(said.data.as_ref()?.get()).ok()?;
    let count = elicitations.len();
    let questions = elicitations.into_iter().zip(1..).map(|(params, number)| {
        let ask = Ask { kind: AskKind::Elicit, params };
        Question { key: format!("{ADDRESS_KEYS}{number}"), ask }
    });
    let questions: Vec<Question> = questions.filter(|question| era::is_url(&question.ask)).collect();
    (questions.len() == count && (1..=QUESTIONS_MAX).contains(&count)).then_some(questions)
}

/// Returns whether addresses were followed. Whoever did not want to is not asked again and again.
fn followed(answers: &Answers) -> Result<(), ToolError> {
    let mut addresses = answers.iter().filter(|(key, _)| key.starts_with(ADDRESS_KEYS));
    if addresses.all(|(_, answer)| answer["action"] == "accept") {
        return Ok(());
    }
    let message = "the server wants a person to follow its address before the call, and that was declined";
    Err(ToolError::new(ErrorKind::Upstream, message))
}

fn kind_name(kind: AskKind) -> &'static str {
    match kind {
        AskKind::Elicit => "elicitation",
        AskKind::Sample => "sampling",
        AskKind::Roots => "roots",
    }
}

/// Refuses what the client cannot be asked. A server of the newer era knew that.
fn not_offered(peer: &dyn Peer, questions: &[Question]) -> Result<(), ToolError> {
    match questions.iter().find(|question| !peer.accepts(&question.ask)) {
        Some(question) => Err(ToolError::needs_part(era::needed(&question.ask))),
        None => Ok(()),
    }
}

fn ends_round(peer: &dyn Peer, questions: Vec<Question>, left: &Left, more: Map<String, Value>) -> ToolError {
    if let Err(missing) = not_offered(peer, &questions) {
        return missing;
    }
    match serde_json::to_string(left) {
        Ok(state) => {
            let state = Some(state);
            ToolError::input_required(InputRequired { questions, state, more, approved: None })
        }
        Err(error) => ToolError::internal(error),
    }
}

fn reply(connection: &Connection, asked: &Asked, answer: Option<&Value>) {
    let answer = match answer {
        Some(answer) => Ok(asked.worded(answer)),
        None => Err(RpcError::new(
            rpc::INVALID_REQUEST,
            format!("the client did not answer `{}`", era::ask_method(asked.ask.kind)),
        )),
    };
    connection.inbox.answer(&asked.id, answer);
}

fn not_answered(kind: AskKind, refused: AskRefused) -> RpcError {
    match refused {
        AskRefused::Refused(said) => RpcError::passed_on(said),
        AskRefused::NotOffered(_) => RpcError::method_not_found(era::ask_method(kind)),
        AskRefused::Failed(_) | AskRefused::NextRound(_) => {
            RpcError::new(rpc::INVALID_REQUEST, "the client did not answer")
        }
    }
}

/// Sends the request. `timeout` is how long the server may take to the first sign of life.
fn start(
    connection: &Arc<Connection>,
    call: &Call,
    request: &Arc<Request>,
    earlier: Option<(Option<String>, Answers)>,
    timeout: Duration,
) -> Sent {
    let slot = Arc::new(Slot::default());
    let (client, peer) = (call.caller.client.clone(), call.ctx.peer.clone());
    let as_task = request.as_task(connection, &*peer);
    let sees_through = as_task.map(|_| connection.era());
    let mut caller = Listener { client: client.clone(), peer, slot: slot.clone(), sees_through };
    let (via, request, meta) = (connection.clone(), request.clone(), call.passed.meta.clone());
    // The parameters of a completion are its arguments already.
    let is_completion = matches!(call.target, Target::Completion(_));
    let passed = if is_completion { String::new() } else { call.passed.params.clone() };
    let mut answered = String::new();
    if let Some((state, answers)) = earlier {
        let answers: Map<String, Value> =
            answers.into_iter().filter(|(key, _)| !key.starts_with(OWN_KEYS)).collect();
        if !answers.is_empty() {
            add(&mut answered, &format!(r#""inputResponses":{}"#, Value::Object(answers)));
        }
        if let Some(state) = state {
            add(&mut answered, &format!(r#""requestState":{}"#, Value::from(state)));
        }
    }
    let mut task = None;
    let tasking = as_task.map(|wanted| {
        // A client that says so itself has said how long.
        if wanted && !says_task(&passed) {
            add(&mut answered, task::WANTED);
        }
        let peer = Arc::new(TaskPeer::new(caller.peer.clone()));
        caller.peer = peer.clone();
        task = Some(peer.clone());
        Tasking::new(connection.clone(), peer, caller.clone(), request.silence)
    });
    let running = Box::pin(async move {
        let Request { method, params, name, headers, silence, .. } = &*request;
        let ask = Outward {
            method,
            params: [params, &passed, &answered],
            meta: &meta,
            name: name.as_ref().map(Named::as_str),
            headers,
            caller: Some(caller),
            timeout,
            silence: *silence,
        };
        match tasking {
            // Elsewhere, because few calls become tasks and every call would make room for it.
            Some(tasking) => Box::pin(tasking.request(ask)).await,
            None => via.request(ask).await,
        }
    });
    Sent { running, slot, task, connection: connection.clone(), client }
}

/// Returns whether members of an object name a task.
fn says_task(members: &str) -> bool {
    let object = format!("{{{members}}}");
    serde_json::from_str::<Fields<'_>>(&object).is_ok_and(|fields| fields.get("task").is_some())
}

/// What a server of the newer era says at the end of a round.
struct Asking {
    questions: Vec<Question>,
    /// What it wants back with the answers.
    state: Option<String>,
    /// Whatever else it says.
    more: Map<String, Value>,
}

/// Returns what a result asks, if it is no result yet but questions.
fn questions_of(inbox: &Inbox, result: &RawValue) -> Result<Option<Asking>, ToolError> {
    // Most results are only passed on, and need not be taken apart to see that. One may be written with escapes.
    let text = result.get();
    if !text.starts_with('{') || !(text.contains("\"input_required\"") || text.contains("\\u")) {
        return Ok(None);
    }
    let unreadable = || ToolError::new(ErrorKind::Upstream, "the server asks what cannot be read");
    let fields: Fields<'_> = serde_json::from_str(result.get()).map_err(|_| unreadable())?;
    let kind = fields.get("resultType").and_then(|kind| serde_json::from_str::<String>(kind.get()).ok());
    if kind.is_none_or(|kind| kind != "input_required") {
        return Ok(None);
    }
    let said = json::parse_exact(result.get()).map_err(|error| unreadable().caused_by(error))?;
    let Value::Object(mut more) = said else { return Err(unreadable()) };
    more.remove("resultType");
    let requests = match more.remove("inputRequests").unwrap_or_default() {
        Value::Object(requests) => requests,
        Value::Null => Map::new(),
        _ => return Err(unreadable()),
    };
    let state = match more.remove("requestState").unwrap_or_default() {
        Value::String(state) => Some(state),
        Value::Null => None,
        _ => return Err(unreadable()),
    };
    Ok(Some(Asking { questions: questions(inbox, requests)?, state, more }))
}

/// Reads the questions of a server of the newer era, by their keys.
pub(crate) fn questions(inbox: &Inbox, requests: Map<String, Value>) -> Result<Vec<Question>, ToolError> {
    let mut questions = Vec::with_capacity(requests.len());
    for (key, mut request) in requests {
        let kinds = [AskKind::Elicit, AskKind::Sample, AskKind::Roots];
        let kind = kinds.into_iter().find(|kind| request["method"] == era::ask_method(*kind));
        let params = request["params"].take();
        let kind = kind.filter(|kind| era::is_askable(*kind, &params) && !key.starts_with(OWN_KEYS));
        let Some(kind) = kind else {
            return Err(ToolError::new(ErrorKind::Upstream, "the server asks what no client can be asked"));
        };
        let mut ask = Ask { kind, params };
        elicitation::check_key(&key).and_then(|()| inbox.make_presentable(&mut ask)).map_err(|why| {
            ToolError::new(ErrorKind::Upstream, format!("the server asks what nobody is shown: {why}"))
        })?;
        questions.push(Question { key, ask });
    }
    Ok(questions)
}
