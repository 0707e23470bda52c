//! Two processes on one database. The other one is this test program, which runs [`other_process`] and obeys its standard input.
#![expect(clippy::disallowed_methods, reason = "another process is waited for, without a runtime")]

use super::tests::{open, set, view};
use super::{FILE_NAME, OperationId, wait};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const FOLDER: &str = "PORTCULLIS_TEST_DATABASE";
/// Set where the other process imports files of an earlier version, and ends.
const IMPORT: &str = "PORTCULLIS_TEST_IMPORT";
/// Before each answer, because the test harness prints, too.
const MARK: &str = "answer:";

struct OtherProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl OtherProcess {
    fn start(folder: &Path) -> OtherProcess {
        OtherProcess::run(Command::new(std::env::current_exe().unwrap()), folder)
    }

    fn run(mut command: Command, folder: &Path) -> OtherProcess {
        command.args([
            "--exact",
            "database::process_tests::other_process",
            "--nocapture",
            "--test-threads=1",
        ]);
        let mut child =
            command.env(FOLDER, folder).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut other = OtherProcess { child, stdin, stdout };
        assert_eq!(other.ask("get none"), "-");
        other
    }

    fn send(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn answer(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the other process ended");
            if let Some((_, answer)) = line.split_once(MARK) {
                return answer.trim_end().to_owned();
            }
        }
    }

    fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.answer()
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Ends as a process does that has nothing more to do.
    fn end(mut self) {
        drop(self.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Does nothing by itself.
#[test]
fn other_process() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    if std::env::var_os(IMPORT).is_some() {
        drop(crate::open(folder, &[]).unwrap());
        return;
    }
    let database = open(folder);
    let view = view(&database);
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["get", name] => {
                let current = view.current();
                let known = current.known.as_ref().map(|known| known.get(name).map(i64::to_string));
                println!("{MARK}{}", known.unwrap().unwrap_or_else(|| "-".to_owned()));
            }
            ["look", count] => {
                // What comes between the two is compared by the one who traces this process.
                let count: u32 = count.parse().unwrap();
                println!("{MARK}begin");
                for _ in 0..count {
                    assert!(view.current().known.is_ok());
                }
                println!("{MARK}end");
            }
            ["set", name, n] => {
                let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
                set(&database, OperationId::random().unwrap(), name, n.parse().unwrap()).unwrap();
                println!("{MARK}done");
            }
            ["try", name, n] => {
                let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
                let done = set(&database, OperationId::random().unwrap(), name, n.parse().unwrap());
                println!("{MARK}{}", done.map_or_else(|error| error.to_string(), |()| "done".to_owned()));
            }
            _ => panic!("{line}"),
        }
    }
}

fn get(folder: &Path, name: &str) -> Option<i64> {
    view(&open(folder)).current().known.as_ref().unwrap().get(name).copied()
}

#[test]
fn a_second_open_drops_no_lock() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path());
    set(&database, OperationId::random().unwrap(), "a", 1).unwrap();
    // POSIX drops the locks of a process on a file when it closes any descriptor of it.
    drop(open(folder.path()));
    drop(open(folder.path()));
    // The process that ends last removes the log. This one does not end last, and has to know.
    let mut other = OtherProcess::start(folder.path());
    assert_eq!(other.ask("set b 2"), "done");
    other.end();
    assert!(
        folder.path().join(format!("{FILE_NAME}-wal")).exists(),
        "the log was removed under a connection"
    );
    set(&database, OperationId::random().unwrap(), "c", 3).unwrap();
    let mut other = OtherProcess::start(folder.path());
    for (name, n) in [("a", "1"), ("b", "2"), ("c", "3")] {
        assert_eq!(other.ask(&format!("get {name}")), n, "{name}");
    }
    drop(database);
    other.end();
    assert_eq!(get(folder.path(), "c"), Some(3));
}

#[test]
fn a_change_is_in_force_in_every_process_when_it_returns() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path());
    let here = view(&database);
    let mut other = OtherProcess::start(folder.path());
    for n in 0..50 {
        set(&database, OperationId::random().unwrap(), "a", n).unwrap();
        assert_eq!(other.ask("get a"), n.to_string());
        assert_eq!(other.ask(&format!("set b {n}")), "done");
        assert_eq!(here.current().known.as_ref().unwrap()["b"], n);
    }
    other.end();
}

