//! How a client is written down: a row of the database, and before that an entry of `clients.json`.

use super::token::ClientTokenDigest;
use super::{ClientInfo, check_name};
use crate::database::{Record, RecordTable};
use crate::sealed_record_table;
use jiff::Timestamp;
use portcullis_core::{Effect, EffectSet, ToolView};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Deserialize)]
struct LegacyContents {
    clients: Vec<ClientRecord>,
}

/// One client. What a newer program has added is not read.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ClientRecord {
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

impl ClientRecord {
    pub(super) fn new(info: &ClientInfo, digest: ClientTokenDigest) -> ClientRecord {
        ClientRecord {
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
        check_name(&self.name).map_err(|e| e.to_string())?;
        let effects: Result<EffectSet, String> =
            self.effects.iter().map(|name| name.parse::<Effect>()).collect();
        Ok(ClientInfo {
            name: self.name.clone(),
            token_hint: self.token_hint.clone(),
            allow: self.allow.clone(),
            deny: self.deny.clone(),
            effects: effects.map_err(|e| format!("client `{}`: {e}", self.name))?,
            tools: match self.tools.as_deref() {
                None | Some("all") => ToolView::All,
                Some("search") => ToolView::Search,
                Some(_) => {
                    return Err(format!("client `{}`: `tools` is `all` or `search`", self.name));
                }
            },
            created: self.created,
            expires: self.expires,
        })
    }

    pub(super) fn digest(&self) -> Result<ClientTokenDigest, String> {
        let expected = || format!("client `{}`: `token_sha256` is not 64 hex digits", self.name);
        ClientTokenDigest::from_hex(&self.token_sha256).ok_or_else(expected)
    }
}

impl Record for ClientRecord {
    const TABLE: RecordTable = sealed_record_table!("clients");

    fn key(&self) -> &str {
        &self.name
    }
}

/// Reads the file of earlier versions.
pub(crate) fn read_legacy(value: Value) -> Result<Vec<ClientRecord>, String> {
    serde_json::from_value::<LegacyContents>(value)
        .map(|contents| contents.clients)
        .map_err(|e| e.to_string())
}
