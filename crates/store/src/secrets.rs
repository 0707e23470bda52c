//! The secret store: values that agents may use but not read.
//!
//! Sealed rows of the database, shared by the hub and the command line; their key is never in it. Everything else holds a
//! handle (`secret:NAME`). The store releases a value only for the host and field of its grant, and to the redactor,
//! which masks it in everything that leaves. A store without its key is locked: what needs a secret is
//! refused, everything else goes on. Without secrets, no key is looked for.

mod cipher;
mod contents;
mod grant;
mod key;
mod keyring;
pub mod ordinary_text;
mod pending;
mod sealed_rows;
mod server_logins;
mod strength;

pub use grant::{Grant, SecretRef, is_secret_name};
pub use key::{KeyKind, KeyPreference, KeyRequirement, KeySource};
pub(crate) use sealed_rows::{SealedTable, read_legacy};
pub use server_logins::ABOUT as HELD_ABOUT;
pub use strength::{BITS_MIN, check_strength, entropy_bits, is_weak};

use crate::database::{Database, DatabaseError, TopicStore};
use crate::locked_file::{FileError, MetadataStamp};
use arc_swap::ArcSwap;
use cipher::{CipherHeader, KeyDerivation, KeySourceId};
use contents::SecretRecord;
use jiff::Timestamp;
use key::{KeyCreation, MasterKey};
use parking_lot::Mutex;
use portcullis_core::{Clock, Secret};
use sealed_rows::SealedRow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;
use zeroize::Zeroizing;

/// What messages call the store.
const STORE: &str = "the secret store";
/// A shorter value occurs in ordinary text by chance. Masking it would spoil results, not masking it would
/// leak it.
pub const VALUE_BYTES_MIN: usize = 8;
/// Larger than any key or certificate chain in use.
pub const VALUE_BYTES_MAX: usize = 64 * 1024;
/// The redactor searches for each of them in everything that leaves.
const SECRETS_MAX: usize = 1_000;
/// More destinations than one secret should ever have.
const GRANTS_MAX: usize = 100;

/// How often a change begins again because another process gave the store its key meanwhile.
const KEY_TRIES: u32 = 3;

/// An error for the person or client that made the request. Never holds a value.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("`{0}` is not a valid secret name; expected 1 to 64 of A-Z, 0-9 and `_`, starting with a letter")]
    Name(String),
    #[error("a handle is written `secret:NAME`")]
    NoHandle,
    #[error(
        "the value of `{name}` has {bytes} bytes, at least {VALUE_BYTES_MIN} are needed: a shorter one occurs in ordinary text, and redacting it would spoil results"
    )]
    TooShort { name: String, bytes: usize },
    #[error("the value of `{name}` has {bytes} bytes, at most {VALUE_BYTES_MAX} are allowed")]
    TooLong { name: String, bytes: usize },
    #[error(
        "the value of `{name}` has about {bits} bits of entropy, at least {BITS_MIN} are needed: a client could guess it by \
         reading back guesses and looking which one is masked; let its issuer make a longer one"
    )]
    Weak { name: String, bits: u32 },
    #[error("`{text}` is not a grant: {why}")]
    Grant { text: String, why: &'static str },
    #[error("no secret is named `{0}`; `portcullis secrets list` shows which exist")]
    Unknown(String),
    #[error("another secret is named `{0}`")]
    Taken(String),
    /// Ordinary text instead of a secret.
    #[error(
        "the value of `{name}` is {}, which would be redacted wherever it occurs; {}", what.as_str(), what.advice()
    )]
    Ordinary { name: String, what: ordinary_text::NotSecretReason },
    #[error("secret `{0}` is not an address; expected one that begins with https://")]
    NotAddress(String),
    #[error(
        "secret `{name}` is not granted for `{field}` at `{host}`; a person can allow it: portcullis secrets grant {name} '{host}:{field}'"
    )]
    NotGranted { name: String, host: String, field: String },
    #[error("there are already {SECRETS_MAX} secrets, or more than fit in one store; remove unused ones")]
    Full,
    #[error("`{0}` already has {GRANTS_MAX} grants; remove unused ones")]
    ManyGrants(String),
    #[error("the passphrase is too short; expected at least {least} characters")]
    WeakPassphrase { least: usize },
    /// The key is missing, refused or wrong.
    #[error("{0}")]
    Locked(String),
    /// The rows cannot be read as a store.
    #[error("{0}")]
    Damaged(String),
    #[error("the contents could not be encrypted")]
    Cipher,
    #[error("cannot get random bytes from the system: {0}")]
    Random(getrandom::Error),
    #[error(transparent)]
    Io(#[from] FileError),
    #[error(transparent)]
    Database(DatabaseError),
}

