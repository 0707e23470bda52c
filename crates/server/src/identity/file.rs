//! `clients.json`: reading it, watching it, and replacing it so that no reader ever sees half of it.

use super::token::Digest;
use super::{ClientInfo, IdentityError, Known, check_name};
use jiff::Timestamp;
use portcullis_core::{Effect, EffectSet};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub(super) const FILE_NAME: &str = "clients.json";
/// Written in full before it takes the place of the file. One that a crash left behind is never read.
const NEW_NAME: &str = "clients.json.new";
/// Locked by whoever changes the file. The file itself is replaced, so a lock on it would not hold.
const LOCK_NAME: &str = "clients.lock";

const VERSION: u32 = 1;
/// Ten thousand clients with long lists of globs.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Only the owner reads and writes.
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;
const ROOT: u32 = 0;
/// Whoever can write the file can let anyone in.
const WRITABLE_BY_OTHERS: u32 = 0o022;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    version: u32,
    clients: Vec<Record>,
}

/// One client as the file has it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) name: String,
    token_sha256: String,
    token_hint: String,
    allow: Vec<String>,
    effects: Vec<String>,
    created: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
}

impl Record {
    pub(super) fn new(info: &ClientInfo, digest: Digest) -> Record {
        Record {
            name: info.name.clone(),
            token_sha256: digest.to_hex(),
            token_hint: info.token_hint.clone(),
            allow: info.allow.clone(),
            effects: info.effects.iter().map(|effect| effect.as_str().to_owned()).collect(),
            created: info.created,
            expires: info.expires,
        }
    }

    pub(super) fn info(&self) -> Result<ClientInfo, String> {
        check_name(&self.name).map_err(|e| format!("{FILE_NAME}: {e}"))?;
        let effects: Result<EffectSet, String> =
            self.effects.iter().map(|name| name.parse::<Effect>()).collect();
        Ok(ClientInfo {
            name: self.name.clone(),
            token_hint: self.token_hint.clone(),
            allow: self.allow.clone(),
            effects: effects.map_err(|e| format!("client `{}` in {FILE_NAME}: {e}", self.name))?,
            created: self.created,
            expires: self.expires,
        })
    }

    pub(super) fn digest(&self) -> Result<Digest, String> {
        let expected =
            || format!("client `{}` in {FILE_NAME}: `token_sha256` is not 64 hex digits", self.name);
        Digest::from_hex(&self.token_sha256).ok_or_else(expected)
    }
}

/// What changes whenever the file does.
///
/// A replaced file has another number, which is certain as long as the old one is kept open. An edit in
/// place is seen by its size and times; one of the same size within the same tick of the kernel is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    mode: u32,
    owner: u32,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            mode: metadata.mode(),
            owner: metadata.uid(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// The stamp of what was read, and the file itself where it could be opened.
pub(super) type Opened = (Stamp, Option<File>);

/// The folder that holds the file.
pub(super) struct Store {
    dir: PathBuf,
    path: PathBuf,
}

impl Store {
    pub(super) fn open(dir: &Path) -> Result<Store, IdentityError> {
        let made = DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(dir);
        made.map_err(|e| io_error("make", dir, e))?;
        Ok(Store { dir: dir.to_owned(), path: dir.join(FILE_NAME) })
    }

    /// Returns the stamp of the file as it is now; `None` if there is none.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        std::fs::symlink_metadata(&self.path).ok().map(|metadata| Stamp::of(&metadata))
    }

    /// Reads the file. A missing one has no clients; any other trouble is told in words.
    pub(super) fn read(&self) -> (Option<Opened>, Result<Vec<Record>, String>) {
        // Not through a link, and without waiting on a pipe that someone put in its place.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let mut file = match OpenOptions::new().read(true).custom_flags(flags).open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return (None, Ok(Vec::new())),
            // The stamp is remembered all the same, so that every request does not try again.
            Err(error) => {
                let why = format!("cannot read {FILE_NAME}: {error}");
                return (self.stamp().map(|stamp| (stamp, None)), Err(why));
            }
        };
        let metadata = match file.metadata() {
            Ok(metadata) => metadata,
            Err(error) => return (None, Err(format!("cannot read {FILE_NAME}: {error}"))),
        };
        let records = read_records(&mut file, &metadata);
        (Some((Stamp::of(&metadata), Some(file))), records)
    }

    /// Changes the clients. The change is on disk when this returns, or did not happen.
    pub(super) fn change<T>(
        &self,
        change: impl FnOnce(&mut Vec<Record>) -> Result<T, IdentityError>,
    ) -> Result<T, IdentityError> {
        let lock_path = self.dir.join(LOCK_NAME);
        let lock =
            OpenOptions::new().create(true).truncate(false).write(true).mode(PRIVATE_FILE).open(&lock_path);
        let lock = lock.map_err(|e| io_error("open", &lock_path, e))?;
        lock.lock().map_err(|e| io_error("lock", &lock_path, e))?;
        // A damaged file is not overwritten: a person may still be able to mend it.
        let mut records = self.read().1.map_err(IdentityError::Corrupt)?;
        Known::of(&records).map_err(IdentityError::Corrupt)?;
        let done = change(&mut records)?;
        self.replace(records)?;
        Ok(done)
    }

    fn replace(&self, clients: Vec<Record>) -> Result<(), IdentityError> {
        let failed = |e: io::Error| io_error("write", &self.path, e);
        let contents = Contents { version: VERSION, clients };
        let mut text = serde_json::to_string_pretty(&contents).map_err(|e| failed(e.into()))?;
        text.push('\n');
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(IdentityError::Full);
        }
        let new_path = self.dir.join(NEW_NAME);
        match std::fs::remove_file(&new_path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let mut new = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(PRIVATE_FILE)
            .open(&new_path)
            .map_err(failed)?;
        new.write_all(text.as_bytes()).map_err(failed)?;
        new.sync_all().map_err(failed)?;
        std::fs::rename(&new_path, &self.path).map_err(failed)?;
        // The new name must last as well as the new contents.
        File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(failed)
    }
}

fn read_records(file: &mut File, metadata: &Metadata) -> Result<Vec<Record>, String> {
    if !metadata.is_file() {
        return Err(format!("{FILE_NAME} is not a regular file"));
    }
    if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(format!("{FILE_NAME} can be written by others; check it, then `chmod 600` it"));
    }
    if ![ROOT, rustix::process::geteuid().as_raw()].contains(&metadata.uid()) {
        return Err(format!("{FILE_NAME} belongs to another user"));
    }
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|e| format!("cannot read {FILE_NAME}: {e}"))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("{FILE_NAME} is larger than {FILE_BYTES_MAX} bytes"));
    }
    let damaged = |e: serde_json::Error| format!("{FILE_NAME} is damaged: {e}");
    let value = portcullis_core::json::parse_strict(&text).map_err(damaged)?;
    // Looked at first, so that a file of a later version is told apart from a damaged one.
    match value.get("version").and_then(serde_json::Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => {}
        Some(version) => {
            return Err(format!("{FILE_NAME} is of version {version}, this program reads version {VERSION}"));
        }
        None => return Err(format!("{FILE_NAME} is damaged: it has no version")),
    }
    Ok(Contents::deserialize(&value).map_err(damaged)?.clients)
}

fn io_error(doing: &'static str, path: &Path, source: io::Error) -> IdentityError {
    IdentityError::Io { doing, path: path.display().to_string(), source }
}
