//! Tables of records: a key, and a JSON document to which newer programs may add members.
//!
//! Most of the hub's state is a small set of records that is read whole and changed one at a time. A [`TopicStore`] keeps
//! what the records of a topic mean in memory, and writes only the rows that a change made different.

use super::engine::Kind;
use super::unknown_members::carry_over;
use super::{
    Database, DatabaseError, OperationId, Snapshot, Topic, Transaction, Value, View, table_digests, wait,
};
use arc_swap::Guard;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use tokio::sync::watch;

/// How long an edit may take. It only changes rows in memory; while it does, no other process can write.
const EDIT_WITHIN: Duration = Duration::from_secs(2);

/// A row: its key and its JSON document.
pub trait Record: Serialize + DeserializeOwned + Clone + Send + Sync + 'static {
    const TABLE: RecordTable;

    /// Unique in its table.
    fn key(&self) -> &str;
}

/// The statements of one table of records. Made by [`record_table!`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordTable {
    pub name: &'static str,
    pub select: &'static str,
    pub select_one: &'static str,
    pub upsert: &'static str,
    pub delete: &'static str,
    /// Sets the seal of a row; `None` where rows have none.
    pub seal: Option<&'static str>,
}

/// Makes a [`RecordTable`] of a name. Its migration is [`record_table_sql!`] of the same name.
#[macro_export]
macro_rules! record_table {
    ($name:literal) => {
        $crate::database::RecordTable {
            name: $name,
            select: concat!("SELECT key, record FROM ", $name, " ORDER BY position"),
            select_one: concat!("SELECT record FROM ", $name, " WHERE key = $1"),
            upsert: concat!(
                "INSERT INTO ",
                $name,
                " (key, position, record) VALUES ($1, (SELECT coalesce(max(position), 0) + 1 FROM ",
                $name,
                "), $2) ON CONFLICT (key) DO UPDATE SET record = excluded.record"
            ),
            delete: concat!("DELETE FROM ", $name, " WHERE key = $1"),
            seal: None,
        }
    };
}

/// The same, of rows that admit a client or an administrator. Each has a seal, which only a holder of the row key can make.
#[macro_export]
macro_rules! sealed_record_table {
    ($name:literal) => {
        $crate::database::RecordTable {
            select: concat!("SELECT key, record, seal FROM ", $name, " ORDER BY position"),
            seal: Some(concat!("UPDATE ", $name, " SET seal = $2 WHERE key = $1")),
            ..$crate::record_table!($name)
        }
    };
}

/// Returns the SQL that makes the table of [`record_table!`].
#[macro_export]
macro_rules! record_table_sql {
    ($name:literal) => {
        $crate::record_table_sql!($name, "")
    };
    ($name:literal, $more:literal) => {
        concat!(
            "CREATE TABLE ",
            $name,
            " (key TEXT PRIMARY KEY, position BIGINT NOT NULL, record TEXT NOT NULL",
            $more,
            ");\nCREATE INDEX ",
            $name,
            "_by_position ON ",
            $name,
            " (position);\n"
        )
    };
}

/// Returns the SQL that makes the table of [`sealed_record_table!`].
#[macro_export]
macro_rules! sealed_record_table_sql {
    ($name:literal) => {
        $crate::record_table_sql!($name, ", seal TEXT")
    };
}

/// The rows of one topic, which are read and written together.
pub trait TopicRows: Clone + Send + Sync + 'static {
    /// Reads all rows, in the order in which they were made.
    fn load<'t>(transaction: &'t mut Transaction<'_>) -> BoxFuture<'t, Result<Self, DatabaseError>>;

    /// Writes every row as text.
    fn encode(&self) -> Result<EncodedRows, DatabaseError>;
}

/// Rows as they are stored, by table.
pub type EncodedRows = Vec<(RecordTable, Vec<(String, String)>)>;

impl<R: Record> TopicRows for Vec<R> {
    fn load<'t>(transaction: &'t mut Transaction<'_>) -> BoxFuture<'t, Result<Vec<R>, DatabaseError>> {
        Box::pin(load_records(transaction))
    }

    fn encode(&self) -> Result<EncodedRows, DatabaseError> {
        Ok(vec![encode_records(self)?])
    }
}

