//! A pool of worker processes, and the life of one job.
//!
//! A few workers are kept warm, so that a job does not wait for a process to start. They start with the first job and
//! exit after an idle timeout: an idle hub has none. The hub buffers only frames of bounded size from a worker, and
//! kills a worker that exceeds its deadline.

mod process;

use crate::message::{
    HostRefusal, HostRequest, HubMessage, JobSpec, ScriptHttpRequest, ScriptHttpResponse, WorkerMessage,
};
use crate::{ScriptDiagnostic, frame};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use process::WorkerProcess;
use serde::Serialize;
use serde_json::value::RawValue;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Startup timeout of a worker. A loaded machine starts processes slowly.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(10);
/// Shortest poll interval of the deadline, which moves while a script waits for a person.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(20);
/// Requests to the hub in one run.
const REQUESTS_MAX: usize = 1_000;

/// What happens if the machine does not support the whole sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxStrictness {
    /// No script runs.
    Required,
    /// Scripts run with the protections that are available.
    BestEffort,
}

/// How workers are started and kept warm.
#[derive(Debug, Clone)]
pub struct PoolSettings {
    /// The program, and the arguments that make it call `portcullis_worker::main`.
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub memory_bytes_max: u64,
    pub strictness: SandboxStrictness,
    /// Warm workers.
    pub warm: usize,
    /// Concurrent jobs; further ones wait.
    pub running_max: usize,
    /// Idle timeout of the warm workers.
    pub idle: Duration,
}

/// A script to run.
#[derive(Debug, Clone)]
pub struct ScriptJob {
    /// The name of the source in error messages.
    pub name: String,
    pub source: String,
    /// The function to call; `main` by default, if it exists.
    pub function: Option<String>,
    /// The arguments of the function: a JSON array.
    pub args: Box<RawValue>,
    /// Timeout without the time spent waiting for people.
    pub timeout: Duration,
    /// Timeout with that time.
    pub overall: Duration,
    /// Parse only, do not run.
    pub check_only: bool,
}

/// What a script can request from the hub.
pub trait HostFunctions: Send + Sync {
    fn http(&self, ask: ScriptHttpRequest) -> BoxFuture<'_, Result<ScriptHttpResponse, HostRefusal>>;

    /// Calls a tool with a JSON object. Returns its result as JSON.
    fn tool(
        &self,
        name: String,
        arguments: Box<RawValue>,
    ) -> BoxFuture<'_, Result<Box<RawValue>, HostRefusal>>;

    fn has_secret(&self, name: &str) -> bool;

    /// Returns the total time spent waiting for people so far.
    fn waited(&self) -> Duration;
}

/// A host that refuses everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHostFunctions;

impl HostFunctions for NoHostFunctions {
    fn http(&self, _: ScriptHttpRequest) -> BoxFuture<'_, Result<ScriptHttpResponse, HostRefusal>> {
        Box::pin(async { Err(no_access("the network")) })
    }

    fn tool(&self, _: String, _: Box<RawValue>) -> BoxFuture<'_, Result<Box<RawValue>, HostRefusal>> {
        Box::pin(async { Err(no_access("tools")) })
    }

    fn has_secret(&self, _: &str) -> bool {
        false
    }

    fn waited(&self) -> Duration {
        Duration::ZERO
    }
}

fn no_access(what: &str) -> HostRefusal {
    HostRefusal { code: "denied".to_owned(), message: format!("this script has no access to {what}") }
}

/// The result of a script.
#[derive(Debug, Clone)]
pub struct ScriptOutput {
    pub value: Box<RawValue>,
    pub printed: String,
    pub used_secret: bool,
    pub took: Duration,
    /// Peak memory of the process, if known.
    pub memory_bytes: Option<u64>,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum ScriptFailure {
    #[error("{}", .0.message)]
    Script(ScriptDiagnostic, String),
    #[error("the script timed out after {} ms", .0.as_millis())]
    Time(Duration),
    #[error("the script exceeds its memory limit of {} MB", .0 / (1024 * 1024))]
    Memory(u64),
    #[error("the script nests or recurses too deeply")]
    Depth,
    #[error("the result of the script is larger than {} bytes", frame::FROM_WORKER_MAX)]
    Result,
    #[error("the script made more than {REQUESTS_MAX} requests and tool calls")]
    Asks,
    #[error("the script's process exited: {0}")]
    Broke(String),
    #[error("cancelled by the caller")]
    Cancelled,
    /// This machine does not support the whole sandbox, and the settings require it.
    #[error("scripts cannot run, because the sandbox is not available on this machine: {0}")]
    NoSandbox(String),
    #[error("the script's process could not be started: {0}")]
    NoProcess(String),
}

/// The workers of one hub. Cheap to clone.
#[derive(Clone)]
pub struct WorkerPool(Arc<PoolInner>);

struct PoolInner {
    settings: PoolSettings,
    slots: Semaphore,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    ready: Vec<WorkerProcess>,
    /// Workers that are starting.
    starting: usize,
    last_used: Option<Instant>,
    /// Whether the task that ends idle workers runs.
    reaper_running: bool,
}

impl std::fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

impl WorkerPool {
    pub fn new(settings: PoolSettings) -> WorkerPool {
        let slots = Semaphore::new(settings.running_max.max(1));
        WorkerPool(Arc::new(PoolInner { settings, slots, state: Mutex::default() }))
    }

