//! Sources of the master key: systemd credential, file, keyring, passphrase.
//!
//! Invariant: the key is never stored with the data, so that a copy of the data folder alone, such as a
//! backup, decrypts nothing.

use super::cipher::{KeyDerivation, KeySourceId, SALT_BYTES};
use super::{STORE, SecretError, keyring};
use crate::locked_file::{FileError, MetadataStamp};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use portcullis_core::Secret;
use std::ffi::OsString;
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

pub(super) const KEY_BYTES: usize = 32;
/// A key as hex digits, with a line ending.
const KEY_FILE_BYTES_MAX: usize = 2 * KEY_BYTES + 2;
const PASSPHRASE_BYTES_MAX: usize = 1024;
/// Argon2id slows guessing down; it does not save a passphrase from a word list.
const PASSPHRASE_CHARS_MIN: usize = 12;

// RFC 9106, second choice, but with one lane, because more need threads: 0.2 s and 64 MiB, once per process.
const MEMORY_KIB: u32 = 64 * 1024;
const PASSES: u32 = 3;
const LANES: u32 = 1;
// Upper bounds for the header, which is used before it is authenticated.
const MEMORY_KIB_MAX: u32 = 256 * 1024;
const PASSES_MAX: u32 = 16;
const LANES_MAX: u32 = 16;

/// The name of the systemd credential: `LoadCredentialEncrypted=portcullis-key:…`.
const CREDENTIAL_NAME: &str = "portcullis-key";
const ROOT: u32 = 0;

/// The key that all others are derived from. Wiped from memory on drop.
#[derive(Clone)]
pub(super) struct MasterKey(Zeroizing<[u8; KEY_BYTES]>);

impl MasterKey {
    pub(super) fn bytes(&self) -> &[u8] {
        &*self.0
    }

    pub(super) fn random() -> Result<MasterKey, SecretError> {
        let mut key = MasterKey(Zeroizing::new([0; KEY_BYTES]));
        getrandom::fill(&mut *key.0).map_err(SecretError::Random)?;
        Ok(key)
    }

    /// Parses a stored key: 32 bytes, or 64 hex digits with an optional line ending.
    pub(super) fn parse(bytes: &[u8]) -> Option<MasterKey> {
        let mut key = MasterKey(Zeroizing::new([0; KEY_BYTES]));
        if bytes.len() == KEY_BYTES {
            key.0.copy_from_slice(bytes);
            return Some(key);
        }
        let digits = bytes.trim_ascii_end();
        if digits.len() != 2 * KEY_BYTES {
            return None;
        }
        HEXLOWER_PERMISSIVE.decode_mut(digits, &mut *key.0).ok()?;
        Some(key)
    }

    pub(super) fn to_hex(&self) -> Zeroizing<String> {
        // With its capacity from the start: a buffer that is left behind is not wiped.
        let mut hex = Zeroizing::new(String::with_capacity(2 * KEY_BYTES));
        HEXLOWER.encode_append(&*self.0, &mut hex);
        hex
    }

    pub(super) fn derive(passphrase: &str, derivation: KeyDerivation) -> Result<MasterKey, SecretError> {
        let KeyDerivation { memory_kib, passes, lanes, salt } = derivation;
        if memory_kib > MEMORY_KIB_MAX || passes > PASSES_MAX || lanes > LANES_MAX {
            let why =
                format!("{STORE} is damaged: the key derivation parameters in its header exceed the limit");
            return Err(SecretError::Damaged(why));
        }
        let damaged = |e: argon2::Error| SecretError::Damaged(format!("{STORE} is damaged: its header: {e}"));
        let params = argon2::Params::new(memory_kib, passes, lanes, Some(KEY_BYTES)).map_err(damaged)?;
        let argon2 = argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params);
        let mut key = MasterKey(Zeroizing::new([0; KEY_BYTES]));
        argon2.hash_password_into(passphrase.as_bytes(), &salt, &mut *key.0).map_err(damaged)?;
        Ok(key)
    }
}

