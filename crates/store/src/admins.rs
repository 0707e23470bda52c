//! Administrators of the admin page: accounts, sign-in links and sessions.
//!
//! The database holds the argon2id hash of a password, and only the SHA-256 of links and sessions. A process that can write
//! the database as this user can admit anyone, so the command line makes links without a password. A session that another
//! process ended is refused with its next request.

mod password;
mod rows;
mod token;

pub use password::{PASSWORD_BYTES_MAX, PASSWORD_CHARS_MIN};
pub(crate) use rows::{AdminRows, read_legacy};

use crate::clients::is_client_name;
use crate::database::{Database, DatabaseError, TopicStore};
use jiff::{SignedDuration, Timestamp};
use password::StoredPassword;
use portcullis_core::{Clock, Secret};
use rows::{AdminRecord, LinkRecord, SessionRecord};
use std::sync::Arc;
use token::AdminTokenDigest;
use tokio::task::JoinError;
use zeroize::Zeroizing;

/// Administrators are people who know each other.
const ADMINS_MAX: usize = 50;
/// LRU: the session idle for longest makes room.
const SESSIONS_MAX: usize = 200;
/// Valid links at once. The oldest makes room.
const LINKS_MAX: usize = 5;
/// Lifetime of a sign-in link.
pub const LINK_LIFE: SignedDuration = SignedDuration::from_hours(1);
/// Idle timeout of a session.
pub const SESSION_IDLE: SignedDuration = SignedDuration::from_mins(30);
/// Absolute lifetime of a session.
pub const SESSION_LIFE: SignedDuration = SignedDuration::from_hours(12);
/// How often the last request of a session is written. A session may end this much too early.
const TOUCH_INTERVAL: SignedDuration = SignedDuration::from_secs(60);
/// Clock skew: what was created later than now by more than this is not valid.
const CLOCK_SLACK: SignedDuration = SignedDuration::from_mins(5);
/// Characters of the `User-Agent` that are stored.
const BROWSER_CHARS_MAX: usize = 160;

/// An error for the person. Never holds a password, a link or a session token.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    #[error(
        "`{}` is not a valid administrator name; expected 1 to 64 of a-z, 0-9, `-` and `_`, starting with a letter or digit",
        portcullis_core::json::printable(.0)
    )]
    Name(String),
    #[error("the password has {0} characters, at least {PASSWORD_CHARS_MIN} are needed")]
    ShortPassword(usize),
    #[error("the password has more than {PASSWORD_BYTES_MAX} bytes")]
    LongPassword,
    #[error("this link was used already, or is older than an hour; `portcullis admin link` prints a new one")]
    Link,
    #[error("no administrator is named `{}`; `portcullis admin list` shows who exists", portcullis_core::json::printable(.0))]
    Unknown(String),
    #[error("no session has the id `{}`; `portcullis admin sessions` shows which exist", portcullis_core::json::printable(.0))]
    UnknownSession(String),
    #[error("there are already {ADMINS_MAX} administrators; remove one with `portcullis admin remove`")]
    Full,
    /// The rows cannot be read; sign-in is closed until they can.
    #[error("{0}")]
    Damaged(String),
    #[error("the password could not be hashed: {0}")]
    Hash(String),
    #[error("cannot get random bytes from the system: {0}")]
    Random(getrandom::Error),
    #[error("sign-in failed: internal error")]
    Panicked(#[from] JoinError),
    #[error(transparent)]
    Database(DatabaseError),
}

impl From<DatabaseError> for AdminError {
    fn from(error: DatabaseError) -> AdminError {
        if error.is_too_large() { AdminError::Full } else { AdminError::Database(error) }
    }
}

/// An administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminInfo {
    pub name: String,
    pub created: Timestamp,
    /// When the password was last set.
    pub changed: Timestamp,
}

/// A session, without its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInfo {
    /// Identifies the session; grants nothing.
    pub id: String,
    pub admin: String,
    pub created: Timestamp,
    /// Time of the last request, to within a minute.
    pub seen: Timestamp,
    pub expires: Timestamp,
    /// The address it was opened from.
    pub from: String,
    /// The `User-Agent`.
    pub browser: String,
}

/// Where a session is opened from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionOrigin {
    pub from: String,
    pub browser: String,
}

/// A password that passed the checks, already hashed.
pub struct NewPassword(StoredPassword);

impl NewPassword {
    /// Hashes a password. Takes long and 19 MiB, on purpose: not for an async worker.
    pub fn new(password: &Secret<Zeroizing<String>>) -> Result<NewPassword, AdminError> {
        password::check(password)?;
        StoredPassword::of(password).map(NewPassword)
    }
}

/// The administrators of one hub.
pub struct AdminStore {
    topic: TopicStore<AdminRows>,
    clock: Arc<dyn Clock>,
}

impl AdminStore {
    /// Damaged rows are not an error here: no sign-in succeeds, and [`AdminStore::health`] says why.
    pub fn open(database: &Database, clock: Arc<dyn Clock>) -> AdminStore {
        AdminStore { topic: TopicStore::open(database), clock }
    }

