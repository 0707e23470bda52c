use super::*;
use crate::database::Record;
use crate::testing;
use data_encoding::HEXLOWER;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

const VALUE: &str = "ghp_correct-horse-battery-staple";

struct StandingClock;

impl Clock for StandingClock {
    fn now(&self) -> SystemTime {
        // 2026-01-01T00:00:00Z
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600)
    }
}

struct Fixture {
    dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture { dir: tempfile::tempdir().unwrap() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn secure(&self) -> PathBuf {
        self.at("home/workspace/secure")
    }

    fn path(&self) -> PathBuf {
        self.secure().join(crate::database::FILE_NAME)
    }

    fn topic(&self) -> TopicStore<SealedTable> {
        TopicStore::open(&testing::open(&self.secure()))
    }

    fn rows(&self) -> Vec<SealedRow> {
        self.topic().current().known.as_ref().unwrap().0.clone()
    }

    fn master(&self) -> MasterKey {
        self.key_file().key(KeyCreation::Never).unwrap()
    }

    fn id_of(&self, name: &str) -> String {
        if name.is_empty() { String::new() } else { cipher::row_id(&self.master(), name) }
    }

    /// Returns the sealed bytes of a secret's row, or of the store's own.
    fn sealed(&self, name: &str) -> Vec<u8> {
        let id = self.id_of(name);
        self.rows().iter().find(|row| row.key() == id).unwrap().bytes().unwrap()
    }

    fn key_file(&self) -> KeySource {
        KeySource::File { path: self.at("config/key"), data: vec![self.at("home")] }
    }

    fn store(&self) -> SecretStore {
        self.store_with(self.key_file())
    }

    fn store_with(&self, source: KeySource) -> SecretStore {
        SecretStore::open(&testing::open(&self.secure()), source, Arc::new(StandingClock))
    }

    /// Replaces a row, as a process with access to the database could.
    fn put(&self, name: &str, bytes: &[u8]) {
        let id = self.id_of(name);
        let put = self.topic().change(|rows| {
            rows.retain(|row| row.key() != id);
            rows.push(SealedRow::new(&id, bytes));
            Ok::<_, DatabaseError>(())
        });
        put.unwrap();
    }
}

fn private_file(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
    chmod(path, 0o600);
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn value(text: &str) -> Secret<Zeroizing<String>> {
    Secret::new(Zeroizing::new(text.to_owned()))
}

fn typed(text: &str) -> KeySource {
    KeySource::Passphrase(value(text))
}

fn grants(texts: &[&str]) -> Option<Vec<Grant>> {
    Some(texts.iter().map(|text| text.parse().unwrap()).collect())
}

fn set(store: &SecretStore, name: &str, text: &str) {
    store.set(name, &value(text), None).unwrap();
}

fn all(store: &SecretStore) -> Vec<(String, String)> {
    let pairs = store.all().unwrap();
    pairs.into_iter().map(|(name, value)| (name, value.expose().clone())).collect()
}

fn why<T>(result: Result<T, SecretError>) -> String {
    result.err().unwrap().to_string()
}

#[test]
fn without_secrets_there_is_no_key() {
    let at = Fixture::new();
    let store = at.store();
    assert!(store.health().is_ok() && store.all().unwrap().is_empty() && store.list().unwrap().is_empty());
    assert!(!store.is_stale());
    assert!(matches!(store.remove("TOKEN"), Err(SecretError::Unknown(_))));
    assert!(!at.at("config/key").exists());
    // Not even a key that is missing.
    let store = at.store_with(KeySource::Missing("no key".into()));
    assert!(store.health().is_ok());
}

#[test]
fn a_secret_is_kept_and_told_of_without_its_value() {
    let at = Fixture::new();
    let info = at.store().set("TOKEN", &value(VALUE), grants(&["api.github.com"])).unwrap();
    let store = at.store();
    assert_eq!(all(&store), [("TOKEN".to_owned(), VALUE.to_owned())]);
    assert_eq!(store.list().unwrap().as_slice(), std::slice::from_ref(&info));
    assert_eq!(store.get(&"secret:TOKEN".parse().unwrap()).unwrap(), info);
    insta::assert_debug_snapshot!(info, @r#"
    SecretInfo {
        name: "TOKEN",
        grants: [
            Grant {
                host: "api.github.com",
                field: "Authorization",
            },
        ],
        created: 2026-01-01T00:00:00Z,
        updated: 2026-01-01T00:00:00Z,
        pending: false,
    }
    "#);
    assert_eq!(mode(&at.path()), 0o600);
    assert_eq!(mode(&at.at("config/key")), 0o600);
    assert_eq!(mode(&at.at("config")), 0o700);
    assert_eq!(mode(&at.secure()), 0o700);
}

#[test]
fn no_value_is_in_any_file_or_message() {
    let at = Fixture::new();
    let store = at.store();
    set(&store, "TOKEN", VALUE);
    set(&store, "TOKEN", VALUE);
    set(&store, "OTHER", "another value entirely");
    let mut looked_at = 0;
    for entry in std::fs::read_dir(at.secure()).unwrap().chain(std::fs::read_dir(at.at("config")).unwrap()) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let bytes = std::fs::read(path).unwrap();
        looked_at += 1;
        for needle in [VALUE, "battery", "another", "TOKEN"] {
            assert!(!bytes.windows(needle.len()).any(|window| window == needle.as_bytes()));
        }
    }
    // The database with its log and index, the key of its rows, and the key: nothing else is left behind.
    assert_eq!(looked_at, 5);
    let output = format!(
        "{:?} {:?} {:?}",
        store.all(),
        store.list(),
        store.resolve_for("TOKEN", "evil.example", "Authorization")
    );
    assert!(!output.contains("battery"), "{output}");
}

#[test]
fn the_same_contents_never_make_the_same_row() {
    let at = Fixture::new();
    let store = at.store();
    set(&store, "TOKEN", VALUE);
    set(&store, "OTHER", VALUE);
    let (first, other) = (at.sealed("TOKEN"), at.sealed("OTHER"));
    set(&store, "TOKEN", "another value of some length");
    set(&store, "TOKEN", VALUE);
    let second = at.sealed("TOKEN");
    assert_eq!(at.sealed("OTHER"), other, "a row that did not change is not sealed again");
    assert_eq!(first[..56], second[..56]);
    assert_ne!(first[56..], second[56..]);
}

#[test]
fn values_that_could_not_be_masked_are_refused() {
    let at = Fixture::new();
    let store = at.store();
    insta::assert_snapshot!(why(store.set("PIN", &value("1234567"), None)), @"the value of `PIN` has 7 bytes, at least 8 are needed: a shorter one occurs in ordinary text, and redacting it would spoil results");
    insta::assert_snapshot!(why(store.set("BIG", &value(&"x".repeat(VALUE_BYTES_MAX + 1)), None)), @"the value of `BIG` has 65537 bytes, at most 65536 are allowed");
    insta::assert_snapshot!(why(store.set("pin", &value(VALUE), None)), @"`pin` is not a valid secret name; expected 1 to 64 of A-Z, 0-9 and `_`, starting with a letter");
    assert!(!at.at("config/key").exists());
    set(&store, "LEAST", "12345678");
    set(&store, "MOST", &"é".repeat(VALUE_BYTES_MAX / 2));
    assert_eq!(all(&at.store()).len(), 2);
}

#[test]
fn only_an_address_is_given_out_as_one() {
    let at = Fixture::new();
    let store = at.store();
    set(&store, "FEED", "https://example.com/private.ics");
    set(&store, "OTHER_FEED", "WebCal://example.com/private.ics");
    store.set("TOKEN", &value(VALUE), grants(&["example.com:url"])).unwrap();
    set(&store, "DATABASE", "postgres://user:password@example.com/");
    assert_eq!(store.resolve_address("FEED").unwrap().expose(), "https://example.com/private.ics");
    assert!(store.resolve_address("OTHER_FEED").is_ok());
    insta::assert_snapshot!(why(store.resolve_address("TOKEN")), @"secret `TOKEN` is not an address; expected one that begins with https://");
    insta::assert_snapshot!(why(store.resolve_address("DATABASE")), @"secret `DATABASE` is not an address; expected one that begins with https://");
    insta::assert_snapshot!(why(store.resolve_address("NONE")), @"no secret is named `NONE`; `portcullis secrets list` shows which exist");
}

#[test]
fn a_value_goes_only_where_it_was_granted_for() {
    let at = Fixture::new();
    let store = at.store();
    store.set("TOKEN", &value(VALUE), grants(&["api.github.com", "*.example.com:X-Key"])).unwrap();
    let ask = |host, field| store.resolve_for("TOKEN", host, field).map(|value| value.expose().clone());
    assert_eq!(ask("api.github.com", "authorization").unwrap(), VALUE);
    assert_eq!(ask("a.example.com", "x-key").unwrap(), VALUE);
    insta::assert_snapshot!(why(ask("api.github.com.evil.example", "Authorization")), @"secret `TOKEN` is not granted for `Authorization` at `api.github.com.evil.example`; a person can allow it: portcullis secrets grant TOKEN 'api.github.com.evil.example:Authorization'");
    insta::assert_snapshot!(why(ask("a.example.com", "Authorization")), @"secret `TOKEN` is not granted for `Authorization` at `a.example.com`; a person can allow it: portcullis secrets grant TOKEN 'a.example.com:Authorization'");
    insta::assert_snapshot!(why(store.resolve_for("OTHER", "api.github.com", "Authorization")), @"no secret is named `OTHER`; `portcullis secrets list` shows which exist");
    // A new value keeps its grants, new grants replace them, and one more is added once.
    set(&store, "TOKEN", "another value");
    assert!(ask("api.github.com", "Authorization").is_ok());
    store.set("TOKEN", &value(VALUE), grants(&["git.example.org"])).unwrap();
    assert!(ask("api.github.com", "Authorization").is_err());
    store.grant("TOKEN", "api.github.com".parse().unwrap()).unwrap();
    let info = store.grant("TOKEN", "API.github.com:authorization".parse().unwrap()).unwrap();
    assert_eq!(info.grants.len(), 2);
    assert!(ask("api.github.com", "Authorization").is_ok());
    // A secret without grants has no destination.
    set(&store, "BARE", VALUE);
    assert!(store.resolve_for("BARE", "api.github.com", "Authorization").is_err());
}

#[test]
fn another_process_is_heard_at_once() {
    let at = Fixture::new();
    let (store, other) = (at.store(), at.store());
    let mut generation = store.refresh();
    for round in 0..20 {
        let name = format!("TOKEN_{round}");
        set(&other, &name, VALUE);
        assert!(store.is_stale());
        let now = store.refresh();
        assert!(now > generation && !store.is_stale());
        generation = now;
        assert_eq!(all(&store), [(name.clone(), VALUE.to_owned())]);
        other.remove(&name).unwrap();
        assert!(store.all().unwrap().is_empty());
    }
}

#[test]
fn changes_from_many_sides_are_all_kept() {
    let at = Fixture::new();
    std::thread::scope(|scope| {
        for side in 0..4 {
            // The first process creates the key, and all use it.
            let store = at.store();
            scope.spawn(move || {
                for n in 0..5 {
                    set(&store, &format!("SIDE_{side}_{n}"), VALUE);
                }
            });
        }
    });
    assert_eq!(at.store().list().unwrap().len(), 20);
}

#[test]
fn damaged_rows_give_out_nothing_and_are_left_alone() {
    let at = Fixture::new();
    let store = at.store();
    store.set("TOKEN", &value(VALUE), grants(&["api.github.com"])).unwrap();
    let good = at.sealed("");
    let edited = |offset: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[offset] = byte;
        bytes
    };
    let cases = [
        ("empty", Vec::new()),
        ("a header alone", good[..60].to_vec()),
        ("truncated", good[..good.len() - 1].to_vec()),
        ("longer", [good.as_slice(), b"x"].concat()),
        ("another file", b"{\"version\": 1, \"secrets\": []}".repeat(10)),
        ("an old version", edited(9, 0)),
        ("a later version", edited(8, 1)),
        ("an unknown source", edited(10, 9)),
        ("another key", edited(12, !good[12])),
        ("another source", edited(10, KeySourceId::Credential as u8)),
        ("a passphrase", edited(10, KeySourceId::Passphrase as u8)),
        ("another salt", edited(40, 1)),
    ];
    let mut output = String::new();
    for (what, bytes) in cases {
        at.put("", &bytes);
        let error = store.health().unwrap_err();
        output.push_str(&format!("{what}: {error}\n"));
        assert!(store.all().is_err() && store.list().is_err());
        assert!(store.resolve_for("TOKEN", "api.github.com", "Authorization").is_err());
        assert!(store.set("LATE", &value(VALUE), None).is_err() && store.remove("TOKEN").is_err());
        assert_eq!(at.sealed(""), bytes);
        // Repairing the row is enough.
        at.put("", &good);
        assert!(store.health().is_ok());
    }
    insta::assert_snapshot!(output, @"
    empty: the secret store is damaged: it is truncated
    a header alone: the secret store is damaged: it is truncated
    truncated: the secret store is damaged: decryption failed
    longer: the secret store is damaged: decryption failed
    another file: the secret store is not a secret store
    an old version: the secret store is of version 0, this program reads version 1
    a later version: the secret store is of version 257, this program reads version 1
    an unknown source: the secret store is damaged: its header is invalid
    another key: wrong key for the secret store, which was encrypted with a key file
    another source: the secret store is damaged: decryption failed
    a passphrase: the secret store is encrypted with a passphrase; put it in a file with mode 600 and set PORTCULLIS_PASSPHRASE_FILE to its path
    another salt: the secret store is damaged: decryption failed
    ");
    let good = at.sealed("TOKEN");
    for (offset, byte) in good.iter().enumerate() {
        let mut bytes = good.clone();
        bytes[offset] = byte ^ 0x10;
        at.put("TOKEN", &bytes);
        assert!(store.all().is_err(), "byte {offset}");
    }
    // A row is bound to its name, and to the key of the store.
    at.put("TOKEN", &good);
    at.put("OTHER", &good);
    insta::assert_snapshot!(why(store.all()), @"the secret store is damaged: a row holds another secret than its own");
    let elsewhere = Fixture::new();
    set(&elsewhere.store(), "OTHER", VALUE);
    at.put("OTHER", &elsewhere.sealed("OTHER"));
    insta::assert_snapshot!(why(store.all()), @"the secret store is damaged: a row was sealed with another key");
}

/// The file of an earlier version becomes one row, without its key, and rows of their own with the next change.
#[test]
fn the_file_of_an_earlier_version_is_imported_sealed() {
    let at = Fixture::new();
    set(&at.store(), "TOKEN", VALUE);
    let ((master, _), records) = at.store().unlock(&at.rows()).unwrap();
    let header = CipherHeader::new(KeySourceId::File, &master, KeyDerivation::default());
    let file = cipher::seal(&header, &master, contents::encode(&records).unwrap()).unwrap();
    let new = Fixture::new();
    std::fs::create_dir_all(new.secure()).unwrap();
    private_file(&new.secure().join("secrets.pcs"), &file);
    let locked = new.store_with(KeySource::Missing("no key".into()));
    assert!(matches!(locked.all(), Err(SecretError::Locked(_))));
    assert!(new.secure().join("secrets.pcs.imported").exists());
    let store = new.store_with(at.key_file());
    assert_eq!(all(&store), [("TOKEN".to_owned(), VALUE.to_owned())]);
    set(&store, "OTHER", VALUE);
    assert_eq!(all(&new.store_with(at.key_file())).len(), 2);
    assert_eq!(new.rows().len(), 3);
}

#[test]
fn rows_that_have_gone_are_reported_and_can_begin_anew() {
    let at = Fixture::new();
    let store = at.store();
    set(&store, "TOKEN", VALUE);
    assert!(store.all().is_ok());
    testing::edit(&at.secure(), "secrets", "DELETE FROM secrets");
    insta::assert_snapshot!(why(store.all()), @"the secret store is missing; restore it, or restart to go on without secrets");
    set(&at.store(), "OTHER", VALUE);
    assert_eq!(all(&store).len(), 1);
}

#[test]
fn a_missing_or_wrong_key_locks_until_the_right_one_is_back() {
    let at = Fixture::new();
    let key = at.at("config/key");
    set(&at.store(), "TOKEN", VALUE);
    let good = std::fs::read(&key).unwrap();
    assert_eq!(good.len(), 32);
    std::fs::remove_file(&key).unwrap();
    let store = at.store();
    let here = at.dir.path().display().to_string();
    let mut output = String::new();
    let mut check = |what: &str| {
        let error = store.all().unwrap_err();
        assert!(matches!(error, SecretError::Locked(_)));
        assert!(matches!(store.set("LATE", &value(VALUE), None), Err(SecretError::Locked(_))));
        output.push_str(&format!("{what}: {}\n", error.to_string().replace(&here, "…")));
    };
    check("missing");
    assert!(!key.exists(), "a new key would only hide that the old one is gone");
    private_file(&key, &[7; 32]);
    check("wrong");
    private_file(&key, b"not a key\n");
    check("no key");
    std::fs::write(&key, &good).unwrap();
    chmod(&key, 0o644);
    check("open");
    insta::assert_snapshot!(output, @"
    missing: the key `…/config/key` cannot be read: No such file or directory (os error 2)
    wrong: wrong key for the secret store, which was encrypted with a key file
    no key: `…/config/key` is not a key; expected 32 bytes, or 64 hex digits
    open: the key `…/config/key` is open to other users; if no other user has read it, `chmod 600` it
    ");
    chmod(&key, 0o600);
    assert_eq!(all(&store).len(), 1);
}

#[test]
fn a_key_inside_of_the_data_folder_is_refused() {
    let at = Fixture::new();
    let data = vec![at.at("home")];
    let inside = KeySource::File { path: at.at("home/key"), data: data.clone() };
    let store = at.store_with(inside);
    let error = why(store.set("TOKEN", &value(VALUE), None));
    assert!(error.contains("inside the data folder"), "{error}");
    assert!(!at.at("home/key").exists());
    // Nor through a link.
    private_file(&at.at("home/key"), &[7; 32]);
    std::os::unix::fs::symlink(at.at("home/key"), at.at("link")).unwrap();
    let linked = at.store_with(KeySource::File { path: at.at("link"), data });
    assert!(why(linked.set("TOKEN", &value(VALUE), None)).contains("inside the data folder"));
}

#[test]
fn a_key_may_move_into_a_credential() {
    let at = Fixture::new();
    set(&at.store(), "TOKEN", VALUE);
    let hex = HEXLOWER.encode(&std::fs::read(at.at("config/key")).unwrap());
    let credential = at.at("portcullis-key");
    private_file(&credential, format!("{hex}\n").as_bytes());
    // As systemd shows it for a service with its own user.
    chmod(&credential, 0o440);
    let store = at.store_with(KeySource::Credential(credential.clone()));
    assert_eq!(all(&store).len(), 1);
    set(&store, "OTHER", VALUE);
    assert_eq!(all(&at.store()).len(), 2);
    chmod(&credential, 0o444);
    assert!(at.store_with(KeySource::Credential(credential)).health().is_err());
}

#[test]
fn a_passphrase_opens_its_store_and_no_other_does() {
    let at = Fixture::new();
    let store = at.store_with(typed("short"));
    insta::assert_snapshot!(why(store.set("TOKEN", &value(VALUE), None)), @"the passphrase is too short; expected at least 12 characters");
    assert_eq!(key_requirement(&testing::open(&at.secure())), KeyRequirement::None);
    set(&at.store_with(typed("correct horse battery")), "TOKEN", VALUE);
    assert_eq!(key_requirement(&testing::open(&at.secure())), KeyRequirement::Passphrase);
    let file = at.at("passphrase");
    private_file(&file, b"correct horse battery\n");
    let store = at.store_with(KeySource::PassphraseFile(file.clone()));
    set(&store, "OTHER", VALUE);
    assert_eq!(all(&store).len(), 2);
    let mut output = String::new();
    for source in [typed("correct horse batterz"), KeySource::Unasked, at.key_file()] {
        output.push_str(&format!("{}\n", why(at.store_with(source).all())));
    }
    insta::assert_snapshot!(output, @"
    wrong passphrase for the secret store
    the secret store is encrypted with a passphrase; put it in a file with mode 600 and set PORTCULLIS_PASSPHRASE_FILE to its path
    the secret store is encrypted with a passphrase; put it in a file with mode 600 and set PORTCULLIS_PASSPHRASE_FILE to its path
    ");
    chmod(&file, 0o644);
    assert!(at.store_with(KeySource::PassphraseFile(file)).health().is_err());
    // A header cannot keep the machine busy for hours.
    let mut bytes = at.sealed("");
    bytes[28] = 0xff;
    at.put("", &bytes);
    insta::assert_snapshot!(why(at.store_with(typed("correct horse battery")).all()), @"the secret store is damaged: the key derivation parameters in its header exceed the limit");
}

#[test]
fn the_keyring_makes_and_keeps_a_key() {
    let at = Fixture::new();
    let program = at.at("secret-tool");
    let kept = at.at("kept").display().to_string();
    let script =
        format!("#!/bin/sh\ncase $1 in store) cat >{kept} ;; lookup) cat {kept} 2>/dev/null ;; esac\n");
    std::fs::write(&program, script).unwrap();
    chmod(&program, 0o700);
    let source = || KeySource::Keyring { program: program.clone() };
    set(&at.store_with(source()), "TOKEN", VALUE);
    assert_eq!(all(&at.store_with(source())).len(), 1);
    std::fs::remove_file(at.at("kept")).unwrap();
    insta::assert_snapshot!(why(at.store_with(source()).all()), @"the keyring has no key for Portcullis");
    let missing = KeySource::Keyring { program: at.at("nowhere") };
    assert!(why(at.store_with(missing).all()).starts_with("`secret-tool` does not run"));
}

/// Environment variables, the existing store, and the expected key source.
type Case<'a> = (&'a [(&'a str, &'a str)], KeyRequirement, &'a str);

#[test]
fn the_key_is_where_the_environment_says() {
    let at = Fixture::new();
    private_file(&at.at("portcullis-key"), &[7; 32]);
    let folder = at.dir.path().to_str().unwrap();
    let cases: [Case<'_>; 10] = [
        (&[("HOME", "/user")], KeyRequirement::None, "file /user/.config/portcullis/key"),
        (&[("HOME", "/user"), ("XDG_CONFIG_HOME", "/x")], KeyRequirement::Key, "file /x/portcullis/key"),
        (&[("HOME", "/user"), ("PORTCULLIS_KEY_FILE", "/k")], KeyRequirement::Key, "file /k"),
        (&[("HOME", "/user")], KeyRequirement::Passphrase, "unasked"),
        (&[("HOME", "/user"), ("PORTCULLIS_PASSPHRASE_FILE", "/p")], KeyRequirement::None, "passphrase /p"),
        (&[("HOME", "/user"), ("CREDENTIALS_DIRECTORY", folder)], KeyRequirement::Passphrase, "credential"),
        (
            &[("HOME", "/user"), ("CREDENTIALS_DIRECTORY", "/none")],
            KeyRequirement::None,
            "file /user/.config/portcullis/key",
        ),
        (
            &[("CREDENTIALS_DIRECTORY", folder), ("PORTCULLIS_KEY", "passphrase")],
            KeyRequirement::None,
            "unasked",
        ),
        (&[("PORTCULLIS_KEY", "keyring")], KeyRequirement::None, "keyring"),
        (&[("PORTCULLIS_KEY", "secret")], KeyRequirement::None, "missing"),
    ];
    for (variables, lock, expected) in cases {
        let env = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        let found = match KeySource::detect(env, &KeyPreference::default(), Vec::new(), lock) {
            KeySource::Credential(_) => "credential".to_owned(),
            KeySource::File { path, .. } => format!("file {}", path.display()),
            KeySource::Keyring { .. } => "keyring".to_owned(),
            KeySource::PassphraseFile(path) => format!("passphrase {}", path.display()),
            KeySource::Passphrase(_) => "typed".to_owned(),
            KeySource::Unasked => "unasked".to_owned(),
            KeySource::Missing(_) => "missing".to_owned(),
        };
        assert_eq!(found, expected, "{variables:?}");
    }
    let nothing = KeyPreference::default();
    assert!(matches!(
        KeySource::detect(|_| None, &nothing, Vec::new(), KeyRequirement::None),
        KeySource::Missing(_)
    ));
}

#[test]
fn the_key_is_where_the_configuration_says_unless_the_environment_says_otherwise() {
    let wanted = KeyPreference { kind: Some(KeyKind::File), file: Some("/configured".into()) };
    let found = |variables: &[(&str, &str)], wanted: &KeyPreference| {
        let env = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        KeySource::detect(env, wanted, Vec::new(), KeyRequirement::None)
    };
    let file = |source| match source {
        KeySource::File { path, .. } => path.display().to_string(),
        _ => "no file".to_owned(),
    };
    assert_eq!(file(found(&[], &wanted)), "/configured");
    assert_eq!(file(found(&[("PORTCULLIS_KEY_FILE", "/named")], &wanted)), "/named");
    assert_eq!(file(found(&[("CREDENTIALS_DIRECTORY", "/none")], &wanted)), "/configured");
    assert!(matches!(found(&[("PORTCULLIS_KEY", "keyring")], &wanted), KeySource::Keyring { .. }));
    let keyring = KeyPreference { kind: Some(KeyKind::Keyring), file: None };
    assert!(matches!(found(&[], &keyring), KeySource::Keyring { .. }));
    assert!(matches!(found(&[("PORTCULLIS_KEY", "passphrase")], &keyring), KeySource::Unasked));
}