#[test]
fn a_stopped_process_delays_one_change_and_finds_out_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path());
    let here = view(&database);
    let mut other = OtherProcess::start(folder.path());
    set(&database, OperationId::random().unwrap(), "a", 0).unwrap();
    for round in 1..3 {
        other.signal(rustix::process::Signal::STOP);
        let began = Instant::now();
        let changing = database.clone();
        let change = std::thread::spawn(move || {
            set(&changing, OperationId::random().unwrap(), "a", 10 * round).unwrap();
        });
        let mut looks = 0;
        while !change.is_finished() {
            assert!(here.current().known.is_ok());
            looks += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
        change.join().unwrap();
        // A reader that waited for the change would have looked a few times.
        assert!(looks > 20, "{looks} looks");
        let first = began.elapsed();
        // It was given up, and nothing waits for it again.
        let began = Instant::now();
        set(&database, OperationId::random().unwrap(), "a", 10 * round + 1).unwrap();
        assert!(began.elapsed() < first, "{:?} after {first:?}", began.elapsed());
        other.send("get a");
        other.signal(rustix::process::Signal::CONT);
        assert_eq!(other.answer(), (10 * round + 1).to_string());
        // It has joined again.
        set(&database, OperationId::random().unwrap(), "a", 10 * round + 2).unwrap();
        assert_eq!(other.ask("get a"), (10 * round + 2).to_string());
    }
    other.end();
}

#[test]
fn a_change_of_the_file_that_took_its_place_is_not_hidden_by_an_old_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path());
    let here = view(&database);
    set(&database, OperationId::random().unwrap(), "a", 1).unwrap();
    wait(database.backup(&folder.path().join("copy"))).unwrap();
    // This process has shown a later version than the copy has.
    for n in 2..10 {
        set(&database, OperationId::random().unwrap(), "a", n).unwrap();
    }
    std::fs::rename(folder.path().join("copy"), folder.path().join(FILE_NAME)).unwrap();
    for name in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(folder.path().join(format!("{FILE_NAME}{name}")));
    }
    let mut other = OtherProcess::start(folder.path());
    assert_eq!(other.ask("set a 20"), "done");
    let refused = here.current().known.clone().unwrap_err();
    assert!(refused.contains("was replaced"), "{refused}");
    other.end();
}

#[test]
fn a_removed_folder_of_processes_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let processes = folder.path().join(format!("{FILE_NAME}-processes"));
    let database = open(folder.path());
    let here = view(&database);
    set(&database, OperationId::random().unwrap(), "a", 1).unwrap();
    std::fs::remove_dir_all(&processes).unwrap();
    let began = Instant::now();
    while std::fs::read_dir(&processes).is_ok_and(|entries| entries.count() == 2).eq(&false) {
        assert!(began.elapsed() < Duration::from_secs(10), "the folder is not made again");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut other = OtherProcess::start(folder.path());
    assert_eq!(other.ask("set a 2"), "done");
    assert_eq!(here.current().known.as_ref().unwrap()["a"], 2);
    set(&database, OperationId::random().unwrap(), "a", 3).unwrap();
    assert_eq!(other.ask("get a"), "3");
    other.end();
}

#[test]
fn the_other_processes_are_named_and_no_backup_is_restored_under_them() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path());
    let other = OtherProcess::start(folder.path());
    let path = database.path();
    let pid = other.child.id();
    assert_eq!(super::peers::others(&path), [pid]);
    let busy = super::DatabaseError::held(&super::peers::others(&path)).to_string();
    assert!(busy.contains(&format!("(open in: {pid})")), "{busy}");
    let copy = folder.path().join("copy");
    wait(database.backup(&copy)).unwrap();
    drop(database);
    let refused = super::restore(folder.path(), &copy, super::tests::SCHEMA).unwrap_err().to_string();
    assert!(refused.contains(&format!("is open in other processes ({pid})")), "{refused}");
    other.end();
    super::restore(folder.path(), &copy, super::tests::SCHEMA).unwrap();
}

#[test]
fn a_flush_that_failed_leaves_a_change_of_which_nothing_is_known() {
    if Command::new("strace").arg("-V").output().is_err() {
        eprintln!("skipped: there is no strace");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync,fsync"]);
    command.args(["-e", "inject=fdatasync,fsync:error=EIO:when=20"]).arg(std::env::current_exe().unwrap());
    let mut other = OtherProcess::run(command, folder.path());
    let answers: Vec<String> = (0..40).map(|n| other.ask(&format!("try a {n}"))).collect();
    let failed: Vec<&String> = answers.iter().filter(|answer| *answer != "done").collect();
    assert_eq!(failed.len(), 1, "{answers:?}");
    assert!(failed[0].contains("may or may not have been applied"), "{failed:?}");
    other.end();
}

#[test]
fn looking_at_a_snapshot_is_no_system_call() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let trace = folder.path().join("trace");
    let mut command = Command::new("strace");
    command.arg("-f").arg("-o").arg(&trace).arg(std::env::current_exe().unwrap());
    if Command::new("strace").arg("-V").output().is_err() {
        eprintln!("skipped: there is no strace");
        return;
    }
    let mut other = OtherProcess::run(command, folder.path());
    assert_eq!(other.ask("look 100000"), "begin");
    assert_eq!(other.answer(), "end");
    other.end();
    let trace = std::fs::read_to_string(trace).unwrap();
    let mut lines = trace.lines().skip_while(|line| !line.contains("answer:begin"));
    let reader = lines.next().unwrap().split(' ').next().unwrap();
    let between = lines.take_while(|line| !line.contains("answer:end"));
    let own: Vec<&str> = between.filter(|line| line.split(' ').next() == Some(reader)).collect();
    assert!(own.len() <= 2, "{own:#?}");
}

