//! Call driver: one call to a server, with the input that the server asks for on the way.
//!
//! A server of the older era asks in the middle of a call and waits; one of the newer era ends the round with its
//! questions and is called again. Clients are the same two kinds. All four pairs meet here:
//!
//! | server | client waits | client calls again |
//! |---|---|---|
//! | waits | asked, answered | the call is suspended until the client is back |
//! | called again | asked, then called again | the round ends with the server's questions and its state |

use super::input_required::{InputRequiredResult, questions_of};
use super::request::{CallRequest, RequestTarget};
use super::round::ask_each;
use super::sent_request::{DetachedFuture, ResponseFuture, SentRequest};
use super::suspended_calls::{SuspendedCall, SuspendedCalls};
use super::task::{self, TaskCall, TaskPeer};
use crate::rpc::{
    CallOwner, Connection, PendingRequest, QUESTIONS_MAX, RequestResult, RequestSpec, ServerQuestion, add,
};
use crate::transport::RequestError;
use futures::FutureExt;
use futures::stream::{FuturesUnordered, StreamExt};
use portcullis_core::{
    Call, ErrorKind, ForeignError, InputRefusal, InputRequest, InputRequestKind, InputRequired,
    InputResponses, KeyedInputRequest, OWN_KEYS, Peer, Target, ToolError,
};
use portcullis_wire::params::RawMembers;
use portcullis_wire::rpc::{self, RpcError};
use portcullis_wire::{TaskStart, era};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// How many rounds of questions a call may have.
const ROUNDS_MAX: usize = 32;
/// The key prefix for URLs that a person has to open before the call.
const URL_KEY_PREFIX: &str = "address_";

impl CallRequest {
    /// Returns whether it may become a task that the hub polls: `Some(true)` where the request has to ask for it.
    fn as_task(&self, connection: &Connection, peer: &dyn Peer) -> Option<bool> {
        let Some(RequestTarget::Tool(own)) = &self.name else { return None };
        match connection.dialect().task_start() {
            // A client of the newer era declares the extension itself, and polls its own tasks.
            TaskStart::ByServer => peer.round().is_none().then_some(false),
            TaskStart::OnRequest => (own.runs_as_task && connection.runs_tasks()).then_some(true),
        }
    }
}

/// The state that a round leaves for the next one.
#[derive(Serialize, Deserialize)]
enum RoundState {
    /// The server's own state.
    Server { state: Option<String> },
    /// The key of a suspended call.
    Parked(String),
    /// The call is made again once a person has opened the URLs.
    Anew,
}

/// Why there is no result.
pub(crate) enum CallFailure {
    Request(RequestError),
    Final(ToolError),
}

impl From<ToolError> for CallFailure {
    fn from(error: ToolError) -> CallFailure {
        CallFailure::Final(error)
    }
}

/// Starts the call, or resumes a suspended one.
pub(crate) fn start_or_resume<'a>(
    connection: &Arc<Connection>,
    suspended: &'a Arc<SuspendedCalls>,
    call: &'a Call,
    request: CallRequest,
) -> Result<CallDriver<'a>, ToolError> {
    let request = Arc::new(request);
    let peer = &call.ctx.peer;
    let left = peer.state().and_then(|state| serde_json::from_str::<RoundState>(state).ok());
    let own = |key: &&String| !key.starts_with(OWN_KEYS);
    let drive = match (left, peer.round()) {
        (Some(RoundState::Parked(key)), Some(answers)) => {
            let kept = suspended.take(&key).ok_or_else(|| {
                ToolError::unavailable("the suspended call has ended meanwhile")
                    .hint("make the call again from the beginning")
            })?;
            let SuspendedCall { mut sent, open, asked } = kept;
            // Before the server can go on: its messages from now on are for this request.
            match &sent.task {
                Some(task) => task.rebind(peer),
                None => sent.connection.demux.pending.rebind(&sent.slot, peer),
            }
            let mut unanswered = Vec::new();
            // A withdrawn question needs no answer.
            for (key, asked) in open.into_iter().filter(|(_, asked)| !asked.withdrawn.is_cancelled()) {
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
            let mut drive = CallDriver { suspended, call, request, sent, asked, rounds: 0 };
            // No answer is not a refusal: what is still open is asked again.
            if !unanswered.is_empty() {
                return Err(drive.suspend(unanswered)?);
            }
            drive
        }
        (Some(RoundState::Anew), Some(answers)) => {
            check_opened(answers)?;
            CallDriver::begin(connection, suspended, call, request, None)
        }
        // Answers are the server's to judge, whether the hub has asked for them or not.
        (left, Some(answers)) if left.is_some() || answers.keys().any(|key| own(&key)) => {
            let state = match left {
                Some(RoundState::Server { state }) => state,
                _ => None,
            };
            CallDriver::begin(connection, suspended, call, request, Some((state, answers.clone())))
        }
        // The server has begun already, and would begin once more.
        (Some(_), None) => {
            return Err(ToolError::unavailable("the call cannot be resumed in this way")
                .hint("make the call again from the beginning"));
        }
        _ => CallDriver::begin(connection, suspended, call, request, None),
    };
    Ok(drive)
}

