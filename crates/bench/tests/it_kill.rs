//! The real program, killed at random moments while it works.
//!
//! Runs the program that lies beside the tests, or that `PORTCULLIS_BIN` names: `cargo build -p portcullis` first.
//! `cargo xtask torture --only kill` is the long form; `TORTURE_SEED` repeats a run.

use portcullis_bench::torture::{SplitMix64, kill, kill_database, session};
use std::path::Path;

/// How often the program is killed in the short form.
const KILLS: u64 = 20;

#[test]
fn no_acknowledged_change_of_the_database_is_lost() {
    let seed = SplitMix64::fresh_seed();
    println!("seed {seed}");
    let seen = kill_database::run(Path::new(env!("CARGO_BIN_EXE_torture")), KILLS, seed).unwrap();
    println!("{seen:?}");
    assert!(seen.problems.is_empty(), "{}", seen.problems.join("\n"));
    assert!(seen.lost == 0 && seen.acknowledged > 0 && seen.kills == KILLS);
}

#[test]
fn nothing_acknowledged_is_lost_and_the_log_verifies() {
    let Some(program) = session::program() else {
        println!("skipped: no program beside the tests; `cargo build -p portcullis` makes it");
        return;
    };
    let seed =
        std::env::var("TORTURE_SEED").map_or_else(|_| SplitMix64::fresh_seed(), |text| text.parse().unwrap());
    println!("TORTURE_SEED={seed}");
    let (seen, lab) = kill::run(&program, KILLS, seed).unwrap();
    println!("{seen:?}");
    assert!(seen.problems.is_empty(), "{}", seen.problems.join("\n"));
    assert!(seen.acknowledged > 0 && seen.kills == KILLS);

    // The same check fails when a record is taken out.
    let log = lab.secure().join("audit/audit.jsonl");
    let text = std::fs::read_to_string(&log).unwrap();
    let without_second: Vec<&str> =
        text.lines().enumerate().filter(|(at, _)| *at != 1).map(|(_, line)| line).collect();
    std::fs::write(&log, without_second.join("\n") + "\n").unwrap();
    let told = lab.succeeds(&["audit", "verify"]).unwrap_err().to_string();
    assert!(told.contains("audit.jsonl, line 2 (record 3): record 2 is missing"), "{told}");
}
