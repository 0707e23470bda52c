//! Secrets are set by one process, masked by another, and shown by none.

use portcullis_store::database::{DatabaseError, OperationId, Topic, wait};
use serde_json::Value;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const VALUE: &str = "ghp_correct-horse-battery-staple";
/// How often a hub that was just started, or just told, is asked again. Each try starts a process.
const TRIES: usize = 200;

/// A user of their own, with nothing yet.
struct User {
    dir: tempfile::TempDir,
}

impl User {
    fn new() -> User {
        User { dir: tempfile::tempdir().unwrap() }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn store(&self) -> PathBuf {
        self.at("data/workspace/secure/portcullis.db")
    }

    fn key(&self) -> PathBuf {
        self.at("config/portcullis/key")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
        command.args(args).env_clear();
        command.env("PORTCULLIS_HOME", self.at("data")).env("XDG_CONFIG_HOME", self.at("config"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run_with(&self, args: &[&str], input: &str) -> Ran {
        let mut child = self.command(args).spawn().unwrap();
        if let Err(error) = child.stdin.take().unwrap().write_all(input.as_bytes()) {
            // A command that refuses its arguments does not read on.
            assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
        }
        Ran::of(child.wait_with_output().unwrap())
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, "")
    }

    fn note(&self, text: &str) {
        std::fs::create_dir_all(self.at("data/workspace/ai-data")).unwrap();
        std::fs::write(self.at("data/workspace/ai-data/note.md"), text).unwrap();
    }

    fn read_note(&self) -> String {
        let ran = self.run(&["tools", "call", "workspace_read", r#"{"path": "note.md"}"#, "--json"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.stdout
    }
}

struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Ran {
    fn of(output: Output) -> Ran {
        Ran {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Ends with the test.
struct Hub(Child);

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files_below(&path)),
            false => found.push(path),
        }
    }
    found
}

#[test]
fn a_secret_is_masked_in_replies_and_is_in_no_file() {
    let user = User::new();
    user.note(&format!("token: {VALUE}, {VALUE}"));
    assert!(user.read_note().contains(VALUE));
    let set = user.run_with(&["secrets", "set", "TOKEN", "--grant", "api.github.com"], &format!("{VALUE}\n"));
    assert_eq!(set.code, 0, "{}", set.stderr);
    insta::assert_snapshot!(set.stdout, @"Saved secret `TOKEN`. Allowed hosts: api.github.com:Authorization.");
    assert!(set.stderr.starts_with("Created the key `") && set.stderr.contains("config/portcullis/key"));
    let reply = user.read_note();
    assert!(!reply.contains("battery") && reply.contains("[REDACTED:TOKEN], [REDACTED:TOKEN]"), "{reply}");
    std::fs::remove_file(user.at("data/workspace/ai-data/note.md")).unwrap();
    for file in files_below(user.dir.path()) {
        let bytes = std::fs::read(&file).unwrap();
        let found = bytes.windows(7).any(|window| window == b"battery");
        // The record of the call that came before the secret was known keeps no contents either.
        assert!(!found, "{}", file.display());
    }
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(user.store()), mode(user.key())), (0o600, 0o600));
}

#[test]
fn a_running_hub_hears_of_a_change_at_once() {
    let user = User::new();
    user.note(&format!("token: {VALUE}"));
    // Its input stays open, so it stays.
    let mut command = user.command(&["stdio"]);
    let hub = Hub(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    assert!((0..TRIES).any(|_| {
        let _ = user.run(&["completions", "bash"]);
        user.at("data/hub.sock").exists()
    }));
    assert!(user.read_note().contains(VALUE));
    assert_eq!(user.run_with(&["secrets", "set", "TOKEN"], VALUE).code, 0);
    assert!((0..TRIES).any(|_| user.read_note().contains("[REDACTED:TOKEN]")));
    assert_eq!(user.run_with(&["secrets", "set", "TOKEN"], "another-value-8d1f2b7c").code, 0);
    assert!((0..TRIES).any(|_| user.read_note().contains(VALUE)));
    assert_eq!(user.run_with(&["secrets", "set", "OTHER"], VALUE).code, 0);
    assert!((0..TRIES).any(|_| user.read_note().contains("[REDACTED:OTHER]")));
    // Without the store it goes on masking what it knew.
    let database =
        portcullis_store::open(&user.at("data/workspace/secure"), &portcullis_tools::tables()).unwrap();
    let id = OperationId::random().unwrap();
    let damaged: Result<usize, DatabaseError> =
        wait(database.change(Topic::new("secrets"), id, |transaction| {
            Box::pin(async move { transaction.execute("UPDATE secrets SET record = '{'", &[]).await })
        }));
    assert!(damaged.unwrap() > 0);
    for _ in 0..5 {
        assert!(user.read_note().contains("[REDACTED:OTHER]"));
    }
    drop(hub);
}

#[test]
fn a_value_on_the_command_line_is_refused() {
    let user = User::new();
    for args in [&["secrets", "set", "TOKEN", VALUE][..], &["secrets", "set", &format!("TOKEN={VALUE}")]] {
        let ran = user.run_with(args, "from standard input");
        assert_eq!(ran.code, 2);
        assert!(!ran.stderr.contains("battery") && !ran.stdout.contains("battery"), "{}", ran.stderr);
    }
    assert!(!user.store().exists() && !user.key().exists());
    let ran = user.run(&["secrets", "set", "TOKEN", VALUE]);
    insta::assert_snapshot!(ran.stderr, @"error: a value is never taken from the command line, where other programs and the shell's history keep it; leave it out to be asked for it, or send it to standard input. If that was the real value, replace it where it comes from");
}

#[test]
fn what_cannot_be_a_secret_is_refused_with_the_reason() {
    let user = User::new();
    let mut said = String::new();
    for (args, input) in [
        (&["secrets", "set", "PIN"][..], "1234567\n"),
        (&["secrets", "set", "PIN"], ""),
        (&["secrets", "set", "pin"], VALUE),
        (&["secrets", "set", "TOKEN", "--grant", "*"], VALUE),
        (&["secrets", "grant", "TOKEN", "https://example.com/"], ""),
        (&["secrets", "grant", "TOKEN", "example.com"], ""),
        (&["secrets", "remove", "TOKEN"], ""),
    ] {
        let ran = user.run_with(args, input);
        said.push_str(&format!("{} {}", ran.code, ran.stderr));
    }
    assert!(!user.key().exists());
    insta::assert_snapshot!(said, @"
    2 error: the value of `PIN` has 7 bytes, at least 8 are needed: a shorter one occurs in ordinary text, and redacting it would spoil results
    2 error: the value of `PIN` has 0 bytes, at least 8 are needed: a shorter one occurs in ordinary text, and redacting it would spoil results
    2 error: `pin` is not a valid secret name; expected 1 to 64 of A-Z, 0-9 and `_`, starting with a letter
    2 error: `*` is not a grant: `*` is allowed only for subdomains, like *.example.com
    2 error: `https://example.com/` is not a grant: expected a host like api.example.com, not a URL
    1 error: no secret is named `TOKEN`; `portcullis secrets list` shows which exist
    1 error: no secret is named `TOKEN`; `portcullis secrets list` shows which exist
    ");
}

#[test]
fn a_list_has_names_grants_and_age_and_no_values() {
    let user = User::new();
    assert_eq!(user.run(&["secrets", "list", "--json"]).stdout, "[]\n");
    let set = |name, more: &[&str], value| {
        let ran = user.run_with(&[&["secrets", "set", name][..], more].concat(), value);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    };
    set("SECOND", &["--grant", "*.example.com:X-Key", "--grant", "[::1]"], VALUE);
    // Only one end of a line is taken away.
    set("FIRST", &["--weak"], "two\nlines\r\n");
    assert_eq!(user.run(&["secrets", "grant", "FIRST", "a.example.com", "b.example.com:url"]).code, 0);
    let list = user.run(&["secrets"]);
    let ages = without_ages(&list.stdout);
    insta::assert_snapshot!(ages, @"
    SECRET AGE ALLOWED HOSTS
    FIRST …s a.example.com:Authorization b.example.com:url
    SECOND …s *.example.com:X-Key [::1]:Authorization
    ");
    let list: Value = serde_json::from_str(&user.run(&["secrets", "list", "--json"]).stdout).unwrap();
    assert_eq!(list[1]["grants"][0], serde_json::json!({ "host": "*.example.com", "field": "X-Key" }));
    assert!(list[0]["age_secs"].as_u64().unwrap() < 60 && list[0]["created"].is_string());
    assert!(!list.to_string().contains("battery") && !list.to_string().contains("lines"));
    let removed = user.run(&["secrets", "remove", "SECOND", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&removed.stdout).unwrap()["removed"], "SECOND");
    user.note("two\nlines, two\nlines\r");
    assert!(user.read_note().contains("[REDACTED:FIRST], [REDACTED:FIRST]\\r"));
}

/// The time that passes while a test runs is not what it is about.
fn without_ages(table: &str) -> String {
    let cell = |cell: &str| match cell.strip_suffix('s').is_some_and(|age| age.parse::<u8>().is_ok()) {
        true => "…s".to_owned(),
        false => cell.to_owned(),
    };
    let line = |line: &str| line.split_whitespace().map(cell).collect::<Vec<_>>().join(" ");
    table.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_locked_store_is_told_and_the_rest_goes_on() {
    let user = User::new();
    user.note("nothing secret");
    assert_eq!(user.run_with(&["secrets", "set", "TOKEN"], VALUE).code, 0);
    let doctor = user.run(&["doctor"]);
    assert!(doctor.stdout.contains("ok       secrets    1 secret"), "{}", doctor.stdout);
    std::fs::remove_file(user.key()).unwrap();
    let doctor = user.run(&["doctor"]);
    let shown = doctor.stdout.replace(user.dir.path().to_str().unwrap(), "…");
    let problem: Vec<&str> =
        shown.lines().skip_while(|line| !line.contains(" secrets ")).take(2).map(str::trim_end).collect();
    insta::assert_snapshot!(problem.join("\n"), @"
    PROBLEM  secrets    locked: the key `…/config/portcullis/key` cannot be read: No such file or directory (os error 2)
                        restore the key, or set PORTCULLIS_KEY_FILE or PORTCULLIS_PASSPHRASE_FILE; everything that needs no secret still works
    ");
    assert_eq!(doctor.code, 1);
    assert!(user.read_note().contains("nothing secret"));
    for args in [&["secrets", "list"][..], &["secrets", "remove", "TOKEN"]] {
        assert_eq!(user.run(args).code, 1);
    }
    assert_eq!(user.run_with(&["secrets", "set", "TOKEN"], VALUE).code, 1);
    assert!(!user.key().exists());
}

#[test]
fn a_passphrase_in_a_file_opens_the_store_for_every_process() {
    let user = User::new();
    user.note(&format!("token: {VALUE}"));
    let file = user.at("passphrase");
    std::fs::write(&file, "correct horse battery\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let run = |args: &[&str], input: &str| {
        let mut command = user.command(args);
        let mut child = command.env("PORTCULLIS_PASSPHRASE_FILE", &file).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        Ran::of(child.wait_with_output().unwrap())
    };
    assert_eq!(run(&["secrets", "set", "TOKEN"], VALUE).code, 0);
    assert!(!user.key().exists());
    let reply = run(&["tools", "call", "workspace_read", r#"{"path": "note.md"}"#], "");
    assert!(reply.stdout.contains("[REDACTED:TOKEN]"), "{}", reply.stdout);
    // Nobody gave it, and nobody is there to be asked.
    assert!(user.run(&["doctor"]).stdout.contains("PORTCULLIS_PASSPHRASE_FILE"));
}