impl KeyDerivation {
    pub(super) fn fresh() -> Result<KeyDerivation, SecretError> {
        let mut salt = [0; SALT_BYTES];
        getrandom::fill(&mut salt).map_err(SecretError::Random)?;
        Ok(KeyDerivation { memory_kib: MEMORY_KIB, passes: PASSES, lanes: LANES, salt })
    }
}

/// The source of a store's key. Nothing is read before a key is needed.
pub enum KeySource {
    /// A file that systemd made for this service alone.
    Credential(PathBuf),
    /// A file of this user, created with the first secret. It must not be below any of the folders `data`.
    File { path: PathBuf, data: Vec<PathBuf> },
    /// The desktop's keyring, through the program `secret-tool`.
    Keyring { program: PathBuf },
    /// A passphrase in a file of this user.
    PassphraseFile(PathBuf),
    /// A passphrase that a person has just typed.
    Passphrase(Secret<Zeroizing<String>>),
    /// A passphrase, with no person to prompt.
    Unasked,
    /// There is no key, for this reason.
    Missing(String),
}

/// The kinds of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    Credential,
    Keyring,
    File,
    Passphrase,
}

/// The key settings of the configuration. The environment takes precedence.
#[derive(Debug, Clone, Default)]
pub struct KeyPreference {
    pub kind: Option<KeyKind>,
    pub file: Option<PathBuf>,
}

/// Whether a store exists, and what kind of key it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRequirement {
    /// There is no store yet, or it cannot be read.
    None,
    Key,
    Passphrase,
}

impl KeySource {
    /// Finds the key source: from the environment, else from `wanted`, else the first of a systemd
    /// credential, a passphrase if the store was made with one, and the key file of this user.
    ///
    /// `PORTCULLIS_KEY` is `credential`, `keyring`, `file` or `passphrase`; `PORTCULLIS_KEY_FILE` and
    /// `PORTCULLIS_PASSPHRASE_FILE` name files.
    pub fn detect(
        env: impl Fn(&str) -> Option<OsString>,
        wanted: &KeyPreference,
        data: Vec<PathBuf>,
        lock: KeyRequirement,
    ) -> KeySource {
        let set = |name: &str| env(name).filter(|value| !value.is_empty());
        let credential =
            set("CREDENTIALS_DIRECTORY").map(|folder| PathBuf::from(folder).join(CREDENTIAL_NAME));
        let passphrase_file = set("PORTCULLIS_PASSPHRASE_FILE").map(PathBuf::from);
        let named_key_file = set("PORTCULLIS_KEY_FILE").map(PathBuf::from).or_else(|| wanted.file.clone());
        let passphrase = |file: Option<PathBuf>| file.map_or(KeySource::Unasked, KeySource::PassphraseFile);
        let key_file = |named: Option<PathBuf>| match named.or_else(|| usual_key_file(&set)) {
            Some(path) => KeySource::File { path, data },
            None => {
                KeySource::Missing("HOME is not set; name a key file with PORTCULLIS_KEY_FILE".to_owned())
            }
        };
        let kind = match set("PORTCULLIS_KEY") {
            None => wanted.kind,
            Some(named) => match named.to_str() {
                Some("credential") => Some(KeyKind::Credential),
                Some("keyring") => Some(KeyKind::Keyring),
                Some("passphrase") => Some(KeyKind::Passphrase),
                Some("file") => Some(KeyKind::File),
                _ => {
                    let expected = "expected `credential`, `keyring`, `file` or `passphrase`";
                    return KeySource::Missing(format!("PORTCULLIS_KEY is not a kind of key; {expected}"));
                }
            },
        };
        let Some(kind) = kind else {
            return match credential.filter(|path| path.exists()) {
                Some(path) => KeySource::Credential(path),
                None if passphrase_file.is_some() || lock == KeyRequirement::Passphrase => {
                    passphrase(passphrase_file)
                }
                None => key_file(named_key_file),
            };
        };
        match kind {
            KeyKind::Credential => credential.map_or_else(
                || KeySource::Missing("CREDENTIALS_DIRECTORY is not set, so systemd gave no key".to_owned()),
                KeySource::Credential,
            ),
            KeyKind::Keyring => KeySource::Keyring { program: keyring::PROGRAM.into() },
            KeyKind::Passphrase => passphrase(passphrase_file),
            KeyKind::File => key_file(named_key_file),
        }
    }

