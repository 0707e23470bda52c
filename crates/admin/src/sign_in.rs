//! Authentication: passwords, one-time links, sessions, CSRF tokens.
//!
//! An administrator signs in with a password, or with a one-time link that the hub printed, and gets an `HttpOnly`,
//! `SameSite=Strict` session cookie. Every request that changes state also carries the CSRF token of the session.
//! Password guessing is rate limited per source address and in total.

mod cookie;
mod password_lockout;
mod request_origin;

pub use cookie::COOKIE;
pub use request_origin::{RequestOrigin, request_origin};

use axum::http::{HeaderMap, HeaderValue};
use data_encoding::BASE64URL_NOPAD;
use jiff::Timestamp;
use password_lockout::PasswordLockout;
use portcullis_core::{Clock, Secret, blocking, detach_blocking};
use portcullis_ops::admins::{Administrators, ChangedPassword, EndedSessions, admin_problem};
use portcullis_ops::{Actor, Problem, ProblemCode};
use portcullis_store::admins::{AdminError, AdminStore, NewPassword, SessionInfo, SessionOrigin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

/// The CSRF token header of API requests. Forms use [`CSRF_FIELD`].
pub const CSRF_HEADER: &str = "x-csrf-token";
/// The CSRF token field of forms.
pub const CSRF_FIELD: &str = "csrf";
/// Concurrent password hashes. Each takes 19 MiB and a CPU.
const HASHING_MAX: usize = 2;
/// How long a request waits for a hashing slot. Bounds the queue under a flood.
const HASHING_WITHIN: Duration = Duration::from_secs(5);

pub type Password = Secret<Zeroizing<String>>;

/// Authenticates administrators.
pub struct SignIn {
    admins: Arc<AdminStore>,
    /// The same, for changes that are recorded.
    administrators: Arc<Administrators>,
    tries: PasswordLockout,
    hashing: Semaphore,
}

/// The valid session of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminSession {
    pub id: String,
    /// The name of the administrator.
    pub admin: String,
    pub created: Timestamp,
    pub expires: Timestamp,
    /// The CSRF token.
    pub csrf: String,
}

/// A new session, with the cookie to set.
#[derive(Debug)]
pub struct NewSession {
    pub cookie: HeaderValue,
    pub session: AdminSession,
}

/// A session in the list of sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionView {
    pub id: String,
    pub admin: String,
    pub created: Timestamp,
    /// Approximate time of its last request.
    pub seen: Timestamp,
    pub expires: Timestamp,
    /// The address it was opened from.
    pub from: String,
    /// The user agent.
    pub browser: String,
    /// Whether it is the current session.
    pub is_this: bool,
}

/// The source of a sign-in request.
#[derive(Debug, Clone)]
pub struct Visitor {
    pub address: IpAddr,
    /// The user agent.
    pub browser: String,
}

impl Visitor {
    pub fn new(address: IpAddr, headers: &HeaderMap) -> Visitor {
        let browser = headers.get("user-agent").and_then(|value| value.to_str().ok()).unwrap_or_default();
        Visitor { address, browser: browser.to_owned() }
    }

    fn place(&self) -> SessionOrigin {
        SessionOrigin { from: self.address.to_string(), browser: self.browser.clone() }
    }
}

impl SignIn {
    pub fn new(administrators: Arc<Administrators>, clock: Arc<dyn Clock>) -> SignIn {
        let (tries, hashing) = (PasswordLockout::new(clock), Semaphore::new(HASHING_MAX));
        SignIn { admins: administrators.store().clone(), administrators, tries, hashing }
    }

    /// Signs in with a password.
    pub async fn sign_in(
        &self,
        visitor: &Visitor,
        name: &str,
        password: Password,
    ) -> Result<NewSession, Problem> {
        self.tries.check_lockout(visitor.address).map_err(wait)?;
        let (admins, own) = (self.admins.clone(), name.to_owned());
        let right = self.with_hashing_slot(move || admins.verify(&own, &password)).await?;
        if !right {
            self.tries.failed(visitor.address);
            tracing::warn!(target: "admin", from = %visitor.address, "sign-in failed: wrong name or password");
            let problem = Problem::new(ProblemCode::SignInNeeded, "wrong name or password");
            return Err(
                problem.hint("to set a new password, run `portcullis admin link` on the hub's machine")
            );
        }
        self.tries.succeeded(visitor.address);
        self.open(visitor, name).await
    }

    /// Returns whether a link is valid, without redeeming it.
    pub fn is_link_valid(&self, link: &str) -> bool {
        self.admins.is_link_valid(link).unwrap_or(false)
    }

    /// Returns whether there is no administrator yet.
    pub fn is_new(&self) -> bool {
        self.admins.list().is_ok_and(|admins| admins.is_empty())
    }

    /// Redeems a one-time link: sets the password and signs in.
    pub async fn redeem_link(
        &self,
        visitor: &Visitor,
        link: &str,
        name: &str,
        password: Password,
    ) -> Result<NewSession, Problem> {
        self.tries.check_lockout(visitor.address).map_err(wait)?;
        // Checked first, so an invalid link costs no password hash.
        if !self.admins.is_link_valid(link).map_err(admin_problem)? {
            self.tries.failed(visitor.address);
            return Err(admin_problem(AdminError::Link));
        }
        let (admins, link, own) = (self.admins.clone(), link.to_owned(), name.to_owned());
        self.with_hashing_slot(move || admins.redeem_link(&link, &own, NewPassword::new(&password)?)).await?;
        tracing::info!(target: "admin", admin = name, from = %visitor.address, "password set with a one-time link");
        self.open(visitor, name).await
    }