/// A call in flight. Dropping it cancels the call at the server; a suspended call outlives its round.
pub(crate) struct CallDriver<'a> {
    suspended: &'a Arc<SuspendedCalls>,
    call: &'a Call,
    request: Arc<CallRequest>,
    sent: SentRequest,
    /// How many questions there were, for unique keys.
    asked: usize,
    /// How many rounds there were.
    rounds: usize,
}

/// The next event of a call.
enum DriverEvent {
    Answer(RequestResult),
    Asked(Vec<ServerQuestion>),
}

impl<'a> CallDriver<'a> {
    fn begin(
        connection: &Arc<Connection>,
        suspended: &'a Arc<SuspendedCalls>,
        call: &'a Call,
        request: Arc<CallRequest>,
        earlier: Option<(Option<String>, InputResponses)>,
    ) -> CallDriver<'a> {
        let sent = start(connection, call, &request, earlier, request.timeout);
        CallDriver { suspended, call, request, sent, asked: 0, rounds: 0 }
    }

    /// Drives the call to its end, or to the end of this round.
    pub(crate) async fn run(&mut self) -> Result<Box<RawValue>, CallFailure> {
        loop {
            let answer = match self.next().await {
                DriverEvent::Answer(answer) => answer,
                // Boxed, as below: few calls need this, and it would enlarge the future of every call.
                DriverEvent::Asked(asked) => match Box::pin(self.ask_while_it_waits(asked)).await? {
                    Some(answer) => answer,
                    None => continue,
                },
            };
            let result = answer.map_err(|error| self.failed(error))?;
            match questions_of(&self.sent.connection.demux, &result)? {
                None => return Ok(result),
                Some(asking) => Box::pin(self.ask_for_next_round(asking)).await?,
            }
        }
    }

    async fn next(&mut self) -> DriverEvent {
        tokio::select! {
            biased;
            answer = &mut self.sent.running => DriverEvent::Answer(answer),
            asked = self.sent.slot.questions() => DriverEvent::Asked(asked),
        }
    }

    /// Returns why there is no result. Where a server of the older era wants a person to open URLs first, a client
    /// of the newer era is asked in its own way.
    fn failed(&self, error: RequestError) -> CallFailure {
        let peer = &*self.call.ctx.peer;
        if let RequestError::Refused(said) = &error
            && self.sent.connection.dialect().elicits_by_error()
            && peer.round().is_some()
            && let Some(mut questions) = url_questions(said)
            && questions.iter_mut().all(|question| {
                self.sent.connection.demux.elicitations.make_presentable(&mut question.ask).is_ok()
            })
            && questions.iter().all(|question| peer.accepts(&question.ask))
        {
            return CallFailure::Final(end_round(peer, questions, &RoundState::Anew, Map::new()));
        }
        CallFailure::Request(error)
    }

    /// Counts a round of questions.
    fn count_round(&mut self) -> Result<(), ToolError> {
        self.rounds += 1;
        match self.rounds {
            0..=ROUNDS_MAX => Ok(()),
            _ => {
                let message = format!("the server asked more than {ROUNDS_MAX} times");
                Err(ToolError::new(ErrorKind::Upstream, message))
            }
        }
    }

    /// A server of the newer era has ended its round. Calls it again, or ends the client's round.
    async fn ask_for_next_round(&mut self, asking: InputRequiredResult) -> Result<(), ToolError> {
        let InputRequiredResult { questions, state, more } = asking;
        self.count_round()?;
        let peer = &self.call.ctx.peer;
        if peer.round().is_some() {
            return Err(end_round(&**peer, questions, &RoundState::Server { state }, more));
        }
        not_offered(&**peer, &questions)?;
        let answers = ask_each(&**peer, questions).await?;
        // The server was not silent, and the time that the client took does not count.
        let timeout = self.request.silence;
        self.sent = start(&self.sent.connection, self.call, &self.request, Some((state, answers)), timeout);
        Ok(())
    }

    /// A server of the older era waits for answers. Gets them, or suspends the call until the client is back.
    ///
    /// The server may respond to the call before the answers are there. Then that response is returned at once, and
    /// the questions are withdrawn from the client.
    async fn ask_while_it_waits(
        &mut self,
        asked: Vec<ServerQuestion>,
    ) -> Result<Option<RequestResult>, ToolError> {
        let open = self.open(asked)?;
        if open.is_empty() {
            return Ok(None);
        }
        let call = self.call;
        let peer = &*call.ctx.peer;
        if peer.round().is_some() {
            return Err(self.suspend(open)?);
        }
        let mut asking: FuturesUnordered<_> =
            open.into_iter().map(|(key, asked)| ask_one(peer, key, asked)).collect();
        while !asking.is_empty() {
            tokio::select! {
                biased;
                answer = &mut self.sent.running => return Ok(Some(answer)),
                () = call.ctx.cancel.cancelled() => return Err(ToolError::cancelled()),
                asked = self.sent.slot.questions() => {
                    let more = self.open(asked)?;
                    asking.extend(more.into_iter().map(|(key, asked)| ask_one(peer, key, asked)));
                }
                Some((asked, answer)) = asking.next() => {
                    match answer {
                        // The server has withdrawn it.
                        None => {}
                        Some(Ok(answer)) => reply(&self.sent.connection, &asked, answer.as_ref()),
                        // The server decides what it does without an answer.
                        Some(Err(refused)) => {
                            let refused = not_answered(asked.ask.kind, refused);
                            self.sent.connection.demux.answer(&asked.id, Err(refused));
                        }
                    }
                    self.sent.slot.answered(&asked.id);
                }
            }
        }
        // The time that the client took does not count.
        self.sent.slot.alive();
        Ok(None)
    }

    /// Returns what the client can be asked, each with its own key, and refuses the rest.
    fn open(&mut self, asked: Vec<ServerQuestion>) -> Result<Vec<(String, ServerQuestion)>, ToolError> {
        self.count_round()?;
        let peer = &self.call.ctx.peer;
        // The handshake declared what some clients support; this one may not.
        let (asked, refused): (Vec<_>, Vec<_>) =
            asked.into_iter().partition(|asked| peer.accepts(&asked.ask));
        for asked in refused {
            let refused = era::not_offered(&asked.ask, peer.offers(asked.ask.kind));
            self.sent.connection.demux.answer(&asked.id, Err(refused));
            self.sent.slot.answered(&asked.id);
        }
        let named = asked.into_iter().map(|asked| {
            self.asked += 1;
            (format!("{}_{}", kind_name(asked.ask.kind), self.asked), asked)
        });
        Ok(named.collect())
    }

    /// Suspends the call until the client is back, and returns what tells the client so. The demultiplexer goes on
    /// meanwhile.
    fn suspend(&mut self, open: Vec<(String, ServerQuestion)>) -> Result<ToolError, ToolError> {
        let peer = &self.call.ctx.peer;
        let questions =
            open.iter().map(|(key, asked)| KeyedInputRequest { key: key.clone(), ask: asked.ask.clone() });
        let questions: Vec<KeyedInputRequest> = questions.collect();
        let running = std::mem::replace(&mut self.sent.running, Box::pin(std::future::pending()));
        let running: ResponseFuture = Box::pin(DetachedFuture::new(running).answer());
        let (slot, task) = (std::mem::take(&mut self.sent.slot), self.sent.task.clone());
        let (connection, client) = (self.sent.connection.clone(), self.sent.client.clone());
        let sent = SentRequest { running, slot, task, connection, client };
        let key = self.suspended.keep(SuspendedCall { sent, open, asked: self.asked }, peer.clone())?;
        Ok(end_round(&**peer, questions, &RoundState::Parked(key), Map::new()))
    }
}

