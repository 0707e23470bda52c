//! `cargo xtask calendars`: compares the events of calendars with a reference implementation.
//!
//! The reference (Python) generates calendars from a seed and lists their events; a test of `crates/tools`
//! reads the same calendars and compares.

use crate::layout::Layout;
use crate::{python, run};
use anyhow::{Context, Result};
use std::time::Duration;

/// Generated calendars, besides those modelled on well-known programs.
const COUNT: &str = "400";
/// The same calendars each time; another seed makes others.
const SEED: &str = "7";
const REFERENCE_LIMIT: Duration = Duration::from_secs(5 * 60);

/// Compares, and returns whether nothing differs.
pub(crate) fn run(layout: &Layout, seed: Option<&str>) -> Result<bool> {
    let python = python::install(layout, "calendars")?;
    let found = layout.work("calendars.jsonl");
    let mut reference = layout.command(python);
    reference.arg("tests/calendars/reference.py").args([COUNT, seed.unwrap_or(SEED)]).arg(&found);
    let outcome = run::shown(&mut reference, REFERENCE_LIMIT)?;
    if !outcome.passed() {
        println!("the reference did not get through: {outcome}");
        return Ok(false);
    }
    let log = layout.log("calendars");
    run::start_log(&log)?;
    let mut test = layout.cargo();
    // Built as all tests are: of one package alone, cargo chooses fewer features, and compiles its dependencies again.
    test.args(["test", "--workspace", "--lib", "--locked", "--"]);
    test.args([
        "--exact",
        "calendar::tests::reference::the_same_takes_place_as_by_the_reference",
        "--nocapture",
    ]);
    test.env("PORTCULLIS_TEST_CALENDARS", &found);
    let outcome =
        run::logged(&mut test, &log, run::BUILD_LIMIT, |took| println!("calendars: {} s …", took.as_secs()))?;
    let output = std::fs::read_to_string(&log).with_context(|| log.display().to_string())?;
    let figures: Vec<&str> = output.lines().filter(|line| line.starts_with("figure: ")).collect();
    // A comparison without figures did not run.
    if outcome.passed() && !figures.is_empty() {
        println!("{}", figures.join("\n"));
        return Ok(true);
    }
    println!("{output}\nthe comparison failed: {outcome}");
    Ok(false)
}
