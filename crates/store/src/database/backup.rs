//! Checking, copying and writing out a database.

use super::row_key::RowKey;
use super::{Database, DatabaseError, Value, statement};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use serde_json::{Map, json};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How many problems a check names.
const PROBLEMS_MAX: usize = 20;

impl Database {
    /// Reads every page, index and seal, and returns what is wrong.
    pub async fn check(&self) -> Result<Vec<String>, DatabaseError> {
        self.on_connection(|connection, row_key| problems(&*snapshot(connection)?, row_key)).await
    }

    /// Writes a copy of the database as it is at this moment into a new file, while it is in use.
    pub async fn backup(&self, to: &Path) -> Result<(), DatabaseError> {
        let partial = PartialFile::beside(to)?;
        // SQLite refuses a symlink anywhere in the path.
        let path = partial.path.canonicalize().map_err(|e| DatabaseError::file("find", &partial.path, e))?;
        self.on_connection(move |connection, _| {
            let Some(path) = path.to_str() else {
                return Err(DatabaseError::refused(&path, "is not a name in UTF-8"));
            };
            connection.execute("VACUUM INTO ?1", [path])?;
            Ok(())
        })
        .await?;
        partial.finish(to).map_err(|e| DatabaseError::file("write", to, e))
    }

    /// Returns every row of every table as JSON. Secrets are in it as they are stored: sealed.
    pub async fn export(&self) -> Result<serde_json::Value, DatabaseError> {
        self.on_connection(|connection, _| {
            let connection = &*snapshot(connection)?;
            let tables = {
                let listed = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name";
                let mut statement = connection.prepare(listed)?;
                statement.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?
            };
            let mut all = Map::new();
            for table in tables {
                let rows = statement::table(connection, &table)?;
                let rows: Vec<_> = rows
                    .into_iter()
                    .map(|row| {
                        let columns = row.columns.iter().cloned();
                        serde_json::Value::Object(columns.zip(row.values.iter().map(to_json)).collect())
                    })
                    .collect();
                all.insert(table, rows.into());
            }
            Ok(all.into())
        })
        .await
    }

    async fn on_connection<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection, &RowKey) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        let (reply, outcome) = futures::channel::oneshot::channel();
        self.engine.submit(Box::new(move |writer| {
            drop(reply.send(work(&mut writer.connection, &writer.row_key)));
        }))?;
        outcome.await.map_err(|_| DatabaseError::stopped())?
    }
}

/// Begins to read the database as it is at this moment: other processes change it meanwhile.
fn snapshot(connection: &mut Connection) -> Result<Transaction<'_>, DatabaseError> {
    Ok(connection.transaction_with_behavior(TransactionBehavior::Deferred)?)
}

/// Reads every page, index and seal, and returns what is wrong.
pub(super) fn problems(connection: &Connection, row_key: &RowKey) -> Result<Vec<String>, DatabaseError> {
    let mut statement = connection.prepare(&format!("PRAGMA integrity_check({PROBLEMS_MAX})"))?;
    let found = statement.query_map([], |row| row.get::<_, String>(0))?;
    let found = found.collect::<Result<Vec<_>, _>>()?;
    let problems: Vec<String> = found.into_iter().filter(|line| line != "ok").collect();
    if problems.is_empty() { statement::check_seals(connection, row_key, PROBLEMS_MAX) } else { Ok(problems) }
}

/// A copy that is being written, under another name than its final one: a killed backup leaves no half a copy that looks whole.
struct PartialFile {
    path: PathBuf,
    /// Locked while it is written.
    file: File,
}

impl PartialFile {
    /// Makes an empty file, which SQLite takes for a new one. Here, so that no other user can read it.
    fn beside(to: &Path) -> Result<PartialFile, DatabaseError> {
        if std::fs::symlink_metadata(to).is_ok() {
            return Err(DatabaseError::file("make", to, io::ErrorKind::AlreadyExists.into()));
        }
        let mut path = to.as_os_str().to_owned();
        path.push(".partial");
        let path = PathBuf::from(path);
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let file = file.map_err(|e| DatabaseError::file("make", &path, e))?;
        if file.try_lock().is_err() {
            return Err(DatabaseError::refused(&path, "is being written by another backup"));
        }
        // What a killed backup left.
        file.set_len(0).map_err(|e| DatabaseError::file("write", &path, e))?;
        Ok(PartialFile { path, file })
    }

    /// Gives the file its final name, which no other file may have by then.
    fn finish(self, to: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        match std::fs::hard_link(&self.path, to) {
            Ok(()) => {}
            // A file system without hard links.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists && !to.exists() => {
                std::fs::rename(&self.path, to)?;
            }
            Err(error) => return Err(error),
        }
        // The name must last as well as what is in it.
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // It has its final name, or half a copy is worse than none.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn to_json(value: &Value) -> serde_json::Value {
    use base64::Engine as _;
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Int(value) => json!(value),
        Value::Text(value) => json!(value),
        Value::Bytes(value) => {
            json!({ "base64": base64::engine::general_purpose::STANDARD.encode(value) })
        }
    }
}
