//! The secret store: values that agents may use and nobody may read.
//!
//! One encrypted file, `secrets.pcs`, shared by the hub and the command line. Everything else holds a handle
//! (`secret:NAME`); the value is given out towards the host and field it was granted for, and to the redactor, which
//! keeps it out of everything that leaves. A store without its key is locked: whoever needs a secret is refused,
//! everyone else goes on. Where there is no file, no key is looked for.

mod cipher;
mod contents;
mod grant;
mod held;
mod key;
mod keyring;
mod pending;
mod strength;
pub mod vocabulary;

pub use grant::{Grant, SecretRef, is_secret_name};
pub use held::ABOUT as HELD_ABOUT;
pub use key::{KeyKind, KeySource, Lock, WantedKey};
pub use strength::{BITS_MIN, check_strength, entropy_bits, is_weak};

use crate::kept::{Closed, FileError, KeptFile, Stamp};
use arc_swap::ArcSwap;
use cipher::{Derivation, Header, SourceId};
use contents::Record;
use jiff::Timestamp;
use key::{Make, MasterKey};
use portcullis_core::{Clock, Secret};
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use zeroize::Zeroizing;

/// The name of the file within its folder.
pub const FILE_NAME: &str = "secrets.pcs";
/// A thousand ordinary secrets are 200 KB; a hundred of the largest size fit too.
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// A shorter value stands in ordinary text by chance. Masking it would spoil replies, not masking it would leak it.
pub const VALUE_BYTES_MIN: usize = 8;
/// Larger than any key or certificate chain in use.
pub const VALUE_BYTES_MAX: usize = 64 * 1024;
/// Every one of them is searched for in everything that leaves.
const SECRETS_MAX: usize = 1_000;
/// More places than one secret should ever be sent to.
const GRANTS_MAX: usize = 100;

/// What can be wrong with a request to the store, in words for whoever made it. Never holds a value.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("`{0}` is not a name for a secret; expected 1 to 64 of A-Z, 0-9 and `_`, starting with a letter")]
    Name(String),
    #[error("a handle is written `secret:NAME`")]
    NoHandle,
    #[error(
        "the value of `{name}` has {bytes} bytes, at least {VALUE_BYTES_MIN} are needed: a shorter one occurs in ordinary text, so it could not be kept out of replies without spoiling them"
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
    /// A value that is no secret but ordinary text.
    #[error(
        "the value of `{name}` is {}, which would be redacted wherever it occurs; {}", what.as_str(), what.advice()
    )]
    Ordinary { name: String, what: vocabulary::Ordinary },
    #[error("secret `{0}` is not an address; expected one that begins with https://")]
    NotAddress(String),
    #[error(
        "secret `{name}` is not granted for `{field}` at `{host}`; a person can allow it: portcullis secrets grant {name} '{host}:{field}'"
    )]
    NotGranted { name: String, host: String, field: String },
    #[error(
        "there are {SECRETS_MAX} secrets already, or more than fit in one store; remove those that are no longer used"
    )]
    Full,
    #[error("`{0}` has {GRANTS_MAX} grants already; a secret for so many places is none")]
    ManyGrants(String),
    #[error("the passphrase is too short; expected at least {least} characters")]
    WeakPassphrase { least: usize },
    /// The key is missing, refused or wrong.
    #[error("{0}")]
    Locked(String),
    /// The file cannot be read as a store.
    #[error("{0}")]
    Damaged(String),
    #[error("the contents could not be encrypted")]
    Cipher,
    #[error("the system gave no random numbers: {0}")]
    Random(getrandom::Error),
    #[error(transparent)]
    Io(#[from] FileError),
}

/// What there is to tell about a secret. Never holds its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretInfo {
    pub name: String,
    pub grants: Vec<Grant>,
    pub created: Timestamp,
    /// When the value was last set.
    pub updated: Timestamp,
    /// Whether it came with a server that nobody has trusted yet. Until then it is not registered with the redactor.
    pub pending: bool,
}

impl SecretInfo {
    fn new(name: String, grants: Vec<Grant>, now: Timestamp) -> SecretInfo {
        SecretInfo { name, grants, created: now, updated: now, pending: false }
    }
}

