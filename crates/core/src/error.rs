//! Tool errors, with a part for the caller and a part for the log.
//!
//! The caller reads `message` and `hints`: what happened and what to do. The log and the audit record get `source`: why.
//! Codes are stable, texts are not.

use crate::context::{InputRequestKind, KeyedInputRequest};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::fmt;
use std::time::Duration;
use tokio::task::JoinError;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The kind of a failure. The codes are part of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The name is not registered, or the caller may not see it. The two must be indistinguishable.
    Unknown,
    InvalidArgs,
    NotFound,
    Denied,
    NeedsApproval,
    /// The call needs responses from the client (elicitation, sampling, roots) before it can go on.
    NeedsInput,
    /// The call needs a capability that the client lacks.
    NeedsCapability,
    RateLimited,
    Timeout,
    TooLarge,
    Cancelled,
    Unavailable,
    Upstream,
    Internal,
}

impl ErrorKind {
    pub const ALL: [ErrorKind; 14] = [
        ErrorKind::Unknown,
        ErrorKind::InvalidArgs,
        ErrorKind::NotFound,
        ErrorKind::Denied,
        ErrorKind::NeedsApproval,
        ErrorKind::NeedsInput,
        ErrorKind::NeedsCapability,
        ErrorKind::RateLimited,
        ErrorKind::Timeout,
        ErrorKind::TooLarge,
        ErrorKind::Cancelled,
        ErrorKind::Unavailable,
        ErrorKind::Upstream,
        ErrorKind::Internal,
    ];

    pub fn code(self) -> &'static str {
        match self {
            ErrorKind::Unknown => "unknown",
            ErrorKind::InvalidArgs => "invalid_args",
            ErrorKind::NotFound => "not_found",
            ErrorKind::Denied => "denied",
            ErrorKind::NeedsApproval => "needs_approval",
            ErrorKind::NeedsInput => "needs_input",
            ErrorKind::NeedsCapability => "needs_capability",
            ErrorKind::RateLimited => "rate_limited",
            ErrorKind::Timeout => "timeout",
            ErrorKind::TooLarge => "too_large",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Upstream => "upstream",
            ErrorKind::Internal => "internal",
        }
    }
}

/// Who caused a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorOrigin {
    Hub,
    Upstream,
    Caller,
}

/// Requests to the client, and the state that the next round must return.
#[derive(Debug, Clone, PartialEq)]
pub struct InputRequired {
    pub questions: Vec<KeyedInputRequest>,
    /// The tool's state until the next round.
    pub state: Option<String>,
    /// Other members of an upstream server's result, unchanged.
    pub more: Map<String, Value>,
    /// Proof in the next round that a person approved this call.
    pub approved: Option<String>,
}

/// An upstream server's JSON-RPC error, unchanged.
#[derive(Debug, Clone)]
pub struct ForeignError {
    pub code: i64,
    pub message: String,
    /// Raw, because reserializing could change numbers in it.
    pub data: Option<Box<RawValue>>,
}

/// A client capability that a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientCapability {
    pub kind: InputRequestKind,
    /// The missing sub-capability, if the client has the rest.
    pub part: Option<&'static str>,
}

/// Why a call failed.
pub struct ToolError {
    pub kind: ErrorKind,
    pub message: String,
    pub hints: Vec<String>,
    pub fault: ErrorOrigin,
    pub retry_after: Option<Duration>,
    pub input: Option<Box<InputRequired>>,
    pub capability: Option<ClientCapability>,
    /// An upstream server's error that the caller gets instead.
    pub foreign: Option<Box<ForeignError>>,
    pub source: Option<BoxError>,
}

impl ToolError {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> ToolError {
        let fault = match kind {
            ErrorKind::Internal | ErrorKind::Timeout | ErrorKind::Unavailable => ErrorOrigin::Hub,
            ErrorKind::Upstream => ErrorOrigin::Upstream,
            ErrorKind::Unknown
            | ErrorKind::InvalidArgs
            | ErrorKind::NotFound
            | ErrorKind::Denied
            | ErrorKind::NeedsApproval
            | ErrorKind::NeedsInput
            | ErrorKind::NeedsCapability
            | ErrorKind::RateLimited
            | ErrorKind::TooLarge
            | ErrorKind::Cancelled => ErrorOrigin::Caller,
        };
        ToolError {
            kind,
            message: message.into(),
            hints: Vec::new(),
            fault,
            retry_after: None,
            input: None,
            capability: None,
            foreign: None,
            source: None,
        }
    }

