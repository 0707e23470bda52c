//! Mutation fuzzing of every target for a given time: `hostile SECONDS SEED`. `cargo xtask torture` runs this
//! where cargo-fuzz is missing.

#![expect(clippy::print_stdout, reason = "the figures are read from stdout")]

use anyhow::{Context, Result, bail};
use portcullis_bench::torture::TortureFigure;
use portcullis_hostile::TARGETS;
use portcullis_hostile::corpus::feed;
use std::time::{Duration, Instant};

/// Far below what one thread does in a minute on a slow machine.
const INPUTS_MIN: f64 = 10_000.0;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut number =
        || args.next().context("expected SECONDS and SEED")?.parse::<u64>().context("expected a number");
    let (seconds, seed) = (number()?, number()?);
    let mut failed = 0;
    for target in &TARGETS {
        let end = Instant::now() + Duration::from_secs(seconds);
        match feed(target, seed, |_| Instant::now() < end) {
            #[expect(clippy::cast_precision_loss, reason = "it is shown")]
            Ok(fed) => {
                let what = format!("{}: inputs by mutation, all well", target.name);
                println!("{}", TortureFigure::at_least(what, fed as f64, INPUTS_MIN, ""));
            }
            Err((input, problem)) => {
                failed += 1;
                println!("{}: {problem}\n{:?}", target.name, String::from_utf8_lossy(&input));
                println!("{}", TortureFigure::exactly(format!("{}: inputs that fail", target.name), 1, 0));
            }
        }
    }
    if failed > 0 {
        bail!("{failed} targets failed");
    }
    Ok(())
}
