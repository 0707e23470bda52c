//! Pins: every definition of every trusted server, as a person reviewed it (defence against rug pulls).
//!
//! Trust covers a snapshot of a server: how it is reached, its instructions, and the whole definition of each tool, prompt
//! and template. What is new or different afterwards waits for review. The hub reads the pins from memory at every call;
//! revoked trust is gone when the revocation returns. Pins that cannot be read trust no server (fail closed).

mod canonical;
mod difference;
mod tool_review;

pub use canonical::{canonical, digest};
pub use difference::{PinDifference, differences};
pub use tool_review::{AdvertisedHints, ReviewedEffect, ToolReview, TrustPolicy};

use crate::database::{Database, DatabaseError, Record, RecordTable, Topic, TopicState, TopicStore};
use crate::sealed_record_table;
use jiff::Timestamp;
use portcullis_core::Clock;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// Some hundred servers with some hundred tools each.
const BYTES_MAX: usize = 64 * 1024 * 1024;
const SERVERS_MAX: usize = 1_000;

#[derive(Debug, thiserror::Error)]
pub enum PinError {
    #[error("{0}")]
    Damaged(String),
    #[error("there are already {SERVERS_MAX} trusted servers; `portcullis mcp remove` unused ones")]
    Full,
    #[error("the server's definitions are too large to pin: all pins together may have {BYTES_MAX} bytes")]
    TooLarge,
    #[error(transparent)]
    Database(DatabaseError),
}

impl From<DatabaseError> for PinError {
    fn from(error: DatabaseError) -> PinError {
        if error.is_too_large() { PinError::TooLarge } else { PinError::Database(error) }
    }
}

/// Identity of a server: facts by name, such as its command, the digest of its program, its URL and its own
/// name.
pub type ServerIdentity = BTreeMap<String, String>;

/// One definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefinitionPin {
    /// SHA-256 of the canonical text.
    pub sha256: String,
    /// The canonical text, to show a diff later.
    pub definition: String,
}

impl DefinitionPin {
    /// Pins a definition. One without a canonical form cannot be pinned.
    pub fn of(json: &str) -> Result<DefinitionPin, String> {
        let definition = canonical(json)?;
        Ok(DefinitionPin { sha256: digest(&definition), definition })
    }
}

/// A snapshot of a server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ServerSnapshot {
    pub identity: ServerIdentity,
    pub instructions: Option<String>,
    pub tools: BTreeMap<String, DefinitionPin>,
    pub prompts: BTreeMap<String, DefinitionPin>,
    /// Its resource templates. Servers trusted before templates were pinned have none.
    #[serde(default)]
    pub templates: BTreeMap<String, DefinitionPin>,
}

/// A kind of definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PinKind {
    Tool,
    Prompt,
    Template,
}

impl PinKind {
    pub const ALL: [PinKind; 3] = [PinKind::Tool, PinKind::Prompt, PinKind::Template];

    pub fn as_str(self) -> &'static str {
        match self {
            PinKind::Tool => "tool",
            PinKind::Prompt => "prompt",
            PinKind::Template => "template",
        }
    }
}

impl ServerSnapshot {
    pub fn pins(&self, kind: PinKind) -> &BTreeMap<String, DefinitionPin> {
        match kind {
            PinKind::Tool => &self.tools,
            PinKind::Prompt => &self.prompts,
            PinKind::Template => &self.templates,
        }
    }
}

/// A server that a person trusts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustedServer {
    pub since: Timestamp,
    pub by: String,
    #[serde(rename = "as_it_was")]
    pub snapshot: ServerSnapshot,
    /// What the person decided about its tools. A server that was trusted before there were such decisions has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<ToolReview>,
}

/// A definition compared with its pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinStatus {
    Trusted,
    /// Not pinned.
    New,
    /// Differs from its pin.
    Changed,
    /// The server's identity differs from its pin, or the server is not trusted.
    Server,
}

impl PinStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            PinStatus::Trusted => "trusted",
            PinStatus::New => "new",
            PinStatus::Changed => "changed",
            PinStatus::Server => "server not trusted",
        }
    }
}

