//! The disk fails under the real program.
//!
//! Runs the program that lies beside the tests, or that `PORTCULLIS_BIN` names: `cargo build -p portcullis` first.
//! `cargo xtask torture --only faults` is the long form; `TORTURE_SEED` repeats a choice.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and tells what it skips"
)]

use portcullis_bench::torture::faults::{self, FaultDuration, FaultErrno, FaultTarget, InjectedFault};
use portcullis_bench::torture::{SplitMix64, session};
use std::path::PathBuf;

/// How many of all failures the short form takes.
const SOME: usize = 24;

fn ready() -> Option<(PathBuf, u64)> {
    let Some(program) = session::program() else {
        println!("skipped: no program beside the tests; `cargo build -p portcullis` makes it");
        return None;
    };
    if let Some(reason) = faults::missing() {
        println!("skipped: {reason}");
        return None;
    }
    let seed =
        std::env::var("TORTURE_SEED").map_or_else(|_| SplitMix64::fresh_seed(), |text| text.parse().unwrap());
    println!("TORTURE_SEED={seed}");
    Some((program, seed))
}

#[test]
fn nothing_is_promised_that_a_failing_disk_does_not_hold() {
    let Some((program, seed)) = ready() else { return };
    let count = std::env::var("TORTURE_FAULTS").map_or(SOME, |text| text.parse().unwrap());
    let seen = faults::run(&program, &InjectedFault::some(count, &mut SplitMix64::new(seed)), seed).unwrap();
    println!("{seen:#?}");
    assert!(seen.problems.is_empty(), "{}", seen.problems.join("\n"));
    assert!(seen.faults > 0 && seen.acknowledged > 0 && seen.refused > 0 && seen.approved > 0, "{seen:?}");
}

/// The kernel drops what a failed flush did not write, and forgets that it did; another flush alone loses it.
#[test]
fn records_whose_flush_failed_are_written_again() {
    let Some((program, seed)) = ready() else { return };
    let flush = |nth| InjectedFault {
        kind: FaultTarget::Flush,
        errno: FaultErrno::Io,
        nth,
        lasts: FaultDuration::Once,
    };
    // At 3, 5 and 6 the database is made.
    let seen = faults::run(&program, &[1, 2, 3, 5, 6, 20].map(flush), seed).unwrap();
    assert!(seen.problems.is_empty(), "{}", seen.problems.join("\n"));
    assert_eq!(seen.hit, 6, "{seen:?}");
}

#[test]
fn a_hub_that_does_not_flush_is_found_out() {
    let Some((program, _)) = ready() else { return };
    assert_eq!(faults::weakened(&program, "nothing of the kind").unwrap(), [""; 0]);
    for left_out in ["audit.jsonl", "ai-data/d", ".tmp", "home/workspace>", "home>"] {
        assert!(!faults::weakened(&program, left_out).unwrap().is_empty(), "{left_out}");
    }
}

#[test]
fn a_command_that_fails_leaves_what_was_there() {
    let Some((program, seed)) = ready() else { return };
    let mut random = SplitMix64::new(seed);
    let kinds = [FaultTarget::Flush, *random.pick(&[FaultTarget::LogWrite, FaultTarget::Rename]).unwrap()];
    let kinds = kinds.map(|kind| (kind, *random.pick(&FaultErrno::ALL).unwrap()));
    let seen = faults::commands(&program, &kinds).unwrap();
    println!("{kinds:?} {seen:#?}");
    assert!(seen.problems.is_empty(), "{}", seen.problems.join("\n"));
    assert!(seen.faults > 0, "{seen:?}");
}
