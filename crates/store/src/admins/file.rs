//! `admins.json`: how administrators are written down, and which links and sessions are forgotten.

use super::password::Hashed;
use super::{AdminError, AdminInfo};
use crate::kept::{Closed, KeptFile, versioned};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::path::Path;

pub(super) const FILE_NAME: &str = "admins.json";
const VERSION: u32 = 1;
/// As many of everything as is kept, with room.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Contents {
    version: u32,
    #[serde(default)]
    pub(super) admins: Vec<Record>,
    #[serde(default)]
    pub(super) links: Vec<LinkRecord>,
    #[serde(default)]
    pub(super) sessions: Vec<SessionRecord>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) name: String,
    pub(super) password: Hashed,
    pub(super) created: Timestamp,
    pub(super) changed: Timestamp,
}

impl Record {
    pub(super) fn info(&self) -> AdminInfo {
        AdminInfo { name: self.name.clone(), created: self.created, changed: self.changed }
    }
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LinkRecord {
    pub(super) sha256: String,
    pub(super) expires: Timestamp,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionRecord {
    pub(super) id: String,
    pub(super) sha256: String,
    pub(super) admin: String,
    pub(super) created: Timestamp,
    pub(super) seen: Timestamp,
    pub(super) from: String,
    pub(super) browser: String,
}

pub(super) fn in_folder(dir: &Path) -> KeptFile {
    KeptFile::new(dir, FILE_NAME, FILE_BYTES_MAX, Closed::ToReading)
}

pub(super) fn parse(bytes: Option<&[u8]>) -> Result<Contents, String> {
    let Some(bytes) = bytes else { return Ok(Contents::default()) };
    let value = versioned(FILE_NAME, VERSION, bytes)?;
    Contents::deserialize(&value).map_err(|e| format!("{FILE_NAME} is damaged: {e}"))
}

/// Changes the file. The change is on disk when this returns, or did not happen.
pub(super) fn change<T>(
    file: &KeptFile,
    now: Timestamp,
    change: impl FnOnce(&mut Contents) -> Result<T, AdminError>,
) -> Result<T, AdminError> {
    let lock = file.lock()?;
    // A damaged file is not overwritten: a person may still be able to mend it.
    let bytes = file.read().bytes.map_err(AdminError::Damaged)?;
    let mut contents = parse(bytes.as_deref()).map_err(AdminError::Damaged)?;
    contents.links.retain(|link| now < link.expires);
    contents.sessions.retain(|session| session.is_good(now));
    let done = change(&mut contents)?;
    contents.version = VERSION;
    let mut text = serde_json::to_string_pretty(&contents).map_err(|e| AdminError::Damaged(e.to_string()))?;
    text.push('\n');
    if text.len() as u64 > file.bytes_max() {
        return Err(AdminError::Full);
    }
    lock.replace(text.as_bytes())?;
    Ok(done)
}