impl From<DatabaseError> for SecretError {
    fn from(error: DatabaseError) -> SecretError {
        if error.is_too_large() { SecretError::Full } else { SecretError::Database(error) }
    }
}

/// Metadata of a secret. Never holds its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretInfo {
    pub name: String,
    pub grants: Vec<Grant>,
    pub created: Timestamp,
    /// When the value was last set.
    pub updated: Timestamp,
    /// Whether it was imported with a server that is not trusted yet. Until then the redactor does not know
    /// it.
    pub pending: bool,
}

impl SecretInfo {
    fn new(name: String, grants: Vec<Grant>, now: Timestamp) -> SecretInfo {
        SecretInfo { name, grants, created: now, updated: now, pending: false }
    }
}

/// The secrets of one hub.
pub struct SecretStore {
    topic: TopicStore<SealedTable>,
    /// Holds the locks of logins.
    folder: PathBuf,
    source: KeySource,
    clock: Arc<dyn Clock>,
    seen: ArcSwap<SecretSnapshot>,
    /// Held while the rows are opened, so that a burst of calls reads it once.
    reading: Mutex<()>,
    /// The key derived from the passphrase. Deriving takes long, on purpose.
    derived: Mutex<Option<(KeyDerivation, MasterKey)>>,
    /// When this process last released each value. There are no more names than secrets.
    used: Mutex<HashMap<String, Timestamp>>,
}

/// The rows as last opened.
struct SecretSnapshot {
    generation: u64,
    /// The version of the rows; `None` before they were read.
    version: Option<i64>,
    key_stamp: Option<MetadataStamp>,
    has_store: bool,
    known: Result<Vec<SecretRecord>, SecretStoreFault>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum SecretStoreFault {
    Locked(String),
    Damaged(String),
}

impl From<SecretError> for SecretStoreFault {
    fn from(error: SecretError) -> SecretStoreFault {
        match error {
            SecretError::Locked(why) => SecretStoreFault::Locked(why),
            other => SecretStoreFault::Damaged(other.to_string()),
        }
    }
}

impl From<SecretStoreFault> for SecretError {
    fn from(fault: SecretStoreFault) -> SecretError {
        match fault {
            SecretStoreFault::Locked(why) => SecretError::Locked(why),
            SecretStoreFault::Damaged(why) => SecretError::Damaged(why),
        }
    }
}

/// Returns the key that is in a file of its own, for the rows of the database, and makes one where there is none.
pub(crate) fn row_master_key(path: &Path) -> Result<Zeroizing<Vec<u8>>, SecretError> {
    let source = KeySource::File { path: path.to_owned(), data: Vec::new() };
    Ok(Zeroizing::new(source.key(KeyCreation::IfMissing)?.bytes().to_vec()))
}

/// Returns the kind of key that the store needs. Needs no key itself.
pub fn key_requirement(database: &Database) -> KeyRequirement {
    let topic = TopicStore::<SealedTable>::open(database);
    let current = topic.current();
    let Ok(table) = &current.known else { return KeyRequirement::None };
    match sealed_rows::header(&table.0) {
        Ok(None) | Err(_) => KeyRequirement::None,
        Ok(Some(CipherHeader { source: KeySourceId::Passphrase, .. })) => KeyRequirement::Passphrase,
        Ok(Some(_)) => KeyRequirement::Key,
    }
}

impl SecretStore {
    /// Damaged rows or a missing key are not an error here: no secret is released, and [`SecretStore::health`] says why.
    pub fn open(database: &Database, source: KeySource, clock: Arc<dyn Clock>) -> SecretStore {
        let unread = SecretSnapshot {
            generation: 0,
            version: None,
            key_stamp: None,
            has_store: false,
            known: Ok(Vec::new()),
        };
        let store = SecretStore {
            topic: TopicStore::open(database),
            folder: database.path().parent().unwrap_or(Path::new(".")).to_owned(),
            source,
            clock,
            seen: ArcSwap::from_pointee(unread),
            reading: Mutex::new(()),
            derived: Mutex::new(None),
            used: Mutex::default(),
        };
        store.current();
        store
    }

    /// Returns a receiver that is notified after each change, by whichever process.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.topic.subscribe()
    }

