//! `cargo xtask torture`: the long forms of the hard tests, and one table of what they counted.
//!
//! A row is one or more programs. They print lines that begin with `figure:` (`portcullis_testkit::torture::Figure`),
//! and everything they print goes to `target/torture/NAME.log`. Whatever is random follows from the seed that is
//! printed first.

mod fuzz;
mod rows;
mod table;

use crate::layout::Layout;
use crate::run::{self, Outcome};
use anyhow::{Context, Result};
use rows::{ROWS, Work};
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant};
use table::{Figure, Report};

/// How long one program of a row may take, its build included.
const ROW_LIMIT: Duration = Duration::from_secs(40 * 60);
/// How long all rows take about, apart from building.
pub(crate) const MINUTES: u64 = 10;

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) seed: Option<u64>,
    pub(crate) only: Vec<String>,
    pub(crate) minutes: u64,
    pub(crate) as_json: bool,
}

/// What a row is told.
pub(crate) struct Told<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) seed: u64,
    minutes: u64,
}

impl Told<'_> {
    /// Returns how many there are of something of which the usual run has `usual`.
    pub(crate) fn count(&self, usual: u64) -> u64 {
        (usual * self.minutes / MINUTES).max(1)
    }
}

pub(crate) fn is_row(name: &str) -> bool {
    ROWS.iter().any(|row| row.name == name)
}

pub(crate) fn names() -> String {
    ROWS.iter().map(|row| row.name).collect::<Vec<_>>().join(", ")
}

/// Runs the rows, and returns whether all of them are as they should be.
pub(crate) fn run(layout: &Layout, settings: &Settings) -> Result<bool> {
    let seed = settings
        .seed
        .unwrap_or_else(|| std::collections::hash_map::RandomState::new().build_hasher().finish());
    // Standard output is for the table, or for JSON.
    eprintln!("seed {seed}");
    let told = Told { layout, seed, minutes: settings.minutes };
    rows::build(layout)?;
    let mut report = Report::new(seed);
    for row in ROWS {
        if !settings.only.is_empty() && !settings.only.iter().any(|name| name == row.name) {
            continue;
        }
        eprintln!("{}: {}", row.name, row.what);
        let begun = Instant::now();
        let figures = perform(&told, row)?;
        let failed = figures.iter().any(|figure| figure.ok == Some(false));
        let word = if failed { "FAILED" } else { "done" };
        eprintln!("{}: {word}, {:.0} s", row.name, begun.elapsed().as_secs_f32());
        report.add(row.name, figures);
    }
    if settings.as_json {
        println!("{}", report.json());
    } else {
        println!("seed {seed}\n{report}");
    }
    Ok(report.is_good())
}

fn perform(told: &Told<'_>, row: &rows::Row) -> Result<Vec<Figure>> {
    let log = told.layout.torture(&format!("{}.log", row.name));
    run::start_log(&log)?;
    let commands = match (row.work)(told) {
        Work::Run(commands) => commands,
        Work::Skip(reason) => return Ok(vec![Figure::skipped(&reason)]),
    };
    let mut failures = Vec::new();
    for mut command in commands {
        let outcome = run::logged(&mut command, &log, ROW_LIMIT, |_| ())?;
        if !outcome.passed() {
            let shown = told.layout.shown(&log);
            let how = match outcome {
                Outcome::Ended(status) => status.to_string(),
                Outcome::TimedOut(_) => outcome.to_string(),
            };
            failures.push(Figure::failed(&format!("{how}; see {shown}")));
        }
    }
    let text = fs::read(&log).with_context(|| log.display().to_string())?;
    let mut figures = (row.figures)(&String::from_utf8_lossy(&text));
    if figures.is_empty() && failures.is_empty() {
        failures.push(Figure::failed("it counted nothing"));
    }
    figures.extend(failures);
    Ok(figures)
}
