//! Hostile scripts are stopped, in time and within their memory.
//!
//! The list is not ours, so it is not here: `PORTCULLIS_SHARED` or `../shared` has it.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a helper that fails is a test that fails; a test that is skipped says so; a thread of its own watches"
)]

use portcullis_script::{Done, Failure, Job, NoHost, Pool, PoolSettings, Strictness};
use serde_json::Value;
use serde_json::value::RawValue;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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

/// What an entry of the list is, written out.
fn source(entry: &Value) -> String {
    if let Some(code) = entry["code"].as_str() {
        return code.to_owned();
    }
    if let Some(line) = entry["gen_lines"].as_str() {
        let lines = (0..entry["n"].as_u64().unwrap()).map(|n| line.replace("{i}", &n.to_string()) + "\n");
        return lines.collect();
    }
    let made = &entry["gen"];
    let text = |key: &str| made[key].as_str().unwrap_or_default().to_owned();
    let times = |key: &str| usize::try_from(made[key].as_u64().unwrap_or(0)).unwrap();
    let (before, after) = (text("repeat").repeat(times("n")), text("repeat2").repeat(times("n2")));
    format!("{}{before}{}{after}{}", text("prefix"), text("middle"), text("suffix"))
}

fn bombs() -> Option<Vec<(String, String)>> {
    let shared = std::env::var_os("PORTCULLIS_SHARED").map(PathBuf::from);
    let shared = shared.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"));
    let list = std::fs::read_to_string(shared.join("fixtures/corpora/starlark_bombs.jsonl")).ok()?;
    let entries = list.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    Some(entries.map(|entry| (entry["id"].as_str().unwrap().to_owned(), source(&entry))).collect())
}

/// Watches the memory of this process' children.
struct Watch {
    peak: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Watch {
    fn begin() -> Watch {
        let watch = Watch { peak: Arc::default(), stop: Arc::default() };
        let (peak, stop) = (watch.peak.clone(), watch.stop.clone());
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                children().into_iter().filter_map(memory).for_each(|bytes| {
                    peak.fetch_max(bytes, Ordering::Relaxed);
                });
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        watch
    }

    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.peak.load(Ordering::Relaxed)
    }
}

fn children() -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

fn memory(pid: String) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

async fn run(pool: &Pool, name: &str, source: String) -> (Result<Done, Failure>, Duration, u64) {
    run_job(pool, job(name, source)).await
}

async fn run_job(pool: &Pool, job: Job) -> (Result<Done, Failure>, Duration, u64) {
    let (watch, began) = (Watch::begin(), Instant::now());
    let done = pool.run(job, &NoHost, &CancellationToken::new()).await;
    (done, began.elapsed(), watch.end())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bomb_is_stopped() {
    let Some(bombs) = bombs() else {
        eprintln!("skipped: the list of hostile scripts is not there");
        return;
    };
    let pool = pool("worker");
    let mut slowest = Duration::ZERO;
    let mut largest = 0;
    for (name, source) in bombs {
        let (done, took, peak) = run(&pool, &name, source).await;
        let told = match &done {
            Ok(done) => format!("value of {} bytes", done.value.get().len()),
            Err(failure) => failure.to_string().chars().take(70).collect(),
        };
        eprintln!("{name:<18} {:>6} ms {:>4} MB  {told}", took.as_millis(), peak / MEGABYTE);
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
