//! The people who may look and decide: who they are, the links that let them begin, and their sessions.
//!
//! One file, `admins.json`, shared by the hub and the command line. A password is kept as its argon2id hash; of links
//! and sessions the file holds only the SHA-256. Whoever can write the file as this user can let anyone in, so the
//! command line makes links without asking for a password. A session that another process ended is gone with its next
//! request.

mod file;
mod password;
mod token;

pub use password::{PASSWORD_BYTES_MAX, PASSWORD_CHARS_MIN};

use crate::clients::is_client_name;
use crate::kept::{FileError, Live};
use file::{Contents, LinkRecord, Record, SessionRecord};
use jiff::{SignedDuration, Timestamp};
use password::Hashed;
use portcullis_core::{Clock, Secret};
use std::path::Path;
use std::sync::Arc;
use token::Digest;
use zeroize::Zeroizing;

/// How many administrators there may be. They are people, and know each other.
const ADMINS_MAX: usize = 50;
/// How many sessions are kept. The one that was longest without a request makes room.
const SESSIONS_MAX: usize = 200;
/// How many links are good at once. The oldest makes room.
const LINKS_MAX: usize = 5;
/// How long a link is good.
pub const LINK_LIFE: SignedDuration = SignedDuration::from_hours(1);
/// How long a session lasts without a request.
pub const SESSION_IDLE: SignedDuration = SignedDuration::from_mins(30);
/// How long a session lasts in any case.
pub const SESSION_LIFE: SignedDuration = SignedDuration::from_hours(12);
/// How often a request is noted in the file. A session may end this much too early.
const NOTED_EVERY: SignedDuration = SignedDuration::from_secs(60);
/// How far a clock may be set back before what was made later than now stops to count.
const CLOCK_SLACK: SignedDuration = SignedDuration::from_mins(5);
/// How much of what a browser says of itself is kept.
const BROWSER_CHARS_MAX: usize = 160;

/// What can be wrong, in words for whoever asked. Never holds a password, a link or a session.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    #[error(
        "`{}` is not a name for an administrator; expected 1 to 64 of a-z, 0-9, `-` and `_`, starting with a letter or digit",
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
    #[error("there are {ADMINS_MAX} administrators already; remove those who are no longer")]
    Full,
    /// The file cannot be read; nobody can sign in until it can.
    #[error("{0}")]
    Damaged(String),
    #[error("the password could not be hashed: {0}")]
    Hash(String),
    #[error("the system gave no random numbers: {0}")]
    Random(getrandom::Error),
    #[error(transparent)]
    Io(#[from] FileError),
}

/// Someone who may sign in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminInfo {
    pub name: String,
    pub created: Timestamp,
    /// When the password was last set.
    pub changed: Timestamp,
}

/// A session, without what opens it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInfo {
    /// Names it, opens nothing.
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
}

/// Where a session is opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    pub from: String,
    pub browser: String,
}

/// A password that is fit to be set, hashed already.
pub struct NewPassword(Hashed);

impl NewPassword {
    /// Hashes a password. Takes a while and 19 MiB, on purpose: not for a runtime thread.
    pub fn new(password: &Secret<Zeroizing<String>>) -> Result<NewPassword, AdminError> {
        password::check(password)?;
        Hashed::of(password).map(NewPassword)
    }
}

/// The administrators of one hub.
pub struct Admins {
    live: Live<Contents>,
    clock: Arc<dyn Clock>,
}

impl Admins {
    /// Opens the file kept in the folder `dir`. Neither has to exist.
    ///
    /// A damaged file is not an error here: nobody is let in, and [`Admins::health`] says why.
    pub fn open(dir: &Path, clock: Arc<dyn Clock>) -> Admins {
        Admins { live: Live::new(file::in_folder(dir), file::parse), clock }
    }

    /// Returns why nobody can sign in, if so.
    pub fn health(&self) -> Result<(), AdminError> {
        self.known(|_| ())
    }

    /// Returns who may sign in, in the order in which they came.
    pub fn list(&self) -> Result<Vec<AdminInfo>, AdminError> {
        self.known(|contents| contents.admins.iter().map(Record::info).collect())
    }

    /// Makes a link that lets one person set a password. It is not kept anywhere: this is the only time it is seen.
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

    /// Returns whether a link is good now. Uses nothing up.
    pub fn knows_link(&self, link: &str) -> Result<bool, AdminError> {
        let Some(digest) = token::digest_of(link) else { return Ok(false) };
        let now = self.now();
        self.known(|contents| contents.links.iter().any(|link| link.is_good(digest, now)))
    }

