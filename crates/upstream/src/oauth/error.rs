//! Why nobody is logged in.

use crate::clean::one_line;
use crate::connection::LinkError;
use portcullis_egress::EgressError;

/// Why there is no token. The texts are for the person who runs the hub; no token and no code stands in them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OAuthError {
    #[error("{what} cannot be reached: {why}")]
    Unreachable { what: &'static str, why: String },
    #[error("{what} makes no sense: {why}")]
    Malformed { what: &'static str, why: String },
    /// Somebody is not who they should be. Nothing more was sent to anyone.
    #[error("{0}")]
    Mismatch(String),
    #[error("the authorization server refused {what}: {why}")]
    Refused { what: &'static str, code: String, why: String },
    /// There is no way to become a client there but by a person.
    #[error("{0}")]
    Unregistered(String),
    #[error("{0}")]
    Unfinished(String),
    #[error("{0}")]
    NeedsPerson(String),
    #[error("the secret store: {0}")]
    Store(String),
}

impl OAuthError {
    pub(super) fn reach(what: &'static str) -> impl Fn(EgressError) -> OAuthError {
        move |error| OAuthError::Unreachable { what, why: error.to_string() }
    }

    pub(super) fn malformed(what: &'static str, why: impl Into<String>) -> OAuthError {
        OAuthError::Malformed { what, why: why.into() }
    }

    /// Tells an error answer of the authorization server in its own words, as far as they can be shown.
    pub(super) fn refused(what: &'static str, code: &str, description: Option<&str>) -> OAuthError {
        let why = match description {
            Some(description) => format!("{code}: {description}"),
            None => code.to_owned(),
        };
        OAuthError::Refused { what, code: one_line(code), why: one_line(&why) }
    }
}

impl From<OAuthError> for LinkError {
    fn from(error: OAuthError) -> LinkError {
        let why = error.to_string();
        match error {
            OAuthError::Unregistered(_) => LinkError::NeedsRegistration(why),
            // A store that is locked, or a server that is away for a moment, is not mended by logging in.
            OAuthError::Unreachable { .. } | OAuthError::Store(_) => LinkError::NoCredentials(why),
            _ => LinkError::NeedsAuth(why),
        }
    }
}
