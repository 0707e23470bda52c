//! Where the key comes from.
//!
//! The key never lies with what it locks: a copy of the data folder alone, in a backup for instance, opens nothing.

use super::cipher::{Derivation, SALT_BYTES, SourceId};
use super::{FILE_NAME, SecretError, keyring};
use crate::kept::{FileError, Stamp};
use portcullis_core::Secret;
use std::ffi::OsString;
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

pub(super) const KEY_BYTES: usize = 32;
/// A key as hex digits, with the end of its line.
const KEY_FILE_BYTES_MAX: usize = 2 * KEY_BYTES + 2;
const PASSPHRASE_BYTES_MAX: usize = 1024;
/// Argon2id slows guessing down; it does not save a passphrase that is in every list.
const PASSPHRASE_CHARS_MIN: usize = 12;

// RFC 9106, second choice, but for the lanes, which would need threads: 0.2 s and 64 MiB, once per process.
const MEMORY_KIB: u32 = 64 * 1024;
const PASSES: u32 = 3;
const LANES: u32 = 1;
// What a header may ask for. It is believed before it is authenticated.
const MEMORY_KIB_MAX: u32 = 256 * 1024;
const PASSES_MAX: u32 = 16;
const LANES_MAX: u32 = 16;

/// The name of the systemd credential: `LoadCredentialEncrypted=portcullis-key:…`.
const CREDENTIAL_NAME: &str = "portcullis-key";
const ROOT: u32 = 0;

/// The key that everything is derived from. Gone from memory when dropped.
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

    /// Reads a key as it is kept: 32 bytes, or 64 hex digits and perhaps the end of a line.
    pub(super) fn parse(bytes: &[u8]) -> Option<MasterKey> {
        let mut key = MasterKey(Zeroizing::new([0; KEY_BYTES]));
        if bytes.len() == KEY_BYTES {
            key.0.copy_from_slice(bytes);
            return Some(key);
        }
        let (pairs, []) = bytes.trim_ascii_end().as_chunks::<2>() else { return None };
        if pairs.len() != KEY_BYTES {
            return None;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        for (byte, [high, low]) in key.0.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(key)
    }

    pub(super) fn to_hex(&self) -> Zeroizing<String> {
        let digits = self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let mut hex = Zeroizing::new(String::with_capacity(2 * KEY_BYTES));
        hex.extend(digits.filter_map(|digit| char::from_digit(digit.into(), 16)));
        hex
    }

    pub(super) fn derive(passphrase: &str, derivation: Derivation) -> Result<MasterKey, SecretError> {
        let Derivation { memory_kib, passes, lanes, salt } = derivation;
        if memory_kib > MEMORY_KIB_MAX || passes > PASSES_MAX || lanes > LANES_MAX {
            let why =
                format!("{FILE_NAME} is damaged: its header asks for more memory or time than it ever may");
            return Err(SecretError::Damaged(why));
        }
        let damaged =
            |e: argon2::Error| SecretError::Damaged(format!("{FILE_NAME} is damaged: its header: {e}"));
        let params = argon2::Params::new(memory_kib, passes, lanes, Some(KEY_BYTES)).map_err(damaged)?;
        let argon2 = argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params);
        let mut key = MasterKey(Zeroizing::new([0; KEY_BYTES]));
        argon2.hash_password_into(passphrase.as_bytes(), &salt, &mut *key.0).map_err(damaged)?;
        Ok(key)
    }
}

impl Derivation {
    pub(super) fn fresh() -> Result<Derivation, SecretError> {
        let mut salt = [0; SALT_BYTES];
        getrandom::fill(&mut salt).map_err(SecretError::Random)?;
        Ok(Derivation { memory_kib: MEMORY_KIB, passes: PASSES, lanes: LANES, salt })
    }
}

/// Where the key of a store is. Nothing is read before a key is needed.
pub enum KeySource {
    /// A file that systemd made for this service alone.
    Credential(PathBuf),
    /// A file of this user. It is made with the first secret; it may not lie below any of the folders `data`.
    File { path: PathBuf, data: Vec<PathBuf> },
    /// The desktop's keyring, by way of the program `secret-tool`.
    Keyring { program: PathBuf },
    /// A passphrase in a file of this user.
    PassphraseFile(PathBuf),
    /// A passphrase that someone has just typed.
    Passphrase(Secret<Zeroizing<String>>),
    /// A passphrase that nobody is there to type.
    Unasked,
    /// There is no key to be had, for this reason.
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

/// What a configuration says of the key. What the environment says comes first.
#[derive(Debug, Clone, Default)]
pub struct WantedKey {
    pub kind: Option<KeyKind>,
    pub file: Option<PathBuf>,
}

/// Whether a store exists, and what kind of key it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// There is no store yet, or it cannot be read.
    None,
    Key,
    Passphrase,
}

