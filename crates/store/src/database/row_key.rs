//! The key that seals the rows which admit a client or an administrator (HMAC), so that write access to the database is no
//! access to the hub.
//!
//! A row's seal is an HMAC-SHA256 over the name of its table, its key and its document. The key is derived with HKDF from a
//! file beside the database, which only its owner can read. Keys that a person has to unlock do not serve: a hub admits its
//! clients also while its secrets are locked. Which rows there are is sealed as well (`table_digests`); only the whole
//! database can be put back as it once was.

use super::DatabaseError;
use crate::secrets::row_master_key;
use aws_lc_rs::{hkdf, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rusqlite::Connection;
use std::path::{Path, PathBuf};

/// The name of the key's file.
pub const ROW_KEY_NAME: &str = "row.key";
const SALT: &[u8] = b"portcullis row seal";
const PURPOSE: &[u8] = b"hmac-sha256 1";
const KEY_BYTES: usize = 32;

pub(super) enum RowKey {
    Known(Box<hmac::Key>),
    /// There are rows, but not the key that they were sealed with.
    Missing(PathBuf),
}

impl RowKey {
    /// Reads the key beside a database. It is made with the database: a new key for old rows would only hide that theirs is gone.
    pub(super) fn beside(database: &Path, connection: &Connection) -> Result<RowKey, DatabaseError> {
        let path = database.with_file_name(ROW_KEY_NAME);
        let version: i64 =
            connection.query_row("SELECT version FROM topics WHERE name = ''", [], |row| row.get(0))?;
        let is_there = path.try_exists().map_err(|e| DatabaseError::file("read", &path, e))?;
        if !is_there && version > 0 {
            return Ok(RowKey::Missing(path));
        }
        let master = row_master_key(&path).map_err(|e| DatabaseError::key(&e))?;
        RowKey::derived(&master)
    }

    pub(super) fn random() -> Result<RowKey, DatabaseError> {
        let mut bytes = [0; KEY_BYTES];
        getrandom::fill(&mut bytes).map_err(DatabaseError::random)?;
        RowKey::derived(&bytes)
    }

    fn derived(master: &[u8]) -> Result<RowKey, DatabaseError> {
        let derived = hkdf::Salt::new(hkdf::HKDF_SHA256, SALT).extract(master);
        let key = derived.expand(&[PURPOSE], hmac::HMAC_SHA256);
        let key = key.map_err(|_| DatabaseError::shape("no key can be derived for its rows".to_owned()))?;
        Ok(RowKey::Known(Box::new(hmac::Key::from(key))))
    }

    /// Returns the seal of a row.
    pub(super) fn seal(&self, table: &str, key: &str, record: &str) -> Result<String, DatabaseError> {
        let tag = hmac::sign(self.known()?, &message(table, key, record));
        Ok(URL_SAFE_NO_PAD.encode(tag))
    }

    /// Checks the seal of a row.
    pub(super) fn check(
        &self,
        table: &str,
        key: &str,
        record: &str,
        seal: Option<&str>,
    ) -> Result<(), DatabaseError> {
        let known = self.known()?;
        let refused = |why: &str| {
            let key = portcullis_core::json::printable(key);
            DatabaseError::shape(format!("`{key}` in table {table} {why}, so another program wrote it"))
        };
        let seal = seal.ok_or_else(|| refused("has no seal"))?;
        let tag = URL_SAFE_NO_PAD.decode(seal).map_err(|_| refused("has a wrong seal"))?;
        hmac::verify(known, &message(table, key, record), &tag).map_err(|_| refused("has a wrong seal"))
    }

    pub(super) fn is_missing(&self) -> bool {
        matches!(self, RowKey::Missing(_))
    }

    fn known(&self) -> Result<&hmac::Key, DatabaseError> {
        match self {
            RowKey::Known(key) => Ok(key),
            RowKey::Missing(path) => Err(DatabaseError::refused(
                path,
                "is missing, so the rows that admit clients and administrators cannot be checked; restore it from where the database came from",
            )),
        }
    }
}

/// No two rows have the same message: each part is preceded by its length.
fn message(table: &str, key: &str, record: &str) -> Vec<u8> {
    let mut message = Vec::with_capacity(3 * size_of::<u64>() + table.len() + key.len() + record.len());
    for part in [table, key, record] {
        message.extend_from_slice(&(part.len() as u64).to_be_bytes());
        message.extend_from_slice(part.as_bytes());
    }
    message
}
