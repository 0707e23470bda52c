//! Rows of scripts: decisions and proposals, the tables that hold them, and the files that they replace.

use super::{ScriptError, ScriptName, ScriptPermissions};
use super::{copies, run_history};
use jiff::Timestamp;
use portcullis_store::database::{Migration, Record, RecordTable, Topic, TopicState};
use portcullis_store::{FamilyTables, FilePrivacy, LegacyFile, LegacyKind, import_rows, sealed_record_table};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// A person's decision about one version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptDecision {
    pub sha256: String,
    pub approved: bool,
    #[serde(default)]
    pub granted: ScriptPermissions,
    pub by: String,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl ScriptDecision {
    fn what(&self) -> &'static str {
        if self.approved { "approved" } else { "rejected" }
    }
}

/// A script proposed by an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    pub sha256: String,
    pub client: String,
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct ScriptRecord {
    /// Newest last.
    pub(super) decisions: Vec<ScriptDecision>,
    /// Older decisions that were dropped. They count in `seen`: a person who saw the fiftieth decision did
    /// not see the next.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) forgotten: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) proposal: Option<Proposal>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl ScriptRecord {
    /// Returns the number of decisions so far.
    pub(super) fn seen(&self) -> usize {
        self.decisions.len() + self.forgotten
    }

    /// Refuses a decision by a person who has not seen the last one.
    pub(super) fn check_seen(&self, name: &ScriptName, seen: Option<usize>) -> Result<(), ScriptError> {
        match (seen, self.decisions.last()) {
            (Some(seen), Some(last)) if seen != self.seen() => Err(ScriptError::Decided {
                name: name.clone(),
                what: last.what(),
                by: last.by.clone(),
                at: last.at,
            }),
            _ => Ok(()),
        }
    }

    /// Returns the decision in force for a version: the newest about it, unless another version was approved
    /// later.
    pub(super) fn about(&self, sha256: &str) -> Option<&ScriptDecision> {
        self.decisions.iter().rev().find(|decision| decision.approved || decision.sha256 == sha256)
    }
}

pub(super) type ScriptRecords = BTreeMap<ScriptName, ScriptRecord>;

/// The row of a script.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct ScriptRow {
    pub(super) name: ScriptName,
    #[serde(flatten)]
    pub(super) record: ScriptRecord,
}

impl Record for ScriptRow {
    const TABLE: RecordTable = sealed_record_table!("scripts");

    fn key(&self) -> &str {
        self.name.as_str()
    }
}

/// All decisions and proposals, by script.
pub(super) struct ScriptTable(pub(super) ScriptRecords);

impl TopicState for ScriptTable {
    type Rows = Vec<ScriptRow>;
    const TOPIC: Topic = Topic::new("scripts");
    const BYTES_MAX: usize = 16 * 1024 * 1024;

    fn of(rows: &Vec<ScriptRow>) -> Result<ScriptTable, String> {
        Ok(ScriptTable(rows.iter().map(|row| (row.name.clone(), row.record.clone())).collect()))
    }
}

/// The tables of the script tools, and the files that they replace.
pub(in crate::scripts) const TABLES: FamilyTables = FamilyTables {
    migrations: &[
        Migration { owner: "scripts", number: 1, sql: include_str!("../schema.sql") },
        Migration { owner: "scripts", number: 2, sql: include_str!("../schema_copies.sql") },
    ],
    legacy: &[
        LegacyFile {
            name: "scripts.json",
            kind: LegacyKind::File,
            privacy: FilePrivacy::ToWriting,
            import: |document, transaction| {
                Box::pin(import_rows::<ScriptTable>(document.rows(read_legacy), transaction))
            },
        },
        // Scripts that the configuration approves have runs, but no row in `scripts.json`.
        LegacyFile {
            name: "scripts/runs",
            kind: LegacyKind::Folder,
            privacy: FilePrivacy::ToWriting,
            import: |document, transaction| {
                let folder = document.folder.join(document.name);
                Box::pin(async move { Ok(run_history::import(&folder, transaction).await?) })
            },
        },
        // After the folder of runs, which is in it.
        LegacyFile {
            name: "scripts",
            kind: LegacyKind::Folder,
            privacy: FilePrivacy::ToWriting,
            import: |document, transaction| {
                let folder = document.folder.join(document.name);
                Box::pin(async move { Ok(copies::import(&folder, transaction).await?) })
            },
        },
    ],
};

/// Reads the file of earlier versions.
fn read_legacy(mut value: Value) -> Result<Vec<ScriptRow>, String> {
    let scripts: ScriptRecords =
        serde_json::from_value(value["scripts"].take()).map_err(|e| e.to_string())?;
    Ok(scripts.into_iter().map(|(name, record)| ScriptRow { name, record }).collect())
}