impl KeySource {
    /// Finds the key: as the environment says, or else as `wanted` does, or the first of a systemd credential, a passphrase where the store was
    /// made with one, and the key file of this user.
    ///
    /// `PORTCULLIS_KEY` is `credential`, `keyring`, `file` or `passphrase`; `PORTCULLIS_KEY_FILE` and
    /// `PORTCULLIS_PASSPHRASE_FILE` name files.
    pub fn detect(
        env: impl Fn(&str) -> Option<OsString>,
        wanted: &WantedKey,
        data: Vec<PathBuf>,
        lock: Lock,
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
                    return KeySource::Missing(format!("PORTCULLIS_KEY names no kind of key; {expected}"));
                }
            },
        };
        let Some(kind) = kind else {
            return match credential.filter(|path| path.exists()) {
                Some(path) => KeySource::Credential(path),
                None if passphrase_file.is_some() || lock == Lock::Passphrase => passphrase(passphrase_file),
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

    pub(super) fn id(&self) -> Option<SourceId> {
        match self {
            KeySource::Credential(_) => Some(SourceId::Credential),
            KeySource::File { .. } => Some(SourceId::File),
            KeySource::Keyring { .. } => Some(SourceId::Keyring),
            KeySource::PassphraseFile(_) | KeySource::Passphrase(_) | KeySource::Unasked => {
                Some(SourceId::Passphrase)
            }
            KeySource::Missing(_) => None,
        }
    }

    /// Returns what changes when another key is put in place; `None` where that cannot be seen.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        match self {
            KeySource::Credential(path) | KeySource::File { path, .. } | KeySource::PassphraseFile(path) => {
                std::fs::metadata(path).ok().map(|metadata| Stamp::of(&metadata))
            }
            KeySource::Keyring { .. } | KeySource::Passphrase(_) | KeySource::Unasked => None,
            KeySource::Missing(_) => None,
        }
    }

    /// Returns the key; not for passphrases. With `Make::IfMissing` one that does not exist yet is made.
    pub(super) fn key(&self, make: Make) -> Result<MasterKey, SecretError> {
        match self {
            KeySource::Credential(path) => {
                // Where the service is another user's, an access list shows as rights of the group.
                read_key(path, 0o027)
            }
            KeySource::File { path, data } => {
                if make == Make::IfMissing && !path.exists() {
                    make_key_file(path, data)?;
                }
                check_place(path, data)?;
                read_key(path, 0o077)
            }
            KeySource::Keyring { program } => keyring::key(program, make),
            KeySource::Missing(why) => Err(SecretError::Locked(why.clone())),
            KeySource::PassphraseFile(_) | KeySource::Passphrase(_) | KeySource::Unasked => {
                let why = format!("{FILE_NAME} is locked with a key, and a passphrase was given");
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
                "{FILE_NAME} is locked with a passphrase; put it in a file with mode 600 and name that with PORTCULLIS_PASSPHRASE_FILE"
            ))),
        }
    }

    /// Refuses a passphrase that is not worth its name, before a store is made with it.
    pub(super) fn new_passphrase(&self) -> Result<Zeroizing<String>, SecretError> {
        let passphrase = self.passphrase()?;
        if passphrase.chars().count() < PASSPHRASE_CHARS_MIN {
            return Err(SecretError::WeakPassphrase { least: PASSPHRASE_CHARS_MIN });
        }
        Ok(passphrase)
    }
}

/// Whether a key that is not there is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Make {
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

/// Reads a small file that only this user can.
fn read_private(
    what: &str,
    path: &Path,
    open_to_others: u32,
    bytes_max: usize,
) -> Result<Zeroizing<Vec<u8>>, SecretError> {
    let locked = |why: String| SecretError::Locked(format!("the {what} `{}` {why}", path.display()));
    let cannot = |e: io::Error| locked(format!("cannot be read: {e}"));
    // Through links, which is how many systems mount such files, but without waiting on a pipe.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(cannot)?;
    let metadata = file.metadata().map_err(cannot)?;
    check_private(&metadata, open_to_others).map_err(locked)?;
    // Filled in one piece: a buffer that grows leaves copies behind.
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
        return Err("is open to other users; if nobody can have read it, `chmod 600` it".to_owned());
    }
    if ![ROOT, rustix::process::geteuid().as_raw()].contains(&metadata.uid()) {
        return Err("belongs to another user".to_owned());
    }
    Ok(())
}

/// Refuses a key that lies with the data: whoever gets a copy of one would have both.
fn check_place(path: &Path, data: &[PathBuf]) -> Result<(), SecretError> {
    let cannot =
        |e: io::Error| SecretError::Locked(format!("the key `{}` cannot be read: {e}", path.display()));
    let place = path.canonicalize().map_err(cannot)?;
    refuse_inside(path, &place, data)
}

fn refuse_inside(path: &Path, place: &Path, data: &[PathBuf]) -> Result<(), SecretError> {
    let inside = |folder: &PathBuf| place.starts_with(folder.canonicalize().as_ref().unwrap_or(folder));
    if data.iter().any(inside) {
        return Err(SecretError::Locked(format!(
            "the key `{}` lies inside of the data folder, where every copy of the data has it too; move it, and name its place with PORTCULLIS_KEY_FILE",
            path.display()
        )));
    }
    Ok(())
}

/// Makes a key file, unless another process is faster; then that one's is as good.
fn make_key_file(path: &Path, data: &[PathBuf]) -> Result<(), SecretError> {
    let failed = |e: io::Error| SecretError::from(FileError::new("make", path, e));
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(SecretError::Locked(format!("`{}` is not a path for a key", path.display())));
    };
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    let folder = folder.canonicalize().map_err(failed)?;
    refuse_inside(path, &folder.join(name), data)?;
    let new_path = folder.join(format!("key.{}.new", std::process::id()));
    let key = MasterKey::random()?;
    let _ = std::fs::remove_file(&new_path);
    let mut new =
        OpenOptions::new().create_new(true).write(true).mode(0o600).open(&new_path).map_err(failed)?;
    let written = new.write_all(key.bytes()).and_then(|()| new.sync_all());
    // A link, because it never takes the place of a key that is there.
    let linked = written.and_then(|()| std::fs::hard_link(&new_path, folder.join(name)));
    let _ = std::fs::remove_file(&new_path);
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // On disk before anything is locked with it.
        linked => linked.and_then(|()| File::open(&folder)?.sync_all()).map_err(failed),
    }
}
