//! Feeds every target by mutation for a while: `hostile SECONDS SEED`. What `cargo xtask torture` runs where there is no
//! cargo-fuzz.

#![expect(clippy::print_stdout, reason = "whoever starts this reads the figures from here")]

use anyhow::{Context, Result, bail};
use portcullis_hostile::TARGETS;
use portcullis_hostile::corpus::feed;
use portcullis_testkit::torture::Figure;
use std::time::{Duration, Instant};

/// What one thread does in a minute on a slow machine, by far.
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
                println!("{}", Figure::at_least(what, fed as f64, INPUTS_MIN, ""));
            }
            Err((input, problem)) => {
                failed += 1;
                println!("{}: {problem}\n{:?}", target.name, String::from_utf8_lossy(&input));
                println!("{}", Figure::exactly(format!("{}: inputs that fail", target.name), 1, 0));
            }
        }
    }
    if failed > 0 {
        bail!("{failed} targets failed");
    }
    Ok(())
}
