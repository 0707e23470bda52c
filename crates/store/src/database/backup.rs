//! Checking, copying and writing out a database.

use super::row_key::RowKey;
use super::{Database, DatabaseError, Value, statement};
use rusqlite::Connection;
use serde_json::{Map, json};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// How many problems a check names.
const PROBLEMS_MAX: usize = 20;

impl Database {
    /// Reads every page, index and seal, and returns what is wrong.
    pub async fn check(&self) -> Result<Vec<String>, DatabaseError> {
        self.on_connection(|connection, row_key| {
            let mut statement = connection.prepare(&format!("PRAGMA integrity_check({PROBLEMS_MAX})"))?;
            let found = statement.query_map([], |row| row.get::<_, String>(0))?;
            let found = found.collect::<Result<Vec<_>, _>>()?;
            let mut problems: Vec<String> = found.into_iter().filter(|line| line != "ok").collect();
            if problems.is_empty() {
                problems = statement::check_seals(connection, row_key, PROBLEMS_MAX)?;
            }
            Ok(problems)
        })
        .await
    }

    /// Writes a copy of the database as it is at this moment into a new file, while it is in use.
    pub async fn backup(&self, to: &Path) -> Result<(), DatabaseError> {
        let to = to.to_owned();
        // Made here, so that no other user can read it; SQLite takes an empty file for a new one.
        let made = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&to);
        made.map_err(|e| DatabaseError::file("make", &to, e))?;
        // SQLite refuses a symlink anywhere in the path.
        let path = to.canonicalize().map_err(|e| DatabaseError::file("find", &to, e))?;
        let copied = self
            .on_connection(move |connection, _| {
                let Some(path) = path.to_str() else {
                    return Err(DatabaseError::refused(&path, "is not a name in UTF-8"));
                };
                connection.execute("VACUUM INTO ?1", [path])?;
                Ok(())
            })
            .await;
        match copied {
            // The name must last as well as what is in it.
            Ok(()) => [to.as_path(), to.parent().unwrap_or(Path::new("."))]
                .into_iter()
                .try_for_each(|path| std::fs::File::open(path)?.sync_all())
                .map_err(|e| DatabaseError::file("write", &to, e)),
            Err(error) => {
                // Half a copy is worse than none.
                let _ = std::fs::remove_file(&to);
                Err(error)
            }
        }
    }

    /// Returns every row of every table as JSON. Secrets are in it as they are stored: sealed.
    pub async fn export(&self) -> Result<serde_json::Value, DatabaseError> {
        self.on_connection(|connection, _| {
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
