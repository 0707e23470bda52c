//! Servers that misbehave behind the real program, in a short form.
//!
//! Runs the program that lies beside the tests, or that `PORTCULLIS_BIN` names: `cargo build -p portcullis` first.
//! `cargo xtask torture --only servers` is the long form, with every fault and with times that are judged.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and tells what it skips"
)]

use portcullis_bench::torture::servers::{self, CalledServer, ServerFault, ServerProgram};
use portcullis_bench::torture::session;
use portcullis_testkit::faulty_server;
use std::time::Duration;

/// Far beyond what is promised: a busy machine is no fault.
const LATE_MAX: Duration = Duration::from_secs(10);

/// The servers of these tests are this very program, started again to run only this.
#[test]
#[ignore = "this is the server that the other tests start"]
fn serves() {
    faulty_server::serve("2025-11-25").unwrap();
}

fn server() -> ServerProgram {
    let args = ["--exact", "serves", "--ignored", "--nocapture"].map(str::to_owned).to_vec();
    ServerProgram { path: std::env::current_exe().unwrap(), args }
}

#[test]
fn calls_end_in_time_and_nothing_is_left_running() {
    let Some(program) = session::program() else {
        println!("skipped: no program beside the tests; `cargo build -p portcullis` makes it");
        return;
    };
    let faults = [ServerFault::Hang, ServerFault::ReusedIds, ServerFault::HalfOpen, ServerFault::Storm];
    let seen = servers::run(&program, &server(), 1, &faults, CalledServer::AnotherOne).unwrap();
    println!("{seen:?}");
    assert!(seen.started > 0);
    assert_eq!(seen.left, 0);
    assert!(seen.beside.iter().all(|(_, beside)| beside.late < LATE_MAX), "{seen:?}");
}

/// The measurement finds out whoever is held up: here it is the server itself that sends the long line.
#[test]
#[ignore = "it judges times, for which other tests must not run beside it"]
fn a_server_that_is_held_up_is_found_out() {
    let Some(program) = session::program() else {
        println!("skipped: no program beside the tests; `cargo build -p portcullis` makes it");
        return;
    };
    let seen = servers::run(&program, &server(), 1, &[ServerFault::LongLine], CalledServer::TheSame).unwrap();
    println!("{seen:?}");
    assert!(seen.beside[0].1.p99[0] > 2.0, "{seen:?}");
}
