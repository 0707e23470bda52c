//! Statements: values bound by name, rows as they are stored.

use super::row_key::RowKey;
use super::{DatabaseError, Row, Value};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ToSql};
use std::sync::Arc;

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Int(value) => ValueRef::Integer(*value),
            Value::Text(value) => ValueRef::Text(value.as_bytes()),
            Value::Bytes(value) => ValueRef::Blob(value),
        }))
    }
}

/// Binds `$1`, `$2` … by their names: SQLite would number them by where they first stand.
fn bind(statement: &mut rusqlite::CachedStatement<'_>, values: &[Value]) -> Result<(), DatabaseError> {
    for (at, value) in values.iter().enumerate() {
        let Some(index) = statement.parameter_index(&format!("${}", at + 1))? else {
            return Err(DatabaseError::shape(format!("the statement has no ${}", at + 1)));
        };
        statement.raw_bind_parameter(index, value)?;
    }
    Ok(())
}

pub(super) fn query(
    connection: &Connection,
    sql: &'static str,
    values: &[Value],
) -> Result<Vec<Row>, DatabaseError> {
    let mut statement = connection.prepare_cached(sql)?;
    bind(&mut statement, values)?;
    rows_of(&mut statement)
}

/// Returns every row of a table that the database itself has named.
pub(super) fn table(connection: &Connection, name: &str) -> Result<Vec<Row>, DatabaseError> {
    let mut statement = connection.prepare(&format!("SELECT * FROM \"{}\"", name.replace('"', "\"\"")))?;
    rows_of(&mut statement)
}

fn rows_of(statement: &mut rusqlite::Statement<'_>) -> Result<Vec<Row>, DatabaseError> {
    let columns: Arc<[String]> = statement.column_names().map(str::to_owned).collect();
    let mut found = Vec::new();
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        let mut values = Vec::with_capacity(columns.len());
        for at in 0..columns.len() {
            values.push(match row.get_ref(at)? {
                ValueRef::Null => Value::Null,
                ValueRef::Integer(value) => Value::Int(value),
                ValueRef::Text(value) => Value::Text(
                    String::from_utf8(value.to_vec())
                        .map_err(|_| DatabaseError::shape("text is not UTF-8".to_owned()))?,
                ),
                ValueRef::Blob(value) => Value::Bytes(value.to_vec()),
                ValueRef::Real(_) => {
                    return Err(DatabaseError::shape("a column holds a fraction".to_owned()));
                }
            });
        }
        found.push(Row { columns: columns.clone(), values });
    }
    Ok(found)
}

pub(super) fn execute(
    connection: &Connection,
    sql: &'static str,
    values: &[Value],
) -> Result<usize, DatabaseError> {
    let mut statement = connection.prepare_cached(sql)?;
    bind(&mut statement, values)?;
    Ok(statement.raw_execute()?)
}

/// Returns the tables whose rows are sealed, by the column that holds the seal.
fn sealed_tables(connection: &Connection) -> Result<Vec<String>, DatabaseError> {
    let sealed = "SELECT m.name FROM sqlite_master m JOIN pragma_table_info(m.name) c ON c.name = 'seal'
                  WHERE m.type = 'table' ORDER BY m.name";
    let mut statement = connection.prepare(sealed)?;
    Ok(statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
}

fn document(row: &mut Row) -> Result<(String, String), DatabaseError> {
    Ok((row.take("key")?, row.take("record")?))
}

/// Returns what is wrong with the seals of rows, at most `problems_max` of them.
pub(super) fn check_seals(
    connection: &Connection,
    row_key: &RowKey,
    problems_max: usize,
) -> Result<Vec<String>, DatabaseError> {
    let mut problems = Vec::new();
    for name in sealed_tables(connection)? {
        for mut row in table(connection, &name)? {
            let checked = document(&mut row).and_then(|(key, record)| {
                let seal: Option<String> = row.take("seal")?;
                row_key.check(&name, &key, &record, seal.as_deref())
            });
            if let Err(error) = checked
                && problems.len() < problems_max
            {
                problems.push(error.to_string());
            }
        }
    }
    if problems.is_empty() {
        problems = super::table_digests::problems(connection, row_key)?;
        problems.truncate(problems_max);
    }
    Ok(problems)
}

/// Seals every row as it is.
pub(super) fn seal_rows(connection: &Connection, row_key: &RowKey) -> Result<(), DatabaseError> {
    for name in sealed_tables(connection)? {
        let update = format!("UPDATE \"{}\" SET seal = ?2 WHERE key = ?1", name.replace('"', "\"\""));
        for mut row in table(connection, &name)? {
            // One that holds no text is refused for that.
            let Ok((key, record)) = document(&mut row) else { continue };
            connection.execute(&update, (&key, row_key.seal(&name, &key, &record)?))?;
        }
    }
    Ok(())
}
