//! The newest runs of each script.
//!
//! For people only; the audit log is the record. A run is appended by a claim: no view is loaded from the table, so no
//! process has to be told.

use super::ScriptName;
use jiff::Timestamp;
use portcullis_store::database::{Database, DatabaseError, OperationId, Row, Transaction, wait};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Runs of one script that are kept and shown.
const RUNS_MAX: i64 = 200;
/// Bytes of a file of an earlier version: twice what it was cut to.
const LEGACY_BYTES_MAX: u64 = 256 * 1024;

/// One run of a script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptRunRecord {
    pub at: Timestamp,
    pub sha256: String,
    pub client: String,
    pub duration_ms: u64,
    /// `ok`, or the error code.
    pub outcome: String,
}

impl ScriptRunRecord {
    fn of(mut row: Row) -> Result<ScriptRunRecord, DatabaseError> {
        let (at, took): (i64, i64) = (row.take("at")?, row.take("duration_ms")?);
        Ok(ScriptRunRecord {
            at: Timestamp::from_microsecond(at).map_err(|e| DatabaseError::shape(e.to_string()))?,
            sha256: row.take("sha256")?,
            client: row.take("client")?,
            duration_ms: u64::try_from(took).unwrap_or_default(),
            outcome: row.take("outcome")?,
        })
    }
}

/// The table of runs.
pub(super) struct RunHistory {
    database: Database,
}

impl RunHistory {
    pub(super) fn new(database: &Database) -> RunHistory {
        RunHistory { database: database.clone() }
    }

    /// Appends a run, and drops those of the script that are older than the newest few.
    pub(super) async fn add(&self, name: &ScriptName, run: ScriptRunRecord) -> Result<(), DatabaseError> {
        let (id, name) = (OperationId::random()?, name.clone());
        self.database
            .claim(id, move |transaction| {
                Box::pin(async move {
                    insert(transaction, id, &name, &run).await?;
                    let surplus = "DELETE FROM script_runs WHERE script = $1 AND id NOT IN \
                        (SELECT id FROM script_runs WHERE script = $1 ORDER BY at DESC, id LIMIT $2)";
                    transaction.execute(surplus, &[name.as_str().into(), RUNS_MAX.into()]).await?;
                    Ok(())
                })
            })
            .await
    }

    /// Returns the newest runs, newest first. Blocks.
    pub(super) fn of(&self, name: &ScriptName) -> Result<Vec<ScriptRunRecord>, DatabaseError> {
        let name = name.clone();
        wait(self.database.read(move |transaction| {
            Box::pin(async move {
                let newest = "SELECT at, sha256, client, duration_ms, outcome FROM script_runs WHERE script = $1 \
                    ORDER BY at DESC, id LIMIT $2";
                let rows = transaction.query(newest, &[name.as_str().into(), RUNS_MAX.into()]).await?;
                rows.into_iter().map(ScriptRunRecord::of).collect()
            })
        }))
    }
}

async fn insert(
    transaction: &mut Transaction<'_>,
    id: OperationId,
    name: &ScriptName,
    run: &ScriptRunRecord,
) -> Result<(), DatabaseError> {
    let values = [
        id.as_bytes().into(),
        name.as_str().into(),
        run.at.as_microsecond().into(),
        run.sha256.as_str().into(),
        run.client.as_str().into(),
        i64::try_from(run.duration_ms).unwrap_or(i64::MAX).into(),
        run.outcome.as_str().into(),
    ];
    let new = "INSERT INTO script_runs (id, script, at, sha256, client, duration_ms, outcome) \
        VALUES ($1, $2, $3, $4, $5, $6, $7)";
    transaction.execute(new, &values).await?;
    Ok(())
}

/// Imports the files of earlier versions, one for each script with a JSON document a line. They informed people only, so
/// what cannot be read of them is left out.
pub(super) async fn import(folder: &Path, transaction: &mut Transaction<'_>) -> Result<(), DatabaseError> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    for entry in entries.filter_map(Result::ok) {
        let file_name = entry.file_name();
        let name =
            file_name.to_str().and_then(|name| name.strip_suffix(".jsonl")?.parse::<ScriptName>().ok());
        let is_sound = entry.metadata().is_ok_and(|file| file.is_file() && file.len() <= LEGACY_BYTES_MAX);
        let (Some(name), true) = (name, is_sound) else { continue };
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        let newest = text.lines().rev().filter_map(|line| serde_json::from_str::<ScriptRunRecord>(line).ok());
        for run in newest.take(RUNS_MAX as usize) {
            insert(transaction, OperationId::random()?, &name, &run).await?;
        }
    }
    Ok(())
}
