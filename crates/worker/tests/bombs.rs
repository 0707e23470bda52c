//! Hostile scripts are stopped within their time and memory limits.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use portcullis_script::{
    NoHostFunctions, PoolSettings, SandboxStrictness, ScriptFailure, ScriptJob, ScriptOutput, WorkerPool,
};
use portcullis_testkit::bombs::{Bomb, MemoryWatch, bombs};
use serde_json::value::RawValue;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const MEGABYTE: u64 = 1024 * 1024;
const MEMORY: u64 = 128 * MEGABYTE;
const TIMEOUT: Duration = Duration::from_secs(2);
/// The target is 2.5 s on an idle machine; the tests run on busy ones.
const STOPPED_WITHIN: Duration = Duration::from_secs(8);

fn pool(word: &str) -> WorkerPool {
    WorkerPool::new(PoolSettings {
        program: env!("CARGO_BIN_EXE_script_worker").into(),
        arguments: vec![word.to_owned()],
        memory_bytes_max: MEMORY,
        strictness: SandboxStrictness::Required,
        warm: 0,
        running_max: 2,
        idle: Duration::from_secs(1),
    })
}

fn job(name: &str, source: String) -> ScriptJob {
    ScriptJob {
        name: name.to_owned(),
        source,
        function: None,
        args: RawValue::from_string("[]".to_owned()).unwrap(),
        timeout: TIMEOUT,
        overall: TIMEOUT,
        check_only: false,
    }
}

async fn run(
    pool: &WorkerPool,
    name: &str,
    source: String,
) -> (Result<ScriptOutput, ScriptFailure>, Duration, u64) {
    run_job(pool, job(name, source)).await
}

async fn run_job(pool: &WorkerPool, job: ScriptJob) -> (Result<ScriptOutput, ScriptFailure>, Duration, u64) {
    let (watch, began) = (MemoryWatch::begin(std::process::id()), Instant::now());
    let done = pool.run(job, &NoHostFunctions, &CancellationToken::new()).await;
    (done, began.elapsed(), watch.end())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bomb_is_stopped() {
    let pool = pool("worker");
    let mut slowest = Duration::ZERO;
    let mut largest = 0;
    for Bomb { name, source } in bombs() {
        let (done, took, peak) = run(&pool, &name, source).await;
        let outcome = match &done {
            Ok(done) => format!("value of {} bytes", done.value.get().len()),
            Err(failure) => failure.to_string().chars().take(70).collect(),
        };
        eprintln!("{name:<26} {:>6} ms {:>4} MB  {outcome}", took.as_millis(), peak / MEGABYTE);
        assert!(took < STOPPED_WITHIN, "{name} took {took:?}");
        assert!(peak <= MEMORY, "{name} took {} MB", peak / MEGABYTE);
        assert!(
            !matches!(
                done,
                Err(ScriptFailure::Broke(_) | ScriptFailure::NoProcess(_) | ScriptFailure::NoSandbox(_))
            ),
            "{name}: {done:?}"
        );
        (slowest, largest) = (slowest.max(took), largest.max(peak));
    }
    eprintln!("figure: slowest {} ms, largest {} MB", slowest.as_millis(), largest / MEGABYTE);
    // The next script runs as usual.
    let (done, ..) = run(&pool, "good", "2 + 2".to_owned()).await;
    assert_eq!(done.unwrap().value.get(), "4");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_language_alone_does_not_stop_them() {
    // A generous timeout: a busy machine allocates memory slowly.
    let (timeout, overall) = (Duration::from_secs(60), Duration::from_secs(60));
    let hungry =
        || ScriptJob { timeout, overall, ..job("hungry", "x = list(range(25000000))\nlen(x)".to_owned()) };
    let (done, _, peak) = run_job(&pool("worker"), hungry()).await;
    // Either the interpreter panics or the process dies.
    assert!(matches!(done, Err(ScriptFailure::Memory(_) | ScriptFailure::Script(..))), "{done:?}");
    assert!(peak <= MEMORY, "{}", peak / MEGABYTE);
    // Control: without the sandbox, the interpreter's own memory limit does not hold.
    let (_, _, peak) = run_job(&pool("weak"), hungry()).await;
    assert!(peak > MEMORY, "{}", peak / MEGABYTE);

    // Time: one builtin call, during which the interpreter checks no limit.
    let busy = || {
        "def f():\n    x = 7\n    for i in range(24):\n        x = x * x\n    return len(str(x))\nf()"
            .to_owned()
    };
    let (done, took, _) = run(&pool("worker"), "busy", busy()).await;
    assert!(matches!(done, Err(ScriptFailure::Time(_) | ScriptFailure::Memory(_))), "{done:?}");
    assert!(took < STOPPED_WITHIN, "{took:?}");
    // Control: without the sandbox only the hub stops it; the script itself notices no timeout.
    let (done, ..) = run(&pool("weak"), "busy", busy()).await;
    assert!(matches!(done, Err(ScriptFailure::Time(_))), "{done:?}");
}