    pub(super) fn id(&self) -> Option<KeySourceId> {
        match self {
            KeySource::Credential(_) => Some(KeySourceId::Credential),
            KeySource::File { .. } => Some(KeySourceId::File),
            KeySource::Keyring { .. } => Some(KeySourceId::Keyring),
            KeySource::PassphraseFile(_) | KeySource::Passphrase(_) | KeySource::Unasked => {
                Some(KeySourceId::Passphrase)
            }
            KeySource::Missing(_) => None,
        }
    }

    /// Returns a stamp that changes with the key; `None` if a change cannot be seen.
    pub(super) fn stamp(&self) -> Option<MetadataStamp> {
        match self {
            KeySource::Credential(path) | KeySource::File { path, .. } | KeySource::PassphraseFile(path) => {
                std::fs::metadata(path).ok().map(|metadata| MetadataStamp::of(&metadata))
            }
            KeySource::Keyring { .. } | KeySource::Passphrase(_) | KeySource::Unasked => None,
            KeySource::Missing(_) => None,
        }
    }

    /// Returns the key; not for passphrases. With [`KeyCreation::IfMissing`] a missing key is created.
    pub(super) fn key(&self, make: KeyCreation) -> Result<MasterKey, SecretError> {
        match self {
            KeySource::Credential(path) => {
                // If the service runs as another user, an ACL shows as permissions of the group.
                read_key(path, 0o027)
            }
            KeySource::File { path, data } => {
                if make == KeyCreation::IfMissing && !path.exists() {
                    make_key_file(path, data)?;
                }
                check_outside_data(path, data)?;
                read_key(path, 0o077)
            }
            KeySource::Keyring { program } => keyring::key(program, make),
            KeySource::Missing(why) => Err(SecretError::Locked(why.clone())),
            KeySource::PassphraseFile(_) | KeySource::Passphrase(_) | KeySource::Unasked => {
                let why = format!("{STORE} is encrypted with a key, but a passphrase was given");
                Err(SecretError::Locked(why))
            }
        }
    }

    /// Returns the passphrase; not for keys.
    pub(super) fn passphrase(&self) -> Result<Zeroizing<String>, SecretError> {
        match self {
            KeySource::Passphrase(passphrase) => Ok(passphrase.expose().clone()),
            KeySource::PassphraseFile(path) => read_passphrase(path),
            _ => Err(SecretError::Locked(format!(
                "{STORE} is encrypted with a passphrase; put it in a file with mode 600 and set PORTCULLIS_PASSPHRASE_FILE to its path"
            ))),
        }
    }

    /// Refuses a weak passphrase, before a store is created with it.
    pub(super) fn new_passphrase(&self) -> Result<Zeroizing<String>, SecretError> {
        let passphrase = self.passphrase()?;
        if passphrase.chars().count() < PASSPHRASE_CHARS_MIN {
            return Err(SecretError::WeakPassphrase { least: PASSPHRASE_CHARS_MIN });
        }
        Ok(passphrase)
    }
}

/// Whether to create a missing key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyCreation {
    Never,
    IfMissing,
}

fn usual_key_file(set: &impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let config = set("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let config = config.or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".config")));
    config.map(|folder| folder.join("portcullis/key"))
}

fn read_key(path: &Path, open_to_others: u32) -> Result<MasterKey, SecretError> {
    let bytes = read_private("key", path, open_to_others, KEY_FILE_BYTES_MAX)?;
    MasterKey::parse(&bytes).ok_or_else(|| {
        SecretError::Locked(format!("`{}` is not a key; expected 32 bytes, or 64 hex digits", path.display()))
    })
}

fn read_passphrase(path: &Path) -> Result<Zeroizing<String>, SecretError> {
    let bytes = read_private("passphrase", path, 0o077, PASSPHRASE_BYTES_MAX)?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| SecretError::Locked(format!("the passphrase in `{}` is not text", path.display())))?;
    Ok(Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned()))
}

