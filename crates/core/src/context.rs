//! The context of a running call: cancellation, progress, logging, and requests to the client.

use crate::call::{CallId, Caller, Client, Origin, Scope, Trail};
use crate::effect::EffectSet;
use crate::error::{ErrorKind, ErrorOrigin, ForeignError, InputRequired, ToolError};
use crate::json::printable;
use crate::label::Labels;
use crate::owner::OwnerId;
use crate::principal::Principal;
use data_encoding::HEXLOWER;
use futures::future::BoxFuture;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The params of a progress notification: `progress`, optionally `total`, `message` and unknown members. Those of an
/// upstream server are forwarded unchanged.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    pub said: Map<String, Value>,
}

impl Progress {
    pub fn new(progress: f64, total: Option<f64>, message: Option<String>) -> Progress {
        let mut said = Map::new();
        said.insert("progress".to_owned(), number(progress));
        said.extend(total.map(|total| ("total".to_owned(), number(total))));
        said.extend(message.map(|message| ("message".to_owned(), message.into())));
        Progress { said }
    }
}

/// The largest integer up to which an `f64` represents every integer.
const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// Returns a JSON number, as an integer if it has no fraction.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() <= INTEGER_MAX { (value as i64).into() } else { value.into() }
}

/// The severity of a log message, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
    pub const ALL: [LogLevel; 8] = [
        LogLevel::Debug,
        LogLevel::Info,
        LogLevel::Notice,
        LogLevel::Warning,
        LogLevel::Error,
        LogLevel::Critical,
        LogLevel::Alert,
        LogLevel::Emergency,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Notice => "notice",
            LogLevel::Warning => "warning",
            LogLevel::Error => "error",
            LogLevel::Critical => "critical",
            LogLevel::Alert => "alert",
            LogLevel::Emergency => "emergency",
        }
    }

    pub fn parse(text: &str) -> Option<LogLevel> {
        LogLevel::ALL.into_iter().find(|level| level.as_str() == text)
    }
}

/// The params of a log notification: `level`, `data`, optionally `logger` and unknown members. Those of an upstream server
/// are forwarded unchanged.
#[derive(Debug, Clone, PartialEq)]
pub struct LogMessage {
    pub level: LogLevel,
    pub said: Map<String, Value>,
}

impl LogMessage {
    pub fn new(level: LogLevel, logger: &str, data: impl Into<Value>) -> LogMessage {
        let mut said = Map::new();
        said.insert("level".to_owned(), level.as_str().into());
        said.insert("logger".to_owned(), logger.into());
        said.insert("data".to_owned(), data.into());
        LogMessage { level, said }
    }
}

/// The kind of a request to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputRequestKind {
    /// Elicitation: a person fills in a form or opens a URL.
    Elicit,
    /// Sampling: the client's model generates a message.
    Sample,
    /// Roots: the client lists its folders.
    Roots,
}

impl InputRequestKind {
    /// Returns whether a value has the shape of a response to this kind of request.
    pub fn is_answer(self, answer: &Value) -> bool {
        match self {
            InputRequestKind::Elicit => answer.get("action").is_some_and(Value::is_string),
            InputRequestKind::Sample => answer.get("content").is_some(),
            InputRequestKind::Roots => answer.get("roots").is_some_and(Value::is_array),
        }
    }
}

/// One request to the client, with its params on the wire.
#[derive(Debug, Clone, PartialEq)]
pub struct InputRequest {
    pub kind: InputRequestKind,
    pub params: Value,
}

impl InputRequest {
    /// An elicitation by form.
    pub fn elicit(message: &str, schema: Value) -> InputRequest {
        let params = serde_json::json!({ "mode": "form", "message": message, "requestedSchema": schema });
        InputRequest { kind: InputRequestKind::Elicit, params }
    }
}

/// A request with the key of its response.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyedInputRequest {
    pub key: String,
    pub ask: InputRequest,
}

/// Prefix of the keys of the hub's own input requests. A response to one counts only if the hub sent that request.
pub const OWN_KEYS: &str = "portcullis_";

/// The client's response, unchanged.
pub type InputResponse = Value;
/// Responses by key.
pub type InputResponses = BTreeMap<String, InputResponse>;