/// Asks the client one question. `None` where the server has withdrawn it.
async fn ask_one(
    peer: &dyn Peer,
    key: String,
    asked: ServerQuestion,
) -> (ServerQuestion, Option<Result<Option<Value>, InputRefusal>>) {
    let question = KeyedInputRequest { key: key.clone(), ask: asked.ask.clone() };
    let answer = tokio::select! {
        biased;
        () = asked.withdrawn.cancelled() => None,
        answers = peer.ask(vec![question]) => Some(answers.map(|mut answers| answers.remove(&key))),
    };
    (asked, answer)
}

/// Returns the URLs that a person has to open before the call, if that is the error.
fn url_questions(said: &ForeignError) -> Option<Vec<KeyedInputRequest>> {
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
        let ask = InputRequest { kind: InputRequestKind::Elicit, params };
        KeyedInputRequest { key: format!("{URL_KEY_PREFIX}{number}"), ask }
    });
    let questions: Vec<KeyedInputRequest> = questions.filter(|question| era::is_url(&question.ask)).collect();
    (questions.len() == count && (1..=QUESTIONS_MAX).contains(&count)).then_some(questions)
}

/// Checks that the URLs were opened. A person who declined is not asked again and again.
fn check_opened(answers: &InputResponses) -> Result<(), ToolError> {
    let mut addresses = answers.iter().filter(|(key, _)| key.starts_with(URL_KEY_PREFIX));
    if addresses.all(|(_, answer)| answer["action"] == "accept") {
        return Ok(());
    }
    let message = "the server wants a person to open a URL before the call, and that was declined";
    Err(ToolError::new(ErrorKind::Upstream, message))
}