/// Reads a small file that only this user can read.
fn read_private(
    what: &str,
    path: &Path,
    open_to_others: u32,
    bytes_max: usize,
) -> Result<Zeroizing<Vec<u8>>, SecretError> {
    let locked = |why: String| SecretError::Locked(format!("the {what} `{}` {why}", path.display()));
    let cannot = |e: io::Error| locked(format!("cannot be read: {e}"));
    // Symlinks are followed, because many systems mount such files so; a FIFO does not block.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(cannot)?;
    let metadata = file.metadata().map_err(cannot)?;
    check_private(&metadata, open_to_others).map_err(locked)?;
    // Allocated once: a buffer that grows leaves copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(bytes_max + 1));
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() > bytes_max {
        return Err(locked(format!("is larger than {bytes_max} bytes")));
    }
    Ok(bytes)
}

fn check_private(metadata: &Metadata, open_to_others: u32) -> Result<(), String> {
    if !metadata.is_file() {
        return Err("is not a regular file".to_owned());
    }
    if metadata.mode() & open_to_others != 0 {
        return Err("is open to other users; if no other user has read it, `chmod 600` it".to_owned());
    }
    if ![ROOT, rustix::process::geteuid().as_raw()].contains(&metadata.uid()) {
        return Err("belongs to another user".to_owned());
    }
    Ok(())
}

/// Refuses a key next to the data: a copy of one folder would hold both.
fn check_outside_data(path: &Path, data: &[PathBuf]) -> Result<(), SecretError> {
    let cannot =
        |e: io::Error| SecretError::Locked(format!("the key `{}` cannot be read: {e}", path.display()));
    let resolved = path.canonicalize().map_err(cannot)?;
    refuse_inside(path, &resolved, data)
}

fn refuse_inside(path: &Path, resolved: &Path, data: &[PathBuf]) -> Result<(), SecretError> {
    let inside = |folder: &PathBuf| resolved.starts_with(folder.canonicalize().as_ref().unwrap_or(folder));
    if data.iter().any(inside) {
        return Err(SecretError::Locked(format!(
            "the key `{}` is inside the data folder, so every copy of the data contains it; move it, and set PORTCULLIS_KEY_FILE to its path",
            path.display()
        )));
    }
    Ok(())
}

/// Creates a key file, unless another process is faster; then its key is used.
fn make_key_file(path: &Path, data: &[PathBuf]) -> Result<(), SecretError> {
    let failed = |e: io::Error| SecretError::from(FileError::new("make", path, e));
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(SecretError::Locked(format!("`{}` is not a path for a key", path.display())));
    };
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    let folder = folder.canonicalize().map_err(failed)?;
    refuse_inside(path, &folder.join(name), data)?;
    let key = MasterKey::random()?;
    // Another thread of this process may do the same.
    let mut random = [0; 4];
    getrandom::fill(&mut random).map_err(SecretError::Random)?;
    let unique = u32::from_ne_bytes(random);
    let new_path = folder.join(format!("key.{}-{unique:08x}.new", std::process::id()));
    let mut new =
        OpenOptions::new().create_new(true).write(true).mode(0o600).open(&new_path).map_err(failed)?;
    let written = new.write_all(key.bytes()).and_then(|()| new.sync_all());
    // A hard link never replaces an existing key.
    let linked = written.and_then(|()| std::fs::hard_link(&new_path, folder.join(name)));
    let _ = std::fs::remove_file(&new_path);
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // On disk before anything is encrypted with it.
        linked => linked.and_then(|()| File::open(&folder)?.sync_all()).map_err(failed),
    }
}
