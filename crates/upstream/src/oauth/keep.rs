//! What is kept of a login, and where.

use portcullis_core::Secret;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Keeps the login of one server across processes. Whatever is in it is a secret, and masked like every other.
///
/// The methods may wait for a disk or for another process.
pub trait Keep: Send + Sync {
    /// Returns what is kept now, also if another process has just changed it.
    fn load(&self) -> Result<Option<Login>, String>;

    /// Makes sure that something can be kept, before anybody does what can be done only once.
    fn prepare(&self) -> Result<(), String>;

    /// Replaces what is kept. When this returns it is on disk, and masked.
    fn save(&self, login: &Login) -> Result<(), String>;

    /// Forgets it. Returns whether there was something.
    fn forget(&self) -> Result<bool, String>;

    /// Waits until nobody else changes what is kept, in this process or another, and keeps them waiting until what it
    /// returns is dropped: a refresh token that two show at once ends the login.
    fn turn(&self) -> Result<Turn, String>;
}

/// The right to change what is kept, until it is dropped.
pub type Turn = Box<dyn Send + Sync>;

/// A login: who let us in, to what, and by which tokens.
#[derive(Debug, Clone)]
pub struct Login {
    pub about: About,
    pub access_token: Option<Secret<String>>,
    pub refresh_token: Option<Secret<String>>,
    /// Of a client that registered itself. That of a configured one stays where it was configured.
    pub client_secret: Option<Secret<String>>,
}

/// The part of a login that is no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// Who made the tokens, and the client. Nobody else is ever shown them.
    pub issuer: String,
    /// What the tokens are for. They go nowhere else.
    pub resource: String,
    pub token_endpoint: String,
    pub client: ClientKind,
    pub client_id: String,
    /// The issuer has said that it does not know this client any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub client_gone: bool,
    pub token_method: TokenMethod,
    /// Where a client that registered itself said that people come back to.
    pub redirect_uri: String,
    /// Seconds since the epoch; `None` if nobody said.
    pub expires_at: Option<u64>,
    /// When it is time to renew them, in the same way; a while before they expire if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_at: Option<u64>,
    /// When a person logged in, in the same way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// What was asked for, whatever was granted.
    pub asked: Vec<String>,
    /// What the server wanted besides, since then.
    pub wanted: Vec<String>,
    /// What of `asked` the server wanted besides, at some time before. It goes on being asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stepped: Vec<String>,
    /// What was granted; `None` where nobody said that it is anything else than what was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<Vec<String>>,
}

/// A token is renewed this long before it expires, which is longer than a call takes to arrive; or after half of its life
/// if that is shorter.
pub(super) const RENEW_BEFORE: Duration = Duration::from_secs(60);

impl About {
    /// Returns when it is time to renew the tokens, in seconds since the epoch.
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

/// How we became a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientKind {
    /// A person registered it, and configured it here.
    Configured,
    /// Its name is the address of a document about it.
    Document,
    /// It registered itself.
    Registered,
}

/// How a client shows who it is where tokens are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenMethod {
    None,
    Basic,
    Post,
}

impl TokenMethod {
    /// As it is written in documents.
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