/// Reads the records of one table, for topics that have several.
pub async fn load_records<R: Record>(transaction: &mut Transaction<'_>) -> Result<Vec<R>, DatabaseError> {
    let rows = stored_rows(transaction, &R::TABLE).await?;
    let records = rows
        .iter()
        .map(|StoredRow { key, text, seal }| {
            let damaged = |why: &str| {
                let key = portcullis_core::json::printable(key);
                DatabaseError::shape(format!("`{key}` in table {}: {why}", R::TABLE.name))
            };
            if R::TABLE.seal.is_some() {
                transaction.row_key.check(R::TABLE.name, key, text, seal.as_deref())?;
            }
            let record: R = serde_json::from_str(text).map_err(|e| damaged(&e.to_string()))?;
            if record.key() == key { Ok(record) } else { Err(damaged("the record has another key")) }
        })
        .collect::<Result<Vec<R>, DatabaseError>>()?;
    if R::TABLE.seal.is_none() && transaction.row_key.is_missing() {
        // Nothing in it admits anybody, and it has a protection of its own: a lost key must not take the secrets along.
        return Ok(records);
    }
    let sealed = rows.iter().map(StoredRow::sealed).collect();
    table_digests::check(transaction.connection, transaction.row_key, R::TABLE.name, sealed)?;
    Ok(records)
}

/// A row as it is stored.
struct StoredRow {
    key: String,
    text: String,
    seal: Option<String>,
}

impl StoredRow {
    /// Returns what the digest of the table is made of. The seal of a row covers its document.
    fn sealed(&self) -> (&str, &str) {
        (&self.key, self.seal.as_deref().unwrap_or(&self.text))
    }
}

async fn stored_rows(
    transaction: &mut Transaction<'_>,
    table: &RecordTable,
) -> Result<Vec<StoredRow>, DatabaseError> {
    let rows = transaction.query(table.select, &[]).await?.into_iter().map(|mut row| {
        let (key, text) = (row.take("key")?, row.take("record")?);
        // A sealed table has a seal in every row; where it is null the digest is of none.
        let seal = table.seal.map(|_| row.take::<Option<String>>("seal")).transpose()?.flatten();
        Ok(StoredRow { key, text, seal })
    });
    rows.collect()
}

/// Writes the records of one table as text.
pub fn encode_records<R: Record>(
    records: &[R],
) -> Result<(RecordTable, Vec<(String, String)>), DatabaseError> {
    let mut keys = HashSet::new();
    let encoded = records.iter().map(|record| {
        if !keys.insert(record.key()) {
            return Err(DatabaseError::shape(format!("table {} has a key twice", R::TABLE.name)));
        }
        let text = serde_json::to_string(record).map_err(|e| {
            DatabaseError::shape(format!("a record of table {} cannot be written: {e}", R::TABLE.name))
        })?;
        Ok((record.key().to_owned(), text))
    });
    Ok((R::TABLE, encoded.collect::<Result<_, _>>()?))
}

/// Writes the rows that differ and removes those that are gone.
async fn store(
    transaction: &mut Transaction<'_>,
    before: &EncodedRows,
    after: &EncodedRows,
) -> Result<(), DatabaseError> {
    let none = Vec::new();
    for (table, rows) in after {
        let before =
            before.iter().find(|(known, _)| known.name == table.name).map_or(&none, |(_, rows)| rows);
        let mut gone: HashMap<&str, &str> =
            before.iter().map(|(key, text)| (key.as_str(), text.as_str())).collect();
        let mut differs = false;
        for (key, text) in rows {
            let known = gone.remove(key.as_str());
            if known != Some(text) {
                differs = true;
                write_row(transaction, table, key, known, text).await?;
            }
        }
        for key in gone.into_keys() {
            differs = true;
            transaction.execute(table.delete, &[Value::from(key)]).await?;
        }
        if differs {
            let rows = stored_rows(transaction, table).await?;
            let digest = table_digests::digest(rows.iter().map(StoredRow::sealed).collect());
            table_digests::write(transaction.connection, table.name, digest)?;
        }
    }
    Ok(())
}

/// Writes one row, with its seal and with what a newer program has added to it.
async fn write_row(
    transaction: &mut Transaction<'_>,
    table: &RecordTable,
    key: &str,
    known: Option<&str>,
    text: &str,
) -> Result<(), DatabaseError> {
    let stored = match known {
        Some(_) => transaction.query(table.select_one, &[key.into()]).await?.pop(),
        None => None,
    };
    let stored: Option<String> = stored.map(|mut row| row.take("record")).transpose()?;
    let carried = stored.zip(known).and_then(|(stored, known)| carry_over(&stored, known, text));
    let text = carried.as_deref().unwrap_or(text);
    transaction.execute(table.upsert, &[key.into(), text.into()]).await?;
    if let Some(statement) = table.seal {
        let seal = transaction.row_key.seal(table.name, key, text)?;
        transaction.execute(statement, &[key.into(), seal.into()]).await?;
    }
    Ok(())
}

