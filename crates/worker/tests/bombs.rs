//! Hostile scripts are stopped, in time and within their memory.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use portcullis_script::{Done, Failure, Job, NoHost, Pool, PoolSettings, Strictness};
use portcullis_testkit::bombs::{Bomb, Watch, bombs};
use serde_json::value::RawValue;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const MEGABYTE: u64 = 1024 * 1024;
const MEMORY: u64 = 128 * MEGABYTE;
const TIMEOUT: Duration = Duration::from_secs(2);
/// The promise is 2.5 s on a quiet machine; the tests run on busy ones.
const STOPPED_WITHIN: Duration = Duration::from_secs(8);

fn pool(word: &str) -> Pool {
    Pool::new(PoolSettings {
        program: env!("CARGO_BIN_EXE_script_worker").into(),
        arguments: vec![word.to_owned()],
        memory_bytes_max: MEMORY,
        strictness: Strictness::Required,
        warm: 0,
        running_max: 2,
        idle: Duration::from_secs(1),
    })
}

fn job(name: &str, source: String) -> Job {
    Job {
        name: name.to_owned(),
        source,
        function: None,
        args: RawValue::from_string("[]".to_owned()).unwrap(),
        timeout: TIMEOUT,
        overall: TIMEOUT,
        check_only: false,
    }
}

async fn run(pool: &Pool, name: &str, source: String) -> (Result<Done, Failure>, Duration, u64) {
    run_job(pool, job(name, source)).await
}

async fn run_job(pool: &Pool, job: Job) -> (Result<Done, Failure>, Duration, u64) {
    let (watch, began) = (Watch::begin(std::process::id()), Instant::now());
    let done = pool.run(job, &NoHost, &CancellationToken::new()).await;
    (done, began.elapsed(), watch.end())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bomb_is_stopped() {
    let pool = pool("worker");
    let mut slowest = Duration::ZERO;
    let mut largest = 0;
    for Bomb { name, source } in bombs() {
        let (done, took, peak) = run(&pool, &name, source).await;
        let told = match &done {
            Ok(done) => format!("value of {} bytes", done.value.get().len()),
            Err(failure) => failure.to_string().chars().take(70).collect(),
        };
        eprintln!("{name:<26} {:>6} ms {:>4} MB  {told}", took.as_millis(), peak / MEGABYTE);
        assert!(took < STOPPED_WITHIN, "{name} took {took:?}");
        assert!(peak <= MEMORY, "{name} took {} MB", peak / MEGABYTE);
        assert!(
            !matches!(done, Err(Failure::Broke(_) | Failure::NoProcess(_) | Failure::NoSandbox(_))),
            "{name}: {done:?}"
        );
        (slowest, largest) = (slowest.max(took), largest.max(peak));
    }
    eprintln!("figure: slowest {} ms, largest {} MB", slowest.as_millis(), largest / MEGABYTE);
    // And the next one is as good as ever.
    let (done, ..) = run(&pool, "good", "2 + 2".to_owned()).await;
    assert_eq!(done.unwrap().value.get(), "4");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_language_alone_does_not_stop_them() {
    // With all the time it wants: a busy machine hands memory out slowly.
    let (timeout, overall) = (Duration::from_secs(60), Duration::from_secs(60));
    let hungry = || Job { timeout, overall, ..job("hungry", "x = list(range(25000000))\nlen(x)".to_owned()) };
    let (done, _, peak) = run_job(&pool("worker"), hungry()).await;
    // By the evaluator, which panics where it gets none, or by the end of its process.
    assert!(matches!(done, Err(Failure::Memory(_) | Failure::Script(..))), "{done:?}");
    assert!(peak <= MEMORY, "{}", peak / MEGABYTE);
    // The weak variant has the language's own limit of memory, and takes as much as it likes.
    let (_, _, peak) = run_job(&pool("weak"), hungry()).await;
    assert!(peak > MEMORY, "{}", peak / MEGABYTE);

    // Time: one call of a builtin, in which nothing is looked at.
    let busy = || {
        "def f():\n    x = 7\n    for i in range(24):\n        x = x * x\n    return len(str(x))\nf()"
            .to_owned()
    };
    let (done, took, _) = run(&pool("worker"), "busy", busy()).await;
    assert!(matches!(done, Err(Failure::Time(_) | Failure::Memory(_))), "{done:?}");
    assert!(took < STOPPED_WITHIN, "{took:?}");
    // The weak variant is stopped by the hub only: the script itself does not hear that its time is up.
    let (done, ..) = run(&pool("weak"), "busy", busy()).await;
    assert!(matches!(done, Err(Failure::Time(_))), "{done:?}");
}
