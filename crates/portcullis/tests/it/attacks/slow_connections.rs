//! Hundreds of connections that take their time. The full figure is `abuse slow` of the test kit.

use crate::support::BINARY;
use portcullis_testkit::abuse::{Slow, SlowFigures, Verdict, slow_connections};
use portcullis_testkit::process::{Home, UNHURRIED};
use std::time::Duration;

/// Enough to be felt; few enough for any machine.
const SHORT: Slow = Slow { headers: 100, bodies: 100, closed_within: Duration::from_secs(6) };

async fn run(secs: u64, slow: Slow) -> SlowFigures {
    let home = Home::bare(BINARY);
    home.configure(&format!("{UNHURRIED}[limits]\nheaders_secs = {secs}\nbody_secs = {secs}\n"));
    home.write("a.md", "text");
    let hub = home.serve().await;
    let figures = slow_connections(hub.address, &hub.token, slow).await;
    eprintln!("{figures}");
    figures
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn are_closed_and_nobody_notices() {
    let figures = run(2, SHORT).await;
    assert_eq!(figures.faults(), Vec::<String>::new());
    // Not before their time either.
    assert!(figures.longest >= Duration::from_secs(2), "{figures}");
}

/// The test can fail: a hub that waits for ten minutes keeps all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn are_kept_by_a_hub_without_the_limit() {
    let figures = run(600, Slow { closed_within: Duration::from_secs(3), ..SHORT }).await;
    assert_eq!(figures.still_open, figures.slow, "{figures}");
    assert!(!figures.faults().is_empty());
}
