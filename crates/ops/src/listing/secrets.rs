//! Secrets, as `--json` prints them.

use jiff::Timestamp;
use portcullis_core::{Clock, SystemClock};
use portcullis_store::secrets::{Grant, SecretInfo};
use serde::Serialize;

#[derive(Serialize)]
pub struct SecretListing<'a> {
    name: &'a str,
    grants: Vec<GrantListing<'a>>,
    created: Timestamp,
    updated: Timestamp,
    /// Age of the value.
    pub age_secs: u64,
    pending: bool,
}

#[derive(Serialize)]
struct GrantListing<'a> {
    host: &'a str,
    field: &'a str,
}

impl SecretListing<'_> {
    pub fn of(info: &SecretInfo) -> SecretListing<'_> {
        let now = SystemClock.since_epoch().as_secs();
        SecretListing {
            name: &info.name,
            grants: info.grants.iter().map(GrantListing::of).collect(),
            created: info.created,
            updated: info.updated,
            age_secs: now.saturating_sub(u64::try_from(info.updated.as_second()).unwrap_or(0)),
            pending: info.pending,
        }
    }
}

impl GrantListing<'_> {
    fn of(grant: &Grant) -> GrantListing<'_> {
        GrantListing { host: grant.host(), field: grant.field() }
    }
}
