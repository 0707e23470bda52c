//! State of the upstream servers of a running hub, and overrides by a person.
//!
//! The hub writes `servers.json`, with one entry for each server; every process reads it. Overrides are rows of the database
//! that the hub follows: which servers are switched on or off against the configuration, and how often a reconnect was
//! requested.

use crate::database::{Database, DatabaseError, Record, RecordTable, Topic, TopicState, TopicStore};
use crate::locked_file::{FileError, FilePrivacy, LockedFile, versioned};
use crate::sealed_record_table;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use tokio::sync::watch;

const STATUS_NAME: &str = "servers.json";
const SERVICES_NAME: &str = "services.json";
const VERSION: u32 = 1;
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
const OVERRIDES_MAX: usize = 10_000;

#[derive(Debug, thiserror::Error)]
pub enum ServersError {
    #[error("{0}")]
    Damaged(String),
    #[error("{OVERRIDES_MAX} servers have an override already; `portcullis mcp remove` those that are gone")]
    Full,
    #[error(transparent)]
    Io(#[from] FileError),
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

/// A person's override for one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerOverride {
    /// `None` follows the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Whether it was imported, and must not run before a person has reviewed it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unseen: bool,
    /// Whether it was removed from the configuration. A hub may see this first, and must not start the server
    /// again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
    /// The hub reconnects whenever this number changes.
    pub reloads: u64,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct OverrideRecord {
    server: String,
    #[serde(flatten)]
    wanted: ServerOverride,
}

impl Record for OverrideRecord {
    const TABLE: RecordTable = sealed_record_table!("server_overrides");

    fn key(&self) -> &str {
        &self.server
    }
}

pub(crate) struct OverrideTable(BTreeMap<String, ServerOverride>);

impl TopicState for OverrideTable {
    type Rows = Vec<OverrideRecord>;
    const TOPIC: Topic = Topic::new("server_overrides");
    const BYTES_MAX: usize = 16 * 1024 * 1024;

    fn of(rows: &Vec<OverrideRecord>) -> Result<OverrideTable, String> {
        Ok(OverrideTable(rows.iter().map(|row| (row.server.clone(), row.wanted)).collect()))
    }
}

/// Reads the file of earlier versions.
pub(crate) fn read_legacy(mut value: Value) -> Result<Vec<OverrideRecord>, String> {
    let servers: BTreeMap<String, ServerOverride> =
        serde_json::from_value(value["servers"].take()).map_err(|e| e.to_string())?;
    Ok(servers.into_iter().map(|(server, wanted)| OverrideRecord { server, wanted }).collect())
}

/// The overrides of all servers.
pub struct ServerOverrides {
    topic: TopicStore<OverrideTable>,
}

impl ServerOverrides {
    pub fn open(database: &Database) -> ServerOverrides {
        ServerOverrides { topic: TopicStore::open(database) }
    }

    /// Returns why the overrides are unknown, if they cannot be read.
    pub fn health(&self) -> Result<(), String> {
        self.topic.health()
    }

    /// Returns a receiver that is notified after each change.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.topic.subscribe()
    }

    /// Returns the override of a server. An unreadable file switches every server off, because a person may
    /// have switched off this one (fail closed).
    pub fn of(&self, server: &str) -> ServerOverride {
        match &self.topic.current().known {
            Ok(known) => known.0.get(server).copied().unwrap_or_default(),
            // Nor is any of them taken for reviewed.
            Err(_) => ServerOverride { enabled: Some(false), unseen: true, ..ServerOverride::default() },
        }
    }

    pub fn set(&self, server: &str, enabled: Option<bool>) -> Result<(), ServersError> {
        self.change(server, |toggle| (toggle.enabled, toggle.removed) = (enabled, false))
    }

    /// Keeps a server off until [`ServerOverrides::mark_reviewed`].
    pub fn quarantine(&self, server: &str) -> Result<(), ServersError> {
        let held = ServerOverride { enabled: Some(false), unseen: true, ..ServerOverride::default() };
        self.change(server, |toggle| *toggle = ServerOverride { reloads: toggle.reloads, ..held })
    }

    /// Lets the configuration decide whether a server runs, after a person has reviewed it.
    pub fn mark_reviewed(&self, server: &str) -> Result<(), ServersError> {
        self.change(server, |toggle| {
            *toggle = ServerOverride { reloads: toggle.reloads, ..ServerOverride::default() }
        })
    }

    pub fn reload(&self, server: &str) -> Result<(), ServersError> {
        self.change(server, |toggle| toggle.reloads = toggle.reloads.wrapping_add(1))
    }

    /// Removes all overrides of a server.
    pub fn forget(&self, server: &str) -> Result<(), ServersError> {
        self.change(server, |toggle| *toggle = ServerOverride::default())
    }

    /// Drops the overrides of a server that left the configuration, and keeps it off until
    /// [`ServerOverrides::forget_removed`].
    pub fn remove(&self, server: &str) -> Result<(), ServersError> {
        self.change(server, |toggle| *toggle = ServerOverride { removed: true, ..ServerOverride::default() })
    }

    /// Returns the servers that were removed from the configuration, until that is forgotten.
    pub fn removed(&self) -> Vec<String> {
        let current = self.topic.current();
        let known = current.known.iter().flat_map(|known| &known.0).filter(|(_, wanted)| wanted.removed);
        known.map(|(server, _)| server.clone()).collect()
    }

    /// Forgets the removal of a server, unless a new override for its name exists since.
    pub fn forget_removed(&self, server: &str) -> Result<(), ServersError> {
        self.change(server, |toggle| {
            if toggle.removed {
                *toggle = ServerOverride::default();
            }
        })
    }

    fn change(&self, server: &str, edit: impl FnOnce(&mut ServerOverride)) -> Result<(), ServersError> {
        self.topic.change(|overrides| {
            let at = overrides.iter().position(|known| known.server == server);
            let mut wanted = at.map(|at| overrides[at].wanted).unwrap_or_default();
            edit(&mut wanted);
            match at {
                Some(at) if wanted == ServerOverride::default() => drop(overrides.remove(at)),
                Some(at) => overrides[at].wanted = wanted,
                None if wanted == ServerOverride::default() => {}
                None if overrides.len() >= OVERRIDES_MAX => return Err(ServersError::Full),
                None => overrides.push(OverrideRecord { server: server.to_owned(), wanted }),
            }
            Ok(())
        })
    }
}

/// The status of all servers or services, as last written by the hub. The hub defines what an entry holds.
pub struct StatusBoard {
    file: LockedFile,
    /// Its file, and the member of the document that holds the entries.
    name: &'static str,
    entries: &'static str,
}

impl StatusBoard {
    pub fn open(dir: &Path) -> StatusBoard {
        StatusBoard::named(dir, STATUS_NAME, "servers")
    }

