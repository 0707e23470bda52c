//! Who may use the API and the page.
//!
//! A person shows a password, or a link that the hub printed, and gets a session: a cookie that scripts cannot read and
//! other sites cannot send. Every request that changes something also shows a token of that session which only our own
//! pages know. Guessing is slowed down and stopped by where it comes from, and bounded over all sources.

mod cookie;
mod origin;
mod tries;

pub use cookie::COOKIE;
pub use origin::{Sender, came_from};

use crate::problem::{Code, Problem};
use axum::http::{HeaderMap, HeaderValue};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use portcullis_core::{Clock, Secret};
use portcullis_store::admins::{AdminError, Admins, NewPassword, Place, SessionInfo};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;
use tries::Tries;
use zeroize::Zeroizing;

/// The header in which a program sends the token of its session. A form has it in a field, [`CSRF_FIELD`].
pub const CSRF_HEADER: &str = "x-csrf-token";
/// The field of a form with the token of the session.
pub const CSRF_FIELD: &str = "csrf";
/// How many passwords are hashed at once. Each takes 19 MiB and a processor.
const HASHING_MAX: usize = 2;
/// How long one waits for its turn. Whoever floods the door does not get a longer queue.
const HASHING_WITHIN: Duration = Duration::from_secs(5);

/// What a person types.
pub type Password = Secret<Zeroizing<String>>;

/// Lets people in.
pub struct SignIn {
    admins: Arc<Admins>,
    tries: Tries,
    hashing: Semaphore,
}

/// A session that was found good for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub id: String,
    /// The name of the administrator.
    pub admin: String,
    pub created: Timestamp,
    pub expires: Timestamp,
    /// What a request that changes something has to show.
    pub csrf: String,
}

/// Someone was let in: the cookie to send, and the session.
#[derive(Debug)]
pub struct Opened {
    pub cookie: HeaderValue,
    pub session: Session,
}

/// A session as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionShown {
    pub id: String,
    pub admin: String,
    pub created: Timestamp,
    /// About when its last request came.
    pub seen: Timestamp,
    pub expires: Timestamp,
    /// The address it was opened from.
    pub from: String,
    /// What the browser said of itself.
    pub browser: String,
    /// Whether it is the one that asks.
    pub is_this: bool,
}

/// Where a request to sign in comes from.
#[derive(Debug, Clone)]
pub struct Visitor {
    pub address: IpAddr,
    /// What the browser says of itself.
    pub browser: String,
}

impl Visitor {
    pub fn new(address: IpAddr, headers: &HeaderMap) -> Visitor {
        let browser = headers.get("user-agent").and_then(|value| value.to_str().ok()).unwrap_or_default();
        Visitor { address, browser: browser.to_owned() }
    }

    fn place(&self) -> Place {
        Place { from: self.address.to_string(), browser: self.browser.clone() }
    }
}

impl SignIn {
    pub fn new(admins: Arc<Admins>, clock: Arc<dyn Clock>) -> SignIn {
        SignIn { admins, tries: Tries::new(clock), hashing: Semaphore::new(HASHING_MAX) }
    }

    /// Lets someone in who knows a password.
    pub async fn sign_in(
        &self,
        visitor: &Visitor,
        name: &str,
        password: Password,
    ) -> Result<Opened, Problem> {
        self.tries.may_try(visitor.address).map_err(wait)?;
        let (admins, own) = (self.admins.clone(), name.to_owned());
        let right = self.hashed(move || admins.verify(&own, &password)).await?;
        if !right {
            self.tries.failed(visitor.address);
            tracing::warn!(target: "admin", from = %visitor.address, "Someone tried to sign in with a wrong name or password.");
            let problem = Problem::new(Code::SignInNeeded, "the name or the password is wrong");
            return Err(problem.hint("`portcullis admin link` prints a link to set a new password"));
        }
        self.tries.succeeded(visitor.address);
        self.open(visitor, name).await
    }