/// Why a request to the client has no response.
#[derive(Debug, Clone)]
pub enum InputRefusal {
    /// The client lacks the capability.
    NotOffered(InputRequestKind),
    /// The client gets the requests as the result of this round, and makes the call again with the responses.
    NextRound(InputRequired),
    /// The client responded with a JSON-RPC error.
    Refused(ForeignError),
    /// The client disconnected, or its response is invalid.
    Failed(String),
}

impl From<InputRefusal> for ToolError {
    fn from(refused: InputRefusal) -> ToolError {
        match refused {
            InputRefusal::NotOffered(kind) => ToolError::needs_capability(kind),
            InputRefusal::NextRound(questions) => ToolError::input_required(questions),
            // No hint to retry: a client that refused is not asked again.
            InputRefusal::Refused(refusal) => {
                let message = printable(&refusal.message);
                let message =
                    format!("the client refused the request with error {}: {message}", refusal.code);
                let mut error = ToolError::new(ErrorKind::Upstream, message);
                error.fault = ErrorOrigin::Caller;
                error
            }
            InputRefusal::Failed(reason) => {
                ToolError::new(ErrorKind::Upstream, "the client did not respond to the request")
                    .hint("try the call again")
                    .caused_by(reason)
            }
        }
    }
}

/// A client's session, by the digest of its id: the id itself is a bearer credential and stays in the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionDigest([u8; 32]);

impl SessionDigest {
    pub fn of(id: &str) -> SessionDigest {
        SessionDigest(Sha256::digest(id).into())
    }
}

impl fmt::Display for SessionDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

/// The client end of one call. Each transport and era implements it.
///
/// A wrapper forwards everything but notifications and requests to the peer it wraps ([`Peer::behind`]), by the default
/// methods. A new method therefore works through every wrapper without changes there.
pub trait Peer: Send + Sync {
    /// Returns the wrapped peer.
    fn behind(&self) -> Option<&dyn Peer> {
        None
    }

    fn progress(&self, progress: Progress);

    fn log(&self, message: LogMessage);

    /// Sends requests to the client; all are sent before the first response is awaited.
    fn ask(&self, questions: Vec<KeyedInputRequest>) -> BoxFuture<'_, Result<InputResponses, InputRefusal>>;

    /// Returns whether the client has the capability.
    fn offers(&self, kind: InputRequestKind) -> bool;

    /// Returns whether the client supports everything this request needs. Some support only part of a capability.
    fn accepts(&self, ask: &InputRequest) -> bool {
        self.behind().map_or_else(|| self.offers(ask.kind), |behind| behind.accepts(ask))
    }

    /// Returns the request state from the previous round of this call, already verified.
    fn state(&self) -> Option<&str> {
        self.behind().and_then(Peer::state)
    }

    /// Returns the proof that a person approved this call in a previous round, already verified.
    fn approved(&self) -> Option<&str> {
        self.behind().and_then(Peer::approved)
    }

    /// Returns the responses of this round and the unused ones of earlier rounds, for a client that gets requests only as
    /// the result of a round; `None` for a client that can be asked while the call runs.
    fn round(&self) -> Option<&InputResponses> {
        self.behind().and_then(Peer::round)
    }

    /// Returns the client's capabilities as it sent them, for an upstream server that needs more than [`Peer::offers`].
    fn capabilities(&self) -> Value {
        self.behind().map_or_else(|| Value::Object(Map::new()), Peer::capabilities)
    }

    /// Returns the minimum level of log messages that the client wants, if any.
    fn log_level(&self) -> Option<LogLevel> {
        self.behind().and_then(Peer::log_level)
    }

    /// Returns the client's session, if it has one.
    fn session(&self) -> Option<SessionDigest> {
        self.behind().and_then(Peer::session)
    }

    /// Resolves when the client has disconnected; never if the transport cannot detect that.
    fn disconnected(&self) -> BoxFuture<'_, ()> {
        self.behind()
            .map_or_else(|| Box::pin(std::future::pending()) as BoxFuture<'_, ()>, Peer::disconnected)
    }

    /// Forwards `notifications/elicitation/complete`: a person has opened the URL of an elicitation.
    fn elicitation_completed(&self, params: Map<String, Value>) {
        if let Some(behind) = self.behind() {
            behind.elicitation_completed(params);
        }
    }

    /// Closes the connection of the pending response; the client reconnects for it. Only a hint.
    fn close_connection(&self) {
        if let Some(behind) = self.behind() {
            behind.close_connection();
        }
    }
}

