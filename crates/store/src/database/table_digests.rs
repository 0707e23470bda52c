//! Digests of tables, and one seal over all of them.
//!
//! The seal of a row says nothing about a row that was deleted, nor about one that was put back as it once was. So a change
//! writes a digest of each table that it changed, and one seal over all digests and all topic versions; each table is compared
//! when it is loaded. Only the whole database can be put back as it was.

use super::row_key::RowKey;
use super::statement::{execute, query, table};
use super::{DatabaseError, Row};
use data_encoding::HEXLOWER;
use rusqlite::Connection;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// The name under which the seal over all digests is stored.
const ALL: &str = "";

/// Returns the digest of rows, each a key with its seal, or with its document where it has none.
pub(super) fn digest(mut rows: Vec<(&str, &str)>) -> String {
    // Sorted here: the engines do not agree on an order of texts.
    rows.sort_unstable();
    let mut digest = Sha256::new();
    for part in rows.into_iter().flat_map(|(key, seal)| [key, seal]) {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    HEXLOWER.encode(&digest.finalize())
}

/// Writes the digest of a table that a change has made different.
pub(super) fn write(connection: &Connection, name: &str, digest: String) -> Result<(), DatabaseError> {
    let upsert = "INSERT INTO table_digests (name, digest) VALUES ($1, $2)
                  ON CONFLICT (name) DO UPDATE SET digest = excluded.digest";
    execute(connection, upsert, &[name.into(), digest.into()])?;
    Ok(())
}

/// Seals all digests and topic versions. The last step of each change.
pub(super) fn seal(connection: &Connection, row_key: &RowKey) -> Result<(), DatabaseError> {
    let seal = row_key.seal("table_digests", ALL, &read(connection)?.text)?;
    write(connection, ALL, seal)
}

/// Compares a table, as it was read, with its digest.
pub(super) fn check(
    connection: &Connection,
    row_key: &RowKey,
    name: &str,
    rows: Vec<(&str, &str)>,
) -> Result<(), DatabaseError> {
    let state = read(connection)?;
    state.check(row_key)?;
    let is_same = match state.digests.iter().find(|(known, _)| known == name) {
        Some((_, known)) => *known == digest(rows),
        // A table that nothing was ever written to.
        None => rows.is_empty(),
    };
    if is_same {
        return Ok(());
    }
    Err(put_back(&format!("table {name}")))
}

fn put_back(what: &str) -> DatabaseError {
    DatabaseError::shape(format!(
        "{what} is not as this program wrote it: another program removed rows, or put old ones back; stop the hub and \
         restore a backup"
    ))
}

/// The digests, and what is sealed of them.
struct DigestState {
    digests: Vec<(String, String)>,
    seal: Option<String>,
    text: String,
    was_changed: bool,
}

impl DigestState {
    fn check(&self, row_key: &RowKey) -> Result<(), DatabaseError> {
        if self.seal.is_none() && !self.was_changed && self.digests.is_empty() {
            // A new database.
            return Ok(());
        }
        if self.seal.is_none() && self.digests.is_empty() {
            return Err(DatabaseError::shape(
                "the list of tables is empty: another program removed rows, or put old ones back, or an unreleased version \
                 made the database; stop the hub and restore a backup, or move the database away"
                    .to_owned(),
            ));
        }
        row_key
            .check("table_digests", ALL, &self.text, self.seal.as_deref())
            .map_err(|error| if error.is_refused() { error } else { put_back("the list of tables") })
    }
}

fn read(connection: &Connection) -> Result<DigestState, DatabaseError> {
    let mut state = DigestState { digests: Vec::new(), seal: None, text: String::new(), was_changed: false };
    let mut topics = query(connection, "SELECT name, version FROM topics", &[])?
        .into_iter()
        .map(|mut row| Ok((row.take("name")?, row.take("version")?)))
        .collect::<Result<Vec<(String, i64)>, DatabaseError>>()?;
    topics.sort_unstable();
    for mut row in query(connection, "SELECT name, digest FROM table_digests", &[])? {
        let (name, digest): (String, String) = (row.take("name")?, row.take("digest")?);
        if name == ALL {
            state.seal = Some(digest);
        } else {
            state.digests.push((name, digest));
        }
    }
    state.digests.sort_unstable();
    for (name, version) in topics {
        state.was_changed |= version > 0;
        let _ = writeln!(state.text, "topic {name:?} {version}");
    }
    for (name, digest) in &state.digests {
        let _ = writeln!(state.text, "table {name:?} {digest:?}");
    }
    Ok(state)
}

/// Returns what is wrong with the digests.
pub(super) fn problems(connection: &Connection, row_key: &RowKey) -> Result<Vec<String>, DatabaseError> {
    let mut problems = Vec::new();
    for name in record_tables(connection)? {
        let checked = with_rows(connection, &name, |rows| check(connection, row_key, &name, rows));
        problems.extend(checked.err().map(|error| error.to_string()));
    }
    problems.dedup();
    Ok(problems)
}

/// Writes the digest of every table as it is.
pub(super) fn write_all(connection: &Connection) -> Result<(), DatabaseError> {
    for name in record_tables(connection)? {
        // Rows that are no text are refused for that.
        let Ok(digest) = with_rows(connection, &name, |rows| Ok(digest(rows))) else { continue };
        write(connection, &name, digest)?;
    }
    Ok(())
}

/// Returns the tables of records, by the columns that they have.
fn record_tables(connection: &Connection) -> Result<Vec<String>, DatabaseError> {
    let tables = "SELECT m.name FROM sqlite_master m JOIN pragma_table_info(m.name) c ON c.name = 'record'
                  WHERE m.type = 'table' ORDER BY m.name";
    let mut statement = connection.prepare(tables)?;
    Ok(statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
}

fn with_rows<T>(
    connection: &Connection,
    name: &str,
    then: impl FnOnce(Vec<(&str, &str)>) -> Result<T, DatabaseError>,
) -> Result<T, DatabaseError> {
    let rows = table(connection, name)?.into_iter().map(read_row).collect::<Result<Vec<_>, _>>()?;
    then(rows.iter().map(|(key, seal)| (key.as_str(), seal.as_str())).collect())
}

fn read_row(mut row: Row) -> Result<(String, String), DatabaseError> {
    let has_seal = row.columns.iter().any(|column| column == "seal");
    let (key, record) = (row.take("key")?, row.take("record")?);
    let seal = if has_seal { row.take::<Option<String>>("seal")? } else { None };
    Ok((key, seal.unwrap_or(record)))
}

#[cfg(test)]
mod tests {
    use crate::database::{FILE_NAME, wait};
    use crate::servers::ServerOverrides;
    use crate::testing::open;
    use std::path::Path;

    fn attack(folder: &Path, sql: &str) {
        rusqlite::Connection::open(folder.join(FILE_NAME)).unwrap().execute_batch(sql).unwrap();
    }

    /// Returns what the rows of a folder are, or why they are refused.
    fn look(folder: &Path) -> Result<(), String> {
        let database = open(folder);
        let problems = wait(database.check()).unwrap();
        let health = ServerOverrides::open(&database).health();
        assert_eq!(problems.is_empty(), health.is_ok(), "{problems:?} {health:?}");
        // Nor does a change make it right.
        assert_eq!(ServerOverrides::open(&database).set("other", Some(true)).is_ok(), health.is_ok());
        health
    }

    fn refused(folder: &Path) {
        let why = look(folder).unwrap_err();
        assert!(why.contains("removed rows, or put old ones back"), "{why}");
    }

    #[test]
    fn a_row_that_was_removed_is_missed() {
        let folder = tempfile::tempdir().unwrap();
        let set = |server| ServerOverrides::open(&open(folder.path())).set(server, Some(false)).unwrap();
        set("git");
        set("files");
        look(folder.path()).unwrap();
        attack(folder.path(), "DELETE FROM server_overrides WHERE key = 'git'");
        refused(folder.path());
        attack(folder.path(), "DELETE FROM server_overrides");
        refused(folder.path());
        attack(folder.path(), "DELETE FROM table_digests WHERE name = 'server_overrides'");
        refused(folder.path());
        attack(folder.path(), "DELETE FROM table_digests");
        refused(folder.path());
    }

    #[test]
    fn a_row_that_was_put_back_is_noticed_also_with_its_digest_and_version() {
        let folder = tempfile::tempdir().unwrap();
        let set = |enabled| ServerOverrides::open(&open(folder.path())).set("git", Some(enabled)).unwrap();
        set(false);
        attack(
            folder.path(),
            "CREATE TABLE old_rows AS SELECT key, position, record AS old, seal AS old_seal FROM server_overrides;
             CREATE TABLE old_digests AS SELECT * FROM table_digests;
             CREATE TABLE old_topics AS SELECT * FROM topics",
        );
        set(true);
        look(folder.path()).unwrap();
        attack(
            folder.path(),
            "DELETE FROM server_overrides; INSERT INTO server_overrides SELECT * FROM old_rows",
        );
        refused(folder.path());
        let name = "name = 'server_overrides'";
        attack(
            folder.path(),
            &format!(
                "DELETE FROM table_digests WHERE {name}; INSERT INTO table_digests SELECT * FROM old_digests WHERE {name};
                 DELETE FROM topics WHERE {name}; INSERT INTO topics SELECT * FROM old_topics WHERE {name}"
            ),
        );
        refused(folder.path());
    }

    #[test]
    fn a_secret_that_was_removed_is_missed() {
        let folder = tempfile::tempdir().unwrap();
        let database = open(folder.path());
        let fill =
            "INSERT INTO secrets (key, position, record) VALUES ('a', 1, '{\"id\":\"a\",\"sealed\":\"\"}')";
        drop(database);
        crate::testing::edit(folder.path(), "secrets", fill);
        assert_eq!(wait(open(folder.path()).check()).unwrap(), Vec::<String>::new());
        attack(folder.path(), "DELETE FROM secrets");
        let problems = wait(open(folder.path()).check()).unwrap();
        assert!(problems[0].contains("table secrets"), "{problems:?}");
    }
}
