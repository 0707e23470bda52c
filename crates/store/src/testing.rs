//! What the tests of this crate share.

use crate::database::{Database, DatabaseError, OperationId, Topic, wait};
use std::path::Path;

pub(crate) fn open(folder: &Path) -> Database {
    crate::open(folder, &[]).unwrap()
}

/// Changes rows as another process would that has the row key, but without the types that protect them.
pub(crate) fn edit(folder: &Path, topic: &'static str, sql: &'static str) {
    let id = OperationId::random().unwrap();
    let edited: Result<usize, DatabaseError> =
        wait(open(folder).change(Topic::new(topic), id, move |transaction| {
            Box::pin(async move {
                let edited = transaction.execute(sql, &[]).await?;
                transaction.seal_rows()?;
                Ok(edited)
            })
        }));
    assert!(edited.unwrap() > 0);
}

/// Gives every row the seal that it would have if the program had written it.
pub(crate) fn seal(folder: &Path) {
    let id = OperationId::random().unwrap();
    let sealed: Result<(), DatabaseError> = wait(open(folder).change(
        Topic::new("test"),
        id,
        |transaction| Box::pin(async move { transaction.seal_rows() }),
    ));
    sealed.unwrap();
}

/// Returns every row of the database as text.
pub(crate) fn export(folder: &Path) -> String {
    wait(open(folder).export()).unwrap().to_string()
}

/// The same, of a folder whose files of earlier versions are not to be imported by this.
pub(crate) fn export_as_it_is(folder: &Path) -> String {
    let database = Database::open(folder, &crate::MIGRATIONS).unwrap();
    wait(database.export()).unwrap().to_string()
}