    /// Returns why sign-in is closed, if so.
    pub fn health(&self) -> Result<(), AdminError> {
        self.known(|_| ())
    }

    /// Returns the administrators, oldest account first.
    pub fn list(&self) -> Result<Vec<AdminInfo>, AdminError> {
        self.known(|contents| contents.admins.iter().map(AdminRecord::info).collect())
    }

    /// Makes a one-time link to set a password. Only its digest is stored.
    pub fn make_link(&self) -> Result<Secret<String>, AdminError> {
        let (link, digest) = token::generate()?;
        let expires = after(self.now(), LINK_LIFE);
        self.change(|contents| {
            let room = contents.links.len().saturating_sub(LINKS_MAX - 1);
            contents.links.drain(..room);
            contents.links.push(LinkRecord { sha256: digest.to_hex(), expires });
            Ok(())
        })?;
        Ok(link)
    }

    /// Returns whether a link is valid now. Does not consume it.
    pub fn is_link_valid(&self, link: &str) -> Result<bool, AdminError> {
        let Some(digest) = token::digest_of(link) else { return Ok(false) };
        let now = self.now();
        self.known(|contents| contents.links.iter().any(|link| link.is_good(digest, now)))
    }

    /// Consumes a link to set the password of a new or an existing administrator.
    ///
    /// Ends their sessions: the old password may have leaked.
    pub fn redeem_link(
        &self,
        link: &str,
        name: &str,
        password: NewPassword,
    ) -> Result<AdminInfo, AdminError> {
        check_name(name)?;
        let digest = token::digest_of(link).ok_or(AdminError::Link)?;
        let now = self.now();
        self.change(|contents| {
            let at = contents.links.iter().position(|link| link.is_good(digest, now));
            contents.links.remove(at.ok_or(AdminError::Link)?);
            set_password(contents, name, password, now)
        })
    }

    /// Changes a password. Ends all other sessions of this administrator.
    pub fn change_password(
        &self,
        name: &str,
        password: NewPassword,
        keep: &str,
    ) -> Result<AdminInfo, AdminError> {
        let now = self.now();
        self.change(|contents| {
            if contents.admins.iter().all(|admin| admin.name != name) {
                return Err(AdminError::Unknown(name.to_owned()));
            }
            let others: Vec<SessionRecord> =
                contents.sessions.iter().filter(|session| session.id == keep).cloned().collect();
            let changed = set_password(contents, name, password, now)?;
            contents.sessions.extend(others);
            Ok(changed)
        })
    }

    /// Returns whether a password is that of `name`. Takes as long for an unknown name: not for an async
    /// worker.
    pub fn verify(&self, name: &str, password: &Secret<Zeroizing<String>>) -> Result<bool, AdminError> {
        if password.expose().len() > PASSWORD_BYTES_MAX {
            return Ok(false);
        }
        let known = self.known(|contents| {
            let admin = contents.admins.iter().find(|admin| admin.name == name);
            admin.map(|admin| admin.password.clone())
        })?;
        match known {
            Some(hashed) => hashed.is_of(password),
            None => StoredPassword::dummy().is_of(password).map(|_| false),
        }
    }

    /// Opens a session for an authenticated administrator. Its token is returned only here.
    pub fn open_session(
        &self,
        admin: &str,
        origin: &SessionOrigin,
    ) -> Result<(Secret<String>, SessionInfo), AdminError> {
        let (secret, digest) = token::generate()?;
        let now = self.now();
        let session = SessionRecord {
            id: token::short_id()?,
            sha256: digest.to_hex(),
            admin: admin.to_owned(),
            created: now,
            seen: now,
            from: shortened(&origin.from),
            browser: shortened(&origin.browser),
        };
        let info = session.info();
        self.change(|contents| {
            if contents.admins.iter().all(|known| known.name != admin) {
                return Err(AdminError::Unknown(admin.to_owned()));
            }
            contents.sessions.sort_by_key(|session| session.seen);
            let room = contents.sessions.len().saturating_sub(SESSIONS_MAX - 1);
            contents.sessions.drain(..room);
            contents.sessions.push(session);
            Ok(())
        })?;
        Ok((secret, info))
    }

    /// Returns the session of a token; `None` unless it is valid now.
    pub fn session(&self, secret: &str) -> Option<SessionInfo> {
        let digest = token::digest_of(secret)?;
        let now = self.now();
        let found = self.known(|contents| {
            let found = contents.sessions.iter().find(|session| session.is_of(digest));
            found.filter(|session| session.is_good(now)).map(SessionRecord::info)
        });
        found.ok().flatten()
    }

    /// Returns whether the stored time of the last request is out of date. See [`AdminStore::touch_session`].
    pub fn needs_touch(&self, session: &SessionInfo) -> bool {
        self.now().duration_since(session.seen) >= TOUCH_INTERVAL
    }

