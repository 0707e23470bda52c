//! Plaintext of the secret store: an index in JSON, followed by the concatenated values.
//!
//! The values are outside of the JSON, so that no parser makes copies that are never wiped.

use super::grant::{Grant, check_name};
use super::server_logins::is_login_name;
use super::{STORE, SecretError, SecretInfo, VALUE_BYTES_MAX, VALUE_BYTES_MIN};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::HashSet;
use zeroize::Zeroizing;

/// Room for the GCM tag, so that the buffer is never reallocated.
const TAG_ROOM: usize = 64;

/// One secret.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct SecretRecord {
    pub(super) info: SecretInfo,
    pub(super) value: Zeroizing<String>,
    /// What a newer program has added, which is sealed again as it was.
    pub(super) rest: Map<String, Value>,
}

impl SecretRecord {
    pub(super) fn new(info: SecretInfo, value: Zeroizing<String>) -> SecretRecord {
        SecretRecord { info, value, rest: Map::new() }
    }
}

#[derive(Serialize, Deserialize)]
struct SecretEntry {
    name: String,
    bytes: usize,
    grants: Vec<Grant>,
    created: Timestamp,
    updated: Timestamp,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pending: bool,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

pub(super) fn encode(records: &[SecretRecord]) -> Result<Zeroizing<Vec<u8>>, SecretError> {
    let list: Vec<SecretEntry> = records
        .iter()
        .map(|SecretRecord { info, value, rest }| SecretEntry {
            name: info.name.clone(),
            bytes: value.len(),
            grants: info.grants.clone(),
            created: info.created,
            updated: info.updated,
            pending: info.pending,
            rest: rest.clone(),
        })
        .collect();
    let json = serde_json::to_vec(&list).map_err(|e| SecretError::Damaged(e.to_string()))?;
    let json_bytes = u32::try_from(json.len()).map_err(|_| SecretError::Full)?;
    let values_bytes: usize = records.iter().map(|record| record.value.len()).sum();
    let mut contents = Zeroizing::new(Vec::with_capacity(4 + json.len() + values_bytes + TAG_ROOM));
    contents.extend_from_slice(&json_bytes.to_be_bytes());
    contents.extend_from_slice(&json);
    records.iter().for_each(|record| contents.extend_from_slice(record.value.as_bytes()));
    Ok(contents)
}

/// Parses what [`encode`] wrote, and nothing else.
pub(super) fn decode(contents: &[u8]) -> Result<Vec<SecretRecord>, SecretError> {
    let damaged = |why: &str| SecretError::Damaged(format!("{STORE} is damaged: {why}"));
    let ends_early = || damaged("its contents are truncated");
    let (json_bytes, rest) = contents.split_first_chunk().ok_or_else(ends_early)?;
    let json_bytes = usize::try_from(u32::from_be_bytes(*json_bytes)).map_err(|_| ends_early())?;
    let (json, mut values) = rest.split_at_checked(json_bytes).ok_or_else(ends_early)?;
    let list: Vec<SecretEntry> = serde_json::from_slice(json).map_err(|e| damaged(&e.to_string()))?;
    let mut names = HashSet::new();
    let mut records = Vec::with_capacity(list.len());
    for SecretEntry { name, bytes, grants, created, updated, pending, rest } in list {
        if !is_login_name(&name) {
            check_name(&name)?;
        }
        if !names.insert(name.clone()) {
            return Err(damaged(&format!("`{name}` is in it twice")));
        }
        if !grants.iter().all(Grant::is_sound) {
            return Err(damaged(&format!("a grant of `{name}` is invalid")));
        }
        let (value, values_after) = values.split_at_checked(bytes).ok_or_else(ends_early)?;
        values = values_after;
        let value = std::str::from_utf8(value).map_err(|_| damaged(&format!("`{name}` is not text")))?;
        if !(VALUE_BYTES_MIN..=VALUE_BYTES_MAX).contains(&value.len()) {
            return Err(damaged(&format!("`{name}` is too short or too long")));
        }
        let value = Zeroizing::new(value.to_owned());
        let info = SecretInfo { name, grants, created, updated, pending };
        records.push(SecretRecord { info, value, rest });
    }
    if values.is_empty() { Ok(records) } else { Err(damaged("there are extra bytes after its contents")) }
}
