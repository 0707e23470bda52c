#![expect(clippy::disallowed_methods, reason = "threads and processes are waited for, without a runtime")]

use super::*;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const COUNTERS: Topic = Topic::new("counters");
pub(super) const SCHEMA: &[Migration] = &[Migration {
    owner: "test",
    number: 1,
    sql: "CREATE TABLE counters (name TEXT PRIMARY KEY, n BIGINT NOT NULL);",
}];

pub(super) fn open(folder: &Path) -> Database {
    Database::open(folder, SCHEMA).unwrap()
}

pub(super) fn view(database: &Database) -> View<BTreeMap<String, i64>> {
    database.view(
        COUNTERS,
        Box::new(|transaction| {
            Box::pin(async move {
                let rows = transaction.query("SELECT name, n FROM counters", &[]).await;
                rows.map_err(|e| e.to_string())?
                    .into_iter()
                    .map(|mut row| Ok((row.take("name")?, row.take("n")?)))
                    .collect::<Result<_, DatabaseError>>()
                    .map_err(|e| e.to_string())
            })
        }),
    )
}

pub(super) fn set(
    database: &Database,
    id: OperationId,
    name: &'static str,
    n: i64,
) -> Result<(), DatabaseError> {
    wait(database.change(COUNTERS, id, move |transaction| {
        Box::pin(async move {
            // The parameters stand in another order than they are numbered in.
            let upsert = "INSERT INTO counters (n, name) VALUES ($2, $1)
                          ON CONFLICT (name) DO UPDATE SET n = excluded.n";
            transaction.execute(upsert, &[name.into(), n.into()]).await?;
            Ok(())
        })
    }))
}

pub(super) fn fresh() -> OperationId {
    OperationId::random().unwrap()
}

#[test]
fn a_change_is_in_every_view_when_it_returns() {
    let folder = tempfile::tempdir().unwrap();
    let (here, elsewhere) = (open(folder.path()), open(folder.path()));
    let (view_here, view_elsewhere) = (view(&here), view(&elsewhere));
    for n in 0..20 {
        set(&elsewhere, fresh(), "a", n).unwrap();
        assert_eq!(view_here.current().known.as_ref().unwrap().get("a"), Some(&n));
        assert_eq!(view_elsewhere.current().known.as_ref().unwrap().get("a"), Some(&n));
    }
}

#[test]
fn writers_in_turn_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let database = open(folder.path());
            std::thread::spawn(move || {
                for _ in 0..25 {
                    let add = database.change(COUNTERS, fresh(), |transaction| {
                        Box::pin(async move {
                            let add = "INSERT INTO counters (name, n) VALUES ('a', 1)
                                       ON CONFLICT (name) DO UPDATE SET n = counters.n + 1";
                            transaction.execute(add, &[]).await
                        })
                    });
                    wait(add).unwrap();
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert_eq!(view(&open(folder.path())).current().known.as_ref().unwrap()["a"], 100);
}

#[test]
fn a_change_that_fails_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path());
    let view = view(&database);
    let id = fresh();
    let failed: Result<(), DatabaseError> = wait(database.change(COUNTERS, id, |transaction| {
        Box::pin(async move {
            transaction.execute("INSERT INTO counters (name, n) VALUES ('a', 1)", &[]).await?;
            Err(DatabaseError::busy())
        })
    }));
    assert!(failed.is_err());
    assert!(view.current().known.as_ref().unwrap().is_empty());
    assert!(!wait(database.was_done(id)).unwrap());
    // Nor does one that panics, and the next one is made.
    let panicked: Result<(), DatabaseError> = wait(database.change(COUNTERS, id, |transaction| {
        Box::pin(async move {
            transaction.execute("INSERT INTO counters (name, n) VALUES ('a', 1)", &[]).await?;
            panic!("on purpose")
        })
    }));
    assert!(panicked.is_err());
    set(&database, id, "b", 1).unwrap();
    assert_eq!(view.current().known.as_ref().unwrap().len(), 1);
}

