//! What is saved of a login, and where.

use portcullis_core::Secret;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Saves the login of one server across processes. Everything in it is a secret, and redacted like every other.
///
/// The methods may wait for a disk or for another process.
pub trait LoginStore: Send + Sync {
    /// Returns what is saved now, also if another process has just changed it.
    fn load(&self) -> Result<Option<Login>, String>;

    /// Makes sure that a login can be saved, before anything is done that works only once.
    fn prepare(&self) -> Result<(), String>;

    /// Replaces what is saved. When this returns it is durable, and redacted.
    fn save(&self, login: &Login) -> Result<(), String>;

    /// Deletes it. Returns whether there was something.
    fn forget(&self) -> Result<bool, String>;

    /// Waits for the lock on the login, across processes. It is held until the result is dropped: a refresh token
    /// that two processes use at once ends the login.
    fn lock(&self) -> Result<LoginLock, String>;
}

/// The right to change the login, until it is dropped.
pub type LoginLock = Box<dyn Send + Sync>;

/// A login: issuer, resource and tokens.
#[derive(Debug, Clone)]
pub struct Login {
    pub about: LoginMetadata,
    pub access_token: Option<Secret<String>>,
    pub refresh_token: Option<Secret<String>>,
    /// Of a registered client. That of a configured one stays where it was configured.
    pub client_secret: Option<Secret<String>>,
}

/// The part of a login that is no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginMetadata {
    /// The issuer of the tokens and the client. They are sent to no other.
    pub issuer: String,
    /// The resource that the tokens are for. They are sent nowhere else.
    pub resource: String,
    pub token_endpoint: String,
    pub client: ClientKind,
    pub client_id: String,
    /// Whether the issuer no longer knows this client.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub client_gone: bool,
    pub token_method: TokenMethod,
    /// The redirect URI of a registered client.
    pub redirect_uri: String,
    /// Seconds since the epoch; `None` if unknown.
    pub expires_at: Option<u64>,
    /// When to renew, in the same unit; without it, a while before the expiry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_at: Option<u64>,
    /// When a person logged in, in the same unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// The requested scopes, whatever was granted.
    pub asked: Vec<String>,
    /// Scopes that the server wanted since then.
    pub wanted: Vec<String>,
    /// Those of `asked` that the server wanted at some time before. They go on being requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stepped: Vec<String>,
    /// The granted scopes; `None` where they are the requested ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<Vec<String>>,
    /// What a newer program has added, which is stored again as it was.
    #[serde(flatten)]
    pub rest: serde_json::Map<String, serde_json::Value>,
}

/// A token is renewed this long before it expires, which is longer than a call takes to arrive; or after half of its
/// lifetime if that is shorter.
pub(super) const RENEW_BEFORE: Duration = Duration::from_secs(60);

impl LoginMetadata {
    /// Returns when to renew the tokens, in seconds since the epoch.
    pub(super) fn due(&self) -> u64 {
        let before = || self.expires_at.map(|at| at.saturating_sub(RENEW_BEFORE.as_secs()));
        self.renew_at.or_else(before).unwrap_or(u64::MAX)
    }

    /// Returns which of these were not granted, as far as is known.
    pub fn withheld(&self, scopes: &[String]) -> Vec<String> {
        let granted = self.granted.as_deref().unwrap_or(scopes);
        scopes.iter().filter(|scope| !granted.contains(scope)).cloned().collect()
    }
}

/// How the hub became a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientKind {
    /// A person registered and configured it.
    Configured,
    /// Its id is the URL of a metadata document.
    Document,
    /// It registered itself.
    Registered,
}

/// How a client authenticates at the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenMethod {
    None,
    Basic,
    Post,
}

impl TokenMethod {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            TokenMethod::None => "none",
            TokenMethod::Basic => "client_secret_basic",
            TokenMethod::Post => "client_secret_post",
        }
    }

    pub(super) fn parse(text: &str) -> Option<TokenMethod> {
        [TokenMethod::None, TokenMethod::Basic, TokenMethod::Post]
            .into_iter()
            .find(|method| method.as_str() == text)
    }
}
