//! Clients, as `--json` prints them.

use jiff::Timestamp;
use portcullis_core::SystemClock;
use portcullis_store::clients::ClientInfo;
use serde::Serialize;

#[derive(Serialize)]
pub struct ClientListing<'a> {
    name: &'a str,
    token_hint: &'a str,
    allow: &'a [String],
    deny: &'a [String],
    effects: Vec<&'static str>,
    tools: &'static str,
    created: Timestamp,
    expires: Option<Timestamp>,
    expired: bool,
}

impl ClientListing<'_> {
    pub fn of(info: &ClientInfo) -> ClientListing<'_> {
        ClientListing {
            name: &info.name,
            token_hint: &info.token_hint,
            allow: &info.allow,
            deny: &info.deny,
            effects: info.effects.iter().map(|effect| effect.as_str()).collect(),
            tools: info.tools.as_str(),
            created: info.created,
            expires: info.expires,
            expired: info.is_expired(&SystemClock),
        }
    }
}