    /// Sets the value of a new or an existing secret. Without `grants`, an existing one keeps its own.
    ///
    /// Blocks on the disk; not for an async worker.
    pub fn set(
        &self,
        name: &str,
        value: &Secret<Zeroizing<String>>,
        grants: Option<Vec<Grant>>,
    ) -> Result<SecretInfo, SecretError> {
        grant::check_name(name)?;
        let (value, bytes) = (value.expose(), value.expose().len());
        if bytes < VALUE_BYTES_MIN {
            return Err(SecretError::TooShort { name: name.to_owned(), bytes });
        }
        if bytes > VALUE_BYTES_MAX {
            return Err(SecretError::TooLong { name: name.to_owned(), bytes });
        }
        let updated = self.now();
        self.change(KeyCreation::IfMissing, |records| {
            let record = match records.iter().position(|record| record.info.name == name) {
                Some(at) => &mut records[at],
                None if records.len() >= SECRETS_MAX => return Err(SecretError::Full),
                None => {
                    let info = SecretInfo::new(name.to_owned(), Vec::new(), updated);
                    records.push_mut(SecretRecord::new(info, Zeroizing::default()))
                }
            };
            record.value = value.clone();
            (record.info.updated, record.info.pending) = (updated, false);
            if let Some(grants) = grants {
                record.info.grants.clear();
                grants.into_iter().try_for_each(|grant| add_grant(&mut record.info, grant))?;
            }
            Ok(record.info.clone())
        })
    }

    /// Adds a grant to a secret.
    pub fn grant(&self, name: &str, grant: Grant) -> Result<SecretInfo, SecretError> {
        self.change(KeyCreation::Never, |records| {
            let at = position(records, name)?;
            let info = &mut records[at].info;
            add_grant(info, grant)?;
            // A person vouches for it.
            info.pending = false;
            Ok(info.clone())
        })
    }

    /// Replaces all grants of a secret.
    pub fn set_grants(&self, name: &str, grants: Vec<Grant>) -> Result<SecretInfo, SecretError> {
        self.change(KeyCreation::Never, |records| {
            let at = position(records, name)?;
            let info = &mut records[at].info;
            info.grants.clear();
            info.pending = false;
            grants.into_iter().try_for_each(|grant| add_grant(info, grant))?;
            Ok(info.clone())
        })
    }

    /// Deletes a secret.
    pub fn remove(&self, name: &str) -> Result<SecretInfo, SecretError> {
        self.change(KeyCreation::Never, |records| {
            let at = position(records, name)?;
            Ok(records.remove(at).info)
        })
    }

    /// Returns the metadata of all secrets, by name.
    pub fn list(&self) -> Result<Vec<SecretInfo>, SecretError> {
        let mut list: Vec<SecretInfo> =
            self.known(|records| Ok(records.iter().map(|record| record.info.clone()).collect()))?;
        list.retain(|info| is_secret_name(&info.name));
        list.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(list)
    }

    /// Returns the metadata of one secret. Only [`SecretStore::resolve_for`] releases the value.
    pub fn get(&self, handle: &SecretRef) -> Result<SecretInfo, SecretError> {
        self.known(|records| Ok(records[position(records, handle.name())?].info.clone()))
    }

    /// Returns when this process last released a value.
    pub fn last_used(&self, name: &str) -> Option<Timestamp> {
        self.used.lock().get(name).copied()
    }

    fn note_use(&self, name: &str) {
        self.used.lock().insert(name.to_owned(), self.now());
    }

    /// Returns a value for `field` of a request to `host`, if a grant covers that.
    pub fn resolve_for(&self, name: &str, host: &str, field: &str) -> Result<Secret<String>, SecretError> {
        let given = self.known(|records| {
            let record = granted(records, name, host, field)?;
            Ok(Secret::new(record.value.to_string()))
        })?;
        self.note_use(name);
        Ok(given)
    }

    /// Returns whether [`SecretStore::resolve_for`] would release the value. It is not, and does not count as used.
    pub fn check_grant(&self, name: &str, host: &str, field: &str) -> Result<(), SecretError> {
        self.known(|records| granted(records, name, host, field).map(drop))
    }

