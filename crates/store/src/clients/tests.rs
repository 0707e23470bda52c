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
    directory: Directory,
}

impl Fixture {
    fn new() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        // 2026-01-01T00:00:00Z
        let clock = Arc::new(FakeClock(AtomicU64::new(1_767_225_600)));
        let directory = Directory::open(&dir.path().join("secure"), clock.clone()).unwrap();
        Fixture { dir, clock, directory }
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("secure").join(file::FILE_NAME)
    }

    fn add(&self, name: &str) -> String {
        self.directory.add(new(name)).unwrap().1.expose().clone()
    }

    fn other_process(&self) -> Directory {
        Directory::open(&self.dir.path().join("secure"), self.clock.clone()).unwrap()
    }

    fn who(&self, token: &str) -> Option<String> {
        self.directory.authenticate(token).map(|client| client.name.clone())
    }

    fn who_after_edit(&self, token: &str) -> Option<String> {
        crate::kept::after_edit();
        self.who(token)
    }

    /// Puts another file in the place of the real one, as an editor or a restored backup would.
    fn write(&self, text: &str) {
        let new = self.dir.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::rename(new, self.path()).unwrap();
        crate::kept::after_edit();
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
    let client = at.directory.authenticate(token.expose()).unwrap();
    assert!(client.scope.covers("workspace_read", Effect::Read));
    assert!(!client.scope.covers("workspace_read", Effect::Write));
    assert!(!client.scope.covers("memory_read", Effect::Read));
    assert_eq!(at.directory.list().unwrap(), [info]);
    // What is denied stays so, also when the rest of the scope is changed.
    let wanted = NewClient { deny: vec!["*_delete".into()], ..new("careful") };
    let (_, token) = at.directory.add(wanted).unwrap();
    at.directory.change_scope("careful", vec!["notes_*".into()], EffectSet::ALL, None).unwrap();
    crate::kept::after_edit();
    let client = at.directory.authenticate(token.expose()).unwrap();
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
    let stored: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(at.path()).unwrap()).unwrap();
    assert_eq!(at.who(stored["clients"][0]["token_sha256"].as_str().unwrap()), None);
    assert_eq!(at.who(&token).as_deref(), Some("laptop"));
}