#[test]
fn an_operation_happens_once() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path());
    let id = fresh();
    set(&database, id, "a", 1).unwrap();
    assert!(wait(database.was_done(id)).unwrap());
    assert!(set(&database, id, "a", 2).unwrap_err().is_repeated());
    assert_eq!(view(&database).current().known.as_ref().unwrap()["a"], 1);
}

#[test]
fn what_is_written_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    set(&open(folder.path()), fresh(), "a", 7).unwrap();
    let again = open(folder.path());
    assert_eq!(view(&again).current().known.as_ref().unwrap()["a"], 7);
}

#[test]
fn an_older_program_refuses_a_newer_schema() {
    let folder = tempfile::tempdir().unwrap();
    let newer = Migration { owner: "test", number: 2, sql: "CREATE TABLE more (id BIGINT PRIMARY KEY);" };
    drop(Database::open(folder.path(), &[SCHEMA[0], newer]).unwrap());
    let error = Database::open(folder.path(), SCHEMA).err().unwrap();
    assert!(error.is_damaged());
    let text = error.to_string();
    assert!(text.contains("newer Portcullis") && text.contains("upgrade"), "{text}");
}

#[test]
fn a_file_that_is_not_ours_or_not_private_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE_NAME);
    std::fs::write(&path, vec![b'x'; 8_192]).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let error = Database::open(folder.path(), SCHEMA).err().unwrap();
    assert!(error.is_damaged() && error.to_string().contains("restore a backup"), "{error}");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = Database::open(folder.path(), SCHEMA).err().unwrap().to_string();
    assert!(error.contains("open to other users"), "{error}");
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(folder.path().join("elsewhere"), &path).unwrap();
    assert!(Database::open(folder.path(), SCHEMA).is_err());
}

#[test]
fn a_topic_that_cannot_be_read_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path());
    set(&database, fresh(), "a", 1).unwrap();
    let view: View<()> = database.view(
        COUNTERS,
        Box::new(|transaction| {
            Box::pin(async move {
                let mut rows =
                    transaction.query("SELECT n FROM counters", &[]).await.map_err(|e| e.to_string())?;
                rows.remove(0).take::<String>("n").map(|_| ()).map_err(|e| e.to_string())
            })
        }),
    );
    let known = view.current().known.clone();
    assert_eq!(known.unwrap_err(), "the database is damaged: column `n` does not hold text");
}

#[test]
fn a_backup_is_one_file_that_can_be_opened() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path());
    set(&database, fresh(), "a", 7).unwrap();
    let restored = tempfile::tempdir().unwrap();
    let copy = restored.path().join(FILE_NAME);
    wait(database.backup(&copy)).unwrap();
    assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(wait(database.backup(&copy)).is_err(), "a backup replaces nothing");
    let again = open(restored.path());
    assert_eq!(view(&again).current().known.as_ref().unwrap()["a"], 7);
    assert_eq!(wait(again.check()).unwrap(), Vec::<String>::new());
    let export = wait(again.export()).unwrap();
    assert_eq!(export["counters"], serde_json::json!([{ "name": "a", "n": 7 }]));
}

#[test]
fn a_file_has_one_engine_however_often_it_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (open(folder.path()), open(folder.path()));
    assert!(Arc::ptr_eq(&first.engine, &second.engine));
    // A program that knows less is refused, as if it had opened the file first.
    assert!(Database::open(folder.path(), &[]).is_err());
    let newer = Migration { owner: "test", number: 2, sql: "CREATE TABLE more (id BIGINT PRIMARY KEY);" };
    Database::open(folder.path(), &[SCHEMA[0], newer]).unwrap();
}

