//! What goes wrong, told to two readers.
//!
//! The caller reads `message` and `hint`: what happened and what to do. The log and the audit record read
//! `source`: why. Codes are stable, texts are not.

use crate::context::{AskKind, Question};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::fmt;
use std::time::Duration;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What sort of failure it is. The codes are part of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Nobody answers to this name, or this caller may not know of it. The two must look the same.
    Unknown,
    InvalidArgs,
    NotFound,
    Denied,
    NeedsApproval,
    /// The call needs answers from the client before it can go on.
    NeedsInput,
    /// The call needs something that the client does not offer.
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

/// Whose fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Hub,
    Upstream,
    Caller,
}

/// Questions for the client, and what the next round must bring back.
#[derive(Debug, Clone, PartialEq)]
pub struct InputRequired {
    pub questions: Vec<Question>,
    /// What the tool wants to remember until then.
    pub state: Option<String>,
    /// What another server says besides, in its own words.
    pub more: Map<String, Value>,
    /// What shows then that a person has let this call run.
    pub approved: Option<String>,
}

/// What another server answered instead of a result, in its own words.
#[derive(Debug, Clone)]
pub struct ForeignError {
    pub code: i64,
    pub message: String,
    /// As it came: what nobody here reads is not written anew, so that no number in it becomes another.
    pub data: Option<Box<RawValue>>,
}

/// What a client would have to offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capability {
    pub kind: AskKind,
    /// What of it, where a part is missing only.
    pub part: Option<&'static str>,
}

/// Why a call did not do what was asked.
pub struct ToolError {
    pub kind: ErrorKind,
    pub message: String,
    pub hints: Vec<String>,
    pub fault: Fault,
    pub retry_after: Option<Duration>,
    pub input: Option<Box<InputRequired>>,
    pub capability: Option<Capability>,
    /// The error of another server, where the caller is to get that one.
    pub foreign: Option<Box<ForeignError>>,
    pub source: Option<BoxError>,
}

impl ToolError {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> ToolError {
        let fault = match kind {
            ErrorKind::Internal | ErrorKind::Timeout | ErrorKind::Unavailable => Fault::Hub,
            ErrorKind::Upstream => Fault::Upstream,
            ErrorKind::Unknown
            | ErrorKind::InvalidArgs
            | ErrorKind::NotFound
            | ErrorKind::Denied
            | ErrorKind::NeedsApproval
            | ErrorKind::NeedsInput
            | ErrorKind::NeedsCapability
            | ErrorKind::RateLimited
            | ErrorKind::TooLarge
            | ErrorKind::Cancelled => Fault::Caller,
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

    /// The error with which another server answered.
    pub fn foreign(server: &str, foreign: ForeignError) -> ToolError {
        let said = format!("server `{server}` answered with error {}: {}", foreign.code, foreign.message);
        let mut error = ToolError::new(ErrorKind::Upstream, said);
        error.foreign = Some(Box::new(foreign));
        error
    }

    /// The one text for a name that nobody registered and for one that this caller may not see.
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

    /// Someone outside wants fewer requests. Not the hub's own limit, which a client hears of in another way.
    pub fn busy_outside(message: impl Into<String>, retry_after: Option<Duration>) -> ToolError {
        let mut error = ToolError::new(ErrorKind::RateLimited, message);
        error.fault = Fault::Upstream;
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

    /// A fault in the hub. The caller is told no more than that; the reason goes to the log.
    pub fn internal(reason: impl Into<BoxError>) -> ToolError {
        ToolError::new(ErrorKind::Internal, "something went wrong in the hub")
            .hint("the hub's log says what; try again, or report it")
            .caused_by(reason)
    }

    pub fn input_required(input: InputRequired) -> ToolError {
        let mut error = ToolError::new(ErrorKind::NeedsInput, "the call needs answers from the client");
        error.input = Some(Box::new(input));
        error
    }

    pub fn needs_capability(kind: AskKind) -> ToolError {
        ToolError::needs_part(Capability { kind, part: None })
    }

    /// The error for a call that needs what the client does not offer, or of that only a part.
    pub fn needs_part(capability: Capability) -> ToolError {
        let mut name = match capability.kind {
            AskKind::Elicit => "elicitation",
            AskKind::Sample => "sampling",
            AskKind::Roots => "roots",
        }
        .to_owned();
        if let Some(part) = capability.part {
            name = format!("{name}.{part}");
        }
        let mut error =
            ToolError::new(ErrorKind::NeedsCapability, format!("the client does not offer `{name}`"))
                .hint(format!("use a client that supports `{name}`, or turn it on there"));
        error.capability = Some(capability);
        error
    }

    /// Adds what the caller can do about it.
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
