//! A server that is a child process: one JSON message per line.

use crate::clean::one_line;
use crate::connection::RequestError;
use crate::guardian::{self, Processes, Whose};
use crate::inbox::{Inbox, Receipt};
use crate::input::Input;
use crate::link::{Link, MESSAGE_BYTES_MAX, Outgoing};
use crate::patience::{A_LINE, A_MEGABYTE, Patience};
use crate::spec::{Folder, StdioSpec};
use crate::too_long;
use futures::future::BoxFuture;
use portcullis_core::folder;
use portcullis_wire::frame::{LONG_BYTES, Line, LineReader, PART_BYTES};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Where programs are on every machine. A server does not get the hub's own list.
pub const USUAL_PLACES: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How much of what a server says on standard error is kept, to be shown when it fails.
const STDERR_LINES_MAX: usize = 20;
const STDERR_LINE_BYTES_MAX: usize = 4_000;
/// The longest line that is read to its end, though it is no message: after it the server may go on as before.
const LINE_BYTES_MAX: u64 = MESSAGE_BYTES_MAX as u64 + 4 * 1024 * 1024;
/// How long a server gets to end after its input was closed, and again after it was told to.
const END_WITHIN: Duration = Duration::from_secs(2);
/// How long the next process of a server waits for the former one: as long as that may take to end, and a moment for the rest.
const FORMER_ENDS_WITHIN: Duration = END_WITHIN.saturating_mul(2).saturating_add(Duration::from_secs(1));

/// How long the last words of a server that ended are waited for. Whatever it started may hold the pipe open.
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(250);
/// How soon after its last word a process has ended that ends by itself. Part of the time above.
const SEEN_WITHIN: Duration = Duration::from_millis(100);

/// The last lines of a server's standard error.
#[derive(Clone, Default)]
pub(crate) struct StderrTail {
    lines: Arc<Mutex<VecDeque<String>>>,
    /// Whether more may come.
    open: Arc<watch::Sender<bool>>,
}

