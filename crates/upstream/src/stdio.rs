//! A server that is a child process: one JSON message per line.

use crate::connection::RequestError;
use crate::guardian;
use crate::inbox::Inbox;
use crate::link::{Link, MESSAGE_BYTES_MAX, OUTGOING_MAX, Outgoing};
use crate::spec::StdioSpec;
use bytes::Bytes;
use futures::future::BoxFuture;
use portcullis_core::json::printable;
use portcullis_wire::frame::{Line, LineReader};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::VecDeque;
use std::io;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

/// How much of what a server says on standard error is kept, to be shown when it fails.
const STDERR_LINES_MAX: usize = 20;
const STDERR_LINE_BYTES_MAX: usize = 1_000;
/// How long a server gets to end after its input was closed, and again after it was told to.
const END_WITHIN: Duration = Duration::from_secs(2);

/// How long the last words of a server that ended are waited for. Whatever it started may hold the pipe open.
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(250);

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

/// Starts the process. It ends when the connection is dropped, and everything that it started with it.
pub(crate) fn start(
    spec: &StdioSpec,
    inbox: Arc<Inbox>,
    stderr: StderrTail,
) -> Result<Arc<dyn Link>, String> {
    let mut command = Command::new(&spec.command);
    command.args(&spec.args).env_clear();
    for (name, value) in &spec.env {
        command.env(name, (spec.values.0)(value).map_err(|why| format!("`env.{name}`: {why}"))?);
    }
    if let Some(cwd) = &spec.cwd {
        command.current_dir(cwd);
    }
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mark = spec.mark.of_process(NEXT.fetch_add(1, Ordering::Relaxed));
    command.env(guardian::MARK, &mark);
    // A group of its own: wrappers start others, and a signal has to reach them all.
    command.process_group(0).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let cannot = |error: io::Error| format!("`{}` cannot be started: {error}", spec.command.display());
    let mut child = command.spawn().map_err(cannot)?;
    let (Some(stdin), Some(stdout), Some(errors)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err("the process has no pipes".to_owned());
    };
    let (out, outgoing) = mpsc::channel(OUTGOING_MAX);
    let end = CancellationToken::new();
    tokio::spawn(read(stdout, inbox.clone()));
    stderr.open.send_replace(true);
    tokio::spawn(read_errors(errors, stderr));
    tokio::spawn(run(child, stdin, outgoing, end.clone(), inbox, mark));
    Ok(Arc::new(Pipes { out, _end: end.drop_guard() }))
}

/// The way to the process. When it is dropped, the process ends.
struct Pipes {
    out: mpsc::Sender<Bytes>,
    _end: DropGuard,
}

impl Link for Pipes {
    fn send<'a>(&'a self, message: Outgoing<'a>) -> BoxFuture<'a, Result<(), RequestError>> {
        Box::pin(async move { self.out.send(message.bytes).await.map_err(|_| RequestError::Closed) })
    }

    fn take<'a>(&self, message: Outgoing<'a>) -> Result<Option<Outgoing<'a>>, RequestError> {
        match self.out.try_send(message.bytes) {
            Ok(()) => Ok(None),
            Err(TrySendError::Full(bytes)) => Ok(Some(Outgoing { bytes, ..message })),
            Err(TrySendError::Closed(_)) => Err(RequestError::Closed),
        }
    }
}

/// Writes what goes out until the connection ends, then sees to it that nothing is left running.
async fn run(
    mut child: Child,
    mut stdin: ChildStdin,
    mut outgoing: mpsc::Receiver<Bytes>,
    end: CancellationToken,
    inbox: Arc<Inbox>,
    mark: String,
) {
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let mut lines = Vec::new();
    loop {
        tokio::select! {
            () = end.cancelled() => break,
            _ = child.wait() => break,
            message = outgoing.recv() => {
                let Some(message) = message else { break };
                lines.clear();
                lines.extend_from_slice(&message);
                lines.push(b'\n');
                // What waits already goes out with it.
                while let Ok(message) = outgoing.try_recv() {
                    lines.extend_from_slice(&message);
                    lines.push(b'\n');
                }
                if stdin.write_all(&lines).await.is_err() {
                    break;
                }
            }
        }
    }
    inbox.close();
    // The usual way to tell a server that it is over; then the less usual ones.
    drop(stdin);
    if tokio::time::timeout(END_WITHIN, child.wait()).await.is_err() {
        signal(group, Signal::TERM);
        let _ = tokio::time::timeout(END_WITHIN, child.wait()).await;
    }
    // Whatever the process has started is in its group, and outlives it unless it is ended too.
    signal(group, Signal::KILL);
    let _ = child.wait().await;
    let _ = tokio::task::spawn_blocking(move || guardian::end_marked(&mark)).await;
}

fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // Nobody left is what is wanted.
        let _ = kill_process_group(group, signal);
    }
}

async fn read(stdout: ChildStdout, inbox: Arc<Inbox>) {
    let mut lines = LineReader::new(stdout, MESSAGE_BYTES_MAX);
    loop {
        let line = tokio::select! {
            line = lines.next() => line,
            () = inbox.closed.cancelled() => break,
        };
        match line {
            Ok(Line::Text(text)) => inbox.receive(&text, None),
            Ok(Line::TooLong { bytes }) => {
                tracing::warn!(target: "upstream", bytes, "A server sent a message that is too long; it was left out.");
            }
            Ok(Line::End) | Err(_) => break,
        }
    }
    inbox.close();
}

async fn read_errors(stderr: ChildStderr, tail: StderrTail) {
    let mut lines = LineReader::new(stderr, STDERR_LINE_BYTES_MAX);
    while let Ok(line) = lines.next().await {
        match line {
            Line::Text(text) => tail.push(printable(&String::from_utf8_lossy(&text))),
            Line::TooLong { bytes } => tail.push(format!("[a line of {bytes} bytes]")),
            Line::End => break,
        }
    }
    tail.open.send_replace(false);
}
