//! Errors of the admin interface, as responses.

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

    pub fn status(self) -> StatusCode {
        match self {
            ProblemCode::Invalid => StatusCode::BAD_REQUEST,
            ProblemCode::SignInNeeded => StatusCode::UNAUTHORIZED,
            ProblemCode::Forbidden => StatusCode::FORBIDDEN,
            ProblemCode::NotFound => StatusCode::NOT_FOUND,
            ProblemCode::Conflict | ProblemCode::Changed => StatusCode::CONFLICT,
            ProblemCode::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ProblemCode::TooMany => StatusCode::TOO_MANY_REQUESTS,
            ProblemCode::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ProblemCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
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

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}