#[test]
fn the_file_holds_no_token_and_is_private() {
    let at = Fixture::new();
    let life = Some(Duration::from_secs(3600));
    let (_, token) = at.directory.add(NewClient { expires_in: life, ..new("laptop") }).unwrap();
    let token = token.expose();
    let text = std::fs::read_to_string(at.path()).unwrap();
    assert!(!text.contains(token.as_str()) && !text.contains(&token[4..]), "{text}");
    let shown =
        text.replace(&token[4..12], "HINT").replace(&token::digest_of(token).unwrap().to_hex(), "HASH");
    insta::assert_snapshot!(shown, @r#"
    {
      "version": 1,
      "clients": [
        {
          "name": "laptop",
          "token_sha256": "HASH",
          "token_hint": "HINT",
          "allow": [
            "*"
          ],
          "effects": [
            "read",
            "create",
            "write",
            "destroy"
          ],
          "created": "2026-01-01T00:00:00Z",
          "expires": "2026-01-01T01:00:00Z"
        }
      ]
    }
    "#);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&at.path()), 0o600);
    assert_eq!(mode(&at.path().with_file_name("clients.lock")), 0o600);
    assert_eq!(mode(at.path().parent().unwrap()), 0o700);
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
fn an_edit_in_place_is_noticed_too() {
    let at = Fixture::new();
    let token = at.add("laptop");
    assert!(at.who(&token).is_some());
    let mut file = std::fs::OpenOptions::new().append(true).open(at.path()).unwrap();
    std::io::Write::write_all(&mut file, b"x").unwrap();
    assert!(at.who(&token).is_none());
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
fn a_damaged_file_lets_nobody_in_and_is_left_alone() {
    let at = Fixture::new();
    let token = at.add("laptop");
    let good = std::fs::read_to_string(at.path()).unwrap();
    let twice: serde_json::Value = {
        let mut value: serde_json::Value = serde_json::from_str(&good).unwrap();
        let mut copy = value["clients"][0].clone();
        copy["token_sha256"] = "0".repeat(64).into();
        value["clients"].as_array_mut().unwrap().push(copy);
        value
    };
    let broken = [
        String::new(),
        good[..good.len() / 2].to_owned(),
        "[]".to_owned(),
        good.replace("\"version\": 1", "\"version\": 2, \"roles\": []"),
        good.replace("\"allow\"", "\"alow\""),
        good.replace("\"read\"", "\"rule\""),
        good.replace("\"*\"", "\"[\""),
        good.replace("\"token_sha256\": \"", "\"token_sha256\": \"zz"),
        good.replace("\"laptop\"", "\"Lap Top\""),
        twice.to_string(),
    ];
    let mut reasons = String::new();
    for text in &broken {
        at.write(text);
        assert_eq!(at.who(&token), None);
        assert!(!at.directory.is_empty());
        assert!(at.directory.add(new("late")).is_err() && at.directory.revoke("laptop").is_err());
        assert_eq!(&std::fs::read_to_string(at.path()).unwrap(), text);
        reasons.push_str(&at.directory.health().unwrap_err());
        reasons.push('\n');
        // Mending the file is all that is needed.
        at.write(&good);
        assert_eq!(at.who(&token).as_deref(), Some("laptop"));
        assert_eq!(at.directory.health(), Ok(()));
    }
    insta::assert_snapshot!(reasons, @"
    clients.json is damaged: EOF while parsing a value at line 1 column 0
    clients.json is damaged: EOF while parsing a value at line 8 column 1
    clients.json is damaged: it has no version
    clients.json is of version 2, this program reads version 1
    clients.json is damaged: unknown field `alow`, expected one of `name`, `token_sha256`, `token_hint`, `allow`, `deny`, `effects`, `tools`, `created`, `expires`
    client `laptop` in clients.json: `rule` is not an effect; expected read, create, write or destroy
    client `laptop` in clients.json: `[` is not a glob: unclosed character class; missing ']'
    client `laptop` in clients.json: `token_sha256` is not 64 hex digits
    clients.json: client name `Lap Top` is not valid; expected 1 to 64 of a-z, 0-9, `-` and `_`, starting with a letter or digit
    client `laptop` in clients.json: the name is given twice
    ");
}

#[test]
fn a_file_that_others_can_write_or_that_is_no_file_lets_nobody_in() {
    let at = Fixture::new();
    let token = at.add("laptop");
    std::fs::set_permissions(at.path(), std::fs::Permissions::from_mode(0o622)).unwrap();
    assert_eq!(at.who_after_edit(&token), None);
    insta::assert_snapshot!(at.directory.health().unwrap_err(), @"clients.json can be written by others; check it, then `chmod 600` it");
    std::fs::set_permissions(at.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(at.who_after_edit(&token).is_some());

    // Only root can give a file away; everyone else is spared this part.
    if std::os::unix::fs::chown(at.path(), Some(12345), None).is_ok() {
        assert_eq!(at.who_after_edit(&token), None);
        assert_eq!(at.directory.health().unwrap_err(), "clients.json belongs to another user");
        std::os::unix::fs::chown(at.path(), Some(0), None).unwrap();
        assert!(at.who_after_edit(&token).is_some());
    }

    let elsewhere = at.dir.path().join("elsewhere.json");
    std::fs::rename(at.path(), &elsewhere).unwrap();
    assert_eq!(at.who_after_edit(&token), None);
    std::os::unix::fs::symlink(&elsewhere, at.path()).unwrap();
    assert_eq!(at.who_after_edit(&token), None);
    assert!(at.directory.health().is_err());
    std::fs::remove_file(at.path()).unwrap();
    std::fs::create_dir(at.path()).unwrap();
    assert_eq!(at.who_after_edit(&token), None);
    assert!(at.directory.health().is_err());
}

#[test]
fn what_a_crash_left_behind_is_neither_read_nor_in_the_way() {
    let at = Fixture::new();
    let token = at.add("laptop");
    let left = at.path().with_file_name("clients.json.new");
    std::fs::write(&left, "{\"version\": 1, \"cli").unwrap();
    assert!(at.who(&token).is_some() && at.other_process().authenticate(&token).is_some());
    let second = at.add("second");
    assert!(at.who(&token).is_some() && at.who(&second).is_some());
    assert!(!left.exists());
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
    a client without any allowed name could never do anything; allow `*` or name what it may use
    `a[` is not a glob: unclosed character class; missing ']'
    a client without any effect could never do anything; give it `read` at least
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
