//! What scripts cost: those that are hostile, and one that does next to nothing. `cargo xtask torture --only scripts`

use super::{approve, run_script, write};
use crate::support::{BINARY, http, text};
use parking_lot::Mutex;
use portcullis_testkit::bombs::{Bomb, MemoryWatch, bombs};
use portcullis_testkit::process::{TestHome, UNHURRIED};
use portcullis_tools::scripts::SOURCE_BYTES_MAX;
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;

fn figure(what: &str, measured: u128, unit: &str, most: u128) {
    let verdict = if measured <= most { "ok" } else { "no" };
    eprintln!("figure:\t{what}\t{measured} {unit}\t≤ {most} {unit}\t{verdict}");
}

/// A home for the program that is measured, which `PORTCULLIS_BIN` names: the one that was built with these tests is slow.
fn home() -> TestHome {
    TestHome::new(std::env::var_os("PORTCULLIS_BIN").unwrap_or_else(|| BINARY.into()))
}

/// What hostile scripts cost everyone else.
struct Cost {
    slowest_ms: u128,
    worker_mb: u128,
    hub_mb: u128,
    pings: usize,
    ping_p99_ms: u128,
}

/// Throws all of them, so many at once.
async fn thrown(bombs: Vec<Bomb>, at_once: usize) -> Cost {
    let home = home();
    home.configure(UNHURRIED);
    let hub = home.serve().await;
    let mut pings = http(&hub, "2025-11-25").await;
    let mut throwers = Vec::new();
    let left = Arc::new(Mutex::new(bombs));
    for _ in 0..at_once {
        let (mut client, left) = (http(&hub, "2026-07-28").await, left.clone());
        let _ = client.call("script_exec", json!({ "code": "1" })).await;
        throwers.push(async move {
            let mut slowest = 0;
            loop {
                let next = left.lock().pop();
                let Some(Bomb { name, source }) = next else { return slowest };
                let began = Instant::now();
                let told = client.call("script_exec", json!({ "code": source })).await;
                eprintln!("{name:<26} {:>5} ms  {:.70}", began.elapsed().as_millis(), text(&told));
                slowest = slowest.max(began.elapsed().as_millis());
            }
        });
    }
    hub.process.forget_peak();
    let before = hub.process.memory();
    let watch = MemoryWatch::begin(hub.process.pid());
    let throwers: Vec<_> = throwers.into_iter().map(tokio::spawn).collect();
    let mut times = Vec::new();
    while times.is_empty() || !throwers.iter().all(tokio::task::JoinHandle::is_finished) {
        let began = Instant::now();
        pings.result("ping", json!({})).await;
        times.push(began.elapsed().as_millis());
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    let mut slowest_ms = 0;
    for thrower in throwers {
        slowest_ms = slowest_ms.max(thrower.await.unwrap());
    }
    times.sort_unstable();
    let hub_kb = hub.process.memory().peak_kb.saturating_sub(before.now_kb);
    Cost {
        slowest_ms,
        worker_mb: u128::from(watch.end().div_ceil(1024 * 1024)),
        hub_mb: u128::from(hub_kb.div_ceil(1024)),
        pings: times.len(),
        ping_p99_ms: times[times.len() * 99 / 100],
    }
}

/// Every hostile script, two at once, while somebody else uses the hub. The figures are those of a quiet machine.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: cargo xtask torture --only scripts"]
async fn hostile_scripts_disturb_nobody() {
    let (short, long): (Vec<Bomb>, Vec<Bomb>) =
        bombs().into_iter().partition(|bomb| bomb.source.len() <= SOURCE_BYTES_MAX);
    let count = short.len();
    let cost = thrown(short, 2).await;
    figure(&format!("slowest of {count} hostile scripts, two at once"), cost.slowest_ms, "ms", 2_500);
    figure("most memory of a worker", cost.worker_mb, "MB", 128);
    figure("the hub's memory meanwhile, more than before", cost.hub_mb, "MB", 5);
    figure(&format!("p99 of {} pings meanwhile", cost.pings), cost.ping_p99_ms, "ms", 50);

    // Those that are too long to be scripts are requests of some megabytes, and refused without another copy of them.
    let (count, bytes) = (long.len(), long.iter().map(|bomb| bomb.source.len()).max().unwrap_or(0));
    let cost = thrown(long, 1).await;
    let what = format!("slowest of {count} that are too long for a script, up to {bytes} bytes");
    figure(&what, cost.slowest_ms, "ms", 2_500);
    figure("the hub's memory while those are refused, more than before", cost.hub_mb, "MB", 5);
}

/// How long a trivial script takes from call to answer.
#[tokio::test]
#[ignore = "a measurement: cargo xtask torture --only scripts"]
async fn a_trivial_script_is_quick() {
    let home = home();
    home.configure(UNHURRIED);
    write(&home, "x.star", "result = 2 + 2\n");
    let hub = home.serve().await;
    approve(&home, "x", &[]).await;
    let mut client = http(&hub, "2026-07-28").await;
    let mut times = Vec::new();
    for _ in 0..200 {
        let began = Instant::now();
        assert_eq!(text(&run_script(&mut client, "x").await), "4");
        times.push(began.elapsed().as_micros());
    }
    times.sort_unstable();
    figure("a trivial script, middle of 200", times[100], "µs", 8_000);
    figure("a trivial script, p99", times[197], "µs", 50_000);
}
