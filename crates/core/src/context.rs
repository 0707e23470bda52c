//! What a running call may say to the one who made it.

use crate::error::{ErrorKind, Fault, ForeignError, InputRequired, ToolError};
use crate::json::printable;
use futures::future::BoxFuture;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// How far a call has come, in the words of whoever says so: `progress`, perhaps `total` and `message`, and what else
/// there is. Another server's are passed on as they are.
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

/// The largest number up to which a double tells all integers apart.
const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// Returns a number as people write it: without a fraction where it has none.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() <= INTEGER_MAX { (value as i64).into() } else { value.into() }
}

/// How important a log message is, least first.
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

/// Something a tool tells the client while it works, in its own words: `level`, `data`, perhaps `logger`, and what else
/// there is. Another server's are passed on as they are.
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

/// What kind of thing a call asks of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskKind {
    /// A person fills in a form or follows an address.
    Elicit,
    /// The client's model writes something.
    Sample,
    /// The client names its folders.
    Roots,
}

impl AskKind {
    /// Returns whether a value has the shape of an answer to that kind of question.
    pub fn is_answer(self, answer: &Value) -> bool {
        match self {
            AskKind::Elicit => answer.get("action").is_some_and(Value::is_string),
            AskKind::Sample => answer.get("content").is_some(),
            AskKind::Roots => answer.get("roots").is_some_and(Value::is_array),
        }
    }
}

/// One request to the client, in the client's own words.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    pub kind: AskKind,
    pub params: Value,
}

impl Ask {
    /// Asks a person to fill in a form.
    pub fn elicit(message: &str, schema: Value) -> Ask {
        let params = serde_json::json!({ "mode": "form", "message": message, "requestedSchema": schema });
        Ask { kind: AskKind::Elicit, params }
    }
}

/// A request with the key under which its answer is found.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    pub key: String,
    pub ask: Ask,
}

/// Keys of the hub's own questions begin with this. An answer to one counts only if it was asked before.
pub const OWN_KEYS: &str = "portcullis_";

/// What the client answered, in the client's own words.
pub type Answer = Value;
/// Answers by key.
pub type Answers = BTreeMap<String, Answer>;

/// Why the client cannot be asked.
#[derive(Debug, Clone)]
pub enum AskRefused {
    /// The client did not offer this.
    NotOffered(AskKind),
    /// The client offers it, and gets the questions as the result of this round; the call is made again with the answers.
    NextRound(InputRequired),
    /// The client answered with an error of its own.
    Refused(ForeignError),
    /// The client went away, or what it answered cannot be read.
    Failed(String),
}

impl From<AskRefused> for ToolError {
    fn from(refused: AskRefused) -> ToolError {
        match refused {
            AskRefused::NotOffered(kind) => ToolError::needs_capability(kind),
            AskRefused::NextRound(questions) => ToolError::input_required(questions),
            // Whoever said no is not asked once more.
            AskRefused::Refused(said) => {
                let message = printable(&said.message);
                let message =
                    format!("the client refused what it was asked with error {}: {message}", said.code);
                let mut error = ToolError::new(ErrorKind::Upstream, message);
                error.fault = Fault::Caller;
                error
            }
            AskRefused::Failed(reason) => {
                ToolError::new(ErrorKind::Upstream, "the client did not answer the question it was asked")
                    .hint("try the call again")
                    .caused_by(reason)
            }
        }
    }
}

/// The other end of one call. Each transport and era has its own.
///
/// What is not told or asked but only known of the client, a peer in front of another leaves to the one [`Peer::behind`]
/// it: what is added here reaches through every layer without a word in any of them.
pub trait Peer: Send + Sync {
    /// Returns the peer that this one stands in front of.
    fn behind(&self) -> Option<&dyn Peer> {
        None
    }

    fn progress(&self, progress: Progress);

    fn log(&self, message: LogMessage);

    /// Asks the client; all questions are put before the first answer is awaited.
    fn ask(&self, questions: Vec<Question>) -> BoxFuture<'_, Result<Answers, AskRefused>>;