impl TrustedServer {
    /// Compares a definition with its pin. The identity is checked first: another program may send the same
    /// definition.
    pub fn pin_status(
        &self,
        identity: &ServerIdentity,
        kind: PinKind,
        name: &str,
        sha256: &str,
    ) -> PinStatus {
        if self.snapshot.identity != *identity {
            return PinStatus::Server;
        }
        match self.snapshot.pins(kind).get(name) {
            None => PinStatus::New,
            Some(pin) if pin.sha256 == sha256 => PinStatus::Trusted,
            Some(_) => PinStatus::Changed,
        }
    }

    pub fn are_instructions_trusted(&self, identity: &ServerIdentity, instructions: Option<&str>) -> bool {
        self.snapshot.identity == *identity && self.snapshot.instructions.as_deref() == instructions
    }
}

/// The row of a trusted server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PinRecord {
    server: String,
    #[serde(flatten)]
    trusted: TrustedServer,
}

impl Record for PinRecord {
    const TABLE: RecordTable = sealed_record_table!("pins");

    fn key(&self) -> &str {
        &self.server
    }
}

/// All trusted servers, by name.
pub(crate) struct PinTable(BTreeMap<String, Arc<TrustedServer>>);

impl TopicState for PinTable {
    type Rows = Vec<PinRecord>;
    const TOPIC: Topic = Topic::new("pins");
    const BYTES_MAX: usize = BYTES_MAX;

    fn of(rows: &Vec<PinRecord>) -> Result<PinTable, String> {
        for PinRecord { server, trusted } in rows {
            for (name, pin) in PinKind::ALL.into_iter().flat_map(|kind| trusted.snapshot.pins(kind)) {
                // A digest of another text would show a person one definition and trust another.
                if digest(&pin.definition) != pin.sha256 {
                    let (server, name) =
                        (portcullis_core::json::printable(server), portcullis_core::json::printable(name));
                    return Err(format!(
                        "the pins are damaged: the digest of `{name}` of `{server}` is wrong"
                    ));
                }
            }
        }
        let shared = rows.iter().map(|row| (row.server.clone(), Arc::new(row.trusted.clone())));
        Ok(PinTable(shared.collect()))
    }
}

/// Reads the file of earlier versions.
pub(crate) fn read_legacy(mut value: Value) -> Result<Vec<PinRecord>, String> {
    let servers: BTreeMap<String, TrustedServer> =
        serde_json::from_value(value["servers"].take()).map_err(|e| e.to_string())?;
    Ok(servers.into_iter().map(|(server, trusted)| PinRecord { server, trusted }).collect())
}

/// All trusted servers of one hub.
pub struct PinStore {
    topic: TopicStore<PinTable>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for PinStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pins")
    }
}

impl PinStore {
    pub fn open(database: &Database, clock: Arc<dyn Clock>) -> PinStore {
        PinStore { topic: TopicStore::open(database), clock }
    }

    /// Returns why no server is trusted, if the pins cannot be read.
    pub fn health(&self) -> Result<(), String> {
        self.topic.health()
    }

    /// Returns a receiver that is notified after each change.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.topic.subscribe()
    }

    /// Returns the pins of a server.
    pub fn of(&self, server: &str) -> Option<Arc<TrustedServer>> {
        self.topic.current().known.as_ref().ok()?.0.get(server).cloned()
    }

    /// Trusts a snapshot of a server.
    pub fn trust(
        &self,
        server: &str,
        snapshot: ServerSnapshot,
        review: ToolReview,
        by: &str,
    ) -> Result<(), PinError> {
        let since = Timestamp::try_from(self.clock.now()).unwrap_or_default();
        let trusted = TrustedServer { since, by: by.to_owned(), snapshot, review: Some(review) };
        let record = PinRecord { server: server.to_owned(), trusted };
        self.topic.change(|pins| {
            match pins.iter().position(|pin| pin.server == server) {
                Some(at) => pins[at] = record,
                None if pins.len() >= SERVERS_MAX => return Err(PinError::Full),
                None => pins.push(record),
            }
            Ok(())
        })
    }

    /// Revokes trust. Returns whether there was any.
    pub fn revoke(&self, server: &str) -> Result<bool, PinError> {
        self.topic.change(|pins| {
            let before = pins.len();
            pins.retain(|pin| pin.server != server);
            Ok(pins.len() < before)
        })
    }
}

#[cfg(test)]
mod tests;
