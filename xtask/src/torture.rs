//! `cargo xtask torture`: the long forms of the stress tests, with one table of figures.
//!
//! A row is one or more programs. They print lines that begin with `figure:`, and all output goes to
//! `target/torture/NAME.log`. Everything random follows from the seed that is printed first.

mod fuzz;
mod rows;
mod table;

use crate::layout::Layout;
use crate::run::{self, ProgramExit};
use anyhow::{Context, Result};
use rows::{ROWS, RowPlan};
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant};
use table::{FigureRow, TortureReport};

/// Timeout of one program of a row, its build included.
const ROW_LIMIT: Duration = Duration::from_secs(40 * 60);
/// Approximate duration of all rows, without building.
pub(crate) const MINUTES: u64 = 10;

/// The parsed options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TortureSettings {
    pub(crate) seed: Option<u64>,
    pub(crate) only: Vec<String>,
    pub(crate) minutes: u64,
    pub(crate) as_json: bool,
}

/// The context of a row.
pub(crate) struct RowContext<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) seed: u64,
    minutes: u64,
}

impl RowContext<'_> {
    /// Scales a count from the default duration to the requested one.
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

/// Runs the rows, and returns whether all of them meet their targets.
pub(crate) fn run(layout: &Layout, settings: &TortureSettings) -> Result<bool> {
    let seed = settings
        .seed
        .unwrap_or_else(|| std::collections::hash_map::RandomState::new().build_hasher().finish());
    // Stdout is for the table, or for JSON.
    eprintln!("seed {seed}");
    let context = RowContext { layout, seed, minutes: settings.minutes };
    rows::build(layout)?;
    let mut report = TortureReport::new(seed);
    for row in ROWS {
        if !settings.only.is_empty() && !settings.only.iter().any(|name| name == row.name) {
            continue;
        }
        eprintln!("{}: {}", row.name, row.what);
        let begun = Instant::now();
        let figures = perform(&context, row)?;
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

fn perform(context: &RowContext<'_>, row: &rows::TortureRow) -> Result<Vec<FigureRow>> {
    let log = context.layout.torture(&format!("{}.log", row.name));
    run::start_log(&log)?;
    let commands = match (row.work)(context) {
        RowPlan::Run(commands) => commands,
        RowPlan::Skip(reason) => return Ok(vec![FigureRow::skipped(&reason)]),
    };
    let mut failures = Vec::new();
    for mut command in commands {
        let outcome = run::logged(&mut command, &log, ROW_LIMIT, |_| ())?;
        if !outcome.passed() {
            let shown = context.layout.shown(&log);
            let how = match outcome {
                ProgramExit::Ended(status) => status.to_string(),
                ProgramExit::TimedOut(_) => outcome.to_string(),
            };
            failures.push(FigureRow::failed(&format!("{how}; see {shown}")));
        }
    }
    let text = fs::read(&log).with_context(|| log.display().to_string())?;
    let mut figures = (row.figures)(&String::from_utf8_lossy(&text));
    if figures.is_empty() && failures.is_empty() {
        failures.push(FigureRow::failed("it counted nothing"));
    }
    figures.extend(failures);
    Ok(figures)
}