fn kind_name(kind: InputRequestKind) -> &'static str {
    match kind {
        InputRequestKind::Elicit => "elicitation",
        InputRequestKind::Sample => "sampling",
        InputRequestKind::Roots => "roots",
    }
}

/// Refuses questions that the client does not support. A server of the newer era knew that.
fn not_offered(peer: &dyn Peer, questions: &[KeyedInputRequest]) -> Result<(), ToolError> {
    match questions.iter().find(|question| !peer.accepts(&question.ask)) {
        Some(question) => Err(ToolError::needs_part(era::needed(&question.ask))),
        None => Ok(()),
    }
}

fn end_round(
    peer: &dyn Peer,
    questions: Vec<KeyedInputRequest>,
    left: &RoundState,
    more: Map<String, Value>,
) -> ToolError {
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

fn reply(connection: &Connection, asked: &ServerQuestion, answer: Option<&Value>) {
    let answer = match answer {
        Some(answer) => Ok(asked.worded(answer)),
        None => Err(RpcError::new(
            rpc::INVALID_REQUEST,
            format!("the client did not answer `{}`", era::ask_method(asked.ask.kind)),
        )),
    };
    connection.demux.answer(&asked.id, answer);
}

fn not_answered(kind: InputRequestKind, refused: InputRefusal) -> RpcError {
    match refused {
        InputRefusal::Refused(said) => RpcError::passed_on(said),
        InputRefusal::NotOffered(_) => RpcError::method_not_found(era::ask_method(kind)),
        InputRefusal::Failed(_) | InputRefusal::NextRound(_) => {
            RpcError::new(rpc::INVALID_REQUEST, "the client did not answer")
        }
    }
}

/// Sends the request. `timeout` is the time until the first sign of life.
fn start(
    connection: &Arc<Connection>,
    call: &Call,
    request: &Arc<CallRequest>,
    earlier: Option<(Option<String>, InputResponses)>,
    timeout: Duration,
) -> SentRequest {
    let slot = Arc::new(PendingRequest::default());
    let (client, peer) = (call.caller().client.clone(), call.ctx.peer.clone());
    let as_task = request.as_task(connection, &*peer);
    let task_dialect = as_task.map(|_| connection.dialect());
    let mut caller = CallOwner { client: client.clone(), peer, slot: slot.clone(), task_dialect };
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
        // A client that asks for a task itself has set its lifetime.
        if wanted && !says_task(&passed) {
            add(&mut answered, task::TASK_REQUEST);
        }
        let peer = Arc::new(TaskPeer::new(caller.peer.clone()));
        caller.peer = peer.clone();
        task = Some(peer.clone());
        TaskCall::new(connection.clone(), peer, caller.clone(), request.silence)
    });
    let running = Box::pin(async move {
        let CallRequest { method, params, name, headers, silence, .. } = &*request;
        let ask = RequestSpec {
            method,
            params: [params, &passed, &answered],
            meta: &meta,
            name: name.as_ref().map(RequestTarget::as_str),
            headers,
            caller: Some(caller),
            timeout,
            silence: *silence,
        };
        match tasking {
            // Boxed: few calls become tasks, and it would enlarge the future of every call.
            Some(tasking) => Box::pin(tasking.request(ask)).await,
            None => via.request(ask).await,
        }
    });
    SentRequest { running, slot, task, connection: connection.clone(), client }
}

fn says_task(members: &str) -> bool {
    let object = format!("{{{members}}}");
    serde_json::from_str::<RawMembers<'_>>(&object).is_ok_and(|fields| fields.get("task").is_some())
}
