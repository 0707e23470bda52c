//! The hub's side: workers, and a job from its start to its end.
//!
//! A few workers stand ready, so that a job does not wait for a process to start. They are started at the first use and end
//! when nothing runs for a while: an idle hub has none. The hub keeps nothing of what a script makes but messages of a
//! bounded size, and kills a worker that is not done in time.

mod process;

use crate::message::{Ask, FromWorker, HttpAnswer, HttpAsk, Refusal, ToWorker, Work};
use crate::{Fault, frame};
use futures::future::BoxFuture;
use process::Process;
use serde::Serialize;
use serde_json::value::RawValue;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// How long a worker may take until it is ready. A loaded machine starts processes slowly.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked whether a script that waits for a person has used up its own time.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(20);
/// What one run may ask of the hub in all.
const ASKS_MAX: usize = 1_000;

/// What is done where the machine does not offer all of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// No script runs.
    Required,
    /// Scripts run with what is to be had.
    BestEffort,
}

/// How workers are started and kept.
#[derive(Debug, Clone)]
pub struct PoolSettings {
    /// The program and the words that make it call `portcullis_worker::main`.
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub memory_bytes_max: u64,
    pub strictness: Strictness,
    /// How many stand ready.
    pub warm: usize,
    /// How many run at the same time; others wait.
    pub running_max: usize,
    /// After how long without a job the ready ones end.
    pub idle: Duration,
}

/// What is to be run.
#[derive(Debug, Clone)]
pub struct Job {
    /// What the source is called in messages.
    pub name: String,
    pub source: String,
    /// The function to call; else `main`, if there is one.
    pub function: Option<String>,
    /// What it is called with: a JSON array.
    pub args: Box<RawValue>,
    /// How long it may take, not counting the time in which people are waited for.
    pub timeout: Duration,
    /// And counting it.
    pub overall: Duration,
    /// Only parse it.
    pub check_only: bool,
}

/// What a script may ask the hub for.
pub trait Host: Send + Sync {
    fn http(&self, ask: HttpAsk) -> BoxFuture<'_, Result<HttpAnswer, Refusal>>;

    /// Calls a tool with a JSON object. Returns its result as JSON.
    fn tool(&self, name: String, arguments: Box<RawValue>) -> BoxFuture<'_, Result<Box<RawValue>, Refusal>>;

    fn has_secret(&self, name: &str) -> bool;

    /// Returns how long people were waited for so far.
    fn waited(&self) -> Duration;
}

/// A host that has nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHost;

impl Host for NoHost {
    fn http(&self, _: HttpAsk) -> BoxFuture<'_, Result<HttpAnswer, Refusal>> {
        Box::pin(async { Err(nothing("network")) })
    }

    fn tool(&self, _: String, _: Box<RawValue>) -> BoxFuture<'_, Result<Box<RawValue>, Refusal>> {
        Box::pin(async { Err(nothing("tools")) })
    }

    fn has_secret(&self, _: &str) -> bool {
        false
    }

    fn waited(&self) -> Duration {
        Duration::ZERO
    }
}

fn nothing(what: &str) -> Refusal {
    Refusal { code: "denied".to_owned(), message: format!("this code has no {what}") }
}

/// What a script came to.
#[derive(Debug, Clone)]
pub struct Done {
    pub value: Box<RawValue>,
    pub printed: String,
    pub used_secret: bool,
    pub took: Duration,
    /// The most memory that its process had at one time, where that could be seen.
    pub memory_bytes: Option<u64>,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{}", .0.message)]
    Script(Fault, String),
    #[error("the script did not end within {} ms", .0.as_millis())]
    Time(Duration),
    #[error("the script needs more memory than the {} MB that it may have", .0 / (1024 * 1024))]
    Memory(u64),
    #[error("the script is nested too deeply, or recurses too deeply")]
    Depth,
    #[error("the result of the script is too large; at most {} bytes are allowed", frame::FROM_WORKER_MAX)]
    Result,
    #[error("the script asked for more than {ASKS_MAX} requests and calls")]
    Asks,
    #[error("the process of the script ended: {0}")]
    Broke(String),
    #[error("cancelled by the caller")]
    Cancelled,
    /// Of the sandbox this machine does not have all, and all is wanted.
    #[error("scripts cannot run here, because the sandbox cannot be had: {0}")]
    NoSandbox(String),
    #[error("no process for the script: {0}")]
    NoProcess(String),
}