/// The secrets of one hub.
pub struct SecretStore {
    file: KeptFile,
    source: KeySource,
    clock: Arc<dyn Clock>,
    seen: ArcSwap<Seen>,
    /// Held while the file is read again, so that a burst of calls reads it once.
    reading: Mutex<()>,
    /// What the passphrase became. Deriving it takes a while, on purpose.
    derived: Mutex<Option<(Derivation, MasterKey)>>,
    /// When values were last given out by this process. There are no more names than secrets.
    used: Mutex<HashMap<String, Timestamp>>,
}

/// The file as it was last read.
struct Seen {
    generation: u64,
    stamp: Option<Stamp>,
    key_stamp: Option<Stamp>,
    _file: Option<File>,
    known: Result<Vec<Record>, Fault>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Fault {
    Locked(String),
    Damaged(String),
}

impl From<SecretError> for Fault {
    fn from(error: SecretError) -> Fault {
        match error {
            SecretError::Locked(why) => Fault::Locked(why),
            other => Fault::Damaged(other.to_string()),
        }
    }
}

impl From<Fault> for SecretError {
    fn from(fault: Fault) -> SecretError {
        match fault {
            Fault::Locked(why) => SecretError::Locked(why),
            Fault::Damaged(why) => SecretError::Damaged(why),
        }
    }
}

fn in_folder(dir: &Path) -> KeptFile {
    KeptFile::new(dir, FILE_NAME, FILE_BYTES_MAX, Closed::ToReading)
}

/// Returns what kind of key the store in the folder `dir` needs. Needs none itself.
pub fn lock_of(dir: &Path) -> Lock {
    let Ok(Some(bytes)) = in_folder(dir).read().bytes else { return Lock::None };
    match Header::parse(&bytes) {
        Err(_) => Lock::None,
        Ok(Header { source: SourceId::Passphrase, .. }) => Lock::Passphrase,
        Ok(_) => Lock::Key,
    }
}

impl SecretStore {
    /// Opens the store kept in the folder `dir`. Neither has to exist.
    ///
    /// A damaged file or a missing key is not an error here: no secret is given out, and [`SecretStore::health`]
    /// says why.
    pub fn open(dir: &Path, source: KeySource, clock: Arc<dyn Clock>) -> SecretStore {
        let nothing =
            Seen { generation: 0, stamp: None, key_stamp: None, _file: None, known: Ok(Vec::new()) };
        let store = SecretStore {
            file: in_folder(dir),
            source,
            clock,
            seen: ArcSwap::from_pointee(nothing),
            reading: Mutex::new(()),
            derived: Mutex::new(None),
            used: Mutex::default(),
        };
        store.current();
        store
    }

    /// Sets a value, of a new secret or of one that exists. Without `grants`, one that exists keeps its own.
    ///
    /// Waits for other processes that change the store at this moment; not for a runtime thread.
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
        self.change(Make::IfMissing, |records| {
            let record = match records.iter().position(|record| record.info.name == name) {
                Some(at) => &mut records[at],
                None if records.len() >= SECRETS_MAX => return Err(SecretError::Full),
                None => {
                    let info = SecretInfo::new(name.to_owned(), Vec::new(), updated);
                    records.push_mut(Record { info, value: Zeroizing::default() })
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

    /// Lets a secret be sent to one more place.
    pub fn grant(&self, name: &str, grant: Grant) -> Result<SecretInfo, SecretError> {
        self.change(Make::Never, |records| {
            let at = position(records, name)?;
            let info = &mut records[at].info;
            add_grant(info, grant)?;
            // A person vouches for it.
            info.pending = false;
            Ok(info.clone())
        })
    }

    /// Replaces all places that a secret may be sent to.
    pub fn set_grants(&self, name: &str, grants: Vec<Grant>) -> Result<SecretInfo, SecretError> {
        self.change(Make::Never, |records| {
            let at = position(records, name)?;
            let info = &mut records[at].info;
            info.grants.clear();
            info.pending = false;
            grants.into_iter().try_for_each(|grant| add_grant(info, grant))?;
            Ok(info.clone())
        })
    }

    /// Forgets a secret, for good.
    pub fn remove(&self, name: &str) -> Result<SecretInfo, SecretError> {
        self.change(Make::Never, |records| {
            let at = position(records, name)?;
            Ok(records.remove(at).info)
        })
    }

    /// Returns what there is to tell about all secrets, in the order of their names.
    pub fn list(&self) -> Result<Vec<SecretInfo>, SecretError> {
        let mut list: Vec<SecretInfo> =
            self.known(|records| Ok(records.iter().map(|record| record.info.clone()).collect()))?;
        list.retain(|info| is_secret_name(&info.name));
        list.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(list)
    }

    /// Returns what there is to tell about one secret. The value is given out by [`SecretStore::resolve_for`] alone.
    pub fn get(&self, handle: &SecretRef) -> Result<SecretInfo, SecretError> {
        self.known(|records| Ok(records[position(records, handle.name())?].info.clone()))
    }

    /// Returns when a value was last given out by this process.
    pub fn last_used(&self, name: &str) -> Option<Timestamp> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }

    fn note_use(&self, name: &str) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), self.now());
    }

