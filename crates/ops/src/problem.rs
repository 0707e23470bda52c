//! Errors of operations. The command line maps them to exit codes, the API and the page to HTTP.

use crate::config::ConfigErrors;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::task::JoinError;

/// Error code. Programs branch on it; the message may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProblemCode {
    /// The request is malformed or a value is invalid.
    Invalid,
    /// No session, or an expired one.
    SignInNeeded,
    /// The CSRF token is missing or wrong, or the request is cross-origin.
    Forbidden,
    NotFound,
    /// Another administrator decided first, or the name is taken.
    Conflict,
    /// The state that was reviewed is stale.
    Changed,
    TooLarge,
    /// Too many attempts; retry later.
    TooMany,
    /// Temporarily unavailable, or not supported by this hub.
    Unavailable,
    Internal,
}

impl ProblemCode {
    pub fn as_str(self) -> &'static str {
        match self {
            ProblemCode::Invalid => "invalid",
            ProblemCode::SignInNeeded => "sign_in_needed",
            ProblemCode::Forbidden => "forbidden",
            ProblemCode::NotFound => "not_found",
            ProblemCode::Conflict => "conflict",
            ProblemCode::Changed => "changed",
            ProblemCode::TooLarge => "too_large",
            ProblemCode::TooMany => "too_many",
            ProblemCode::Unavailable => "unavailable",
            ProblemCode::Internal => "internal",
        }
    }
}

/// The body of every error response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    pub code: ProblemCode,
    /// What happened.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<String>,
}

impl Problem {
    pub fn new(code: ProblemCode, message: impl Into<String>) -> Problem {
        Problem { code, message: message.into(), suggestions: Vec::new() }
    }

    pub fn invalid(message: impl Into<String>) -> Problem {
        Problem::new(ProblemCode::Invalid, message)
    }

    pub fn not_found(message: impl Into<String>) -> Problem {
        Problem::new(ProblemCode::NotFound, message)
    }

    pub fn conflict(message: impl Into<String>) -> Problem {
        Problem::new(ProblemCode::Conflict, message)
    }

    pub fn changed(message: impl Into<String>) -> Problem {
        Problem::new(ProblemCode::Changed, message)
    }

    pub fn unavailable(message: impl Into<String>) -> Problem {
        Problem::new(ProblemCode::Unavailable, message)
    }

    pub fn internal(message: impl Into<String>) -> Problem {
        Problem::new(ProblemCode::Internal, message)
    }

    #[must_use]
    pub fn hint(mut self, suggestion: impl Into<String>) -> Problem {
        self.suggestions.push(suggestion.into());
        self
    }
}

/// On one line: what happened, then what to do.
impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        self.suggestions.iter().try_for_each(|suggestion| write!(f, "; {suggestion}"))
    }
}

impl std::error::Error for Problem {}

/// A panic of blocking work. The panic hook has logged it.
impl From<JoinError> for Problem {
    fn from(_: JoinError) -> Problem {
        Problem::internal("internal error: see the hub's log")
    }
}

/// A failure of something that an operation uses.
impl From<anyhow::Error> for Problem {
    fn from(error: anyhow::Error) -> Problem {
        let code = if error.is::<ConfigErrors>() { ProblemCode::Invalid } else { ProblemCode::Conflict };
        let message = with_causes(&error);
        error.downcast().unwrap_or_else(|_| Problem::new(code, message))
    }
}

/// Returns an error with its causes, skipping those already included.
pub fn with_causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text.push_str(&format!(": {cause}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_cause_is_told_once() {
        let path = std::path::Path::new("/dev/null/x");
        let error = portcullis_store::FileLock::of(path).context("the configuration").unwrap_err();
        assert_eq!(
            with_causes(&error),
            "the configuration: cannot open `/dev/null/x`: Not a directory (os error 20)"
        );
        assert_eq!(with_causes(&anyhow::anyhow!("b").context("a")), "a: b");
    }
}