/// A peer that drops notifications and has no capabilities.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPeer;

impl Peer for NoPeer {
    fn progress(&self, _: Progress) {}

    fn log(&self, _: LogMessage) {}

    fn ask(&self, questions: Vec<KeyedInputRequest>) -> BoxFuture<'_, Result<InputResponses, InputRefusal>> {
        let kind = questions.first().map_or(InputRequestKind::Elicit, |question| question.ask.kind);
        Box::pin(async move { Err(InputRefusal::NotOffered(kind)) })
    }

    fn offers(&self, _: InputRequestKind) -> bool {
        false
    }
}

/// What a tool gets besides its arguments: who calls, and how to reach them.
#[derive(Clone)]
pub struct CallCtx {
    /// Cancelled when the caller cancels the request or disconnects.
    pub cancel: CancellationToken,
    pub peer: Arc<dyn Peer>,
    /// Set when a family hands the call to a tool's function.
    running: Option<Arc<RunningCall>>,
}

/// The call that a tool's function is running for.
#[derive(Debug)]
pub(crate) struct RunningCall {
    pub(crate) id: CallId,
    pub(crate) caller: Caller,
    pub(crate) labels: Labels,
    pub(crate) trail: Arc<Trail>,
}

/// The caller of a context that no gate has handed out: it may do nothing.
static DETACHED: LazyLock<Caller> = LazyLock::new(|| {
    let scope = Scope { effects: EffectSet::NONE, ..Scope::everything() };
    Caller::new(Arc::new(Client { name: "detached".to_owned(), scope, token: None }), Origin::Client)
});

impl CallCtx {
    pub fn new(cancel: CancellationToken, peer: Arc<dyn Peer>) -> CallCtx {
        CallCtx { cancel, peer, running: None }
    }

    /// Returns a context without a client.
    pub fn detached() -> CallCtx {
        CallCtx::new(CancellationToken::new(), Arc::new(NoPeer))
    }

    pub(crate) fn running(&self) -> Option<&RunningCall> {
        self.running.as_deref()
    }

    #[must_use]
    pub(crate) fn running_for(self, running: RunningCall) -> CallCtx {
        CallCtx { running: Some(Arc::new(running)), ..self }
    }

    /// Returns the client and the origin of the call.
    pub fn caller(&self) -> &Caller {
        self.running().map_or(&DETACHED, |running| &running.caller)
    }

    /// Returns the principal for calls that this one makes: on behalf of the same owner, with no wider scope.
    pub fn principal(&self) -> Principal {
        match self.running() {
            Some(running) => running.trail.principal_of(&running.caller.client),
            // The name alone could be that of the local client.
            None => Principal::of(OwnerId::of(&DETACHED.client)).narrowed(DETACHED.client.scope.clone()),
        }
    }

    /// Returns the client's session, if it has one.
    pub fn session(&self) -> Option<SessionDigest> {
        self.peer.session()
    }

    /// Returns the data-flow labels of the called tool.
    pub fn labels(&self) -> Labels {
        self.running().map_or(Labels::NONE, |running| running.labels)
    }

    /// Returns how many calls this one is nested in.
    pub fn depth(&self) -> usize {
        self.running().map_or(0, |running| running.trail.depth)
    }

    /// Returns how long the call, or a call that it made, has waited for people so far.
    pub fn waited_for_people(&self) -> Duration {
        self.running().map_or(Duration::ZERO, |running| running.trail.waits.total())
    }

    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        self.peer.progress(Progress::new(progress, total, message.map(str::to_owned)));
    }

    pub fn log(&self, level: LogLevel, logger: &str, data: impl Into<Value>) {
        self.peer.log(LogMessage::new(level, logger, data));
    }

    /// Sends one request to the client.
    pub async fn ask(&self, key: &str, ask: InputRequest) -> Result<InputResponse, ToolError> {
        let questions = vec![KeyedInputRequest { key: key.to_owned(), ask }];
        let mut answers = self.peer.ask(questions).await?;
        answers
            .remove(key)
            .ok_or_else(|| ToolError::internal("the response has a different key than the request"))
    }

    /// Sends several requests to the client at once.
    pub async fn ask_all(&self, questions: Vec<KeyedInputRequest>) -> Result<InputResponses, ToolError> {
        Ok(self.peer.ask(questions).await?)
    }
}