impl StderrTail {
    fn push(&self, line: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() >= STDERR_LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// Returns what a server said that has ended, once it has said all of it.
    pub(crate) async fn last_words(&self) -> Vec<String> {
        let mut open = self.open.subscribe();
        // What is there by then is what there is.
        let _ = tokio::time::timeout(LAST_WORDS_WITHIN, open.wait_for(|open| !open)).await;
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// All processes of servers that run and sessions with others, whosever they are, and whether they are to end because this process does.
static RUNNING: LazyLock<TaskTracker> = LazyLock::new(TaskTracker::new);
static ENDING: LazyLock<watch::Sender<bool>> = LazyLock::new(|| watch::channel(false).0);
/// How often all of them were told to end.
static ENDS: AtomicU64 = AtomicU64::new(0);

/// Ends every server's process, and every session with one that is elsewhere, and returns when none is left. Each gets the time
/// that it has whenever it is ended; none is started meanwhile.
pub async fn end_processes() {
    ENDS.fetch_add(1, Ordering::AcqRel);
    ENDING.send_replace(true);
    RUNNING.close();
    RUNNING.wait().await;
    ENDING.send_replace(false);
}

/// Runs what is to be done before this process ends. It has to end soon after it was told to.
pub(crate) fn see_out<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    RUNNING.spawn(work)
}

/// Waits until the former process of a server has ended, and has let go of what the next one needs: a lock, a port, a profile.
///
/// One that goes on, because calls are under way on it, is not waited for any longer than one that ends.
pub(crate) async fn former_ended(spec: &StdioSpec, whose: &Whose) {
    if tokio::time::timeout(FORMER_ENDS_WITHIN, spec.processes.none_left(whose)).await.is_err() {
        tracing::debug!(target: "upstream", server = %whose.0, "the next process is started beside one that has not ended");
    }
}

/// Starts the process. It ends when the connection is dropped, and everything that it started with it.
pub(crate) fn start(
    spec: &StdioSpec,
    whose: Whose,
    inbox: Arc<Inbox>,
    stderr: StderrTail,
) -> Result<Arc<dyn Link>, String> {
    if *ENDING.borrow() {
        return Err("the hub is ending".to_owned());
    }
    let program = spec.program.find()?;
    let mut command = Command::new(&program);
    command.args(&spec.args).env_clear();
    // What is beside the program is often what it needs: `node` beside `npx`.
    let beside = program.parent().map(|folder| folder.display().to_string()).unwrap_or_default();
    command.env("PATH", format!("{beside}:{USUAL_PLACES}"));
    for (name, value) in &spec.env {
        command.env(name, (spec.values.0)(value).map_err(|why| format!("`env.{name}`: {why}"))?);
    }
    match &spec.cwd {
        // Said here: the error of a start does not tell which of the two is missing.
        Folder::Chosen(cwd) if !cwd.is_dir() => {
            return Err(format!("its folder `{}` (`cwd`) is not there", cwd.display()));
        }
        Folder::Own(cwd) => folder::make(cwd)
            .map_err(|error| format!("its folder `{}` cannot be made: {error}", cwd.display()))?,
        Folder::Chosen(_) | Folder::Inherited => {}
    }
    if let Some(cwd) = spec.cwd.path() {
        command.current_dir(cwd);
    }
    let mark = spec.processes.next_mark();
    command.env(guardian::MARK, &mark);
    // A group of its own: wrappers start others, and a signal has to reach them all.
    command.process_group(0).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let cannot = |error: io::Error| format!("`{}` cannot be started: {error}", program.display());
    let mut child = command.spawn().map_err(cannot)?;
    let (Some(stdin), Some(stdout), Some(errors)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err("the process has no pipes".to_owned());
    };
    let input = Arc::new(Input::new(stdin));
    let end = CancellationToken::new();
    tokio::spawn(read(stdout, inbox.clone(), stderr.clone()));
    stderr.open.send_replace(true);
    let errors = tokio::spawn(read_errors(errors, stderr.clone()));
    let (processes, counted) = (spec.processes.clone(), spec.processes.counted(whose));
    let process = Process { child, errors, stderr, mark, processes, _counted: counted };
    RUNNING.spawn(process.run(input.clone(), end.clone(), inbox));
    Ok(Arc::new(Pipes { input, _end: end.drop_guard() }))
}

/// The way to the process. When it is dropped, the process ends.
struct Pipes {
    input: Arc<Input<ChildStdin>>,
    _end: DropGuard,
}

impl Link for Pipes {
    fn send<'a>(&'a self, message: Outgoing<'a>) -> BoxFuture<'a, Result<(), RequestError>> {
        Box::pin(self.input.send(message.bytes))
    }

    fn take<'a>(&self, message: Outgoing<'a>) -> Result<Option<Outgoing<'a>>, RequestError> {
        let back = self.input.take(message.bytes)?;
        Ok(back.map(|bytes| Outgoing { bytes, ..message }))
    }
}

/// A server's process, from its start to the end of all that it started.
struct Process {
    child: Child,
    errors: JoinHandle<()>,
    stderr: StderrTail,
    mark: String,
    processes: Arc<Processes>,
    /// Kept to the very end: then the next one may be started.
    _counted: TaskTrackerToken,
}

impl Process {
    /// Writes what the pipe does not take at once until the connection ends, then sees to it that nothing is left running.
    async fn run(mut self, input: Arc<Input<ChildStdin>>, end: CancellationToken, inbox: Arc<Inbox>) {
        let group = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(group) = group {
            self.processes.began(group);
        }
        let mut by_itself = tokio::select! {
            // Where it was the first to say nothing more, this is only what came of that.
            () = end.cancelled() => inbox.closed.is_cancelled() && inbox.given_up_for().is_none(),
            () = told_to_end() => false,
            _ = self.child.wait() => true,
            () = poll_fn(|context| input.poll_rest(context)) => true,
        };
        inbox.close();
        // Whether it ends or only says and hears nothing more has to be seen before its input is closed.
        if by_itself && tokio::time::timeout(SEEN_WITHIN, self.child.wait()).await.is_err() {
            by_itself = false;
            self.stderr.push("[ended by the hub: it closed its output or its input, and went on]".to_owned());
            self.stderr.open.send_replace(false);
        }
        // The usual way to tell a server that it is over; then the less usual ones.
        input.close();
        match tokio::time::timeout(END_WITHIN, self.child.wait()).await {
            Ok(Ok(status)) if by_itself => self.last_words(&status.to_string()).await,
            Ok(_) => {}
            Err(_) => {
                signal(group, Signal::TERM);
                let _ = tokio::time::timeout(END_WITHIN, self.child.wait()).await;
            }
        }
        // Whatever the process has started is in its group, and outlives it unless it is ended too.
        signal(group, Signal::KILL);
        let _ = self.child.wait().await;
        if let Some(group) = group {
            self.processes.ended(group);
        }
        let mark = self.mark;
        let _ = tokio::task::spawn_blocking(move || guardian::end_marked(&mark)).await;
    }

