//! Rows of administrators, and which links and sessions expire.

use super::password::StoredPassword;
use super::{AdminError, AdminInfo};
use crate::database::{
    DatabaseError, EncodedRows, Record, RecordTable, Topic, TopicRows, TopicState, TopicStore, Transaction,
    encode_records, load_records,
};
use crate::sealed_record_table;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The rows of administrators, links and sessions, which change together.
#[derive(Clone, Default, Deserialize)]
pub(crate) struct AdminRows {
    #[serde(default)]
    pub(super) admins: Vec<AdminRecord>,
    #[serde(default)]
    pub(super) links: Vec<LinkRecord>,
    #[serde(default)]
    pub(super) sessions: Vec<SessionRecord>,
}

impl TopicRows for AdminRows {
    fn load<'t>(transaction: &'t mut Transaction<'_>) -> BoxFuture<'t, Result<AdminRows, DatabaseError>> {
        Box::pin(async move {
            Ok(AdminRows {
                admins: load_records(transaction).await?,
                links: load_records(transaction).await?,
                sessions: load_records(transaction).await?,
            })
        })
    }

    fn encode(&self) -> Result<EncodedRows, DatabaseError> {
        Ok(vec![encode_records(&self.admins)?, encode_records(&self.links)?, encode_records(&self.sessions)?])
    }
}

impl TopicState for AdminRows {
    type Rows = AdminRows;
    const TOPIC: Topic = Topic::new("admins");
    /// The maximum of every kind of record, with room.
    const BYTES_MAX: usize = 1024 * 1024;

    fn of(rows: &AdminRows) -> Result<AdminRows, String> {
        Ok(rows.clone())
    }
}

/// Reads the file of earlier versions.
pub(crate) fn read_legacy(value: Value) -> Result<AdminRows, String> {
    serde_json::from_value(value).map_err(|e| e.to_string())
}

impl Record for AdminRecord {
    const TABLE: RecordTable = sealed_record_table!("admins");

    fn key(&self) -> &str {
        &self.name
    }
}

impl Record for LinkRecord {
    const TABLE: RecordTable = sealed_record_table!("admin_links");

    fn key(&self) -> &str {
        &self.sha256
    }
}

impl Record for SessionRecord {
    const TABLE: RecordTable = sealed_record_table!("admin_sessions");

    fn key(&self) -> &str {
        &self.id
    }
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct AdminRecord {
    pub(super) name: String,
    pub(super) password: StoredPassword,
    pub(super) created: Timestamp,
    pub(super) changed: Timestamp,
}

impl AdminRecord {
    pub(super) fn info(&self) -> AdminInfo {
        AdminInfo { name: self.name.clone(), created: self.created, changed: self.changed }
    }
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct LinkRecord {
    pub(super) sha256: String,
    pub(super) expires: Timestamp,
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct SessionRecord {
    pub(super) id: String,
    pub(super) sha256: String,
    pub(super) admin: String,
    pub(super) created: Timestamp,
    pub(super) seen: Timestamp,
    pub(super) from: String,
    pub(super) browser: String,
}

/// Changes the rows, without those that have expired.
pub(super) fn change<T>(
    topic: &TopicStore<AdminRows>,
    now: Timestamp,
    change: impl FnOnce(&mut AdminRows) -> Result<T, AdminError>,
) -> Result<T, AdminError> {
    topic.change(|rows| {
        rows.links.retain(|link| now < link.expires);
        rows.sessions.retain(|session| session.is_good(now));
        change(rows)
    })
}
