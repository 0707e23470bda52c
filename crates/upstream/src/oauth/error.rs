//! Why there is no login.

use crate::sanitize::one_line;
use crate::transport::CredentialsError;
use portcullis_egress::{EgressError, Host, Url, is_public};
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
    pub(super) fn reach(what: &'static str, url: &str) -> impl Fn(EgressError) -> OAuthError {
        move |error| {
            let place = allowable(&error, url).map_or_else(String::new, |place| {
                format!("; if you trust it, add \"{place}\" to `allow` under `[egress]` in the configuration")
            });
            OAuthError::Unreachable { what, why: format!("{error}{place}") }
        }
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

/// Returns the entry of `[egress] allow` that would lead to a URL that was refused for where it is.
fn allowable(error: &EgressError, url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let is_local = match url.host()? {
        Host::Domain(name) => name == "localhost" || name.ends_with(".localhost"),
        Host::Ipv4(address) => !is_public(address.into()),
        Host::Ipv6(address) => !is_public(address.into()),
    };
    match error {
        EgressError::NotPublic { .. } | EgressError::Port { .. } => {}
        // A public server belongs behind TLS.
        EgressError::PlainHttp if is_local => {}
        _ => return None,
    }
    Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_another_local_port_gets_the_entry_that_allows_it() {
        let said =
            |error: EgressError, url: &str| OAuthError::reach("the token endpoint", url)(error).to_string();
        assert_eq!(
            said(EgressError::PlainHttp, "http://127.0.0.1:9000/token"),
            "the token endpoint cannot be reached: http:// is not allowed, expected https://; if you trust it, add \
             \"127.0.0.1:9000\" to `allow` under `[egress]` in the configuration"
        );
        let hidden = EgressError::NotPublic { host: "sso.corp".to_owned(), why: String::new() };
        assert!(said(hidden, "https://sso.corp/token").contains("add \"sso.corp:443\""));
        assert!(said(EgressError::PlainHttp, "http://localhost:9000/").contains("add \"localhost:9000\""));
        assert!(said(EgressError::Port { port: 8443 }, "https://[::1]:8443/").contains("add \"[::1]:8443\""));
        // Control: a public server without TLS, and one that does not answer.
        assert!(!said(EgressError::PlainHttp, "http://example.com/").contains("allow` under"));
        let away = EgressError::Lookup { host: "example.com".to_owned(), why: String::new() };
        assert!(!said(away, "https://example.com/").contains("allow` under"));
    }
}
