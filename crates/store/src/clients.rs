//! The directory of clients: who may connect, and what each may do at most.
//!
//! A token is shown once, when it is made; the database holds only its SHA-256. The hub goes by a view of the clients, so
//! that a token that `portcullis clients revoke` took back is dead when that command returns. What the rules make of a known
//! client is not decided here.

mod duration;
mod record;
mod token;

pub use duration::{DurationError, parse_duration};
pub(crate) use record::read_legacy;
pub use token::TOKEN_PREFIX;

use crate::database::{Database, DatabaseError, Topic, TopicState, TopicStore};
use jiff::Timestamp;
use portcullis_core::{
    Client, Clock, Effect, EffectSet, OwnerId, Owners, Pattern, PatternError, Scope, Secret, ToolView,
};
use record::ClientRecord;
use serde::{Serialize, Serializer};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use token::ClientTokenDigest;

/// How many clients there may be. So many are still read in a few milliseconds.
const CLIENTS_MAX: usize = 10_000;
/// How long a name may be. It appears in every audit record.
const NAME_CHARS_MAX: usize = 64;

/// What can be wrong with a request to the directory, in words for its caller.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error(
        "client name `{}` is not valid; expected 1 to {NAME_CHARS_MAX} of a-z, 0-9, `-` and `_`, starting with a letter or digit",
        portcullis_core::json::printable(.0)
    )]
    Name(String),
    #[error(
        "client `{0}` exists already; choose another name, or `portcullis clients revoke {0}` first to give it a new token"
    )]
    Taken(String),
    #[error("no client is named `{}`; `portcullis clients list` shows who exists", portcullis_core::json::printable(.0))]
    Unknown(String),
    #[error("a client needs at least one allowed name; allow `*` or name the tools")]
    NothingAllowed,
    #[error("a client needs at least one effect; allow `read`")]
    NoEffects,
    #[error("{0}")]
    Pattern(#[from] PatternError),
    #[error("the token would expire later than time can be written; choose a shorter time")]
    ExpiryTooFar,
    #[error("there are {CLIENTS_MAX} clients already; revoke those that are no longer used")]
    Full,
    #[error("{0}")]
    Corrupt(String),
    #[error("cannot get random bytes from the system: {0}")]
    Random(getrandom::Error),
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

/// What a new client is to be.
#[derive(Debug, Clone)]
pub struct NewClient {
    pub name: String,
    /// Globs over the names of tools, resources and prompts.
    pub allow: Vec<String>,
    /// Globs over those of them that it may not use.
    pub deny: Vec<String>,
    pub effects: EffectSet,
    /// How it gets to know the tools of other servers.
    pub tools: ToolView,
    /// How long the token lives; `None` is until it is revoked.
    pub expires_in: Option<Duration>,
}

/// What there is to tell about a client. Never holds the token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClientInfo {
    pub name: String,
    /// The first characters of the token, so that a person can tell which one it is.
    pub token_hint: String,
    pub allow: Vec<String>,
    pub deny: Vec<String>,
    #[serde(serialize_with = "effect_names")]
    pub effects: EffectSet,
    #[serde(serialize_with = "view_name")]
    pub tools: ToolView,
    pub created: Timestamp,
    pub expires: Option<Timestamp>,
}

impl ClientInfo {
    /// Returns whether the token is past its time.
    pub fn is_expired(&self, clock: &dyn Clock) -> bool {
        self.expires.is_some_and(|expires| expires.as_duration() <= since_epoch(clock))
    }
}

/// The clients of one hub.
pub struct ClientDirectory {
    topic: TopicStore<ClientTable>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
pub(crate) struct ClientTable {
    by_digest: HashMap<ClientTokenDigest, ClientEntry>,
    by_name: HashMap<String, ClientEntry>,
    /// In the order in which they were made.
    clients: Vec<ClientInfo>,
}

#[derive(Clone)]
struct ClientEntry {
    client: Arc<Client>,
    expires: Option<Timestamp>,
}

impl ClientEntry {
    fn is_good(&self, clock: &dyn Clock) -> bool {
        self.expires.is_none_or(|expires| since_epoch(clock) < expires.as_duration())
    }
}

impl ClientDirectory {
    /// Rows that make no sense are not an error here: no client is admitted, and [`ClientDirectory::health`] says why.
    pub fn open(database: &Database, clock: Arc<dyn Clock>) -> ClientDirectory {
        ClientDirectory { topic: TopicStore::open(database), clock }
    }

