//! Why something was not done, for whoever asked.

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The kind of a problem. Programs branch on it; the text may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The request is not as it should be.
    Invalid,
    /// Nobody is signed in, or not any more.
    SignInNeeded,
    /// Signed in, but this request may not do that: it lacks its token, or comes from elsewhere.
    Forbidden,
    NotFound,
    /// Somebody else was faster, or the name is taken.
    Conflict,
    /// What was looked at is not there any more in this form.
    Changed,
    TooLarge,
    /// Too many tries; wait.
    TooMany,
    /// Not now, or not on this hub.
    Unavailable,
    Internal,
}

impl Code {
    pub fn as_str(self) -> &'static str {
        match self {
            Code::Invalid => "invalid",
            Code::SignInNeeded => "sign_in_needed",
            Code::Forbidden => "forbidden",
            Code::NotFound => "not_found",
            Code::Conflict => "conflict",
            Code::Changed => "changed",
            Code::TooLarge => "too_large",
            Code::TooMany => "too_many",
            Code::Unavailable => "unavailable",
            Code::Internal => "internal",
        }
    }

    pub fn status(self) -> StatusCode {
        match self {
            Code::Invalid => StatusCode::BAD_REQUEST,
            Code::SignInNeeded => StatusCode::UNAUTHORIZED,
            Code::Forbidden => StatusCode::FORBIDDEN,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::Conflict | Code::Changed => StatusCode::CONFLICT,
            Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Code::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// What every failed request is answered with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    pub code: Code,
    /// What happened.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<String>,
}

impl Problem {
    pub fn new(code: Code, message: impl Into<String>) -> Problem {
        Problem { code, message: message.into(), suggestions: Vec::new() }
    }

    pub fn invalid(message: impl Into<String>) -> Problem {
        Problem::new(Code::Invalid, message)
    }

    pub fn not_found(message: impl Into<String>) -> Problem {
        Problem::new(Code::NotFound, message)
    }

    pub fn conflict(message: impl Into<String>) -> Problem {
        Problem::new(Code::Conflict, message)
    }

    pub fn changed(message: impl Into<String>) -> Problem {
        Problem::new(Code::Changed, message)
    }

    pub fn unavailable(message: impl Into<String>) -> Problem {
        Problem::new(Code::Unavailable, message)
    }

    pub fn internal(message: impl Into<String>) -> Problem {
        Problem::new(Code::Internal, message)
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