    /// Runs a job to its end. Needs a Tokio runtime.
    pub async fn run(
        &self,
        job: ScriptJob,
        host: &dyn HostFunctions,
        cancel: &CancellationToken,
    ) -> Result<ScriptOutput, ScriptFailure> {
        let slot = tokio::select! {
            () = cancel.cancelled() => return Err(ScriptFailure::Cancelled),
            slot = self.0.slots.acquire() => slot.map_err(|e| ScriptFailure::NoProcess(e.to_string()))?,
        };
        let process = self.take().await?;
        self.refill();
        let done = run(process, job, host, cancel, &self.0.settings).await;
        drop(slot);
        done
    }

    /// Starts a worker to find out which protections this machine lacks.
    pub async fn probe(&self) -> Result<Vec<String>, ScriptFailure> {
        Ok(WorkerProcess::start(&self.0.settings).await?.missing.clone())
    }

    /// Returns the number of warm workers.
    pub fn ready(&self) -> usize {
        self.0.state.lock().ready.len()
    }

    async fn take(&self) -> Result<WorkerProcess, ScriptFailure> {
        let ready = {
            let mut state = self.0.state.lock();
            state.last_used = Some(Instant::now());
            // A warm worker may have been killed.
            state.ready.retain_mut(WorkerProcess::is_running);
            state.ready.pop()
        };
        let process = match ready {
            Some(process) => process,
            None => WorkerProcess::start(&self.0.settings).await?,
        };
        match self.0.settings.strictness {
            SandboxStrictness::Required if !process.missing.is_empty() => {
                Err(ScriptFailure::NoSandbox(process.missing.join("; ")))
            }
            _ => Ok(process),
        }
    }