    /// Changes the password of a signed-in administrator, who must know the old one.
    pub async fn change_password(
        &self,
        visitor: &Visitor,
        session: &AdminSession,
        old: Password,
        new: Password,
    ) -> Result<ChangedPassword, Problem> {
        self.tries.check_lockout(visitor.address).map_err(wait)?;
        let (admins, name) = (self.admins.clone(), session.admin.clone());
        if !self.with_hashing_slot(move || admins.verify(&name, &old)).await? {
            self.tries.failed(visitor.address);
            return Err(Problem::new(ProblemCode::Forbidden, "the current password is wrong"));
        }
        let new = self.with_hashing_slot(move || NewPassword::new(&new)).await?;
        let (admins, name, id) = (self.administrators.clone(), session.admin.clone(), session.id.clone());
        blocking(move || admins.change_password(&name, new, &id)).await
    }

    /// Returns the valid session of a request, and extends it.
    pub fn session(&self, headers: &HeaderMap) -> Option<AdminSession> {
        let secret = cookie::read(headers)?;
        let info = self.admins.session(secret)?;
        if self.admins.needs_touch(&info) {
            let (admins, id) = (self.admins.clone(), info.id.clone());
            detach_blocking(move || {
                if let Err(error) = admins.touch_session(&id) {
                    tracing::warn!(target: "admin", %error, "failed to extend a session; it will expire early");
                }
            });
        }
        Some(AdminSession::of(info, secret))
    }

    /// Returns whether the session is still valid, without extending it.
    pub fn is_session_valid(&self, headers: &HeaderMap) -> bool {
        cookie::read(headers).is_some_and(|secret| self.admins.session(secret).is_some())
    }

    /// Ends the session. Returns the cookie that clears it.
    pub async fn sign_out(&self, session: &AdminSession) -> Result<HeaderValue, Problem> {
        let (admins, id) = (self.admins.clone(), session.id.clone());
        blocking(move || admins.end_session(&id)).await.map_err(admin_problem)?;
        Ok(cookie::forget())
    }

    /// Ends one session of any administrator.
    pub async fn end_session(&self, id: &str, by: Actor) -> Result<EndedSessions, Problem> {
        let (admins, id) = (self.administrators.clone(), id.to_owned());
        blocking(move || admins.end_session(&id, &by)).await
    }

    /// Ends all sessions of all administrators.
    pub async fn sign_out_everywhere(&self, by: Actor) -> Result<EndedSessions, Problem> {
        let admins = self.administrators.clone();
        blocking(move || admins.end_all_sessions(&by)).await
    }

    /// Returns all sessions.
    pub fn sessions(&self, own: &AdminSession) -> Result<Vec<SessionView>, Problem> {
        let shown = |info: SessionInfo| SessionView {
            is_this: info.id == own.id,
            id: info.id,
            admin: info.admin,
            created: info.created,
            seen: info.seen,
            expires: info.expires,
            from: info.from,
            browser: info.browser,
        };
        Ok(self.administrators.sessions()?.into_iter().map(shown).collect())
    }

    async fn open(&self, visitor: &Visitor, name: &str) -> Result<NewSession, Problem> {
        let (admins, own, place) = (self.admins.clone(), name.to_owned(), visitor.place());
        let (secret, info) =
            blocking(move || admins.open_session(&own, &place)).await.map_err(admin_problem)?;
        tracing::info!(target: "admin", admin = name, from = %visitor.address, session = info.id, "signed in");
        let session = AdminSession::of(info, secret.expose());
        Ok(NewSession { cookie: cookie::set(&secret), session })
    }

    /// Runs password hashing with bounded concurrency, off the runtime threads.
    async fn with_hashing_slot<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, AdminError> + Send + 'static,
    ) -> Result<T, Problem> {
        let turn = tokio::time::timeout(HASHING_WITHIN, self.hashing.acquire()).await;
        let Ok(Ok(_turn)) = turn else {
            return Err(Problem::new(ProblemCode::TooMany, "too many sign-ins at once")
                .hint("try again in a few seconds"));
        };
        blocking(work).await.map_err(admin_problem)
    }
}

impl AdminSession {
    fn of(info: SessionInfo, secret: &str) -> AdminSession {
        AdminSession {
            csrf: csrf_of(secret),
            id: info.id,
            admin: info.admin,
            created: info.created,
            expires: info.expires,
        }
    }

    /// CSRF check of a state-changing request: same origin or not a browser, and the session's token in the header or
    /// form.
    pub fn verify_csrf(&self, headers: &HeaderMap, in_form: Option<&str>) -> Result<(), Problem> {
        if request_origin(headers) == RequestOrigin::Elsewhere {
            return Err(Problem::new(ProblemCode::Forbidden, "cross-origin request refused")
                .hint("use the admin page itself"));
        }
        let in_header = headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok());
        let shown = in_form.or(in_header).unwrap_or_default();
        if bool::from(shown.as_bytes().ct_eq(self.csrf.as_bytes())) {
            return Ok(());
        }
        let problem = Problem::new(ProblemCode::Forbidden, "the CSRF token is missing or wrong");
        Err(problem.hint(format!(
            "reload the page; API clients send the `{CSRF_HEADER}` header with the `csrf` value of `GET /api/v1/session`"
        )))
    }
}

/// Derives the CSRF token of a session. The session secret cannot be derived from it.
fn csrf_of(secret: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(b"portcullis csrf\0");
    hash.update(secret.as_bytes());
    BASE64URL_NOPAD.encode(&hash.finalize())
}

fn wait(left: Duration) -> Problem {
    let seconds = left.as_secs() + 1;
    Problem::new(
        ProblemCode::TooMany,
        format!("too many failed sign-ins from this address: retry in {seconds} s"),
    )
    .hint("open sessions still work; `portcullis admin link` on the hub's machine prints a sign-in link")
}