    /// Returns the client that a token belongs to; `None` for every token that is not good now. Where the clients cannot be
    /// read, nothing is known of a token.
    ///
    /// Costs one hash.
    pub fn authenticate(&self, token: &str) -> Result<Option<Arc<Client>>, IdentityError> {
        let Some(digest) = token::digest_of(token) else { return Ok(None) };
        let seen = self.topic.current();
        let known = seen.known.as_ref().map_err(|why| IdentityError::Corrupt(why.clone()))?;
        let entry = known.by_digest.get(&digest).filter(|entry| entry.is_good(&*self.clock));
        Ok(entry.map(|entry| Arc::clone(&entry.client)))
    }

    /// Returns the client of that name, if its token is good now.
    pub fn named(&self, name: &str) -> Result<Option<Arc<Client>>, IdentityError> {
        let seen = self.topic.current();
        let known = seen.known.as_ref().map_err(|why| IdentityError::Corrupt(why.clone()))?;
        let entry = known.by_name.get(name).filter(|entry| entry.is_good(&*self.clock));
        Ok(entry.map(|entry| Arc::clone(&entry.client)))
    }

    /// Returns every client whose token is valid now, by name; `None` if the clients cannot be read, so that none of them counts
    /// as revoked.
    pub fn admitted(&self) -> Option<HashMap<String, Arc<Client>>> {
        let seen = self.topic.current();
        let entries = seen.known.as_ref().ok()?.by_digest.values();
        let good = entries.filter(|entry| entry.is_good(&*self.clock));
        Some(good.map(|entry| (entry.client.name.clone(), Arc::clone(&entry.client))).collect())
    }

    /// Returns why no client can be admitted, if so.
    pub fn health(&self) -> Result<(), String> {
        self.topic.current().known.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// Makes a client and its token. The token is not kept anywhere: this is the only time it is seen.
    ///
    /// Waits for other processes that change the directory at this moment; not for a runtime thread.
    pub fn add(&self, new: NewClient) -> Result<(ClientInfo, Secret<String>), IdentityError> {
        check_name(&new.name)?;
        check_scope(&new.allow, new.effects)?;
        Pattern::new(&new.deny)?;
        let created = now(&*self.clock)?;
        let expires = new.expires_in.map(|life| later(created, life)).transpose()?;
        let (token, digest) = token::generate()?;
        let info = ClientInfo {
            name: new.name,
            token_hint: token::hint_of(token.expose()),
            allow: new.allow,
            deny: new.deny,
            effects: new.effects,
            tools: new.tools,
            created,
            expires,
        };
        let record = ClientRecord::new(&info, digest);
        self.topic.change(|clients| {
            if clients.iter().any(|client| client.name == record.name) {
                return Err(IdentityError::Taken(record.name));
            }
            if clients.len() >= CLIENTS_MAX {
                return Err(IdentityError::Full);
            }
            clients.push(record);
            Ok(())
        })?;
        Ok((info, token))
    }

    /// Changes what a client may do, from its next request on. Its token stays the same, and what it is denied too.
    pub fn change_scope(
        &self,
        name: &str,
        allow: Vec<String>,
        effects: EffectSet,
        tools: Option<ToolView>,
    ) -> Result<ClientInfo, IdentityError> {
        check_scope(&allow, effects)?;
        let name = name.to_owned();
        self.topic.change(|clients| {
            let record = clients.iter_mut().find(|client| client.name == name);
            let record = record.ok_or(IdentityError::Unknown(name))?;
            let was = record.info().map_err(IdentityError::Corrupt)?;
            let info = ClientInfo { allow, effects, tools: tools.unwrap_or(was.tools), ..was };
            *record = ClientRecord::new(&info, record.digest().map_err(IdentityError::Corrupt)?);
            Ok(info)
        })
    }

    /// Takes a client's token back, for good.
    pub fn revoke(&self, name: &str) -> Result<ClientInfo, IdentityError> {
        let name = name.to_owned();
        self.topic.change(|clients| {
            let at = clients.iter().position(|client| client.name == name);
            let at = at.ok_or(IdentityError::Unknown(name))?;
            clients.remove(at).info().map_err(IdentityError::Corrupt)
        })
    }

    /// Returns all clients in the order in which they were made, expired ones too.
    pub fn list(&self) -> Result<Vec<ClientInfo>, IdentityError> {
        let view = self.topic.current();
        match &view.known {
            Ok(known) => Ok(known.clients.clone()),
            Err(why) => Err(IdentityError::Corrupt(why.clone())),
        }
    }

    /// Returns whether a client was ever made, be it revoked since. Damaged rows count.
    pub fn has_been_used(&self) -> bool {
        let current = self.topic.current();
        current.known.is_err() || current.version > 0
    }

    /// Returns whether no client was ever made, or all were revoked. Damaged rows are not none.
    pub fn is_empty(&self) -> bool {
        self.topic.current().known.as_ref().is_ok_and(|known| known.by_digest.is_empty())
    }
}

impl Owners for ClientDirectory {
    fn current(&self, owner: &OwnerId) -> Option<Arc<Client>> {
        let seen = self.topic.current();
        let entry = seen.known.as_ref().ok()?.by_name.get(&owner.name)?;
        (owner.is(&entry.client) && entry.is_good(&*self.clock)).then(|| Arc::clone(&entry.client))
    }
}

impl TopicState for ClientTable {
    type Rows = Vec<ClientRecord>;
    const TOPIC: Topic = Topic::new("clients");
    /// Ten thousand clients with long lists of globs.
    const BYTES_MAX: usize = 16 * 1024 * 1024;