    /// Returns a value, to be put in `field` of a request to `host`, if it was granted for that.
    pub fn resolve_for(&self, name: &str, host: &str, field: &str) -> Result<Secret<String>, SecretError> {
        let given = self.known(|records| {
            let record = &records[position(records, name)?];
            if !record.info.grants.iter().any(|grant| grant.covers(host, field)) {
                let shown = portcullis_core::json::printable;
                return Err(SecretError::NotGranted {
                    name: name.to_owned(),
                    host: shown(host),
                    field: shown(field),
                });
            }
            Ok(Secret::new(record.value.to_string()))
        })?;
        self.note_use(name);
        Ok(given)
    }

    /// Returns a value that is the address of a request as a whole.
    ///
    /// It needs no grant: it can only go to the host that it names itself. That is why a value which is no address of
    /// the web is not given out here.
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

    /// Returns all values, for the redactor and nobody else. Pending ones are not among them: a file that nobody trusted must
    /// not choose what others get to read.
    pub fn all(&self) -> Result<Vec<(String, Secret<String>)>, SecretError> {
        self.known(|records| {
            let pair = |record: &Record| (record.info.name.clone(), Secret::new(record.value.to_string()));
            let is_masked = |record: &&Record| held::is_masked(&record.info.name) && !record.info.pending;
            Ok(records.iter().filter(is_masked).map(pair).collect())
        })
    }

    /// Returns why no secret can be used, if so.
    pub fn health(&self) -> Result<(), SecretError> {
        self.known(|_| Ok(()))
    }

    /// Returns whether the file changed since it was last read. Costs one `stat`, and one more while it is locked.
    pub fn is_stale(&self) -> bool {
        let seen = self.seen.load();
        seen.stamp != self.file.stamp()
            || matches!(seen.known, Err(Fault::Locked(_))) && seen.key_stamp != self.source.stamp()
    }

    /// Returns a number that grows each time the file is read again.
    pub fn generation(&self) -> u64 {
        self.seen.load().generation
    }

    /// Reads the file again if it changed; returns the generation.
    pub fn refresh(&self) -> u64 {
        self.current().generation
    }

    /// Returns where the key file is, or will be, if the key is in one.
    pub fn key_file(&self) -> Option<&Path> {
        match &self.source {
            KeySource::File { path, .. } => Some(path),
            _ => None,
        }
    }

    fn known<T>(&self, look: impl FnOnce(&[Record]) -> Result<T, SecretError>) -> Result<T, SecretError> {
        match &self.current().known {
            Ok(records) => look(records),
            Err(fault) => Err(fault.clone().into()),
        }
    }

    fn current(&self) -> Arc<Seen> {
        if self.is_stale() {
            // Nothing under this lock can leave half a change behind, so a poisoned one is as good as new.
            let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
            if self.is_stale() {
                self.seen.store(Arc::new(self.look()));
            }
        }
        self.seen.load_full()
    }