/// The workers of one hub. Cheap to clone.
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

struct Inner {
    settings: PoolSettings,
    slots: Semaphore,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ready: Vec<Process>,
    /// How many are being started.
    coming: usize,
    last_used: Option<Instant>,
    /// Whether somebody looks after those that nobody needs.
    watched: bool,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

impl Pool {
    pub fn new(settings: PoolSettings) -> Pool {
        let slots = Semaphore::new(settings.running_max.max(1));
        Pool(Arc::new(Inner { settings, slots, state: Mutex::default() }))
    }

    /// Runs a job to its end. Needs a runtime.
    pub async fn run(&self, job: Job, host: &dyn Host, cancel: &CancellationToken) -> Result<Done, Failure> {
        let slot = tokio::select! {
            () = cancel.cancelled() => return Err(Failure::Cancelled),
            slot = self.0.slots.acquire() => slot.map_err(|e| Failure::NoProcess(e.to_string()))?,
        };
        let process = self.take().await?;
        self.refill();
        let done = run(process, job, host, cancel, &self.0.settings).await;
        drop(slot);
        done
    }

    /// Says what of the sandbox this machine does not have, by trying.
    pub async fn probe(&self) -> Result<Vec<String>, Failure> {
        Ok(Process::start(&self.0.settings).await?.missing.clone())
    }

    /// Returns how many workers stand ready.
    pub fn ready(&self) -> usize {
        self.0.lock().ready.len()
    }

    async fn take(&self) -> Result<Process, Failure> {
        let ready = {
            let mut state = self.0.lock();
            state.last_used = Some(Instant::now());
            // One that ended while it stood ready is none.
            state.ready.retain_mut(Process::is_running);
            state.ready.pop()
        };
        let process = match ready {
            Some(process) => process,
            None => Process::start(&self.0.settings).await?,
        };
        match self.0.settings.strictness {
            Strictness::Required if !process.missing.is_empty() => {
                Err(Failure::NoSandbox(process.missing.join("; ")))
            }
            _ => Ok(process),
        }
    }

