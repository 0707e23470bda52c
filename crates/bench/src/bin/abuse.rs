//! Abuses a hub at full scale and prints one line per kind, with figures and verdict.
//!
//! `abuse guesses PORTCULLIS` sends 10,000 wrong tokens; `abuse slow PORTCULLIS` opens 2,000 slow
//! connections; `abuse links SECONDS [SEED]` swaps links under the file root and under the tools. The tests
//! run short forms of all.

use anyhow::{Result, bail};
use portcullis_bench::abuse::{
    AbuseReport, GatedFileAccess, LinkSwapPlan, SlowConnectionPlan, SwapFigures, TokenGuessPlan,
    guess_tokens, slow_connections, swap_links,
};
use portcullis_core::Root;
use portcullis_testkit::process::TestHome;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::time::Duration;

/// Fewest reads, writes and lists in a race of a minute.
const OPERATIONS_MIN: usize = 100_000;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Runtime::new()?;
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["guesses", portcullis] => runtime.block_on(async {
            let home = TestHome::new(portcullis);
            let hub = home.serve().await;
            let guessing = TokenGuessPlan { guesses: 10_000, connections: 16, seed: 1 };
            judge(
                "guessed tokens",
                "0 let in, ≤ 60 looked at",
                &guess_tokens(hub.address, &hub.token, guessing).await,
            )
        }),
        ["slow", portcullis] => runtime.block_on(async {
            raise_open_files()?;
            let home = TestHome::new(portcullis);
            let hub = home.serve().await;
            judge(
                "slow connections",
                "closed ≤ 15 s, p99 ≤ 100 ms",
                &slow_connections(hub.address, &hub.token, SlowConnectionPlan::FULL).await,
            )
        }),
        ["links", seconds] => links(seconds, "1"),
        ["links", seconds, seed] => links(seconds, seed),
        _ => bail!("see the head of abuse.rs for what it can be told"),
    }
}

#[expect(clippy::expect_used, reason = "a helper that fails is a test that fails")]
fn links(seconds: &str, seed: &str) -> Result<()> {
    let duration = Duration::from_secs(seconds.parse()?);
    let swapping = LinkSwapPlan { duration, threads: 2, seed: seed.parse()? };
    let root = swap_links(|inside| Root::open(inside).expect("the folder was just made"), swapping);
    enough(&root, duration)?;
    judge("links swapped under the root", "0 escapes", &root)?;
    judge("links swapped under the tools", "0 escapes", &swap_links(GatedFileAccess::open, swapping))
}

fn enough(figures: &SwapFigures, duration: Duration) -> Result<()> {
    if duration >= Duration::from_secs(60) && figures.operations() < OPERATIONS_MIN {
        bail!("only {} operations: {figures}", figures.operations());
    }
    Ok(())
}

/// Every connection of the test is an open file.
fn raise_open_files() -> Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

#[expect(clippy::print_stdout, reason = "the figures are read from stdout")]
fn judge(what: &str, target: &str, figures: &dyn AbuseReport) -> Result<()> {
    let faults = figures.faults();
    let verdict = if faults.is_empty() { "ok" } else { "failed" };
    // The format that `cargo xtask torture` parses.
    println!("figure:\t{what}\t{figures}\t{target}\t{verdict}");
    if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("; ")) }
}