    fn look(&self) -> Seen {
        let before = self.seen.load();
        // Before the key is read: one that is put in place meanwhile is seen the next time.
        let key_stamp = self.source.stamp();
        let found = self.file.read();
        let known = found.bytes.map_err(SecretError::Damaged).and_then(|bytes| match bytes {
            Some(bytes) => Ok(self.unlock(&bytes)?.1),
            // A change never leaves a moment without a file, so this was someone else. What was known goes on
            // being masked.
            None if before.stamp.is_some() => Err(SecretError::Damaged(format!(
                "{FILE_NAME} has gone; restore it, or restart to go on without secrets"
            ))),
            None => Ok(Vec::new()),
        });
        Seen {
            generation: before.generation + 1,
            stamp: found.stamp,
            key_stamp,
            _file: found.file,
            known: known.map_err(Fault::from),
        }
    }

    /// Changes the secrets. The change is on disk when this returns, or did not happen.
    fn change<T>(
        &self,
        make: Make,
        change: impl FnOnce(&mut Vec<Record>) -> Result<T, SecretError>,
    ) -> Result<T, SecretError> {
        let lock = self.file.lock()?;
        // A file that cannot be read is not overwritten: a person may still have its key, or be able to mend it.
        let existing = self.file.read().bytes.map_err(SecretError::Damaged)?;
        let existing = existing.map(|bytes| self.unlock(&bytes)).transpose()?;
        let (master, derivation, mut records) = match existing {
            Some(((master, derivation), records)) => (master, derivation, records),
            // Nothing can come of it but a refusal in the words of an empty store.
            None if make == Make::Never => (MasterKey::random()?, Derivation::default(), Vec::new()),
            None => {
                let (master, derivation) = self.new_key()?;
                (master, derivation, Vec::new())
            }
        };
        let done = change(&mut records)?;
        let source = self.source.id().ok_or(SecretError::Cipher)?;
        let header = Header::new(source, &master, derivation);
        let sealed = cipher::seal(&header, &master, contents::encode(&records)?)?;
        if sealed.len() as u64 > self.file.bytes_max() {
            return Err(SecretError::Full);
        }
        lock.replace(&sealed)?;
        Ok(done)
    }

    fn unlock(&self, bytes: &[u8]) -> Result<((MasterKey, Derivation), Vec<Record>), SecretError> {
        let header = Header::parse(bytes)?;
        let master = match header.source {
            SourceId::Passphrase => self.derive(&self.source.passphrase()?, header.derivation)?,
            SourceId::File | SourceId::Credential | SourceId::Keyring => self.source.key(Make::Never)?,
        };
        if !header.fits(&master) {
            return Err(SecretError::Locked(match header.source {
                SourceId::Passphrase => format!("the passphrase is not the one of {FILE_NAME}"),
                by => format!("the key is not the one of {FILE_NAME}, which was locked with {}", by.as_str()),
            }));
        }
        let records = contents::decode(&cipher::open(&master, bytes)?)?;
        Ok(((master, header.derivation), records))
    }

    fn new_key(&self) -> Result<(MasterKey, Derivation), SecretError> {
        if self.source.id() != Some(SourceId::Passphrase) {
            return Ok((self.source.key(Make::IfMissing)?, Derivation::default()));
        }
        let derivation = Derivation::fresh()?;
        Ok((self.derive(&self.source.new_passphrase()?, derivation)?, derivation))
    }

    fn derive(&self, passphrase: &str, derivation: Derivation) -> Result<MasterKey, SecretError> {
        let mut derived = self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, master)) = &*derived
            && *of == derivation
            // A file may hold another one by now.
            && !matches!(self.source, KeySource::PassphraseFile(_))
        {
            return Ok(master.clone());
        }
        let master = MasterKey::derive(passphrase, derivation)?;
        *derived = Some((derivation, master.clone()));
        Ok(master)
    }

    fn now(&self) -> Timestamp {
        // Whole seconds: nobody asks for more.
        let seconds = i64::try_from(self.clock.since_epoch().as_secs()).unwrap_or(i64::MAX);
        Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
    }
}

fn position(records: &[Record], name: &str) -> Result<usize, SecretError> {
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
