//! The rows: what each runs, and where its figures come from. A new row is an entry here.

use super::table::{self, Figure};
use super::{Told, fuzz};
use crate::dist;
use crate::layout::Layout;
use crate::run;
use anyhow::Result;
use std::process::Command;

pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) work: fn(&Told<'_>) -> Work,
    /// Reads the figures from all that was printed.
    pub(crate) figures: fn(&str) -> Vec<Figure>,
}

/// What a row does here.
pub(crate) enum Work {
    Run(Vec<Command>),
    /// It cannot run on this machine, for this reason.
    Skip(String),
}

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "kill",
        what: "the program is killed while it writes",
        work: |told| torture(told, "kill", 1_000),
        figures: table::marked,
    },
    Row {
        name: "faults",
        what: "the Nth write, flush, rename or open fails",
        work: |told| torture(told, "faults", 1_000),
        figures: table::marked,
    },
    Row {
        name: "full-disk",
        what: "no room for the record of a call",
        work: |told| torture(told, "full-disk", 100),
        figures: table::marked,
    },
    Row {
        name: "servers",
        what: "servers that misbehave behind the hub, and a hundred of them at once",
        work: |told| torture(told, "servers", 9),
        figures: table::marked,
    },
    Row {
        name: "audit",
        what: "records of 10,000 calls at once, and 1,000 edits of a log",
        work: |told| {
            let names = [
                "audit::tamper_tests::ten_thousand_calls_at_once_leave_twenty_thousand_records",
                "audit::tamper_tests::a_thousand_edits_are_found_and_the_first_bad_line_is_named",
                "audit::tamper_tests::verify_speed",
            ];
            tests(told, &["--release", "-p", "portcullis-guard", "--lib"], &names)
        },
        figures: table::marked,
    },
    Row {
        name: "redaction",
        what: "secrets in every encoding to every sink, and what looking for them costs",
        work: |told| {
            let names = ["redact::leak_tests::", "redact::speed_tests::"];
            tests(told, &["--release", "-p", "portcullis-guard", "--lib"], &names)
        },
        figures: table::marked,
    },
    Row {
        name: "guesses",
        what: "10,000 wrong tokens, and a client that has the right one",
        work: |told| abuse(told, &["guesses"]),
        figures: table::marked,
    },
    Row {
        name: "slow",
        what: "1,000 connections with slow headers and 1,000 with slow bodies",
        work: |told| abuse(told, &["slow"]),
        figures: table::marked,
    },
    Row {
        name: "links",
        what: "links that lead outside, swapped in while files are read and written",
        work: |told| {
            let (seconds, seed) = (told.count(60).to_string(), told.seed.to_string());
            abuse(told, &["links", &seconds, &seed])
        },
        figures: table::marked,
    },
    Row {
        name: "traversal",
        what: "paths of public lists and our own, read, listed and written",
        work: |told| {
            tests(told, &["-p", "portcullis-core", "--test", "it"], &["attacks::traversal_corpus::"])
        },
        figures: table::marked,
    },
    Row {
        name: "frames",
        what: "mutated messages and JSON files, on stdio and over HTTP",
        work: |told| {
            let names = ["attacks::mutated_frames::", "attacks::json_suite::"];
            tests(told, &["-p", "portcullis", "--test", "it"], &names)
        },
        figures: table::marked,
    },
    Row {
        name: "scripts",
        what: "hostile scripts, two at once, and how long a trivial one takes",
        work: |told| tests(told, &["-p", "portcullis", "--test", "it"], &["scripts::figures::"]),
        figures: table::marked,
    },
    Row {
        name: "fuzz",
        what: "frames, redaction, paths and configuration with hostile input",
        work: fuzz::work,
        figures: fuzz::figures,
    },
];

const TOOLS: [&str; 7] =
    ["build", "--release", "--bins", "--package", "portcullis-testkit", "--package", "portcullis-hostile"];

/// Builds the hub as it is shipped, and what tortures it.
pub(crate) fn build(layout: &Layout) -> Result<()> {
    dist::build(layout)?;
    run::prepare("build", layout.cargo().args(TOOLS), &layout.torture("build.log"), run::BUILD_LIMIT)
}

/// Runs a part of the program `torture` (`crates/testkit`).
fn torture(told: &Told<'_>, part: &str, usual: u64) -> Work {
    let mut command = told.layout.command(told.layout.released("torture"));
    command.env("PORTCULLIS_BIN", told.layout.shipped("portcullis"));
    command.args([part, &told.count(usual).to_string(), &told.seed.to_string()]);
    Work::Run(vec![command])
}

/// Runs a part of the program `abuse` (`crates/testkit`).
fn abuse(told: &Told<'_>, words: &[&str]) -> Work {
    let mut command = told.layout.command(told.layout.released("abuse"));
    command.arg(words[0]);
    if words[0] != "links" {
        command.arg(told.layout.shipped("portcullis"));
    }
    command.args(&words[1..]);
    Work::Run(vec![command])
}

/// Runs tests that print figures. Those that only measure are ignored otherwise.
fn tests(told: &Told<'_>, place: &[&str], names: &[&str]) -> Work {
    let mut command = told.layout.cargo();
    command.arg("test").args(place).arg("--").args(names).args([
        "--nocapture",
        "--include-ignored",
        "--test-threads=1",
    ]);
    command.env("AUDIT_SEED", told.seed.to_string()).env("TORTURE_SEED", told.seed.to_string());
    // For those that measure the hub itself.
    command.env("PORTCULLIS_BIN", told.layout.shipped("portcullis"));
    Work::Run(vec![command])
}
