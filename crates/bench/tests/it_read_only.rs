//! What a read-only call costs in the store: no query, and no look at a file of the state.
//!
//! Runs the program that lies beside the tests, or that `PORTCULLIS_BIN` names, under strace.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and tells what it skips"
)]

use portcullis_bench::torture::faults;
use portcullis_bench::torture::session::{self, CallReply, StdioSession, TortureHome};
use portcullis_bench::torture::trace::{self, Syscall};
use serde_json::json;

/// How many calls stand between the two marks.
const CALLS: u64 = 200;
/// System calls of threads that look at the state by the clock meanwhile: the follower makes five a second, the writer of the
/// audit log a dozen with its first anchor. Even one system call for each read-only call would be four times as many.
const BACKGROUND_MAX: usize = 50;

/// Returns the system calls that reach the state: the database and its log by any call, other files by `stat` or `open`.
/// The audit log is not part of it: its writer appends the records, and asks once a batch whether its file still exists.
fn reaching_state(calls: &[Syscall]) -> Vec<&Syscall> {
    let looks = |name: &str| ["stat", "access", "open", "readlink"].iter().any(|look| name.contains(look));
    let reaches = |call: &&Syscall| {
        call.args.contains("portcullis.db")
            || (call.args.contains("/secure") && !call.args.contains("/secure/audit/") && looks(&call.name))
    };
    calls.iter().filter(reaches).collect()
}

#[test]
fn a_read_only_call_makes_no_query_and_looks_at_no_file_of_the_state() {
    let Some(program) = session::program() else {
        println!("skipped: no program beside the tests; `cargo build -p portcullis` makes it");
        return;
    };
    if let Some(reason) = faults::missing() {
        println!("skipped: {reason}");
        return;
    }
    let home = TortureHome::new(&program).unwrap();
    std::fs::create_dir_all(home.files()).unwrap();
    for name in ["begin.md", "note.md", "end.md"] {
        std::fs::write(home.files().join(name), "text").unwrap();
    }
    let log = home.beside("trace");
    let strace = ["strace", "-f", "-qq", "-y", "-s", "256", "-o", log.to_str().unwrap()];
    let mut hub = StdioSession::start(home.command(&strace, &["--mcp"])).unwrap();
    assert!(hub.initialize());
    let paths = std::iter::once("begin.md").chain((0..CALLS).map(|_| "note.md")).chain(["end.md"]);
    for (id, path) in (1..).zip(paths) {
        assert_eq!(hub.call(id, "workspace_read", &json!({ "path": path })), CallReply::Done);
    }
    hub.close().unwrap();

    let calls = trace::parse(&std::fs::read_to_string(&log).unwrap());
    let opened =
        |name: &str| calls.iter().position(|call| call.name == "openat2" && call.args.contains(name));
    let (begin, end) = (opened("begin.md").unwrap(), opened("end.md").unwrap());
    // The same search sees the start, which opens the database.
    assert!(!reaching_state(&calls[..begin]).is_empty());
    let between = reaching_state(&calls[begin..end]);
    assert!(between.len() <= BACKGROUND_MAX, "{} in {CALLS} calls: {between:#?}", between.len());
}
