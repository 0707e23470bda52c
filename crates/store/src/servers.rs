//! How the servers of a running hub stand, and what a person wants of them right now.
//!
//! Two files. `servers.json` is written by the hub and read by everybody: one entry for each server. `toggles.json` is
//! written by the command line and followed by the hub: which servers are switched on or off whatever the configuration
//! says, and how often somebody asked for a new connection.

use crate::kept::{Closed, FileError, KeptFile, Live, versioned};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

const STATUS_NAME: &str = "servers.json";
const TOGGLES_NAME: &str = "toggles.json";
const VERSION: u32 = 1;
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
const TOGGLES_MAX: usize = 10_000;

#[derive(Debug, thiserror::Error)]
pub enum ServersError {
    #[error("{0}")]
    Damaged(String),
    #[error("{TOGGLES_NAME} has {TOGGLES_MAX} servers already; `portcullis mcp remove` those that are gone")]
    Full,
    #[error(transparent)]
    Io(#[from] FileError),
}

/// What a person wants of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Toggle {
    /// `None` leaves it to the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Whether it came from elsewhere, and is not to run before a person has looked at it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unseen: bool,
    /// Whether it was taken out of the configuration. A hub may notice this first, and must not start it once more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
    /// Whenever this is another number, the hub connects anew.
    pub reloads: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    servers: BTreeMap<String, Toggle>,
}

/// The wishes for all servers.
pub struct Toggles {
    live: Live<BTreeMap<String, Toggle>>,
}

impl Toggles {
    pub fn open(dir: &Path) -> Toggles {
        let file = KeptFile::new(dir, TOGGLES_NAME, FILE_BYTES_MAX, Closed::ToWriting);
        Toggles { live: Live::new(file, parse) }
    }

    /// Returns why no wish is known, if the file cannot be read.
    pub fn health(&self) -> Result<(), String> {
        self.live.current().known.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// Returns what is wanted of a server. A file that cannot be read switches everything off: somebody may have
    /// switched just this one off.
    pub fn of(&self, server: &str) -> Toggle {
        match &self.live.current().known {
            Ok(known) => known.get(server).copied().unwrap_or_default(),
            Err(_) => Toggle { enabled: Some(false), ..Toggle::default() },
        }
    }

    pub fn set(&self, server: &str, enabled: Option<bool>) -> Result<(), ServersError> {
        self.change(server, |toggle| (toggle.enabled, toggle.removed) = (enabled, false))
    }

    /// Keeps a server off until [`Toggles::seen`].
    pub fn hold(&self, server: &str) -> Result<(), ServersError> {
        let held = Toggle { enabled: Some(false), unseen: true, ..Toggle::default() };
        self.change(server, |toggle| *toggle = Toggle { reloads: toggle.reloads, ..held })
    }

    /// Leaves it to the configuration whether a server runs, now that a person has looked at it.
    pub fn seen(&self, server: &str) -> Result<(), ServersError> {
        self.change(server, |toggle| *toggle = Toggle { reloads: toggle.reloads, ..Toggle::default() })
    }

    pub fn reload(&self, server: &str) -> Result<(), ServersError> {
        self.change(server, |toggle| toggle.reloads = toggle.reloads.wrapping_add(1))
    }

    /// Leaves everything about a server to the configuration again.
    pub fn forget(&self, server: &str) -> Result<(), ServersError> {
        self.change(server, |toggle| *toggle = Toggle::default())
    }

    /// Forgets what was wanted of a server that is out of the configuration, and keeps it off until
    /// [`Toggles::forget_removed`].
    pub fn remove(&self, server: &str) -> Result<(), ServersError> {
        self.change(server, |toggle| *toggle = Toggle { removed: true, ..Toggle::default() })
    }

    /// Returns the servers that were taken out of the configuration, as far as that is not forgotten yet.
    pub fn removed(&self) -> Vec<String> {
        let current = self.live.current();
        let known = current.known.iter().flatten().filter(|(_, toggle)| toggle.removed);
        known.map(|(server, _)| server.clone()).collect()
    }

    /// Forgets that a server was taken out, unless somebody said something else of one of its name since.
    pub fn forget_removed(&self, server: &str) -> Result<(), ServersError> {
        self.change(server, |toggle| {
            if toggle.removed {
                *toggle = Toggle::default();
            }
        })
    }

    fn change(&self, server: &str, edit: impl FnOnce(&mut Toggle)) -> Result<(), ServersError> {
        let file = &self.live.file;
        let lock = file.lock()?;
        let found = file.read().bytes.map_err(ServersError::Damaged)?;
        let before = parse(found.as_deref()).map_err(ServersError::Damaged)?;
        let mut servers = before.clone();
        let mut toggle = servers.get(server).copied().unwrap_or_default();
        edit(&mut toggle);
        if toggle == Toggle::default() {
            servers.remove(server);
        } else {
            servers.insert(server.to_owned(), toggle);
        }
        if servers.len() > TOGGLES_MAX {
            return Err(ServersError::Full);
        }
        if servers != before {
            let document = Document { version: VERSION, servers };
            let bytes =
                serde_json::to_vec_pretty(&document).map_err(|e| ServersError::Damaged(e.to_string()))?;
            lock.replace(&bytes)?;
        }
        Ok(())
    }
}

fn parse(bytes: Option<&[u8]>) -> Result<BTreeMap<String, Toggle>, String> {
    let Some(bytes) = bytes else { return Ok(BTreeMap::new()) };
    let value = versioned(TOGGLES_NAME, VERSION, bytes)?;
    let document: Document =
        serde_json::from_value(value).map_err(|error| format!("{TOGGLES_NAME} is damaged: {error}"))?;
    Ok(document.servers)
}

/// How the servers stand, as the hub last said it. What an entry holds is the hub's own to say.
pub struct StatusBoard {
    file: KeptFile,
}

impl StatusBoard {
    pub fn open(dir: &Path) -> StatusBoard {
        StatusBoard { file: KeptFile::new(dir, STATUS_NAME, FILE_BYTES_MAX, Closed::ToWriting) }
    }