    /// An error response of an upstream server.
    pub fn foreign(server: &str, foreign: ForeignError) -> ToolError {
        let message = format!("server `{server}` answered with error {}: {}", foreign.code, foreign.message);
        let mut error = ToolError::new(ErrorKind::Upstream, message);
        error.foreign = Some(Box::new(foreign));
        error
    }

    /// The same text for an unregistered name and for one that the caller may not see.
    pub fn unknown(kind: &str, name: &str) -> ToolError {
        ToolError::new(ErrorKind::Unknown, format!("Unknown {kind}: {}", crate::json::printable(name)))
    }

    pub fn invalid_args(message: impl Into<String>) -> ToolError {
        ToolError::new(ErrorKind::InvalidArgs, message)
    }

    pub fn not_found(what: &str, name: &str) -> ToolError {
        let name = crate::json::printable(name);
        ToolError::new(ErrorKind::NotFound, format!("{what} `{name}` not found"))
    }

    pub fn denied(message: impl Into<String>) -> ToolError {
        ToolError::new(ErrorKind::Denied, message)
    }

    pub fn rate_limited(retry_after: Duration) -> ToolError {
        let mut error =
            ToolError::new(ErrorKind::RateLimited, "Rate limit exceeded. Please try again later.");
        error.retry_after = Some(retry_after);
        error
    }

    /// A remote service rate-limits the hub. The hub's own limit is [`ToolError::rate_limited`].
    pub fn busy_outside(message: impl Into<String>, retry_after: Option<Duration>) -> ToolError {
        let mut error = ToolError::new(ErrorKind::RateLimited, message);
        error.fault = ErrorOrigin::Upstream;
        error.retry_after = retry_after;
        error.hint(match retry_after {
            Some(wait) => format!("wait {} s before you ask it again", wait.as_secs().max(1)),
            None => "wait a minute before you ask it again, longer each time".to_owned(),
        })
    }

    pub fn timeout(after: Duration) -> ToolError {
        ToolError::new(ErrorKind::Timeout, format!("no answer within {} ms", after.as_millis()))
    }

    pub fn too_large(what: &str, bytes: usize, bytes_max: usize) -> ToolError {
        ToolError::new(
            ErrorKind::TooLarge,
            format!("{what} has {bytes} bytes, at most {bytes_max} are allowed"),
        )
    }

    pub fn cancelled() -> ToolError {
        ToolError::new(ErrorKind::Cancelled, "cancelled by the caller")
    }

    pub fn unavailable(message: impl Into<String>) -> ToolError {
        ToolError::new(ErrorKind::Unavailable, message)
    }

    /// A fault in the hub. The caller gets a generic message; the reason goes to the log.
    pub fn internal(reason: impl Into<BoxError>) -> ToolError {
        ToolError::new(ErrorKind::Internal, "something went wrong in the hub")
            .hint("the hub's log says what; try again, or report it")
            .caused_by(reason)
    }

    pub fn input_required(input: InputRequired) -> ToolError {
        let mut error = ToolError::new(ErrorKind::NeedsInput, "the call needs input from the client");
        error.input = Some(Box::new(input));
        error
    }

    pub fn needs_capability(kind: InputRequestKind) -> ToolError {
        ToolError::needs_part(ClientCapability { kind, part: None })
    }

    /// The error for a call that needs a capability, or part of one, that the client lacks.
    pub fn needs_part(capability: ClientCapability) -> ToolError {
        let mut name = match capability.kind {
            InputRequestKind::Elicit => "elicitation",
            InputRequestKind::Sample => "sampling",
            InputRequestKind::Roots => "roots",
        }
        .to_owned();
        if let Some(part) = capability.part {
            name = format!("{name}.{part}");
        }
        let mut error =
            ToolError::new(ErrorKind::NeedsCapability, format!("the client does not support `{name}`"))
                .hint(format!("use a client that supports `{name}`, or enable it in the client"));
        error.capability = Some(capability);
        error
    }

    /// Adds a hint on what the caller can do.
    pub fn hint(mut self, hint: impl Into<String>) -> ToolError {
        self.hints.push(hint.into());
        self
    }

    /// Adds the reason, for the log only.
    pub fn caused_by(mut self, source: impl Into<BoxError>) -> ToolError {
        self.source = Some(source.into());
        self
    }
}

impl From<JoinError> for ToolError {
    fn from(panic: JoinError) -> ToolError {
        ToolError::internal(panic)
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.code(), self.message)
    }
}

impl fmt::Debug for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        match &self.source {
            Some(source) => write!(f, " ({source})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ToolError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
