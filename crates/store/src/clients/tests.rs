use super::*;
use portcullis_core::ToolView;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// A clock that stands until it is moved.
struct FakeClock(AtomicU64);

impl FakeClock {
    fn pass(&self, life: Duration) {
        self.0.fetch_add(life.as_secs(), Ordering::Relaxed);
    }
}

impl Clock for FakeClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

struct Fixture {
    dir: tempfile::TempDir,
    clock: Arc<FakeClock>,
    directory: ClientDirectory,
}

impl Fixture {
    fn new() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        // 2026-01-01T00:00:00Z
        let clock = Arc::new(FakeClock(AtomicU64::new(1_767_225_600)));
        let directory =
            ClientDirectory::open(&crate::open(&dir.path().join("secure"), &[]).unwrap(), clock.clone());
        Fixture { dir, clock, directory }
    }

    fn secure(&self) -> std::path::PathBuf {
        self.dir.path().join("secure")
    }

    fn add(&self, name: &str) -> String {
        self.directory.add(new(name)).unwrap().1.expose().clone()
    }

    fn other_process(&self) -> ClientDirectory {
        ClientDirectory::open(&crate::open(&self.secure(), &[]).unwrap(), self.clock.clone())
    }

    fn who(&self, token: &str) -> Option<String> {
        self.directory.authenticate(token).unwrap().map(|client| client.name.clone())
    }

    /// Changes the rows behind the program's back, and gives them their seals.
    fn edit(&self, sql: &str) {
        self.edit_without_key(sql);
        crate::testing::seal(&self.secure());
    }

    /// The same, as one does who can write to the database and no more.
    fn edit_without_key(&self, sql: &str) {
        let file = self.secure().join(crate::database::FILE_NAME);
        rusqlite::Connection::open(file).unwrap().execute_batch(sql).unwrap();
    }
}

fn new(name: &str) -> NewClient {
    NewClient {
        name: name.into(),
        allow: vec!["*".into()],
        deny: Vec::new(),
        effects: EffectSet::ALL,
        tools: ToolView::All,
        expires_in: None,
    }
}

#[test]
fn a_token_opens_the_door_for_its_client_only() {
    let at = Fixture::new();
    assert!(at.directory.is_empty());
    let (laptop, agent) = (at.add("laptop"), at.add("agent_2"));
    assert_eq!(at.who(&laptop).as_deref(), Some("laptop"));
    assert_eq!(at.who(&agent).as_deref(), Some("agent_2"));
    assert!(!at.directory.is_empty());
    assert_eq!(laptop.len(), 47);
    assert!(laptop.starts_with(TOKEN_PREFIX));
}

#[test]
fn an_owner_is_who_it_is_now_or_nobody() {
    let at = Fixture::new();
    at.add("ada");
    at.directory.add(NewClient { expires_in: Some(Duration::from_secs(60)), ..new("guest") }).unwrap();
    let admitted = at.directory.admitted().unwrap();
    let (ada, guest) = (OwnerId::of(&admitted["ada"]), OwnerId::of(&admitted["guest"]));
    let allows = |owner: &OwnerId, name: &str| {
        at.directory.current(owner).is_some_and(|client| client.scope.covers(name, Effect::Read))
    };
    assert!(allows(&ada, "notes_read") && allows(&ada, "mail_read") && allows(&guest, "notes_read"));
    at.directory.change_scope("ada", vec!["notes_*".into()], EffectSet::ALL, None).unwrap();
    assert!(allows(&ada, "notes_read") && !allows(&ada, "mail_read"), "narrowed");
    at.clock.pass(Duration::from_secs(60));
    assert!(at.directory.current(&guest).is_none(), "expired");
    at.directory.revoke("ada").unwrap();
    assert!(at.directory.current(&ada).is_none(), "revoked");
    at.add("ada");
    assert!(at.directory.current(&ada).is_none(), "issued again");
    assert!(at.directory.current(&OwnerId { token: None, ..ada }).is_none());
}

#[test]
fn a_name_that_is_given_again_is_somebody_else() {
    let at = Fixture::new();
    at.directory.add(NewClient { expires_in: Some(Duration::from_secs(60)), ..new("guest") }).unwrap();
    at.add("ada");
    let first = at.directory.admitted().unwrap();
    assert_eq!(first.len(), 2);
    at.directory.change_scope("ada", vec!["notes_*".into()], EffectSet::ALL, None).unwrap();
    at.clock.pass(Duration::from_secs(60));
    let second = at.directory.admitted().unwrap();
    assert_eq!(second.keys().collect::<Vec<_>>(), ["ada"], "the guest's token is past its time");
    assert_eq!(second["ada"].token, first["ada"].token);
    assert!(!second["ada"].scope.is_everything());
    at.directory.revoke("ada").unwrap();
    assert!(at.directory.admitted().unwrap().is_empty());
    at.add("ada");
    assert_ne!(at.directory.admitted().unwrap()["ada"].token, first["ada"].token);
}