    /// Starts warm workers for the next jobs.
    fn refill(&self) {
        let mut state = self.0.state.lock();
        let wanted = self.0.settings.warm.saturating_sub(state.ready.len() + state.starting);
        state.starting += wanted;
        let start_reaper = !state.reaper_running && self.0.settings.warm > 0;
        state.reaper_running |= start_reaper;
        drop(state);
        for _ in 0..wanted {
            let inner = self.0.clone();
            tokio::spawn(async move {
                let started = WorkerProcess::start(&inner.settings).await;
                let mut state = inner.state.lock();
                state.starting -= 1;
                // A failed start is retried by the next job, which reports the error.
                state.ready.extend(started.ok());
            });
        }
        if start_reaper {
            tokio::spawn(end_idle(Arc::downgrade(&self.0)));
        }
    }
}

/// Ends the warm workers after the idle timeout.
async fn end_idle(pool: Weak<PoolInner>) {
    loop {
        let Some(inner) = pool.upgrade() else { return };
        let idle = inner.settings.idle;
        let left = {
            let mut state = inner.state.lock();
            let used = state.last_used.map_or(idle, |used| used.elapsed());
            match idle.checked_sub(used).filter(|left| !left.is_zero()) {
                Some(left) => left,
                None if state.starting > 0 => POLL_INTERVAL_MIN,
                None => {
                    state.reaper_running = false;
                    state.ready.clear();
                    return;
                }
            }
        };
        drop(inner);
        sleep(left).await;
    }
}

/// How a job ended, before the reason for the exit of its process is known.
enum JobExit {
    Done(crate::message::JobResult),
    Late,
    Cancelled,
    TooMany,
    Pipe(io::Error),
}

async fn run(
    mut process: WorkerProcess,
    job: ScriptJob,
    host: &dyn HostFunctions,
    cancel: &CancellationToken,
    settings: &PoolSettings,
) -> Result<ScriptOutput, ScriptFailure> {
    let (began, waited_before) = (Instant::now(), host.waited());
    let timeout_after = job.timeout;
    let overall = job.overall.max(job.timeout);
    process.limit_time(job.timeout);
    let mut used_secret = false;
    let mut parsed = false;
    let ended = {
        let serving = serve_job(&mut process, job, host, settings, &mut used_secret, &mut parsed);
        tokio::select! {
            biased;
            () = cancel.cancelled() => JobExit::Cancelled,
            ended = serving => ended,
            () = expire(began, timeout_after, overall, || host.waited().saturating_sub(waited_before)) => JobExit::Late,
        }
    };
    let memory_bytes = process.peak_memory();
    match ended {
        JobExit::Done(ended) => {
            let took = began.elapsed();
            let value = ended.outcome.map_err(|fault| ScriptFailure::Script(fault, ended.printed.clone()))?;
            Ok(ScriptOutput { value, printed: ended.printed, used_secret, took, memory_bytes })
        }
        JobExit::Late => Err(ScriptFailure::Time(timeout_after)),
        JobExit::Cancelled => Err(ScriptFailure::Cancelled),
        JobExit::TooMany => Err(ScriptFailure::Asks),
        JobExit::Pipe(error) if error.kind() == io::ErrorKind::InvalidData => Err(ScriptFailure::Result),
        JobExit::Pipe(_) => Err(process.exit_reason(settings.memory_bytes_max, timeout_after, parsed).await),
    }
}

/// Returns when the script's timeout_after timeout or the overall timeout has passed.
async fn expire(began: Instant, timeout_after: Duration, overall: Duration, waited: impl Fn() -> Duration) {
    loop {
        let elapsed = began.elapsed();
        let left = timeout_after.checked_sub(elapsed.saturating_sub(waited())).filter(|left| !left.is_zero());
        let (Some(left), Some(left_overall)) = (left, overall.checked_sub(elapsed)) else { return };
        sleep(left.min(left_overall).max(POLL_INTERVAL_MIN.min(timeout_after))).await;
    }
}

async fn serve_job(
    process: &mut WorkerProcess,
    job: ScriptJob,
    host: &dyn HostFunctions,
    settings: &PoolSettings,
    used_secret: &mut bool,
    parsed: &mut bool,
) -> JobExit {
    let waited_before = host.waited();
    let work = JobSpec {
        name: job.name,
        source: job.source,
        function: job.function,
        args: job.args,
        timeout_ms: u64::try_from(job.timeout.as_millis()).unwrap_or(u64::MAX),
        heap_bytes_max: usize::try_from(settings.memory_bytes_max / 2).unwrap_or(usize::MAX),
        check_only: job.check_only,
    };
    if let Err(error) = frame::send(&mut process.stdin, &HubMessage::Job(work)).await {
        return JobExit::Pipe(error);
    }
    for _ in 0..=REQUESTS_MAX {
        let ask = loop {
            match frame::receive(&mut process.stdout).await {
                Ok(WorkerMessage::Ask(ask)) => break ask,
                Ok(WorkerMessage::Done(ended)) => return JobExit::Done(ended),
                Ok(WorkerMessage::Parsed) if !*parsed => *parsed = true,
                Ok(WorkerMessage::Parsed | WorkerMessage::Ready { .. }) => {
                    return JobExit::Pipe(io::Error::other("unexpected message"));
                }
                Err(error) => return JobExit::Pipe(error),
            }
        };
        let answer = match ask {
            HostRequest::HasSecret(name) => Ok(raw(&host.has_secret(&name))),
            HostRequest::Tool { name, arguments } => host.tool(name, arguments).await,
            HostRequest::Http(ask) => {
                *used_secret |= ask.secrets().next().is_some();
                host.http(ask).await.map(|answer| raw(&answer))
            }
        };
        let waited = host.waited().saturating_sub(waited_before);
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        let sent = frame::send(&mut process.stdin, &HubMessage::Answer { answer, waited_ms }).await;
        let sent = match sent {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let refusal = HostRefusal {
                    code: "too_large".to_owned(),
                    message: "the response is too large".to_owned(),
                };
                let answer = HubMessage::Answer { answer: Err(refusal), waited_ms };
                frame::send(&mut process.stdin, &answer).await
            }
            sent => sent,
        };
        if let Err(error) = sent {
            return JobExit::Pipe(error);
        }
    }
    JobExit::TooMany
}

fn raw<T: Serialize>(value: &T) -> Box<RawValue> {
    // Plain structs with string keys always serialize.
    serde_json::value::to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

impl WorkerProcess {
    async fn start(settings: &PoolSettings) -> Result<WorkerProcess, ScriptFailure> {
        let started = async {
            let mut process = WorkerProcess::spawn(settings)?;
            match frame::receive(&mut process.stdout).await {
                Ok(WorkerMessage::Ready { missing }) => process.missing = missing,
                Ok(_) => return Err("unexpected first message".to_owned()),
                Err(error) => return Err(process.startup_failure(&error).await),
            }
            Ok(process)
        };
        match timeout(STARTUP_TIMEOUT, started).await {
            Ok(started) => started.map_err(ScriptFailure::NoProcess),
            Err(_) => Err(ScriptFailure::NoProcess("startup timed out".to_owned())),
        }
    }
}
