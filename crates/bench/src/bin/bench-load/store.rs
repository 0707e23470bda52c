//! What a change of the database costs, and what a look at what is in it.

use crate::figure::{BenchFigure, median, millis};
use anyhow::{Context, Result};
use portcullis_store::servers::ServerOverrides;
use std::time::Instant;

/// The targets. A change is on disk and in force in every process when it returns; a look is a look into memory.
const CHANGE_MS_MAX: f64 = 5.0;
const LOOK_US_MAX: f64 = 1.0;
const CHANGES: usize = 200;
const LOOKS: u32 = 100_000;

pub(crate) fn measure() -> Result<Vec<BenchFigure>> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let overrides = ServerOverrides::open(&portcullis_store::open(folder.path(), &[])?);
    let mut times = (0..CHANGES)
        .map(|n| {
            let began = Instant::now();
            overrides.set("git", Some(n % 2 == 0))?;
            Ok(millis(began.elapsed()))
        })
        .collect::<Result<Vec<f64>>>()?;
    let began = Instant::now();
    for _ in 0..LOOKS {
        std::hint::black_box(overrides.of("git"));
    }
    let look = millis(began.elapsed()) * 1e3 / f64::from(LOOKS);
    Ok(vec![
        BenchFigure::at_most("a change of the database", median(&mut times), CHANGE_MS_MAX, "ms"),
        BenchFigure::at_most("a look at what the database holds", look, LOOK_US_MAX, "µs"),
    ])
}