    /// Returns a value that is the whole URL of a request.
    ///
    /// It needs no grant, because it can only go to the host that it names. For the same reason a value that
    /// is no web URL is not released here.
    pub fn resolve_address(&self, name: &str) -> Result<Secret<String>, SecretError> {
        let given = self.known(|records| {
            let record = &records[position(records, name)?];
            let is_address = ["https://", "http://", "webcal://"].iter().any(|scheme| {
                let beginning = record.value.as_bytes().get(..scheme.len());
                beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(scheme.as_bytes()))
            });
            match is_address {
                true => Ok(Secret::new(record.value.to_string())),
                false => Err(SecretError::NotAddress(name.to_owned())),
            }
        })?;
        self.note_use(name);
        Ok(given)
    }

    /// Returns all values, for the redactor only. Pending ones are left out: a file that no person trusted
    /// must not choose what others can read.
    pub fn all(&self) -> Result<Vec<(String, Secret<String>)>, SecretError> {
        self.known(|records| {
            let pair =
                |record: &SecretRecord| (record.info.name.clone(), Secret::new(record.value.to_string()));
            let is_masked =
                |record: &&SecretRecord| server_logins::is_masked(&record.info.name) && !record.info.pending;
            Ok(records.iter().filter(is_masked).map(pair).collect())
        })
    }

    /// Returns why no secret can be used, if so.
    pub fn health(&self) -> Result<(), SecretError> {
        self.known(|_| Ok(()))
    }

    /// Returns whether the rows changed since they were last opened. No I/O, except one `stat` of the key while locked.
    pub fn is_stale(&self) -> bool {
        let seen = self.seen.load();
        seen.version != Some(self.topic.current().version)
            || matches!(seen.known, Err(SecretStoreFault::Locked(_))) && seen.key_stamp != self.source.stamp()
    }

    /// Returns a number that grows with each reload.
    pub fn generation(&self) -> u64 {
        self.seen.load().generation
    }

    /// Opens the rows again if they changed; returns the generation.
    pub fn refresh(&self) -> u64 {
        self.current().generation
    }

    /// Returns the path of the key file, existing or future, if the key is in one.
    pub fn key_file(&self) -> Option<&Path> {
        match &self.source {
            KeySource::File { path, .. } => Some(path),
            _ => None,
        }
    }

    fn known<T>(
        &self,
        look: impl FnOnce(&[SecretRecord]) -> Result<T, SecretError>,
    ) -> Result<T, SecretError> {
        match &self.current().known {
            Ok(records) => look(records),
            Err(fault) => Err(fault.clone().into()),
        }
    }

    fn current(&self) -> Arc<SecretSnapshot> {
        if self.is_stale() {
            // A panic under this lock leaves no partial change.
            let _reading = self.reading.lock();
            if self.is_stale() {
                self.seen.store(Arc::new(self.look()));
            }
        }
        self.seen.load_full()
    }

    fn look(&self) -> SecretSnapshot {
        let before = self.seen.load();
        // Taken before the key is read, so that a key put in place meanwhile is seen the next time.
        let key_stamp = self.source.stamp();
        let current = self.topic.current();
        let (has_store, known) = match &current.known {
            Err(why) => (before.has_store, Err(SecretError::Damaged(why.clone()))),
            // Changes keep the store's own row, so another program removed it. Known values stay masked.
            Ok(table) if table.0.is_empty() && before.has_store => (
                true,
                Err(SecretError::Damaged(format!(
                    "{STORE} is missing; restore it, or restart to go on without secrets"
                ))),
            ),
            Ok(table) if table.0.is_empty() => (false, Ok(Vec::new())),
            Ok(table) => (true, self.unlock(&table.0).map(|(_, records)| records)),
        };
        SecretSnapshot {
            generation: before.generation + 1,
            version: Some(current.version),
            key_stamp,
            has_store,
            known: known.map_err(SecretStoreFault::from),
        }
    }

    /// Changes the secrets atomically: the change is on disk when this returns, or did not happen. Rows that cannot be opened
    /// are not overwritten: a person may still have their key.
    fn change<T>(
        &self,
        make: KeyCreation,
        change: impl FnOnce(&mut Vec<SecretRecord>) -> Result<T, SecretError>,
    ) -> Result<T, SecretError> {
        let mut change = Some(change);
        for _ in 0..KEY_TRIES {
            // Deriving a key takes long, and a keyring asks a person: no other process must wait for that to write.
            let key = self.key_for_change(make)?;
            let done = self.topic.change(|rows| {
                let is_for_these = match (&key, sealed_rows::header(rows)?) {
                    (Some((master, derivation)), Some(header)) => {
                        header.fits(master) && header.derivation == *derivation
                    }
                    (Some(_), None) => make == KeyCreation::IfMissing,
                    (None, header) => header.is_none(),
                };
                // Another process has made the store, or removed it, since the key was got.
                let Some(change) = change.take_if(|_| is_for_these) else { return Ok(None) };
                let Some((master, derivation)) = &key else {
                    // Without a key there is nothing to change, and the change says so.
                    return change(&mut Vec::new()).map(Some);
                };
                let before = if rows.is_empty() { Vec::new() } else { sealed_rows::open(rows, master)? };
                let mut after = before.clone();
                let done = change(&mut after)?;
                let source = self.source.id().ok_or(SecretError::Cipher)?;
                let header = CipherHeader::new(source, master, *derivation);
                *rows = sealed_rows::seal(rows, &before, &after, &header, master)?;
                Ok::<_, SecretError>(Some(done))
            })?;
            if let Some(done) = done {
                return Ok(done);
            }
        }
        Err(SecretError::Locked(format!("{STORE} gets another key again and again; try again")))
    }

    /// Returns the key that the store has, or a new one for a store that is to be made; `None` where there is nothing to open.
    fn key_for_change(&self, make: KeyCreation) -> Result<Option<(MasterKey, KeyDerivation)>, SecretError> {
        let current = self.topic.current();
        let table = current.known.as_ref().map_err(|why| SecretError::Damaged(why.clone()))?;
        match (sealed_rows::header(&table.0)?, make) {
            (Some(header), _) => Ok(Some((self.master(&header)?, header.derivation))),
            (None, KeyCreation::IfMissing) => self.new_key().map(Some),
            (None, KeyCreation::Never) => Ok(None),
        }
    }

    fn unlock(
        &self,
        rows: &[SealedRow],
    ) -> Result<((MasterKey, KeyDerivation), Vec<SecretRecord>), SecretError> {
        let header = sealed_rows::header(rows)?.ok_or(SecretError::Cipher)?;
        let master = self.master(&header)?;
        let records = sealed_rows::open(rows, &master)?;
        Ok(((master, header.derivation), records))
    }

    /// Returns the key that a store says it has.
    fn master(&self, header: &CipherHeader) -> Result<MasterKey, SecretError> {
        let master = match header.source {
            KeySourceId::Passphrase => self.derive(&self.source.passphrase()?, header.derivation)?,
            KeySourceId::File | KeySourceId::Credential | KeySourceId::Keyring => {
                self.source.key(KeyCreation::Never)?
            }
        };
        if !header.fits(&master) {
            return Err(SecretError::Locked(match header.source {
                KeySourceId::Passphrase => format!("wrong passphrase for {STORE}"),
                by => format!("wrong key for {STORE}, which was encrypted with {}", by.as_str()),
            }));
        }
        Ok(master)
    }

    fn new_key(&self) -> Result<(MasterKey, KeyDerivation), SecretError> {
        if self.source.id() != Some(KeySourceId::Passphrase) {
            return Ok((self.source.key(KeyCreation::IfMissing)?, KeyDerivation::default()));
        }
        let derivation = KeyDerivation::fresh()?;
        Ok((self.derive(&self.source.new_passphrase()?, derivation)?, derivation))
    }

    fn derive(&self, passphrase: &str, derivation: KeyDerivation) -> Result<MasterKey, SecretError> {
        let mut derived = self.derived.lock();
        if let Some((of, master)) = &*derived
            && *of == derivation
            // The file may hold another passphrase by now.
            && !matches!(self.source, KeySource::PassphraseFile(_))
        {
            return Ok(master.clone());
        }
        let master = MasterKey::derive(passphrase, derivation)?;
        *derived = Some((derivation, master.clone()));
        Ok(master)
    }

    fn now(&self) -> Timestamp {
        // Whole seconds are precise enough.
        let seconds = i64::try_from(self.clock.since_epoch().as_secs()).unwrap_or(i64::MAX);
        Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
    }
}

/// Returns a secret that is granted for `field` of a request to `host`.
fn granted<'r>(
    records: &'r [SecretRecord],
    name: &str,
    host: &str,
    field: &str,
) -> Result<&'r SecretRecord, SecretError> {
    let record = &records[position(records, name)?];
    if record.info.grants.iter().any(|grant| grant.covers(host, field)) {
        return Ok(record);
    }
    let shown = portcullis_core::json::printable;
    Err(SecretError::NotGranted { name: name.to_owned(), host: shown(host), field: shown(field) })
}

fn position(records: &[SecretRecord], name: &str) -> Result<usize, SecretError> {
    grant::check_name(name)?;
    let at = records.iter().position(|record| record.info.name == name);
    at.ok_or_else(|| SecretError::Unknown(name.to_owned()))
}

fn add_grant(info: &mut SecretInfo, grant: Grant) -> Result<(), SecretError> {
    if info.grants.iter().any(|known| known.is_same(&grant)) {
        return Ok(());
    }
    if info.grants.len() >= GRANTS_MAX {
        return Err(SecretError::ManyGrants(info.name.clone()));
    }
    info.grants.push(grant);
    Ok(())
}

#[cfg(test)]
mod tests;