    /// Returns whether a link is good now. Uses nothing up.
    pub fn knows_link(&self, link: &str) -> bool {
        self.admins.knows_link(link).unwrap_or(false)
    }

    /// Returns whether nobody has a password yet.
    pub fn is_new(&self) -> bool {
        self.admins.list().is_ok_and(|admins| admins.is_empty())
    }

    /// Lets someone in who has a link, and sets their password.
    pub async fn welcome(
        &self,
        visitor: &Visitor,
        link: &str,
        name: &str,
        password: Password,
    ) -> Result<Opened, Problem> {
        self.tries.may_try(visitor.address).map_err(wait)?;
        // Looked at first: whoever has no link does not make us hash.
        if !self.admins.knows_link(link).map_err(explained)? {
            self.tries.failed(visitor.address);
            return Err(explained(AdminError::Link));
        }
        let (admins, link, own) = (self.admins.clone(), link.to_owned(), name.to_owned());
        self.hashed(move || admins.welcome(&link, &own, NewPassword::new(&password)?)).await?;
        tracing::info!(target: "admin", admin = name, from = %visitor.address, "A password was set with a link.");
        self.open(visitor, name).await
    }

    /// Sets another password for someone who is signed in and knows the old one.
    pub async fn change_password(
        &self,
        visitor: &Visitor,
        session: &Session,
        old: Password,
        new: Password,
    ) -> Result<(), Problem> {
        self.tries.may_try(visitor.address).map_err(wait)?;
        let (admins, name) = (self.admins.clone(), session.admin.clone());
        if !self.hashed(move || admins.verify(&name, &old)).await? {
            self.tries.failed(visitor.address);
            return Err(Problem::new(Code::Forbidden, "the old password is wrong"));
        }
        let (admins, name, id) = (self.admins.clone(), session.admin.clone(), session.id.clone());
        self.hashed(move || admins.change_password(&name, NewPassword::new(&new)?, &id)).await?;
        tracing::info!(target: "admin", admin = session.admin, "A password was changed.");
        Ok(())
    }

    /// Returns the session that a request shows, if it is good now.
    pub fn session(&self, headers: &HeaderMap) -> Option<Session> {
        let secret = cookie::read(headers)?;
        let info = self.admins.session(secret)?;
        if self.admins.wants_note(&info) {
            let (admins, id) = (self.admins.clone(), info.id.clone());
            tokio::task::spawn_blocking(move || {
                if let Err(error) = admins.note(&id) {
                    tracing::warn!(target: "admin", %error, "A session will end early.");
                }
            });
        }
        Some(Session::of(info, secret))
    }

    /// Returns whether a session that was good before still is. This is no sign of life.
    pub fn still_knows(&self, headers: &HeaderMap) -> bool {
        cookie::read(headers).is_some_and(|secret| self.admins.session(secret).is_some())
    }

    /// Ends the session. Returns the cookie that makes the browser forget it.
    pub async fn sign_out(&self, session: &Session) -> Result<HeaderValue, Problem> {
        self.end_session(&session.id).await?;
        Ok(cookie::forget())
    }

    /// Ends one session, whosever it is.
    pub async fn end_session(&self, id: &str) -> Result<(), Problem> {
        let (admins, id) = (self.admins.clone(), id.to_owned());
        blocking(move || admins.end_session(&id)).await
    }

    /// Ends all sessions of everyone. Returns how many there were.
    pub async fn sign_out_everywhere(&self) -> Result<usize, Problem> {
        let admins = self.admins.clone();
        blocking(move || admins.end_sessions(None)).await
    }

    /// Returns all sessions.
    pub fn sessions(&self, own: &Session) -> Result<Vec<SessionShown>, Problem> {
        let shown = |info: SessionInfo| SessionShown {
            is_this: info.id == own.id,
            id: info.id,
            admin: info.admin,
            created: info.created,
            seen: info.seen,
            expires: info.expires,
            from: info.from,
            browser: info.browser,
        };
        Ok(self.admins.sessions().map_err(explained)?.into_iter().map(shown).collect())
    }

