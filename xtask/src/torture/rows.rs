//! The rows: what each runs, and how its figures are parsed. A new row is an entry here.

use super::table::{self, FigureRow};
use super::{RowContext, fuzz};
use crate::dist;
use crate::layout::Layout;
use crate::run;
use anyhow::Result;
use std::process::Command;

pub(crate) struct TortureRow {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) work: fn(&RowContext<'_>) -> RowPlan,
    /// Parses the figures from the output.
    pub(crate) figures: fn(&str) -> Vec<FigureRow>,
}

/// What a row does on this machine.
pub(crate) enum RowPlan {
    Run(Vec<Command>),
    /// It cannot run here, for this reason.
    Skip(String),
}

pub(crate) const ROWS: &[TortureRow] = &[
    TortureRow {
        name: "kill",
        what: "SIGKILL at random moments during writes",
        work: |context| torture(context, "kill", 1_000),
        figures: table::marked,
    },
    TortureRow {
        name: "kill-database",
        what: "SIGKILL at random moments during changes of the database",
        work: |context| torture(context, "kill-database", 1_000),
        figures: table::marked,
    },
    TortureRow {
        name: "kill-import",
        what: "SIGKILL at each step of the import of an earlier version's files",
        work: |context| torture(context, "kill-import", 1_000),
        figures: table::marked,
    },
    TortureRow {
        name: "faults",
        what: "fault injection: the Nth write, fsync, rename or open fails",
        work: |context| torture(context, "faults", 1_000),
        figures: table::marked,
    },
    TortureRow {
        name: "full-disk",
        what: "full disk: no room for the audit record of a call",
        work: |context| torture(context, "full-disk", 100),
        figures: table::marked,
    },
    TortureRow {
        name: "servers",
        what: "misbehaving upstream servers, and a hundred servers at once",
        work: |context| torture(context, "servers", 9),
        figures: table::marked,
    },
    TortureRow {
        name: "audit",
        what: "audit records of 10,000 concurrent calls, and 1,000 edits of a log",
        work: |context| {
            let names = [
                "audit::tamper_tests::ten_thousand_calls_at_once_leave_twenty_thousand_records",
                "audit::tamper_tests::a_thousand_edits_are_found_and_the_first_bad_line_is_named",
                "audit::tamper_tests::verify_speed",
            ];
            tests(context, &["--release", "-p", "portcullis-guard", "--lib"], &names)
        },
        figures: table::marked,
    },
    TortureRow {
        name: "redaction",
        what: "redaction: secrets in every encoding to every sink, and its cost",
        work: |context| {
            let names = ["redact::leak_tests::", "redact::speed_tests::"];
            tests(context, &["--release", "-p", "portcullis-guard", "--lib"], &names)
        },
        figures: table::marked,
    },
    TortureRow {
        name: "guesses",
        what: "10,000 guessed tokens, and an honest client",
        work: |context| abuse(context, &["guesses"]),
        figures: table::marked,
    },
    TortureRow {
        name: "slow",
        what: "1,000 connections with slow headers and 1,000 with slow bodies",
        work: |context| abuse(context, &["slow"]),
        figures: table::marked,
    },
    TortureRow {
        name: "links",
        what: "TOCTOU: links to the outside, swapped in during reads and writes",
        work: |context| {
            let (seconds, seed) = (context.count(60).to_string(), context.seed.to_string());
            abuse(context, &["links", &seconds, &seed])
        },
        figures: table::marked,
    },
    TortureRow {
        name: "traversal",
        what: "path traversal: paths of public lists and our own, read, listed and written",
        work: |context| {
            tests(context, &["-p", "portcullis-core", "--test", "it"], &["attacks::traversal_corpus::"])
        },
        figures: table::marked,
    },
    TortureRow {
        name: "frames",
        what: "mutated messages and JSON files, on stdio and over HTTP",
        work: |context| {
            let names = ["attacks::mutated_frames::", "attacks::json_suite::"];
            tests(context, &["-p", "portcullis", "--test", "it"], &names)
        },
        figures: table::marked,
    },
    TortureRow {
        name: "scripts",
        what: "hostile scripts, two at once, and the latency of a trivial one",
        work: |context| tests(context, &["-p", "portcullis", "--test", "it"], &["scripts::figures::"]),
        figures: table::marked,
    },
    TortureRow {
        name: "fuzz",
        what: "fuzzing of frames, redaction, paths and configuration",
        work: fuzz::work,
        figures: fuzz::figures,
    },
];

const TOOLS: [&str; 7] =
    ["build", "--release", "--bins", "--package", "portcullis-bench", "--package", "portcullis-hostile"];

/// Builds the hub as shipped, and the programs that stress it.
pub(crate) fn build(layout: &Layout) -> Result<()> {
    dist::build(layout)?;
    run::prepare("build", layout.cargo().args(TOOLS), &layout.torture("build.log"), run::BUILD_LIMIT)
}

/// Runs a part of the program `torture`.
fn torture(context: &RowContext<'_>, part: &str, usual: u64) -> RowPlan {
    let mut command = context.layout.command(context.layout.released("torture"));
    command.env("PORTCULLIS_BIN", context.layout.shipped("portcullis"));
    command.args([part, &context.count(usual).to_string(), &context.seed.to_string()]);
    RowPlan::Run(vec![command])
}

/// Runs a part of the program `abuse` (`crates/bench`).
fn abuse(context: &RowContext<'_>, words: &[&str]) -> RowPlan {
    let mut command = context.layout.command(context.layout.released("abuse"));
    command.arg(words[0]);
    if words[0] != "links" {
        command.arg(context.layout.shipped("portcullis"));
    }
    command.args(&words[1..]);
    RowPlan::Run(vec![command])
}

/// Runs tests that print figures, including the `#[ignore]`d ones that only measure.
fn tests(context: &RowContext<'_>, target: &[&str], names: &[&str]) -> RowPlan {
    let mut command = context.layout.cargo();
    command.arg("test").args(target).arg("--").args(names).args([
        "--nocapture",
        "--include-ignored",
        "--test-threads=1",
    ]);
    command.env("AUDIT_SEED", context.seed.to_string()).env("TORTURE_SEED", context.seed.to_string());
    // For tests that measure the hub itself.
    command.env("PORTCULLIS_BIN", context.layout.shipped("portcullis"));
    RowPlan::Run(vec![command])
}
