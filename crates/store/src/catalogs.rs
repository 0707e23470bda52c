//! Catalog cache: the last known definitions of servers that start on demand.
//!
//! One file, `offers.json`, written by the hub. The hub defines what an entry holds; it is stored as text to
//! preserve exact numbers.

use crate::locked_file::{FileError, FilePrivacy, LockedFile, versioned};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

const FILE_NAME: &str = "offers.json";
const VERSION: u32 = 1;
/// The same bound as `pins.json`.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The largest catalog that is stored. A larger one is listed again at every start.
const OFFER_BYTES_MAX: usize = 8 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum CatalogStoreError {
    #[error("{0}")]
    Damaged(String),
    #[error("the server's catalog is too large to store: {0} bytes, at most {OFFER_BYTES_MAX}")]
    TooLarge(usize),
    #[error("{FILE_NAME} would exceed {FILE_BYTES_MAX} bytes")]
    Full,
    #[error(transparent)]
    Io(#[from] FileError),
}

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    servers: BTreeMap<String, String>,
}

/// The catalogs of all servers.
pub struct CatalogStore {
    file: LockedFile,
}

impl std::fmt::Debug for CatalogStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Offers")
    }
}

impl CatalogStore {
    pub fn open(dir: &Path) -> CatalogStore {
        CatalogStore { file: LockedFile::new(dir, FILE_NAME, FILE_BYTES_MAX, FilePrivacy::ToWriting) }
    }

    /// Returns the last known catalog of a server.
    pub fn of(&self, server: &str) -> Result<Option<String>, CatalogStoreError> {
        Ok(self.read()?.remove(server))
    }

    /// Stores the catalog of a server. An unreadable file is replaced, because the servers can be listed
    /// again.
    pub fn keep(&self, server: &str, offer: &str) -> Result<(), CatalogStoreError> {
        if offer.len() > OFFER_BYTES_MAX {
            return Err(CatalogStoreError::TooLarge(offer.len()));
        }
        self.change(|servers| drop(servers.insert(server.to_owned(), offer.to_owned())))
    }

    pub fn forget(&self, server: &str) -> Result<(), CatalogStoreError> {
        // Most hubs have no such server, and get no such file.
        if !self.file.exists() {
            return Ok(());
        }
        self.change(|servers| drop(servers.remove(server)))
    }

    fn change(&self, edit: impl FnOnce(&mut BTreeMap<String, String>)) -> Result<(), CatalogStoreError> {
        let lock = self.file.lock()?;
        let before = self.read();
        let mut servers = before.as_ref().map(BTreeMap::clone).unwrap_or_default();
        edit(&mut servers);
        if before.is_ok_and(|before| before == servers) {
            return Ok(());
        }
        let document = Document { version: VERSION, servers };
        let bytes = serde_json::to_vec(&document).map_err(|e| CatalogStoreError::Damaged(e.to_string()))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(CatalogStoreError::Full);
        }
        Ok(lock.replace(&bytes)?)
    }

    fn read(&self) -> Result<BTreeMap<String, String>, CatalogStoreError> {
        let Some(bytes) = self.file.read().map_err(CatalogStoreError::Damaged)? else {
            return Ok(BTreeMap::new());
        };
        let value = versioned(FILE_NAME, VERSION, &bytes).map_err(CatalogStoreError::Damaged)?;
        let document: Document = serde_json::from_value(value)
            .map_err(|error| CatalogStoreError::Damaged(format!("{FILE_NAME} is damaged: {error}")))?;
        Ok(document.servers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_kept_as_it_is_and_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let (offers, path) = (CatalogStore::open(folder.path()), folder.path().join(FILE_NAME));
        offers.forget("git").unwrap();
        assert!(!path.exists(), "nothing to keep, no file");
        let exact = r#"{"big":12345678901234567890123,"small":1.0}"#;
        offers.keep("git", exact).unwrap();
        offers.keep("other", "{}").unwrap();
        assert_eq!(CatalogStore::open(folder.path()).of("git").unwrap().as_deref(), Some(exact));
        offers.forget("git").unwrap();
        assert_eq!(offers.of("git").unwrap(), None);
        assert_eq!(offers.of("other").unwrap().as_deref(), Some("{}"));
    }

    #[test]
    fn a_damaged_file_is_told_and_replaced_and_too_much_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let offers = CatalogStore::open(folder.path());
        std::fs::write(folder.path().join(FILE_NAME), "{").unwrap();
        assert!(offers.of("git").unwrap_err().to_string().contains(FILE_NAME));
        offers.keep("git", "{}").unwrap();
        assert_eq!(offers.of("git").unwrap().as_deref(), Some("{}"));
        let much = "x".repeat(OFFER_BYTES_MAX + 1);
        assert!(matches!(offers.keep("git", &much), Err(CatalogStoreError::TooLarge(_))));
    }
}