    /// Returns whether the client offers to be asked this.
    fn offers(&self, kind: AskKind) -> bool;

    /// Returns whether the client offers all that this question needs. Some offer a kind of question in part.
    fn accepts(&self, ask: &Ask) -> bool {
        self.behind().map_or_else(|| self.offers(ask.kind), |behind| behind.accepts(ask))
    }

    /// Returns what a former round of this call left for this one, already verified.
    fn state(&self) -> Option<&str> {
        self.behind().and_then(Peer::state)
    }

    /// Returns what shows that a person let this call run in a former round, already verified.
    fn approved(&self) -> Option<&str> {
        self.behind().and_then(Peer::approved)
    }

    /// Returns the answers that this round brought, and those before it that nobody took, where the client is asked by
    /// ending the round; `None` where it can be asked while the call waits.
    fn round(&self) -> Option<&Answers> {
        self.behind().and_then(Peer::round)
    }

    /// Returns what the client offers in its own words, for a server that has to know more than [`Peer::offers`].
    fn capabilities(&self) -> Value {
        self.behind().map_or_else(|| Value::Object(Map::new()), Peer::capabilities)
    }

    /// Returns the least important level of what the client wants to be told, if any.
    fn log_level(&self) -> Option<LogLevel> {
        self.behind().and_then(Peer::log_level)
    }

    /// Returns the session that the call belongs to, where the client has one. Whoever knows its id can use it.
    fn session(&self) -> Option<&str> {
        self.behind().and_then(Peer::session)
    }

    /// Returns when the client can say nothing any more; never where that is not known.
    fn gone(&self) -> BoxFuture<'_, ()> {
        self.behind().map_or_else(|| Box::pin(std::future::pending()) as BoxFuture<'_, ()>, Peer::gone)
    }

    /// Tells that a person has followed the address that the client was asked to show, in the words of whoever says so.
    fn elicited(&self, said: Map<String, Value>) {
        if let Some(behind) = self.behind() {
            behind.elicited(said);
        }
    }

    /// Ends the connection that the answer would go by; the client comes back for it. Only a hint.
    fn let_go(&self) {
        if let Some(behind) = self.behind() {
            behind.let_go();
        }
    }
}

/// A peer that hears nothing and answers nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPeer;

impl Peer for NoPeer {
    fn progress(&self, _: Progress) {}

    fn log(&self, _: LogMessage) {}

    fn ask(&self, questions: Vec<Question>) -> BoxFuture<'_, Result<Answers, AskRefused>> {
        let kind = questions.first().map_or(AskKind::Elicit, |question| question.ask.kind);
        Box::pin(async move { Err(AskRefused::NotOffered(kind)) })
    }

    fn offers(&self, _: AskKind) -> bool {
        false
    }
}

/// What a tool has besides its arguments.
#[derive(Clone)]
pub struct CallCtx {
    /// Cancelled when the caller no longer wants the answer.
    pub cancel: CancellationToken,
    pub peer: Arc<dyn Peer>,
}

impl CallCtx {
    /// Returns a context for a call that nobody listens to.
    pub fn detached() -> CallCtx {
        CallCtx { cancel: CancellationToken::new(), peer: Arc::new(NoPeer) }
    }

    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        self.peer.progress(Progress::new(progress, total, message.map(str::to_owned)));
    }

    pub fn log(&self, level: LogLevel, logger: &str, data: impl Into<Value>) {
        self.peer.log(LogMessage::new(level, logger, data));
    }

    /// Asks the client one thing.
    pub async fn ask(&self, key: &str, ask: Ask) -> Result<Answer, ToolError> {
        let questions = vec![Question { key: key.to_owned(), ask }];
        let mut answers = self.peer.ask(questions).await?;
        answers.remove(key).ok_or_else(|| ToolError::internal("an answer under another key than asked"))
    }

    /// Asks the client several things at once.
    pub async fn ask_all(&self, questions: Vec<Question>) -> Result<Answers, ToolError> {
        Ok(self.peer.ask(questions).await?)
    }
}
