//! What the tests of this crate share.

use crate::database::{Database, DatabaseError, OperationId, Topic, wait};
use std::path::Path;

pub(crate) fn open(folder: &Path) -> Database {
    crate::open(folder, &[]).unwrap()
}

/// Changes rows as another process would, but without the types that protect them.
pub(crate) fn edit(folder: &Path, topic: &'static str, sql: &'static str) {
    let id = OperationId::random().unwrap();
    let edited: Result<usize, DatabaseError> =
        wait(open(folder).change(Topic::new(topic), id, move |transaction| {
            Box::pin(async move { transaction.execute(sql, &[]).await })
        }));
    assert!(edited.unwrap() > 0);
}

/// Returns every row of the database as text.
pub(crate) fn export(folder: &Path) -> String {
    wait(open(folder).export()).unwrap().to_string()
}
