//! Resolved programs of servers, as first found in `PATH`.
//!
//! One file, `programs.json`, shared by the hub and the command line. Each has its own `PATH`; the program
//! that a person trusted must be the one that runs.

use crate::locked_file::{FileError, FilePrivacy, LockedFile, versioned};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const FILE_NAME: &str = "programs.json";
const VERSION: u32 = 1;
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
const PROGRAMS_MAX: usize = 10_000;

#[derive(Debug, thiserror::Error)]
pub enum ProgramsError {
    #[error("{0}")]
    Damaged(String),
    #[error("{FILE_NAME} already has {PROGRAMS_MAX} servers; `portcullis mcp remove` unused ones")]
    Full,
    #[error(transparent)]
    Io(#[from] FileError),
}

/// The program of one server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ProgramRecord {
    command: String,
    program: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    servers: BTreeMap<String, ProgramRecord>,
}

/// The programs of all servers.
pub struct ProgramStore {
    file: LockedFile,
}

impl ProgramStore {
    pub fn open(dir: &Path) -> ProgramStore {
        ProgramStore { file: LockedFile::new(dir, FILE_NAME, FILE_BYTES_MAX, FilePrivacy::ToWriting) }
    }

    /// Returns the program resolved for this command of a server.
    pub fn of(&self, server: &str, command: &str) -> Result<Option<PathBuf>, ProgramsError> {
        let record = self.read()?.remove(server);
        Ok(record.filter(|record| record.command == command).map(|record| record.program))
    }

    pub fn keep(&self, server: &str, command: &str, program: &Path) -> Result<(), ProgramsError> {
        let record = ProgramRecord { command: command.to_owned(), program: program.to_owned() };
        self.change(|servers| drop(servers.insert(server.to_owned(), record)))
    }

    pub fn forget(&self, server: &str) -> Result<(), ProgramsError> {
        // Many servers are no programs, and a hub without any gets no such file.
        if !self.file.exists() {
            return Ok(());
        }
        self.change(|servers| drop(servers.remove(server)))
    }

    fn change(&self, edit: impl FnOnce(&mut BTreeMap<String, ProgramRecord>)) -> Result<(), ProgramsError> {
        let lock = self.file.lock()?;
        let before = self.read()?;
        let mut servers = before.clone();
        edit(&mut servers);
        if servers.len() > PROGRAMS_MAX {
            return Err(ProgramsError::Full);
        }
        if servers == before {
            return Ok(());
        }
        let document = Document { version: VERSION, servers };
        let bytes =
            serde_json::to_vec_pretty(&document).map_err(|e| ProgramsError::Damaged(e.to_string()))?;
        Ok(lock.replace(&bytes)?)
    }

    fn read(&self) -> Result<BTreeMap<String, ProgramRecord>, ProgramsError> {
        let Some(bytes) = self.file.read().map_err(ProgramsError::Damaged)? else {
            return Ok(BTreeMap::new());
        };
        let value = versioned(FILE_NAME, VERSION, &bytes).map_err(ProgramsError::Damaged)?;
        let document: Document = serde_json::from_value(value)
            .map_err(|error| ProgramsError::Damaged(format!("{FILE_NAME} is damaged: {error}")))?;
        Ok(document.servers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_kept_for_the_same_command_until_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let (hub, command) = (ProgramStore::open(folder.path()), ProgramStore::open(folder.path()));
        hub.forget("git").unwrap();
        assert!(!folder.path().join(FILE_NAME).exists(), "nothing to keep, no file");
        command.keep("git", "uvx", Path::new("/opt/bin/uvx")).unwrap();
        assert_eq!(hub.of("git", "uvx").unwrap().unwrap(), Path::new("/opt/bin/uvx"));
        assert_eq!(hub.of("git", "npx").unwrap(), None);
        assert_eq!(hub.of("other", "uvx").unwrap(), None);
        command.forget("git").unwrap();
        assert_eq!(hub.of("git", "uvx").unwrap(), None);
    }

    #[test]
    fn a_damaged_file_is_told_and_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let programs = ProgramStore::open(folder.path());
        std::fs::write(folder.path().join(FILE_NAME), "{").unwrap();
        assert!(programs.of("git", "uvx").unwrap_err().to_string().contains("damaged"));
        assert!(programs.keep("git", "uvx", Path::new("/bin/uvx")).is_err());
        assert_eq!(std::fs::read_to_string(folder.path().join(FILE_NAME)).unwrap(), "{");
    }
}
