//! The database: snapshots in memory, changes in transactions, claims on rows.
//!
//! Three ways in. A [`View`] is a snapshot of a topic; reading it does no I/O, and a change refreshes it before the change
//! returns. [`Database::change`] is one writer per topic and raises the topic's version, so that other processes reload.
//! [`Database::claim`] locks rows only, for queues and runs that several hubs work on.
//!
//! The engine is SQLite; [`engine`] says which threads there are, and why an acknowledged change is in force everywhere. What stands in SQL is portable to PostgreSQL: `$1`, `ON CONFLICT`, `RETURNING`,
//! times as microseconds in `BIGINT`, bytes as `BYTEA`.

mod backup;
mod connection;
mod engine;
mod error;
mod file_identity;
mod follower;
mod freshness;
mod migration;
mod peers;
mod records;
mod registry;
mod restore;
mod row_key;
mod shared;
mod statement;
mod table_digests;
mod unknown_members;
mod value;
mod view;

pub use error::DatabaseError;
pub use migration::Migration;
pub(crate) use records::fill;
pub use records::{
    EncodedRows, Record, RecordTable, TopicRows, TopicState, TopicStore, encode_records, load_records,
};
pub use restore::restore;
pub use row_key::ROW_KEY_NAME;
pub use value::{FromValue, Row, Value};
pub use view::{Load, Snapshot, View};

use engine::{Engine, Job};
use futures::channel::oneshot;
use futures::future::BoxFuture;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Finds out whether an operation was made.
const OPERATION: &str = "SELECT 1 FROM operations WHERE id = $1";

/// The name of the database's file.
pub const FILE_NAME: &str = "portcullis.db";

/// A set of rows that change together and that views are loaded from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Topic(&'static str);

impl Topic {
    pub const fn new(name: &'static str) -> Topic {
        Topic(name)
    }

    pub const fn name(self) -> &'static str {
        self.0
    }
}

/// Names one change, so that a change whose acknowledgement was lost can be told from one that never happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OperationId([u8; 16]);

impl OperationId {
    /// Makes an id that no other operation has.
    pub fn random() -> Result<OperationId, DatabaseError> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(DatabaseError::random)?;
        Ok(OperationId(bytes))
    }

    pub const fn from_bytes(bytes: [u8; 16]) -> OperationId {
        OperationId(bytes)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn to_value(self) -> Value {
        self.as_bytes().into()
    }
}

/// One transaction. Everything in it happens, or nothing does.
pub struct Transaction<'c> {
    connection: &'c mut rusqlite::Connection,
    row_key: &'c row_key::RowKey,
}

impl Transaction<'_> {
    /// Runs a statement and returns its rows. The text is fixed, so that no value can become part of it.
    pub async fn query(&mut self, sql: &'static str, values: &[Value]) -> Result<Vec<Row>, DatabaseError> {
        statement::query(self.connection, sql, values)
    }

    /// Runs a statement and returns how many rows it changed.
    pub async fn execute(&mut self, sql: &'static str, values: &[Value]) -> Result<usize, DatabaseError> {
        statement::execute(self.connection, sql, values)
    }
}

impl Transaction<'_> {
    /// Seals every row as it is. For tests, which change rows without the types that protect them.
    #[doc(hidden)]
    pub fn seal_rows(&mut self) -> Result<(), DatabaseError> {
        statement::seal_rows(self.connection, self.row_key)?;
        table_digests::write_all(self.connection)
    }
}

/// What runs inside a transaction.
pub trait TransactionFn<T, E>:
    for<'t> FnOnce(&'t mut Transaction<'_>) -> BoxFuture<'t, Result<T, E>> + Send + 'static
{
}

impl<T, E, F> TransactionFn<T, E> for F where
    F: for<'t> FnOnce(&'t mut Transaction<'_>) -> BoxFuture<'t, Result<T, E>> + Send + 'static
{
}

/// The hub's database. A clone is the same one.
#[derive(Clone)]
pub struct Database {
    engine: Arc<Engine>,
}

impl Database {
    /// Opens the database in a folder, makes it where it is missing, and applies the migrations that it does not have.
    ///
    /// A file that others can read, that is damaged or that a newer program has written is refused. The same file opened
    /// twice is the same database.
    pub fn open(folder: &Path, migrations: &[Migration]) -> Result<Database, DatabaseError> {
        Ok(Database { engine: registry::open(folder, FILE_NAME, migrations)? })
    }

    /// Makes an empty database that no other process sees and that ends with this one.
    pub fn in_memory(migrations: &[Migration]) -> Result<Database, DatabaseError> {
        Ok(Database { engine: Arc::new(Engine::in_memory(migrations)?) })
    }

    /// Returns where the database is.
    pub fn path(&self) -> PathBuf {
        self.engine.path().to_owned()
    }

    /// Returns whether another process has the database open.
    pub(crate) fn is_open_in(&self, pid: u32) -> bool {
        peers::has_joined(self.engine.path(), pid)
    }

    /// Keeps what a topic means in memory. `load` runs now, and again after each change of the topic by whichever process.
    ///
    /// Where the topic cannot be read the snapshot says why, and its reader refuses.
    pub fn view<T: Send + Sync + 'static>(&self, topic: Topic, load: Load<T>) -> View<T> {
        self.engine.view(topic, load)
    }

    /// Changes a topic. When this returns the change is on disk, and every process of this machine goes by it.
    ///
    /// Cancelling the caller does not cancel the change.
    pub async fn change<T, E>(
        &self,
        topic: Topic,
        id: OperationId,
        work: impl TransactionFn<T, E>,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        self.submit(engine::Kind::Change(topic, id), work).await
    }

    /// Takes or finishes rows of a queue. No view is loaded from them, so no process is notified.
    pub async fn claim<T, E>(&self, id: OperationId, work: impl TransactionFn<T, E>) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        self.submit(engine::Kind::Claim(id), work).await
    }

    /// Reads rows that no view has.
    pub async fn read<T, E>(&self, work: impl TransactionFn<T, E>) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        self.submit(engine::Kind::Read, work).await
    }

    /// Returns whether a change was made, for a caller that lost its acknowledgement.
    pub async fn was_done(&self, id: OperationId) -> Result<bool, DatabaseError> {
        self.read(move |transaction| {
            Box::pin(async move { Ok(!transaction.query(OPERATION, &[id.to_value()]).await?.is_empty()) })
        })
        .await
    }

    async fn submit<T, E>(&self, kind: engine::Kind, work: impl TransactionFn<T, E>) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        self.start(kind, work)?.await.map_err(|_| DatabaseError::stopped())?
    }

    /// Queues a transaction. What it returns arrives at the receiver, which may be dropped: the work is done all the same.
    fn start<T, E>(
        &self,
        kind: engine::Kind,
        work: impl TransactionFn<T, E>,
    ) -> Result<oneshot::Receiver<Result<T, E>>, DatabaseError>
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        let (reply, outcome) = oneshot::channel();
        let job: Job = Box::new(move |writer| writer.run(kind, work, reply));
        self.engine.submit(job)?;
        Ok(outcome)
    }
}

/// Waits for the database on a thread that may wait; never on a thread of the runtime.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    futures::executor::block_on(future)
}

#[cfg(test)]
mod process_tests;
#[cfg(test)]
mod restore_tests;
#[cfg(test)]
mod tests;
