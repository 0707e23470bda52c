//! What servers offered when they last ran, for those that are started only when somebody needs them.
//!
//! One file, `offers.json`, written by the hub. What an entry holds is the hub's own to say; it is kept as text, because
//! the exact numbers in it matter.

use crate::kept::{Closed, FileError, KeptFile, versioned};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

const FILE_NAME: &str = "offers.json";
const VERSION: u32 = 1;
/// As much as `pins.json` may have.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The largest offer that is kept. A server that offers more is asked again at every start.
const OFFER_BYTES_MAX: usize = 8 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum OffersError {
    #[error("{0}")]
    Damaged(String),
    #[error("what the server offers is too much to keep: {0} bytes, at most {OFFER_BYTES_MAX} are kept")]
    TooLarge(usize),
    #[error("{FILE_NAME} would have more than {FILE_BYTES_MAX} bytes")]
    Full,
    #[error(transparent)]
    Io(#[from] FileError),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    servers: BTreeMap<String, String>,
}

/// The offers of all servers.
pub struct Offers {
    file: KeptFile,
}

impl std::fmt::Debug for Offers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Offers")
    }
}

impl Offers {
    pub fn open(dir: &Path) -> Offers {
        Offers { file: KeptFile::new(dir, FILE_NAME, FILE_BYTES_MAX, Closed::ToWriting) }
    }

    /// Returns what a server offered when it last ran.
    pub fn of(&self, server: &str) -> Result<Option<String>, OffersError> {
        Ok(self.read()?.remove(server))
    }

    /// Keeps what a server offers. A file that cannot be read is replaced: all of it can be asked for again.
    pub fn keep(&self, server: &str, offer: &str) -> Result<(), OffersError> {
        if offer.len() > OFFER_BYTES_MAX {
            return Err(OffersError::TooLarge(offer.len()));
        }
        self.change(|servers| drop(servers.insert(server.to_owned(), offer.to_owned())))
    }

    pub fn forget(&self, server: &str) -> Result<(), OffersError> {
        // Most hubs have no such server, and get no such file.
        if self.file.stamp().is_none() {
            return Ok(());
        }
        self.change(|servers| drop(servers.remove(server)))
    }

    fn change(&self, edit: impl FnOnce(&mut BTreeMap<String, String>)) -> Result<(), OffersError> {
        let lock = self.file.lock()?;
        let before = self.read();
        let mut servers = before.as_ref().map(BTreeMap::clone).unwrap_or_default();
        edit(&mut servers);
        if before.is_ok_and(|before| before == servers) {
            return Ok(());
        }
        let document = Document { version: VERSION, servers };
        let bytes = serde_json::to_vec(&document).map_err(|e| OffersError::Damaged(e.to_string()))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(OffersError::Full);
        }
        Ok(lock.replace(&bytes)?)
    }

    fn read(&self) -> Result<BTreeMap<String, String>, OffersError> {
        let Some(bytes) = self.file.read().bytes.map_err(OffersError::Damaged)? else {
            return Ok(BTreeMap::new());
        };
        let value = versioned(FILE_NAME, VERSION, &bytes).map_err(OffersError::Damaged)?;
        let document: Document = serde_json::from_value(value)
            .map_err(|error| OffersError::Damaged(format!("{FILE_NAME} is damaged: {error}")))?;
        Ok(document.servers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_kept_as_it_is_and_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let (offers, path) = (Offers::open(folder.path()), folder.path().join(FILE_NAME));
        offers.forget("git").unwrap();
        assert!(!path.exists(), "nothing to keep, no file");
        let exact = r#"{"big":12345678901234567890123,"small":1.0}"#;
        offers.keep("git", exact).unwrap();
        offers.keep("other", "{}").unwrap();
        assert_eq!(Offers::open(folder.path()).of("git").unwrap().as_deref(), Some(exact));
        offers.forget("git").unwrap();
        assert_eq!(offers.of("git").unwrap(), None);
        assert_eq!(offers.of("other").unwrap().as_deref(), Some("{}"));
    }

    #[test]
    fn a_damaged_file_is_told_and_replaced_and_too_much_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let offers = Offers::open(folder.path());
        std::fs::write(folder.path().join(FILE_NAME), "{").unwrap();
        assert!(offers.of("git").unwrap_err().to_string().contains(FILE_NAME));
        offers.keep("git", "{}").unwrap();
        assert_eq!(offers.of("git").unwrap().as_deref(), Some("{}"));
        let much = "x".repeat(OFFER_BYTES_MAX + 1);
        assert!(matches!(offers.keep("git", &much), Err(OffersError::TooLarge(_))));
    }
}
