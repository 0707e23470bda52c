//! `clients.json`: how the directory is written down.

use super::token::Digest;
use super::{ClientInfo, IdentityError, Known, check_name};
use crate::kept::{Closed, KeptFile, versioned};
use jiff::Timestamp;
use portcullis_core::{Effect, EffectSet, ToolView};
use serde::{Deserialize, Serialize};
use std::path::Path;

pub(super) const FILE_NAME: &str = "clients.json";
const VERSION: u32 = 1;
/// Ten thousand clients with long lists of globs.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    deny: Vec<String>,
    effects: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tools: Option<String>,
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
            deny: info.deny.clone(),
            effects: info.effects.iter().map(|effect| effect.as_str().to_owned()).collect(),
            tools: (info.tools == ToolView::Search).then(|| info.tools.as_str().to_owned()),
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
            deny: self.deny.clone(),
            effects: effects.map_err(|e| format!("client `{}` in {FILE_NAME}: {e}", self.name))?,
            tools: match self.tools.as_deref() {
                None | Some("all") => ToolView::All,
                Some("search") => ToolView::Search,
                Some(_) => {
                    return Err(format!(
                        "client `{}` in {FILE_NAME}: `tools` is `all` or `search`",
                        self.name
                    ));
                }
            },
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

pub(super) fn in_folder(dir: &Path) -> KeptFile {
    KeptFile::new(dir, FILE_NAME, FILE_BYTES_MAX, Closed::ToWriting)
}

/// Changes the clients. The change is on disk when this returns, or did not happen.
pub(super) fn change<T>(
    file: &KeptFile,
    change: impl FnOnce(&mut Vec<Record>) -> Result<T, IdentityError>,
) -> Result<T, IdentityError> {
    let lock = file.lock()?;
    // A damaged file is not overwritten: a person may still be able to mend it.
    let mut clients = read(file).map_err(IdentityError::Corrupt)?;
    Known::of(&clients).map_err(IdentityError::Corrupt)?;
    let done = change(&mut clients)?;
    let contents = Contents { version: VERSION, clients };
    let mut text =
        serde_json::to_string_pretty(&contents).map_err(|e| IdentityError::Corrupt(e.to_string()))?;
    text.push('\n');
    if text.len() as u64 > file.bytes_max() {
        return Err(IdentityError::Full);
    }
    lock.replace(text.as_bytes())?;
    Ok(done)
}

/// Reads the file anew. A missing one has no clients; any other trouble is told in words.
pub(super) fn read(file: &KeptFile) -> Result<Vec<Record>, String> {
    parse(file.read().bytes?.as_deref())
}

pub(super) fn parse(bytes: Option<&[u8]>) -> Result<Vec<Record>, String> {
    let Some(bytes) = bytes else { return Ok(Vec::new()) };
    let value = versioned(FILE_NAME, VERSION, bytes)?;
    Ok(Contents::deserialize(&value).map_err(|e| format!("{FILE_NAME} is damaged: {e}"))?.clients)
}
