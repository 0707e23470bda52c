//! Two processes on one database. The other one is this test program, which runs [`other_process`] and obeys its standard input.

use super::tests::{open, set, view};
use super::{FILE_NAME, OperationId, wait};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const FOLDER: &str = "PORTCULLIS_TEST_DATABASE";
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
        command.args(["--exact", "database::process_tests::other_process", "--nocapture", "--test-threads=1"]);
        let mut child = command
            .env(FOLDER, folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
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
    assert!(folder.path().join(format!("{FILE_NAME}-wal")).exists(), "the log was removed under a connection");
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
        while !change.is_finished() {
            let looked = Instant::now();
            assert!(here.current().known.is_ok());
            assert!(looked.elapsed() < Duration::from_millis(90), "a reader waited");
            std::thread::sleep(Duration::from_millis(1));
        }
        change.join().unwrap();
        let first = began.elapsed();
        assert!(first > Duration::from_secs(1) && first < Duration::from_secs(5), "{first:?}");
        // It was given up, and nothing waits for it again.
        let began = Instant::now();
        set(&database, OperationId::random().unwrap(), "a", 10 * round + 1).unwrap();
        assert!(began.elapsed() < Duration::from_millis(800), "{:?}", began.elapsed());
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
