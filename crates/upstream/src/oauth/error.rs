//! Why there is no login.

use crate::sanitize::one_line;
use crate::transport::CredentialsError;
use portcullis_egress::EgressError;
use tokio::task::JoinError;

/// Why there is no token. The texts are for administrators; no token and no code is in them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OAuthError {
    #[error("{what} cannot be reached: {why}")]
    Unreachable { what: &'static str, why: String },
    #[error("{what} is invalid: {why}")]
    Malformed { what: &'static str, why: String },
    /// A party is not the expected one. Nothing more was sent.
    #[error("{0}")]
    Mismatch(String),
    #[error("the authorization server refused {what}: {why}")]
    Refused { what: &'static str, code: String, why: String },
    /// Only a person can register the client.
    #[error("{0}")]
    Unregistered(String),
    #[error("{0}")]
    Unfinished(String),
    #[error("{0}")]
    NeedsPerson(String),
    #[error("the secret store: {0}")]
    Store(String),
}

impl From<JoinError> for OAuthError {
    fn from(panic: JoinError) -> OAuthError {
        OAuthError::Store(panic.to_string())
    }
}

impl OAuthError {
    pub(super) fn reach(what: &'static str) -> impl Fn(EgressError) -> OAuthError {
        move |error| OAuthError::Unreachable { what, why: error.to_string() }
    }

    pub(super) fn malformed(what: &'static str, why: impl Into<String>) -> OAuthError {
        OAuthError::Malformed { what, why: why.into() }
    }

    /// Quotes an error response of the authorization server, as far as it can be shown.
    pub(super) fn refused(what: &'static str, code: &str, description: Option<&str>) -> OAuthError {
        let why = match description {
            Some(description) => format!("{code}: {description}"),
            None => code.to_owned(),
        };
        OAuthError::Refused { what, code: one_line(code), why: one_line(&why) }
    }
}

impl From<OAuthError> for CredentialsError {
    fn from(error: OAuthError) -> CredentialsError {
        let why = error.to_string();
        match error {
            OAuthError::Unregistered(_) => CredentialsError::NeedsRegistration(why),
            // A login does not help with a locked store, or a server that is away for a moment.
            OAuthError::Unreachable { .. } | OAuthError::Store(_) => CredentialsError::Unavailable(why),
            _ => CredentialsError::NeedsLogin(why),
        }
    }
}