#[test]
fn a_client_gets_the_scope_it_was_made_with() {
    let at = Fixture::new();
    let effects = EffectSet::NONE.with(Effect::Read);
    let wanted = NewClient { allow: vec!["workspace_*".into()], effects, ..new("reader") };
    let (info, token) = at.directory.add(wanted).unwrap();
    let client = at.directory.authenticate(token.expose()).unwrap().unwrap();
    assert!(client.scope.covers("workspace_read", Effect::Read));
    assert!(!client.scope.covers("workspace_read", Effect::Write));
    assert!(!client.scope.covers("memory_read", Effect::Read));
    assert_eq!(at.directory.list().unwrap(), [info]);
    // What is denied stays so, also when the rest of the scope is changed.
    let wanted = NewClient { deny: vec!["*_delete".into()], ..new("careful") };
    let (_, token) = at.directory.add(wanted).unwrap();
    at.directory.change_scope("careful", vec!["notes_*".into()], EffectSet::ALL, None).unwrap();
    let client = at.directory.authenticate(token.expose()).unwrap().unwrap();
    assert!(client.scope.covers("notes_read", Effect::Read) && !client.scope.is_everything());
    assert!(!client.scope.covers("notes_delete", Effect::Destroy));
    let odd = NewClient { deny: vec!["a[".into()], ..new("odd") };
    assert!(matches!(at.directory.add(odd), Err(IdentityError::Pattern(_))));
}

#[test]
fn no_near_miss_of_a_token_is_accepted() {
    let at = Fixture::new();
    let token = at.add("laptop");
    let swapped: String =
        token.chars().map(|c| if c.is_ascii_lowercase() { c.to_ascii_uppercase() } else { c }).collect();
    let body_swapped = format!("{TOKEN_PREFIX}{}", &swapped[TOKEN_PREFIX.len()..]);
    let long = token.repeat(1000);
    for wrong in [
        "",
        "pcl_",
        &token[..46],
        &token[1..],
        &token[TOKEN_PREFIX.len()..],
        &format!("{token} "),
        &format!(" {token}"),
        &format!("{token}="),
        &format!("{token}\0"),
        &swapped,
        &body_swapped,
        &long,
        &format!("pcl_{}", "A".repeat(43)),
        &format!("pcl_{}", "é".repeat(21)),
    ] {
        assert_eq!(at.who(wrong), None, "{wrong:?}");
    }
    // The stored digest is not a password either.
    assert_eq!(at.who(&token::digest_of(&token).unwrap().to_hex()), None);
    assert_eq!(at.who(&token).as_deref(), Some("laptop"));
}

#[test]
fn the_database_holds_no_token_and_is_private() {
    let at = Fixture::new();
    let (_, token) = at.directory.add(new("laptop")).unwrap();
    let token = token.expose();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&at.secure()), 0o700);
    for entry in std::fs::read_dir(at.secure()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_eq!(mode(&path), 0o700, "{}", path.display());
            continue;
        }
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        let bytes = std::fs::read(&path).unwrap();
        let has = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(!has(&token[4..]) && !has(&token[12..]), "{}", path.display());
    }
}

#[test]
fn a_token_ends_at_its_time() {
    let at = Fixture::new();
    let expires_in = Some(Duration::from_secs(60));
    let (info, token) = at.directory.add(NewClient { expires_in, ..new("guest") }).unwrap();
    at.clock.pass(Duration::from_secs(59));
    assert!(at.who(token.expose()).is_some() && !info.is_expired(&*at.clock));
    at.clock.pass(Duration::from_secs(1));
    assert!(at.who(token.expose()).is_none() && info.is_expired(&*at.clock));
    // An expired client keeps its name until it is revoked, so that old records stay unambiguous.
    assert!(matches!(at.directory.add(new("guest")), Err(IdentityError::Taken(_))));
}

#[test]
fn another_process_is_heard_at_once() {
    let at = Fixture::new();
    let other = at.other_process();
    for round in 0..50 {
        let name = format!("client-{round}");
        let (_, token) = other.add(new(&name)).unwrap();
        assert_eq!(at.who(token.expose()), Some(name.clone()));
        other.revoke(&name).unwrap();
        assert_eq!(at.who(token.expose()), None);
    }
    assert!(at.directory.is_empty());
}