    /// Uses a link up to set the password of someone new, or of someone who has forgotten theirs.
    ///
    /// Their sessions end: whoever needs a new password may not know who has the old one.
    pub fn welcome(&self, link: &str, name: &str, password: NewPassword) -> Result<AdminInfo, AdminError> {
        check_name(name)?;
        let digest = token::digest_of(link).ok_or(AdminError::Link)?;
        let now = self.now();
        self.change(|contents| {
            let at = contents.links.iter().position(|link| link.is_good(digest, now));
            contents.links.remove(at.ok_or(AdminError::Link)?);
            set_password(contents, name, password, now)
        })
    }

    /// Sets another password. All other sessions of this person end.
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
            let kept: Vec<SessionRecord> =
                contents.sessions.iter().filter(|session| session.id == keep).cloned().collect();
            let changed = set_password(contents, name, password, now)?;
            contents.sessions.extend(kept);
            Ok(changed)
        })
    }

    /// Returns whether a password is the one of `name`. Takes as long for a name that nobody has: not for a runtime
    /// thread.
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
            None => Hashed::nobody().is_of(password).map(|_| false),
        }
    }

    /// Opens a session for someone who has shown their password. What opens it is seen only now.
    pub fn open_session(
        &self,
        admin: &str,
        place: &Place,
    ) -> Result<(Secret<String>, SessionInfo), AdminError> {
        let (secret, digest) = token::generate()?;
        let now = self.now();
        let session = SessionRecord {
            id: token::short_id()?,
            sha256: digest.to_hex(),
            admin: admin.to_owned(),
            created: now,
            seen: now,
            from: shortened(&place.from),
            browser: shortened(&place.browser),
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

    /// Returns the session that a secret opens; `None` for every one that is not good now.
    pub fn session(&self, secret: &str) -> Option<SessionInfo> {
        let digest = token::digest_of(secret)?;
        let now = self.now();
        let found = self.known(|contents| {
            let found = contents.sessions.iter().find(|session| session.is_of(digest));
            found.filter(|session| session.is_good(now)).map(SessionRecord::info)
        });
        found.ok().flatten()
    }

    /// Returns whether the file should learn that a session is in use. See [`Admins::note`].
    pub fn wants_note(&self, session: &SessionInfo) -> bool {
        self.now().duration_since(session.seen) >= NOTED_EVERY
    }

    /// Writes down that a session is in use, so that it does not end.
    pub fn note(&self, id: &str) -> Result<(), AdminError> {
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

    /// Returns the sessions that are good now, oldest first.
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

    /// Ends all sessions of one person, or of everyone. Returns how many there were.
    pub fn end_sessions(&self, of: Option<&str>) -> Result<usize, AdminError> {
        self.change(|contents| {
            let before = contents.sessions.len();
            contents.sessions.retain(|session| of.is_some_and(|of| session.admin != of));
            Ok(before - contents.sessions.len())
        })
    }

    /// Takes a person's right to sign in back, and ends their sessions.
    pub fn remove(&self, name: &str) -> Result<AdminInfo, AdminError> {
        self.change(|contents| {
            let at = contents.admins.iter().position(|admin| admin.name == name);
            let at = at.ok_or_else(|| AdminError::Unknown(name.to_owned()))?;
            contents.sessions.retain(|session| session.admin != name);
            Ok(contents.admins.remove(at).info())
        })
    }

    /// Returns the time by which links and sessions are measured.
    pub fn now(&self) -> Timestamp {
        // A time that cannot be told revives nothing.
        let now = Timestamp::try_from(self.clock.now()).unwrap_or(Timestamp::MAX);
        Timestamp::from_second(now.as_second()).unwrap_or(now)
    }

    fn known<T>(&self, look: impl FnOnce(&Contents) -> T) -> Result<T, AdminError> {
        match &self.live.current().known {
            Ok(contents) => Ok(look(contents)),
            Err(why) => Err(AdminError::Damaged(why.clone())),
        }
    }

    fn change<T>(
        &self,
        change: impl FnOnce(&mut Contents) -> Result<T, AdminError>,
    ) -> Result<T, AdminError> {
        file::change(&self.live.file, self.now(), change)
    }
}

fn set_password(
    contents: &mut Contents,
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
    let new = Record { name: name.to_owned(), password, created: now, changed: now };
    let info = new.info();
    contents.admins.push(new);
    Ok(info)
}

impl LinkRecord {
    fn is_good(&self, digest: Digest, now: Timestamp) -> bool {
        Digest::from_hex(&self.sha256) == Some(digest) && now < self.expires
    }
}

impl SessionRecord {
    fn is_of(&self, digest: Digest) -> bool {
        Digest::from_hex(&self.sha256) == Some(digest)
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
