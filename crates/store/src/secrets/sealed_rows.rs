//! Sealed rows: each secret is encrypted by itself, under an id that only the key derives from its name.
//!
//! The row without an id belongs to no secret. It is there as soon as the store has a key, and says which one. A store
//! that was imported from the file of an earlier version is in it as a whole, sealed as it was, until the next change.

use super::cipher::{self, CipherHeader};
use super::contents::{self, SecretRecord};
use super::key::MasterKey;
use super::{STORE, SecretError};
use crate::database::{Record, RecordTable, Topic, TopicState};
use crate::record_table;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct SealedRow {
    id: String,
    sealed: String,
}

impl Record for SealedRow {
    const TABLE: RecordTable = record_table!("secrets");

    fn key(&self) -> &str {
        &self.id
    }
}

/// All rows, still sealed: the key may be missing.
pub(crate) struct SealedTable(pub(super) Vec<SealedRow>);

impl TopicState for SealedTable {
    type Rows = Vec<SealedRow>;
    const TOPIC: Topic = Topic::new("secrets");
    /// A thousand ordinary secrets are 500 KB; a hundred of the largest size fit too.
    const BYTES_MAX: usize = 16 * 1024 * 1024;

    fn of(rows: &Vec<SealedRow>) -> Result<SealedTable, String> {
        Ok(SealedTable(rows.clone()))
    }
}

/// Takes the file of earlier versions as it is. Its key is not needed.
pub(crate) fn read_legacy(file: &[u8]) -> Result<Vec<SealedRow>, String> {
    CipherHeader::parse(file).map_err(|e| e.to_string())?;
    Ok(vec![SealedRow::new("", file)])
}

impl SealedRow {
    pub(super) fn new(id: &str, sealed: &[u8]) -> SealedRow {
        SealedRow { id: id.to_owned(), sealed: STANDARD.encode(sealed) }
    }

    pub(super) fn bytes(&self) -> Result<Vec<u8>, SecretError> {
        STANDARD.decode(&self.sealed).map_err(|_| damaged("a row is not base64"))
    }
}

fn damaged(why: &str) -> SecretError {
    SecretError::Damaged(format!("{STORE} is damaged: {why}"))
}

/// Returns the header that says which key the store has; `None` if there is no store yet.
pub(super) fn header(rows: &[SealedRow]) -> Result<Option<CipherHeader>, SecretError> {
    match rows.iter().find(|row| row.id.is_empty()) {
        Some(row) => Ok(Some(CipherHeader::parse(&row.bytes()?)?)),
        None if rows.is_empty() => Ok(None),
        None => Err(damaged("the row that names its key is missing")),
    }
}

/// Decrypts all rows with the key of the store.
pub(super) fn open(rows: &[SealedRow], master: &MasterKey) -> Result<Vec<SecretRecord>, SecretError> {
    let mut records: Vec<SecretRecord> = Vec::with_capacity(rows.len());
    for row in rows {
        let bytes = row.bytes()?;
        if !CipherHeader::parse(&bytes)?.fits(master) {
            return Err(damaged("a row was sealed with another key"));
        }
        let found = contents::decode(&cipher::open(master, &bytes)?)?;
        // The name is sealed with the value, so that rows cannot be exchanged.
        let is_own = |record: &SecretRecord| cipher::row_id(master, &record.info.name) == row.id;
        if !(row.id.is_empty() || matches!(found.as_slice(), [only] if is_own(only))) {
            return Err(damaged("a row holds another secret than its own"));
        }
        for record in found {
            if records.iter().any(|known| known.info.name == record.info.name) {
                return Err(damaged(&format!("`{}` is in it twice", record.info.name)));
            }
            records.push(record);
        }
    }
    Ok(records)
}

/// Seals what changed. Rows of secrets that did not change stay as they are.
pub(super) fn seal(
    rows: &[SealedRow],
    before: &[SecretRecord],
    after: &[SecretRecord],
    header: &CipherHeader,
    master: &MasterKey,
) -> Result<Vec<SealedRow>, SecretError> {
    let seal = |id: &str, records: &[SecretRecord]| {
        Ok::<_, SecretError>(SealedRow::new(id, &cipher::seal(header, master, contents::encode(records)?)?))
    };
    let row_of = |id: &str| rows.iter().find(|row| row.id == id);
    // Rows besides the store's own hold all secrets, unless the store was imported.
    let was_imported = row_of("").is_some() && rows.len() <= before.len();
    let has_header = match row_of("") {
        Some(row) if !was_imported => CipherHeader::parse(&row.bytes()?)? == *header,
        _ => false,
    };
    let mut sealed = Vec::with_capacity(after.len() + 1);
    sealed.push(match row_of("") {
        Some(row) if has_header => row.clone(),
        _ => seal("", &[])?,
    });
    for record in after {
        let id = cipher::row_id(master, &record.info.name);
        let is_same = before.iter().any(|known| known == record);
        sealed.push(match row_of(&id) {
            Some(row) if is_same => row.clone(),
            _ => seal(&id, std::slice::from_ref(record))?,
        });
    }
    Ok(sealed)
}