    /// Replaces all of it.
    pub fn write(&self, servers: &Value, at: &str, pid: u32) -> Result<(), ServersError> {
        let document =
            serde_json::json!({ "version": VERSION, "written": at, "pid": pid, "servers": servers });
        let lock = self.file.lock()?;
        Ok(lock.replace(format!("{document:#}\n").as_bytes())?)
    }

    /// Returns what was written last; `None` where no hub has ever run with servers.
    pub fn read(&self) -> Result<Option<Value>, ServersError> {
        let bytes = self.file.read().bytes.map_err(ServersError::Damaged)?;
        bytes.map(|bytes| versioned(STATUS_NAME, VERSION, &bytes)).transpose().map_err(ServersError::Damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_reaches_the_other_process_and_can_be_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let (hub, command) = (Toggles::open(folder.path()), Toggles::open(folder.path()));
        assert_eq!(hub.of("git"), Toggle::default());
        command.set("git", Some(false)).unwrap();
        assert_eq!(hub.of("git").enabled, Some(false));
        command.reload("git").unwrap();
        assert_eq!(hub.of("git"), Toggle { enabled: Some(false), reloads: 1, ..Toggle::default() });
        command.forget("git").unwrap();
        assert_eq!(hub.of("git"), Toggle::default());
    }

    #[test]
    fn what_is_held_stays_so_until_it_was_seen() {
        let folder = tempfile::tempdir().unwrap();
        let toggles = Toggles::open(folder.path());
        toggles.hold("git").unwrap();
        toggles.set("git", Some(false)).unwrap();
        toggles.set("git", None).unwrap();
        assert!(Toggles::open(folder.path()).of("git").unseen);
        toggles.seen("git").unwrap();
        assert_eq!(toggles.of("git"), Toggle::default());
    }

    #[test]
    fn what_was_removed_is_forgotten_unless_one_of_its_name_came_since() {
        let folder = tempfile::tempdir().unwrap();
        let (hub, command) = (Toggles::open(folder.path()), Toggles::open(folder.path()));
        command.hold("git").unwrap();
        command.remove("git").unwrap();
        assert_eq!(hub.of("git"), Toggle { removed: true, ..Toggle::default() });
        assert_eq!(hub.removed(), ["git"]);
        command.hold("git").unwrap();
        hub.forget_removed("git").unwrap();
        assert!(hub.of("git").unseen && hub.removed().is_empty());
        command.remove("git").unwrap();
        hub.forget_removed("git").unwrap();
        assert_eq!(hub.of("git"), Toggle::default());
    }

    #[test]
    fn a_damaged_file_switches_nothing_on_and_is_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let toggles = Toggles::open(folder.path());
        std::fs::write(folder.path().join(TOGGLES_NAME), "{").unwrap();
        assert_eq!(toggles.of("git").enabled, Some(false));
        assert!(toggles.health().unwrap_err().contains("damaged"));
        assert!(toggles.set("git", Some(true)).unwrap_err().to_string().contains("damaged"));
        assert_eq!(std::fs::read_to_string(folder.path().join(TOGGLES_NAME)).unwrap(), "{");
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
