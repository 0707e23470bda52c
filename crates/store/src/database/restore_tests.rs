//! A database that is copied, replaced and restored.
#![expect(clippy::disallowed_methods, reason = "threads are waited for, without a runtime")]

use super::tests::{SCHEMA, fresh, open, set, view};
use super::*;
use std::time::{Duration, Instant};

/// Waits until readers are refused, and returns why.
pub(super) fn refusal<T: Send + Sync + 'static>(view: &View<T>) -> String {
    let began = Instant::now();
    loop {
        if let Err(why) = &view.current().known {
            return why.clone();
        }
        assert!(began.elapsed() < Duration::from_secs(10), "readers are not refused");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_database_that_was_replaced_is_not_written_and_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join(FILE_NAME), folder.path().join("copy"));
    let database = open(folder.path());
    let view = view(&database);
    set(&database, fresh(), "a", 1).unwrap();
    wait(database.backup(&copy)).unwrap();
    std::fs::rename(&copy, &path).unwrap();
    let refused = set(&database, fresh(), "a", 2).unwrap_err().to_string();
    assert!(refused.contains("was replaced") && refused.contains("restart the hub"), "{refused}");
    let refused = refusal(&view);
    assert!(refused.contains("was replaced"), "{refused}");
    std::fs::remove_file(&path).unwrap();
    let refused = set(&database, fresh(), "a", 2).unwrap_err().to_string();
    assert!(refused.contains("was removed"), "{refused}");
}

#[test]
fn a_schema_that_a_newer_program_migrated_is_refused_by_one_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path());
    let view = view(&database);
    set(&database, fresh(), "a", 1).unwrap();
    let newer = rusqlite::Connection::open(folder.path().join(FILE_NAME)).unwrap();
    newer
        .execute("INSERT INTO migrations (owner, number, program) VALUES ('test', 2, '99.0.0')", [])
        .unwrap();
    let refused = set(&database, fresh(), "a", 2).unwrap_err().to_string();
    assert!(
        refused.contains("newer Portcullis (99.0.0)") && refused.contains("restart the hub"),
        "{refused}"
    );
    let refused = refusal(&view);
    assert!(refused.contains("newer Portcullis"), "{refused}");
}

#[test]
fn a_backup_that_was_killed_leaves_nothing_that_looks_whole() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path());
    set(&database, fresh(), "a", 7).unwrap();
    let (copy, partial) = (folder.path().join("copy"), folder.path().join("copy.partial"));
    std::fs::write(&partial, "half a copy").unwrap();
    wait(database.backup(&copy)).unwrap();
    assert!(copy.exists() && !partial.exists());
    // One that fails leaves neither.
    let failed: Result<(), DatabaseError> = wait(database.backup(&folder.path().join("gone/copy")));
    assert!(failed.is_err());
    // One that is being written is not disturbed.
    let other = std::fs::File::create(folder.path().join("second.partial")).unwrap();
    other.lock().unwrap();
    let refused = wait(database.backup(&folder.path().join("second"))).unwrap_err().to_string();
    assert!(refused.contains("another backup") && !folder.path().join("second").exists(), "{refused}");
}

#[test]
fn a_backup_is_restored_and_the_replaced_database_stays() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    {
        let database = open(folder.path());
        set(&database, fresh(), "a", 1).unwrap();
        wait(database.backup(&copy)).unwrap();
        set(&database, fresh(), "a", 2).unwrap();
    }
    let replaced = restore(folder.path(), &copy, SCHEMA).unwrap().unwrap();
    let database = open(folder.path());
    assert_eq!(view(&database).current().known.as_ref().unwrap()["a"], 1);
    set(&database, fresh(), "b", 3).unwrap();
    drop(database);
    // What was replaced can be restored in turn.
    restore(folder.path(), &replaced, SCHEMA).unwrap();
    let known = view(&open(folder.path())).current().known.clone().unwrap();
    assert_eq!(known.into_iter().collect::<Vec<_>>(), [("a".to_owned(), 2)]);
    let left = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!left.map(|name| name.into_string().unwrap()).any(|name| name.contains("restoring")));
}

#[test]
fn what_is_no_sound_backup_is_not_restored() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    drop(open(folder.path()));
    let refused = |bytes: &[u8], expected: &str| {
        std::fs::write(&file, bytes).unwrap();
        let refused = restore(folder.path(), &file, SCHEMA).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    };
    refused(b"", "no backup of this program");
    refused(&[b'x'; 8_192], "no backup of this program");
    // Its rows were sealed with another key.
    let elsewhere = tempfile::tempdir().unwrap();
    crate::servers::ServerOverrides::open(&crate::testing::open(elsewhere.path()))
        .set("git", Some(false))
        .unwrap();
    std::fs::remove_file(&file).unwrap();
    wait(crate::testing::open(elsewhere.path()).backup(&file)).unwrap();
    let here = tempfile::tempdir().unwrap();
    drop(crate::testing::open(here.path()));
    let refused = crate::restore(here.path(), &file, &[]).unwrap_err().to_string();
    assert!(refused.contains("`git` in table server_overrides has a wrong seal"), "{refused}");
    let key = std::fs::read(elsewhere.path().join(ROW_KEY_NAME)).unwrap();
    std::fs::write(here.path().join(ROW_KEY_NAME), key).unwrap();
    crate::restore(here.path(), &file, &[]).unwrap();
    assert_eq!(
        crate::servers::ServerOverrides::open(&crate::testing::open(here.path())).of("git").enabled,
        Some(false)
    );
}

#[test]
fn operation_ids_are_forgotten_after_minutes_and_beyond_a_count() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path());
    let old = fresh();
    let filled: Result<(), DatabaseError> = wait(database.claim(fresh(), move |transaction| {
        Box::pin(async move {
            let many = "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 5000)
                        INSERT INTO operations (id, at) SELECT CAST('id-' || n AS BLOB), 9000000000000000 + n FROM n";
            transaction.execute(many, &[]).await?;
            let eleven_minutes = 11 * 60 * 1_000_000_i64;
            let at = portcullis_core::Clock::since_epoch(&portcullis_core::SystemClock).as_micros() as i64;
            let one = "INSERT INTO operations (id, at) VALUES ($1, $2)";
            transaction.execute(one, &[old.to_value(), (at - eleven_minutes).into()]).await?;
            Ok(())
        })
    }));
    filled.unwrap();
    set(&database, fresh(), "a", 1).unwrap();
    assert!(!wait(database.was_done(old)).unwrap());
    let left: Result<i64, DatabaseError> = wait(database.read(|transaction| {
        Box::pin(async move {
            let rows = transaction.query("SELECT count(*) AS n FROM operations", &[]).await?;
            rows.into_iter().next().unwrap().take("n")
        })
    }));
    assert!((4_000..4_100).contains(&left.unwrap()));
}