    async fn open(&self, visitor: &Visitor, name: &str) -> Result<Opened, Problem> {
        let (admins, own, place) = (self.admins.clone(), name.to_owned(), visitor.place());
        let (secret, info) = blocking(move || admins.open_session(&own, &place)).await?;
        tracing::info!(target: "admin", admin = name, from = %visitor.address, session = info.id, "Someone signed in.");
        let session = Session::of(info, secret.expose());
        Ok(Opened { cookie: cookie::set(&secret), session })
    }

    /// Does work that hashes a password, a few at a time and not on a thread of the runtime.
    async fn hashed<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, AdminError> + Send + 'static,
    ) -> Result<T, Problem> {
        let turn = tokio::time::timeout(HASHING_WITHIN, self.hashing.acquire()).await;
        let Ok(Ok(_turn)) = turn else {
            return Err(Problem::new(Code::TooMany, "too many people sign in at this moment")
                .hint("try again in a few seconds"));
        };
        blocking(work).await
    }
}

impl Session {
    fn of(info: SessionInfo, secret: &str) -> Session {
        Session {
            csrf: csrf_of(secret),
            id: info.id,
            admin: info.admin,
            created: info.created,
            expires: info.expires,
        }
    }

    /// Checks what a request that changes something has to show: it comes from our own page or from a program, and
    /// knows the token of the session, in the header or in the form.
    pub fn may_change(&self, headers: &HeaderMap, in_form: Option<&str>) -> Result<(), Problem> {
        if came_from(headers) == Sender::Elsewhere {
            return Err(Problem::new(Code::Forbidden, "this request comes from another page")
                .hint("do it on the admin page itself"));
        }
        let in_header = headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok());
        let shown = in_form.or(in_header).unwrap_or_default();
        if bool::from(shown.as_bytes().ct_eq(self.csrf.as_bytes())) {
            return Ok(());
        }
        let problem = Problem::new(Code::Forbidden, "the token of the session is missing or wrong");
        Err(problem.hint(format!(
            "load the page again; a program sends `{CSRF_HEADER}`, as `GET /api/v1/session` tells it"
        )))
    }
}

/// Returns the token that belongs to a session. Whoever has only the token cannot tell the session from it.
fn csrf_of(secret: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(b"portcullis csrf\0");
    hash.update(secret.as_bytes());
    URL_SAFE_NO_PAD.encode(hash.finalize())
}

fn wait(left: Duration) -> Problem {
    let seconds = left.as_secs() + 1;
    Problem::new(Code::TooMany, format!("too many wrong passwords came from there; wait {seconds} s")).hint(
        "people who are signed in are not held up; `portcullis admin link` lets in who can reach the machine",
    )
}

/// Says whether the words were wrong, or the work failed.
fn explained(error: AdminError) -> Problem {
    let code = match &error {
        AdminError::Name(_) | AdminError::ShortPassword(_) | AdminError::LongPassword => Code::Invalid,
        AdminError::Link => Code::Forbidden,
        AdminError::Unknown(_) | AdminError::UnknownSession(_) => Code::NotFound,
        AdminError::Full => Code::Conflict,
        AdminError::Damaged(_) | AdminError::Io(_) => {
            tracing::error!(target: "admin", %error, "The file of administrators cannot be used.");
            return Problem::unavailable("the file of administrators cannot be used, so nobody can sign in")
                .hint("the log of the hub says why");
        }
        AdminError::Hash(_) | AdminError::Random(_) => Code::Internal,
    };
    Problem::new(code, error.to_string())
}

/// The disk and the hash are waited for by a thread that may wait.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AdminError> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(explained),
        Err(_) => Err(Problem::internal("signing in failed inside the hub")),
    }
}