    /// Says how a process ended by itself, after all that it said.
    async fn last_words(&mut self, how: &str) {
        let _ = tokio::time::timeout(LAST_WORDS_WITHIN, &mut self.errors).await;
        self.stderr.push(format!("[it ended: {how}]"));
        self.stderr.open.send_replace(false);
    }
}

/// Returns how often all processes were told to end, for whoever looks only when that is over.
pub(crate) fn ends() -> u64 {
    ENDS.load(Ordering::Acquire)
}

/// Resolves when all processes are to end.
pub(crate) async fn told_to_end() {
    // There is always somebody who could say so.
    let _ = ENDING.subscribe().wait_for(|ending| *ending).await.is_ok();
}

fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // Nobody left is what is wanted.
        let _ = kill_process_group(group, signal);
    }
}

async fn read(stdout: ChildStdout, inbox: Arc<Inbox>, stderr: StderrTail) {
    let (mut lines, mut patience) = (LineReader::new(stdout, MESSAGE_BYTES_MAX), Patience::new());
    loop {
        let line = tokio::select! {
            line = lines.next() => line,
            () = inbox.closed.cancelled() => break,
        };
        let cost = match line {
            Ok(Line::Text(text)) => match inbox.receive(&text, None) {
                Receipt::Message => continue,
                Receipt::Idle => A_LINE,
                // What came in parts has taken its time.
                Receipt::Noise => A_LINE + A_MEGABYTE * megabytes(text.len().min(LONG_BYTES)),
            },
            Ok(Line::Blank) => A_LINE,
            Ok(Line::TooLong { bytes }) => {
                tracing::warn!(target: "upstream", bytes, "A server sent a message that is too long; it was left out.");
                // Whoever waits for it would wait in vain.
                if let Some(id) = too_long::answered(lines.edges()) {
                    inbox.too_long(id, bytes, true);
                }
                A_LINE
            }
            // Whatever this is, it is no message any more.
            Ok(Line::Longer { bytes }) if bytes > LINE_BYTES_MAX => {
                tracing::warn!(target: "upstream", bytes, "A server sent a line that is far too long, and is ended.");
                if let Some(id) = too_long::answers(lines.edges()) {
                    inbox.too_long(id, LINE_BYTES_MAX, false);
                }
                let most = LINE_BYTES_MAX / (1024 * 1024);
                stderr.push(format!("[ended by the hub: it sent a line of more than {most} MB]"));
                break;
            }
            Ok(Line::Longer { bytes }) => {
                Patience::breathe().await;
                if bytes <= MESSAGE_BYTES_MAX as u64 {
                    // This may be a message yet.
                    continue;
                }
                A_MEGABYTE * megabytes(PART_BYTES)
            }
            Ok(Line::End) | Err(_) => break,
        };
        if patience.spend(cost).await {
            tracing::warn!(target: "upstream", "A server says much that nobody needs; it is listened to more slowly.");
        }
    }
    inbox.close();
}

fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}

async fn read_errors(stderr: ChildStderr, tail: StderrTail) {
    let mut lines = LineReader::new(stderr, STDERR_LINE_BYTES_MAX);
    while let Ok(line) = lines.next().await {
        match line {
            Line::Text(text) => tail.push(one_line(&String::from_utf8_lossy(&text))),
            Line::TooLong { bytes } => tail.push(format!("[a line of {bytes} bytes]")),
            Line::Longer { .. } | Line::Blank => {}
            Line::End => break,
        }
    }
}