/// What the rows of a topic mean.
pub trait TopicState: Send + Sync + Sized + 'static {
    type Rows: TopicRows;
    const TOPIC: Topic;
    /// Bytes of all rows. A change beyond it is refused.
    const BYTES_MAX: usize;

    /// Interprets the rows, or says why they make no sense.
    fn of(rows: &Self::Rows) -> Result<Self, String>;
}

/// A topic whose state is kept in memory and changed as a whole.
pub struct TopicStore<S: TopicState> {
    database: Database,
    view: View<S>,
}

impl<S: TopicState> TopicStore<S> {
    /// Loads the topic. Rows that make no sense are no error here: the snapshot says why.
    pub fn open(database: &Database) -> TopicStore<S> {
        let view = database.view(
            S::TOPIC,
            Box::new(|transaction| {
                Box::pin(async move {
                    let rows = S::Rows::load(transaction).await.map_err(|e| e.to_string())?;
                    S::of(&rows)
                })
            }),
        );
        TopicStore { database: database.clone(), view }
    }

    /// Returns the state as of the last change by any process. No I/O.
    pub fn current(&self) -> Guard<Arc<Snapshot<S>>> {
        self.view.current()
    }

    /// Returns why the state is unknown, if so.
    pub fn health(&self) -> Result<(), String> {
        self.current().known.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// Returns a receiver that is notified after each change, by whichever process.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.view.subscribe()
    }

    /// Changes the rows in one transaction; writes nothing if none differs. A change that `edit` refuses leaves all rows as they were, and rows that make no
    /// sense are not overwritten: a person may still be able to repair them.
    ///
    /// `edit` runs on the calling thread while the topic is locked; it must not use the database, nor take long. Blocks on the disk and on
    /// other processes: not for an async worker.
    pub fn change<T, E>(&self, edit: impl FnOnce(&mut S::Rows) -> Result<T, E>) -> Result<T, E>
    where
        E: From<DatabaseError>,
    {
        let (loaded, rows) = sync_channel::<S::Rows>(1);
        let (edited, after) = sync_channel::<S::Rows>(1);
        let kind = Kind::Change(S::TOPIC, OperationId::random()?);
        let committed = self.database.start::<(), DatabaseError>(kind, move |transaction| {
            Box::pin(async move {
                let rows = S::Rows::load(transaction).await?;
                S::of(&rows).map_err(DatabaseError::shape)?;
                let before = rows.encode()?;
                // The caller that hangs up has refused the change.
                loaded.send(rows).map_err(|_| DatabaseError::abandoned())?;
                let rows = after.recv_timeout(EDIT_WITHIN).map_err(|_| DatabaseError::abandoned())?;
                let after = rows.encode()?;
                if after == before {
                    return Err(DatabaseError::unchanged());
                }
                let texts = after.iter().flat_map(|(_, rows)| rows);
                let bytes: usize = texts.map(|(key, text)| key.len() + text.len()).sum();
                if bytes > S::BYTES_MAX {
                    return Err(DatabaseError::too_large(S::TOPIC, S::BYTES_MAX));
                }
                store(transaction, &before, &after).await
            })
        })?;
        // Without rows the job has failed, and says why.
        let done = match rows.recv() {
            Err(_) => None,
            Ok(mut rows) => {
                match edit(&mut rows) {
                    Ok(done) => {
                        // The job ended only if the database did.
                        let _ = edited.send(rows);
                        Some(done)
                    }
                    Err(refusal) => {
                        // The rows that it is about may be newer than the snapshot, which the caller looks at next.
                        drop(edited);
                        self.database.engine.catch_up();
                        return Err(refusal);
                    }
                }
            }
        };
        match wait(committed).map_err(|_| DatabaseError::stopped())? {
            Err(error) if !error.is_unchanged() => return Err(error.into()),
            Err(_) => self.database.engine.catch_up(),
            Ok(()) => {}
        }
        done.ok_or_else(|| DatabaseError::stopped().into())
    }
}

/// Adds rows to a topic that has none, as part of the import of an earlier version's file.
pub(crate) async fn fill<S: TopicState>(
    transaction: &mut Transaction<'_>,
    rows: &S::Rows,
) -> Result<(), DatabaseError> {
    S::of(rows).map_err(DatabaseError::shape)?;
    store(transaction, &Vec::new(), &rows.encode()?).await?;
    // A topic with a version has been used, be it empty.
    let used = "INSERT INTO topics (name, version) VALUES ($1, 1) ON CONFLICT (name) DO UPDATE SET version = topics.version + 1";
    transaction.execute(used, &[S::TOPIC.name().into()]).await?;
    Ok(())
}