    /// Starts workers ahead of the next jobs.
    fn refill(&self) {
        let mut state = self.0.lock();
        let wanted = self.0.settings.warm.saturating_sub(state.ready.len() + state.coming);
        state.coming += wanted;
        let watch = !state.watched && self.0.settings.warm > 0;
        state.watched |= watch;
        drop(state);
        for _ in 0..wanted {
            let inner = self.0.clone();
            tokio::spawn(async move {
                let started = Process::start(&inner.settings).await;
                let mut state = inner.lock();
                state.coming -= 1;
                // One that cannot be started is tried again for the next job, which then says why.
                state.ready.extend(started.ok());
            });
        }
        if watch {
            tokio::spawn(end_idle(Arc::downgrade(&self.0)));
        }
    }
}

impl Inner {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the ready workers once nobody has needed one for a while.
async fn end_idle(pool: Weak<Inner>) {
    loop {
        let Some(inner) = pool.upgrade() else { return };
        let idle = inner.settings.idle;
        let left = {
            let mut state = inner.lock();
            let used = state.last_used.map_or(idle, |used| used.elapsed());
            match idle.checked_sub(used).filter(|left| !left.is_zero()) {
                Some(left) => left,
                None if state.coming > 0 => LOOK_EVERY_MIN,
                None => {
                    state.watched = false;
                    state.ready.clear();
                    return;
                }
            }
        };
        drop(inner);
        sleep(left).await;
    }
}

/// What became of a job, before it is known why its process ended.
enum Ended {
    Done(crate::message::Ended),
    Late,
    Cancelled,
    TooMany,
    Pipe(io::Error),
}

async fn run(
    mut process: Process,
    job: Job,
    host: &dyn Host,
    cancel: &CancellationToken,
    settings: &PoolSettings,
) -> Result<Done, Failure> {
    let (began, waited_before) = (Instant::now(), host.waited());
    let timeout_after = job.timeout;
    let overall = job.overall.max(job.timeout);
    process.limit_time(job.timeout);
    let mut used_secret = false;
    let mut parsed = false;
    let ended = {
        let talk = talk(&mut process, job, host, settings, &mut used_secret, &mut parsed);
        tokio::select! {
            biased;
            () = cancel.cancelled() => Ended::Cancelled,
            ended = talk => ended,
            () = expire(began, timeout_after, overall, || host.waited().saturating_sub(waited_before)) => Ended::Late,
        }
    };
    let memory_bytes = process.peak_memory();
    match ended {
        Ended::Done(ended) => {
            let took = began.elapsed();
            let value = ended.outcome.map_err(|fault| Failure::Script(fault, ended.printed.clone()))?;
            Ok(Done { value, printed: ended.printed, used_secret, took, memory_bytes })
        }
        Ended::Late => Err(Failure::Time(timeout_after)),
        Ended::Cancelled => Err(Failure::Cancelled),
        Ended::TooMany => Err(Failure::Asks),
        Ended::Pipe(error) if error.kind() == io::ErrorKind::InvalidData => Err(Failure::Result),
        Ended::Pipe(_) => Err(process.why(settings.memory_bytes_max, timeout_after, parsed).await),
    }
}

/// Returns when the time is used up: the script's own, or all of it.
async fn expire(began: Instant, own: Duration, overall: Duration, waited: impl Fn() -> Duration) {
    loop {
        let elapsed = began.elapsed();
        let left = own.checked_sub(elapsed.saturating_sub(waited())).filter(|left| !left.is_zero());
        let (Some(left), Some(left_overall)) = (left, overall.checked_sub(elapsed)) else { return };
        sleep(left.min(left_overall).max(LOOK_EVERY_MIN.min(own))).await;
    }
}

async fn talk(
    process: &mut Process,
    job: Job,
    host: &dyn Host,
    settings: &PoolSettings,
    used_secret: &mut bool,
    parsed: &mut bool,
) -> Ended {
    let waited_before = host.waited();
    let work = Work {
        name: job.name,
        source: job.source,
        function: job.function,
        args: job.args,
        timeout_ms: u64::try_from(job.timeout.as_millis()).unwrap_or(u64::MAX),
        heap_bytes_max: usize::try_from(settings.memory_bytes_max / 2).unwrap_or(usize::MAX),
        check_only: job.check_only,
    };
    if let Err(error) = frame::send(&mut process.stdin, &ToWorker::Job(work)).await {
        return Ended::Pipe(error);
    }
    for _ in 0..=ASKS_MAX {
        let ask = loop {
            match frame::receive(&mut process.stdout).await {
                Ok(FromWorker::Ask(ask)) => break ask,
                Ok(FromWorker::Done(ended)) => return Ended::Done(ended),
                Ok(FromWorker::Parsed) if !*parsed => *parsed = true,
                Ok(FromWorker::Parsed | FromWorker::Ready { .. }) => {
                    return Ended::Pipe(io::Error::other("a word out of turn"));
                }
                Err(error) => return Ended::Pipe(error),
            }
        };
        let answer = match ask {
            Ask::HasSecret(name) => Ok(raw(&host.has_secret(&name))),
            Ask::Tool { name, arguments } => host.tool(name, arguments).await,
            Ask::Http(ask) => {
                *used_secret |= ask.secrets().next().is_some();
                host.http(ask).await.map(|answer| raw(&answer))
            }
        };
        let waited = host.waited().saturating_sub(waited_before);
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        let sent = frame::send(&mut process.stdin, &ToWorker::Answer { answer, waited_ms }).await;
        let sent = match sent {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let refusal =
                    Refusal { code: "too_large".to_owned(), message: "the answer is too large".to_owned() };
                let answer = ToWorker::Answer { answer: Err(refusal), waited_ms };
                frame::send(&mut process.stdin, &answer).await
            }
            sent => sent,
        };
        if let Err(error) = sent {
            return Ended::Pipe(error);
        }
    }
    Ended::TooMany
}

fn raw<T: Serialize>(value: &T) -> Box<RawValue> {
    // Plain structs with string keys can always be written.
    serde_json::value::to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

impl Process {
    async fn start(settings: &PoolSettings) -> Result<Process, Failure> {
        let started = async {
            let mut process = Process::spawn(settings)?;
            match frame::receive(&mut process.stdout).await {
                Ok(FromWorker::Ready { missing }) => process.missing = missing,
                Ok(_) => return Err("it did not say that it is ready".to_owned()),
                Err(error) => return Err(process.last_words(&error).await),
            }
            Ok(process)
        };
        match timeout(READY_WITHIN, started).await {
            Ok(started) => started.map_err(Failure::NoProcess),
            Err(_) => Err(Failure::NoProcess("it was not ready in time".to_owned())),
        }
    }
}