#[test]
fn killed_processes_lose_nothing_that_they_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    for round in 0..40_u64 {
        let mut other = OtherProcess::start(folder.path());
        let began = Instant::now();
        let mut acknowledged = None;
        let mut n = 0;
        while began.elapsed() < Duration::from_micros(500 * (round % 20)) {
            assert_eq!(other.ask(&format!("set r{round} {n}")), "done");
            acknowledged = Some(n);
            n += 1;
        }
        other.send(&format!("set r{round} {n}"));
        other.signal(rustix::process::Signal::KILL);
        drop(other);
        let name: &'static str = Box::leak(format!("r{round}").into_boxed_str());
        let found = get(folder.path(), name);
        assert!(found >= acknowledged && found <= Some(n), "{found:?} after {acknowledged:?}");
    }
    assert_eq!(wait(open(folder.path()).check()).unwrap(), Vec::<String>::new());
}

/// Files of an earlier version, of every kind that is text.
const EARLIER: [(&str, &str); 5] = [
    (
        "clients.json",
        r#"{"version": 1, "clients": [{"name": "laptop", "token_sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "token_hint": "pc_x", "allow": ["*"], "effects": ["read"], "created": "2026-01-01T00:00:00Z"}]}"#,
    ),
    ("approvals.json", r#"{"version": 1, "approvals": []}"#),
    (
        "pins.json",
        r#"{"version": 1, "servers": {"git": {"since": "2026-01-01T00:00:00Z", "by": "me", "as_it_was": {"identity": {}, "instructions": null, "tools": {}, "prompts": {}}}}}"#,
    ),
    ("toggles.json", r#"{"version": 1, "servers": {"git": {"enabled": false, "reloads": 3}}}"#),
    ("admins.json", r#"{"version": 1, "links": [{"sha256": "00", "expires": "2026-01-01T00:00:00Z"}]}"#),
];

/// Returns whether the import ended before its `nth` call of these was made.
fn import_killed_at(calls: &str, nth: u32, folder: &Path) -> bool {
    for (name, text) in EARLIER {
        std::fs::write(folder.join(name), text).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(folder.join(name), private).unwrap();
    }
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e"]).arg(format!("trace={calls}"));
    command.arg("-e").arg(format!("inject={calls}:signal=KILL:when={nth}"));
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", "database::process_tests::other_process", "--nocapture", "--test-threads=1"]);
    let ran = command.env(FOLDER, folder).env(IMPORT, "1").output().unwrap();
    ran.status.success()
}

#[test]
fn an_import_that_is_killed_at_any_step_is_done_or_not_begun() {
    if Command::new("strace").arg("-V").output().is_err() {
        eprintln!("skipped: there is no strace");
        return;
    }
    let clock = || std::sync::Arc::new(portcullis_core::SystemClock);
    let steps = [
        "pwrite64",
        "fsync,fdatasync",
        "rename,renameat,renameat2",
        "flock",
        "unlink,unlinkat",
        "link,linkat",
    ];
    for calls in steps {
        for nth in 1.. {
            let folder = tempfile::tempdir().unwrap();
            let ended = import_killed_at(calls, nth, folder.path());
            let place = format!("{calls} {nth}");
            let retired = |name: &str| folder.path().join(format!("{name}.imported")).exists();
            if EARLIER.iter().any(|(name, _)| retired(name)) {
                // The names change only after the rows are on disk.
                let before = crate::testing::export_as_it_is(folder.path());
                assert!(before.contains("laptop"), "{place}: {before}");
            }
            let database = crate::open(folder.path(), &[]).unwrap_or_else(|error| panic!("{place}: {error}"));
            for (name, _) in EARLIER {
                assert!(!folder.path().join(name).exists() && retired(name), "{place}: {name}");
            }
            let clients = crate::clients::ClientDirectory::open(&database, clock());
            assert_eq!(clients.list().unwrap().len(), 1, "{place}");
            assert!(crate::pins::PinStore::open(&database, clock()).of("git").is_some(), "{place}");
            assert_eq!(crate::servers::ServerOverrides::open(&database).of("git").reloads, 3, "{place}");
            assert!(crate::admins::AdminStore::open(&database, clock()).health().is_ok(), "{place}");
            assert_eq!(wait(database.check()).unwrap(), Vec::<String>::new(), "{place}");
            if ended {
                assert!(nth > 1 || calls.starts_with("unlink"), "{calls}: nothing was killed");
                break;
            }
        }
    }
}