    /// Stores that a session is in use, which restarts its idle timeout.
    pub fn touch_session(&self, id: &str) -> Result<(), AdminError> {
        let now = self.now();
        self.change(|contents| {
            contents
                .sessions
                .iter_mut()
                .filter(|session| session.id == id)
                .for_each(|session| session.seen = now);
            Ok(())
        })
    }

    /// Returns the valid sessions, oldest first.
    pub fn sessions(&self) -> Result<Vec<SessionInfo>, AdminError> {
        let now = self.now();
        self.known(|contents| {
            let good = contents.sessions.iter().filter(|session| session.is_good(now));
            let mut sessions: Vec<SessionInfo> = good.map(SessionRecord::info).collect();
            sessions.sort_by_key(|session| session.created);
            sessions
        })
    }

    /// Ends one session.
    pub fn end_session(&self, id: &str) -> Result<(), AdminError> {
        self.change(|contents| {
            let before = contents.sessions.len();
            contents.sessions.retain(|session| session.id != id);
            if contents.sessions.len() == before {
                return Err(AdminError::UnknownSession(id.to_owned()));
            }
            Ok(())
        })
    }

    /// Ends all sessions of one administrator, or of all. Returns how many there were.
    pub fn end_sessions(&self, of: Option<&str>) -> Result<usize, AdminError> {
        self.change(|contents| {
            let before = contents.sessions.len();
            contents.sessions.retain(|session| of.is_some_and(|of| session.admin != of));
            Ok(before - contents.sessions.len())
        })
    }

    /// Removes an administrator and ends their sessions.
    pub fn remove(&self, name: &str) -> Result<AdminInfo, AdminError> {
        self.change(|contents| {
            let at = contents.admins.iter().position(|admin| admin.name == name);
            let at = at.ok_or_else(|| AdminError::Unknown(name.to_owned()))?;
            contents.sessions.retain(|session| session.admin != name);
            Ok(contents.admins.remove(at).info())
        })
    }

    /// Returns the time that lifetimes are measured by.
    pub fn now(&self) -> Timestamp {
        // An unknown time must not revive a session.
        let now = Timestamp::try_from(self.clock.now()).unwrap_or(Timestamp::MAX);
        Timestamp::from_second(now.as_second()).unwrap_or(now)
    }

    fn known<T>(&self, look: impl FnOnce(&AdminRows) -> T) -> Result<T, AdminError> {
        match &self.topic.current().known {
            Ok(contents) => Ok(look(contents)),
            Err(why) => Err(AdminError::Damaged(why.clone())),
        }
    }

    fn change<T>(
        &self,
        change: impl FnOnce(&mut AdminRows) -> Result<T, AdminError>,
    ) -> Result<T, AdminError> {
        rows::change(&self.topic, self.now(), change)
    }
}

fn set_password(
    contents: &mut AdminRows,
    name: &str,
    NewPassword(password): NewPassword,
    now: Timestamp,
) -> Result<AdminInfo, AdminError> {
    contents.sessions.retain(|session| session.admin != name);
    if let Some(admin) = contents.admins.iter_mut().find(|admin| admin.name == name) {
        (admin.password, admin.changed) = (password, now);
        return Ok(admin.info());
    }
    if contents.admins.len() >= ADMINS_MAX {
        return Err(AdminError::Full);
    }
    let new = AdminRecord { name: name.to_owned(), password, created: now, changed: now };
    let info = new.info();
    contents.admins.push(new);
    Ok(info)
}

impl LinkRecord {
    fn is_good(&self, digest: AdminTokenDigest, now: Timestamp) -> bool {
        AdminTokenDigest::from_hex(&self.sha256) == Some(digest) && now < self.expires
    }
}

impl SessionRecord {
    fn is_of(&self, digest: AdminTokenDigest) -> bool {
        AdminTokenDigest::from_hex(&self.sha256) == Some(digest)
    }

    fn is_good(&self, now: Timestamp) -> bool {
        now < self.expires() && self.created.duration_since(now) < CLOCK_SLACK
    }

    fn expires(&self) -> Timestamp {
        after(self.seen, SESSION_IDLE).min(after(self.created, SESSION_LIFE))
    }

    fn info(&self) -> SessionInfo {
        SessionInfo {
            id: self.id.clone(),
            admin: self.admin.clone(),
            created: self.created,
            seen: self.seen,
            expires: self.expires(),
            from: self.from.clone(),
            browser: self.browser.clone(),
        }
    }
}

fn check_name(name: &str) -> Result<(), AdminError> {
    if is_client_name(name) { Ok(()) } else { Err(AdminError::Name(name.to_owned())) }
}

fn shortened(text: &str) -> String {
    let text: String = text.chars().take(BROWSER_CHARS_MAX).collect();
    portcullis_core::json::visible(&text)
}

fn after(time: Timestamp, life: SignedDuration) -> Timestamp {
    time.checked_add(life).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