    /// The services of the hub that have a problem.
    pub fn of_services(dir: &Path) -> StatusBoard {
        StatusBoard::named(dir, SERVICES_NAME, "services")
    }

    fn named(dir: &Path, name: &'static str, entries: &'static str) -> StatusBoard {
        let file = LockedFile::new(dir, name, FILE_BYTES_MAX, FilePrivacy::ToWriting);
        StatusBoard { file, name, entries }
    }

    /// Returns whether a hub has written one.
    pub fn exists(&self) -> bool {
        self.file.exists()
    }

    /// Replaces the whole status.
    pub fn write(&self, entries: &Value, at: &str, pid: u32) -> Result<(), ServersError> {
        let name = self.entries;
        let document = serde_json::json!({ "version": VERSION, "written": at, "pid": pid, name: entries });
        let lock = self.file.lock()?;
        Ok(lock.replace(format!("{document:#}\n").as_bytes())?)
    }

    /// Returns the last status; `None` if no hub has run with servers.
    pub fn read(&self) -> Result<Option<Value>, ServersError> {
        let bytes = self.file.read().map_err(ServersError::Damaged)?;
        bytes.map(|bytes| versioned(self.name, VERSION, &bytes)).transpose().map_err(ServersError::Damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_wish_reaches_the_other_process_and_can_be_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let (hub, command) = (
            ServerOverrides::open(&testing::open(folder.path())),
            ServerOverrides::open(&testing::open(folder.path())),
        );
        assert_eq!(hub.of("git"), ServerOverride::default());
        command.set("git", Some(false)).unwrap();
        assert_eq!(hub.of("git").enabled, Some(false));
        command.reload("git").unwrap();
        assert_eq!(
            hub.of("git"),
            ServerOverride { enabled: Some(false), reloads: 1, ..ServerOverride::default() }
        );
        command.forget("git").unwrap();
        assert_eq!(hub.of("git"), ServerOverride::default());
    }

    #[test]
    fn what_is_held_stays_so_until_it_was_seen() {
        let folder = tempfile::tempdir().unwrap();
        let toggles = ServerOverrides::open(&testing::open(folder.path()));
        toggles.quarantine("git").unwrap();
        toggles.set("git", Some(false)).unwrap();
        toggles.set("git", None).unwrap();
        assert!(ServerOverrides::open(&testing::open(folder.path())).of("git").unseen);
        toggles.mark_reviewed("git").unwrap();
        assert_eq!(toggles.of("git"), ServerOverride::default());
    }

    #[test]
    fn what_was_removed_is_forgotten_unless_one_of_its_name_came_since() {
        let folder = tempfile::tempdir().unwrap();
        let (hub, command) = (
            ServerOverrides::open(&testing::open(folder.path())),
            ServerOverrides::open(&testing::open(folder.path())),
        );
        command.quarantine("git").unwrap();
        command.remove("git").unwrap();
        assert_eq!(hub.of("git"), ServerOverride { removed: true, ..ServerOverride::default() });
        assert_eq!(hub.removed(), ["git"]);
        command.quarantine("git").unwrap();
        hub.forget_removed("git").unwrap();
        assert!(hub.of("git").unseen && hub.removed().is_empty());
        command.remove("git").unwrap();
        hub.forget_removed("git").unwrap();
        assert_eq!(hub.of("git"), ServerOverride::default());
    }

    #[test]
    fn damaged_rows_switch_nothing_on_and_are_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let toggles = ServerOverrides::open(&testing::open(folder.path()));
        toggles.set("other", Some(true)).unwrap();
        testing::edit(folder.path(), "server_overrides", "UPDATE server_overrides SET record = '{'");
        let damaged = testing::export(folder.path());
        assert_eq!(toggles.of("git").enabled, Some(false));
        assert!(toggles.health().unwrap_err().contains("damaged"));
        assert!(toggles.set("git", Some(true)).unwrap_err().to_string().contains("damaged"));
        assert_eq!(testing::export(folder.path()), damaged);
    }

    #[test]
    fn the_board_is_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let board = StatusBoard::open(folder.path());
        assert!(board.read().unwrap().is_none());
        board.write(&serde_json::json!({ "git": { "status": "connected" } }), "now", 7).unwrap();
        let read = StatusBoard::open(folder.path()).read().unwrap().unwrap();
        assert_eq!(read["servers"]["git"]["status"], "connected");
        assert_eq!(read["pid"], 7);
    }
}