#[test]
fn changes_from_many_sides_are_all_kept() {
    let at = Fixture::new();
    std::thread::scope(|scope| {
        for side in 0..4 {
            let directory = at.other_process();
            scope.spawn(move || {
                for n in 0..5 {
                    directory.add(new(&format!("side-{side}-{n}"))).unwrap();
                }
            });
        }
    });
    assert_eq!(at.directory.list().unwrap().len(), 20);
}

#[test]
fn damaged_rows_let_nobody_in_and_are_left_alone() {
    let at = Fixture::new();
    let token = at.add("laptop");
    let mut reasons = String::new();
    for edit in [
        "UPDATE clients SET record = '{'",
        "UPDATE clients SET record = replace(record, '\"allow\"', '\"alow\"')",
        "UPDATE clients SET record = replace(record, '\"read\"', '\"rule\"')",
        "UPDATE clients SET record = replace(record, '\"*\"', '\"[\"')",
        "UPDATE clients SET record = replace(record, '\"token_sha256\":\"', '\"token_sha256\":\"zz')",
        "UPDATE clients SET record = replace(record, 'laptop', 'tablet')",
        "UPDATE clients SET record = x'ff'",
        "INSERT INTO clients SELECT 'two', 2, replace(record, 'laptop', 'two'), seal FROM clients",
    ] {
        at.edit(&format!("CREATE TABLE good AS SELECT * FROM clients; {edit};"));
        let late = at.other_process();
        assert!(late.authenticate(&token).is_err() && !late.is_empty());
        assert!(late.add(new("late")).is_err() && late.revoke("laptop").is_err());
        reasons.push_str(&late.health().unwrap_err());
        reasons.push('\n');
        // Mending the rows is all that is needed.
        at.edit("DELETE FROM clients; INSERT INTO clients SELECT * FROM good; DROP TABLE good;");
        assert!(at.other_process().authenticate(&token).unwrap().is_some());
    }
    insta::assert_snapshot!(reasons, @"
    the database is damaged: `laptop` in table clients: EOF while parsing an object at line 1 column 1
    the database is damaged: `laptop` in table clients: missing field `allow` at line 1 column 215
    client `laptop`: `rule` is not an effect; expected read, create, write or destroy
    client `laptop`: `[` is not a glob: unclosed character class; missing ']'
    client `laptop`: `token_sha256` is not 64 hex digits
    the database is damaged: `laptop` in table clients: the record has another key
    the database is damaged: column `record` does not hold text
    client `two`: another client has the same token
    ");
}

#[test]
fn what_a_newer_program_has_added_is_not_in_the_way() {
    let at = Fixture::new();
    let token = at.add("laptop");
    at.edit("UPDATE clients SET record = replace(record, '{\"name\"', '{\"team\":7,\"name\"')");
    assert!(at.other_process().authenticate(&token).unwrap().is_some());
}

#[test]
fn what_a_newer_program_has_added_survives_an_edit() {
    let at = Fixture::new();
    at.add("laptop");
    at.edit("UPDATE clients SET record = replace(record, '{\"name\"', '{\"team\":7,\"name\"')");
    let other = at.other_process();
    other.change_scope("laptop", vec!["a*".into()], EffectSet::ALL, None).unwrap();
    let text = crate::testing::export(&at.secure());
    assert!(text.contains(r#"\"team\":7"#) && text.contains("a*"), "{text}");
}

#[test]
fn a_row_that_was_written_without_the_key_lets_nobody_in() {
    let edits = [
        "UPDATE clients SET record = replace(record, 'laptop', 'desktop'), key = 'desktop' WHERE key = 'laptop'",
        "UPDATE clients SET record = replace(record, '[\"*\"]', '[\"**\"]')",
        "UPDATE clients SET seal = NULL",
        "UPDATE clients SET seal = ''",
        // The seal of another row, and that of a row of another table.
        "UPDATE clients SET seal = (SELECT seal FROM clients WHERE key = 'other')",
        "INSERT INTO clients (key, position, record, seal)
         SELECT 'new', 9, replace(record, 'laptop', 'new'), seal FROM clients WHERE key = 'laptop'",
    ];
    for edit in edits {
        let at = Fixture::new();
        let token = at.add("laptop");
        at.add("other");
        at.edit_without_key(edit);
        let other = at.other_process();
        assert!(other.authenticate(&token).is_err(), "{edit}");
        let health = other.health().unwrap_err();
        assert!(health.contains("table clients has") && health.contains("seal"), "{health}");
        let problems = crate::database::wait(crate::testing::open(&at.secure()).check()).unwrap();
        assert!(!problems.is_empty(), "{edit}");
    }
}

#[test]
fn without_the_key_nobody_is_let_in_and_the_key_is_not_made_anew() {
    let at = Fixture::new();
    let token = at.add("laptop");
    let Fixture { dir, clock, directory } = at;
    drop(directory);
    let (secure, elsewhere) = (dir.path().join("secure"), dir.path().join("row.key"));
    let key = secure.join(crate::database::ROW_KEY_NAME);
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::rename(&key, &elsewhere).unwrap();
    let open = || ClientDirectory::open(&crate::open(&secure, &[]).unwrap(), clock.clone());
    let without = open();
    assert!(without.authenticate(&token).is_err() && !key.exists());
    assert!(without.health().unwrap_err().contains("row.key` is missing"), "{:?}", without.health());
    assert!(without.add(new("second")).is_err());
    drop(without);
    std::fs::rename(&elsewhere, &key).unwrap();
    assert!(open().authenticate(&token).unwrap().is_some());
}

#[test]
fn the_file_of_an_earlier_version_is_taken_over_once() {
    let at = Fixture::new();
    let token = at.add("laptop");
    let record = {
        let file = at.secure().join(crate::database::FILE_NAME);
        let connection = rusqlite::Connection::open(file).unwrap();
        connection.query_row("SELECT record FROM clients", [], |row| row.get::<_, String>(0)).unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clients.json");
    let write = |text: &str| {
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    let open =
        || crate::open(folder.path(), &[]).map(|database| ClientDirectory::open(&database, at.clock.clone()));
    // What cannot be read stays where it is, and nobody is let in.
    for broken in ["{ broken", "{\"version\": 2, \"clients\": []}"] {
        write(broken);
        let refused = open().err().unwrap().to_string();
        assert!(refused.contains("cannot be imported: clients.json is"), "{refused}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), broken);
    }
    write(&format!("{{\"version\": 1, \"clients\": [{record}]}}"));
    assert!(open().unwrap().authenticate(&token).unwrap().is_some());
    assert!(!file.exists() && folder.path().join("clients.json.imported").exists());
    assert!(open().unwrap().has_been_used());
    // One that came back is not read: what it lets in may have been revoked since.
    open().unwrap().revoke("laptop").unwrap();
    write(&format!("{{\"version\": 1, \"clients\": [{record}]}}"));
    let refused = open().err().unwrap().to_string();
    assert!(refused.contains("move it away"), "{refused}");
}

#[test]
fn a_process_killed_before_the_file_was_renamed_has_taken_it_over() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clients.json");
    std::fs::write(&file, "{\"version\": 1, \"clients\": []}").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    drop(crate::open(folder.path(), &[]).unwrap());
    std::fs::rename(folder.path().join("clients.json.imported"), &file).unwrap();
    let database = crate::open(folder.path(), &[]).unwrap();
    assert!(!file.exists());
    let directory = ClientDirectory::open(&database, Arc::new(portcullis_core::SystemClock));
    assert!(directory.has_been_used() && directory.is_empty());
}

#[test]
fn a_file_that_was_changed_after_it_was_taken_over_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clients.json");
    std::fs::write(&file, "{\"version\": 1, \"clients\": []}").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    drop(crate::open(folder.path(), &[]).unwrap());
    // A process was killed before the rename, and an earlier version has changed the file since.
    std::fs::rename(folder.path().join("clients.json.imported"), &file).unwrap();
    std::fs::write(&file, "{\"version\": 1, \"clients\": [] }").unwrap();
    let refused = crate::open(folder.path(), &[]).err().unwrap().to_string();
    assert!(refused.contains("move it away") && file.exists(), "{refused}");
}

#[test]
fn nothing_is_taken_over_while_an_earlier_version_runs_or_writes() {
    let home = tempfile::tempdir().unwrap();
    // `workspace.path` may be anywhere.
    let elsewhere = tempfile::tempdir().unwrap();
    let secure = elsewhere.path().join("deep/workspace/secure");
    std::fs::create_dir_all(&secure).unwrap();
    let open = || crate::open_in_home(home.path(), &secure, &[]);
    let file = secure.join("clients.json");
    std::fs::write(&file, "{\"version\": 1, \"clients\": []}").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let lock = |path: &std::path::Path, text: &str| {
        std::fs::write(path, text).unwrap();
        let lock = std::fs::File::open(path).unwrap();
        lock.lock().unwrap();
        lock
    };
    // Its hub has the home. Process 1 has no database open.
    let held = lock(&home.path().join("hub.lock"), "1 4026531836\n");
    let refused = open().err().unwrap().to_string();
    assert!(refused.contains("a hub of that version still runs (process 1)") && file.exists(), "{refused}");
    drop(held);
    // One of its commands is changing the file.
    let held = lock(&secure.join("clients.lock"), "");
    let refused = open().err().unwrap().to_string();
    assert!(refused.contains("cannot be imported from") && file.exists(), "{refused}");
    drop(held);
    // This process is the hub.
    let held = lock(&home.path().join("hub.lock"), &format!("{} 4026531836\n", std::process::id()));
    open().unwrap();
    assert!(!file.exists());
    drop(held);
}

#[test]
fn errors_say_what_to_do() {
    let at = Fixture::new();
    at.add("laptop");
    let long = "x".repeat(65);
    let attempts = [
        new("laptop"),
        new(""),
        new("-x"),
        new("Lap top\u{202e}"),
        new(&long),
        NewClient { allow: vec![], ..new("a") },
        NewClient { allow: vec!["a[".into()], ..new("a") },
        NewClient { effects: EffectSet::NONE, ..new("a") },
        NewClient { expires_in: Some(Duration::MAX), ..new("a") },
    ];
    let mut said: String =
        attempts.into_iter().map(|new| format!("{}\n", at.directory.add(new).unwrap_err())).collect();
    said.push_str(&at.directory.revoke("nobody").unwrap_err().to_string());
    insta::assert_snapshot!(said, @r#"
    client `laptop` exists already; choose another name, or `portcullis clients revoke laptop` first to give it a new token
    client name `` is not valid; expected 1 to 64 of a-z, 0-9, `-` and `_`, starting with a letter or digit
    client name `-x` is not valid; expected 1 to 64 of a-z, 0-9, `-` and `_`, starting with a letter or digit
    client name `Lap top\u{202e}` is not valid; expected 1 to 64 of a-z, 0-9, `-` and `_`, starting with a letter or digit
    client name `xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx` is not valid; expected 1 to 64 of a-z, 0-9, `-` and `_`, starting with a letter or digit
    a client needs at least one allowed name; allow `*` or name the tools
    `a[` is not a glob: unclosed character class; missing ']'
    a client needs at least one effect; allow `read`
    the token would expire later than time can be written; choose a shorter time
    no client is named `nobody`; `portcullis clients list` shows who exists
    "#);
    assert_eq!(at.directory.list().unwrap().len(), 1);
}

#[test]
fn neither_token_nor_digest_is_printed_by_accident() {
    let at = Fixture::new();
    let added = at.directory.add(new("laptop")).unwrap();
    let token = added.1.expose().clone();
    let printed = format!("{added:?} {}", serde_json::to_string(&added.0).unwrap());
    assert!(!printed.contains(&token[12..]), "{printed}");
    assert!(!printed.contains(&token::digest_of(&token).unwrap().to_hex()));
}

#[test]
fn a_refusal_leaves_no_older_snapshot_behind() {
    let fixture = Fixture::new();
    for _ in 0..20 {
        let token = fixture.add("ada");
        let revoke = || {
            let refused = fixture.directory.revoke("ada").is_err();
            // Also for the one who came second, and learned of it from the rows.
            assert_eq!(fixture.who(&token), None, "refused: {refused}");
            refused
        };
        let refused = std::thread::scope(|scope| {
            let others = [scope.spawn(revoke), scope.spawn(revoke)];
            others.map(|other| other.join().unwrap())
        });
        assert_eq!(refused.iter().filter(|refused| **refused).count(), 1);
    }
}

#[test]
fn a_home_behind_a_symlink_is_a_home() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("disk")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("disk"), dir.path().join("link")).unwrap();
    let secure = dir.path().join("link/secure");
    let database = crate::open(&secure, &[]).unwrap();
    let directory = ClientDirectory::open(&database, Arc::new(portcullis_core::SystemClock));
    directory.add(new("ada")).unwrap();
    let copy = dir.path().join("link/copy.db");
    crate::database::wait(database.backup(&copy)).unwrap();
    assert!(copy.exists());
    // The file itself is none.
    let own = dir.path().join("own");
    std::fs::create_dir(&own).unwrap();
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink(secure.join("portcullis.db"), own.join("portcullis.db")).unwrap();
    assert!(crate::open(&own, &[]).is_err());
}