#[test]
fn a_read_that_failed_is_tried_again() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path());
    let tries = Arc::new(AtomicU32::new(0));
    let counted = tries.clone();
    let view: View<u32> = database.view(
        COUNTERS,
        Box::new(move |_| {
            let tries = counted.clone();
            Box::pin(async move {
                match tries.fetch_add(1, Ordering::Relaxed) {
                    0 => Err("disk I/O error".to_owned()),
                    1 => panic!("on purpose"),
                    n => Ok(n),
                }
            })
        }),
    );
    assert_eq!(view.current().known.clone().unwrap_err(), "disk I/O error");
    let began = Instant::now();
    while view.current().known.is_err() {
        assert!(began.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn readers_go_on_while_the_writer_is_busy() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path());
    set(&database, fresh(), "a", 1).unwrap();
    let view = view(&database);
    let busy = database.clone();
    let busy = std::thread::spawn(move || {
        wait(busy.change::<_, DatabaseError>(COUNTERS, fresh(), |_| {
            Box::pin(async {
                std::thread::sleep(freshness::FRESH_FOR + Duration::from_millis(1_500));
                Ok(())
            })
        }))
    });
    let mut looks = 0;
    while !busy.is_finished() {
        assert_eq!(view.current().known.as_ref().unwrap()["a"], 1);
        looks += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    busy.join().unwrap().unwrap();
    // A reader that waited for the writer would have looked a few times.
    assert!(looks > 20, "{looks} looks");
}

#[test]
fn what_cannot_be_read_any_more_is_refused_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path());
    set(&database, fresh(), "a", 1).unwrap();
    let view = view(&database);
    // The schema is gone, so that no version can be read.
    let other = rusqlite::Connection::open(folder.path().join(FILE_NAME)).unwrap();
    other.execute_batch("ALTER TABLE topics RENAME TO elsewhere").unwrap();
    std::thread::sleep(freshness::FRESH_FOR + Duration::from_millis(200));
    for _ in 0..100 {
        let refused = view.current().known.clone().unwrap_err();
        assert!(refused.contains("cannot be read now") && refused.contains("topics"), "{refused}");
    }
    other.execute_batch("ALTER TABLE elsewhere RENAME TO topics").unwrap();
    let began = Instant::now();
    while view.current().known.is_err() {
        assert!(began.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn flipped_bytes_admit_no_row_that_was_not_there() {
    use std::os::unix::fs::FileExt;
    let folder = tempfile::tempdir().unwrap();
    let rows = |folder: &Path| {
        let database = crate::open(folder, &[]).ok()?;
        let directory =
            crate::clients::ClientDirectory::open(&database, Arc::new(portcullis_core::SystemClock));
        let known = directory.list().ok()?;
        Some(known.into_iter().map(|client| serde_json::to_string(&client).unwrap()).collect::<Vec<_>>())
    };
    {
        let database = crate::open(folder.path(), &[]).unwrap();
        let directory =
            crate::clients::ClientDirectory::open(&database, Arc::new(portcullis_core::SystemClock));
        for n in 0..20 {
            directory
                .add(crate::clients::NewClient {
                    name: format!("client-{n}"),
                    allow: vec!["*".into()],
                    deny: Vec::new(),
                    effects: portcullis_core::EffectSet::ALL,
                    tools: portcullis_core::ToolView::All,
                    expires_in: None,
                })
                .unwrap();
        }
    }
    let whole = rows(folder.path()).unwrap();
    assert_eq!(whole.len(), 20);
    let path = folder.path().join(FILE_NAME);
    let length = std::fs::metadata(&path).unwrap().len();
    // A step that shares no factor with the page size meets every kind of place.
    for at in (0..length).step_by(4_096 / 3 + 38) {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x21], at).unwrap();
        drop(file);
        if let Some(found) = rows(folder.path()) {
            assert!(found.iter().all(|row| whole.contains(row)), "byte {at}: {found:?}");
        }
        for name in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(folder.path().join(format!("{FILE_NAME}{name}")));
        }
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&byte, at).unwrap();
    }
    assert_eq!(rows(folder.path()).unwrap(), whole);
}

#[test]
fn a_process_that_died_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path());
    let left = folder.path().join(format!("{FILE_NAME}-processes")).join("1-00000000");
    std::fs::write(&left, "00000000000000000000").unwrap();
    set(&database, fresh(), "a", 1).unwrap();
    assert!(!left.exists());
}