    fn of(records: &Vec<ClientRecord>) -> Result<ClientTable, String> {
        let mut known = ClientTable::default();
        // Many clients have the same lists, and to compile one costs more than all else here.
        let mut compiled: HashMap<Vec<String>, Pattern> = HashMap::new();
        let mut pattern = |globs: &Vec<String>| -> Result<Pattern, PatternError> {
            if let Some(known) = compiled.get(globs) {
                return Ok(known.clone());
            }
            let new = Pattern::new(globs)?;
            compiled.insert(globs.clone(), new.clone());
            Ok(new)
        };
        for record in records {
            let info = record.info()?;
            let broken = |why: String| format!("client `{}`: {why}", info.name);
            let allow = pattern(&info.allow).map_err(|e| broken(e.to_string()))?;
            let deny = (!info.deny.is_empty()).then(|| pattern(&info.deny)).transpose();
            let deny = deny.map_err(|e| broken(e.to_string()))?;
            let (effects, view) = (info.effects, info.tools);
            let scope = Scope { allow, deny, effects, view, ..Scope::everything() };
            let digest = record.digest()?;
            let client = Arc::new(Client { name: info.name.clone(), scope, token: Some(digest.mark()) });
            let entry = ClientEntry { client, expires: info.expires };
            if known.by_name.insert(info.name.clone(), entry.clone()).is_some() {
                return Err(broken("the name is given twice".to_owned()));
            }
            if known.by_digest.insert(digest, entry).is_some() {
                return Err(broken("another client has the same token".to_owned()));
            }
            known.clients.push(info);
        }
        Ok(known)
    }
}

fn check_scope(allow: &[String], effects: EffectSet) -> Result<(), IdentityError> {
    if allow.is_empty() {
        return Err(IdentityError::NothingAllowed);
    }
    Pattern::new(allow)?;
    if effects == EffectSet::NONE { Err(IdentityError::NoEffects) } else { Ok(()) }
}

fn check_name(name: &str) -> Result<(), IdentityError> {
    if is_client_name(name) { Ok(()) } else { Err(IdentityError::Name(name.to_owned())) }
}

/// Returns whether `name` may name a client: `^[a-z0-9][a-z0-9_-]{0,63}$`.
pub fn is_client_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= NAME_CHARS_MAX
        && name.starts_with(plain)
        && name.chars().all(|c| plain(c) || c == '-' || c == '_')
}

fn now(clock: &dyn Clock) -> Result<Timestamp, IdentityError> {
    // Whole seconds are enough.
    Timestamp::from_second(since_epoch(clock).as_secs()).map_err(|_| IdentityError::ExpiryTooFar)
}

fn later(from: Timestamp, life: Duration) -> Result<Timestamp, IdentityError> {
    from.checked_add(life).map_err(|_| IdentityError::ExpiryTooFar)
}

fn since_epoch(clock: &dyn Clock) -> jiff::SignedDuration {
    jiff::SignedDuration::try_from(clock.since_epoch()).unwrap_or(jiff::SignedDuration::MAX)
}

fn view_name<S: Serializer>(view: &ToolView, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(view.as_str())
}

fn effect_names<S: Serializer>(effects: &EffectSet, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(effects.iter().map(Effect::as_str))
}

#[cfg(test)]
mod tests;
