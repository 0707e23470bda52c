//! Stdio transport: a child process, one JSON-RPC message per line.

mod program_identity;

use crate::sanitize::one_line;
use crate::shutdown::Shutdown;
use crate::transport::diagnostics::{DiagnosticTail, LAST_LINES_WITHIN};
use crate::transport::environ_mark::MARK;
use crate::transport::guardian::{self, Processes};
use crate::transport::read_throttle::{LINE_COST, MEGABYTE_COST, ReadThrottle};
use crate::transport::stdin_writer::StdinWriter;
use crate::transport::{
    Inbound, MESSAGE_BYTES_MAX, OutboundMessage, OversizedResponse, Receipt, RequestError,
};
use crate::transport::{
    ServerInstanceId, ServerTransport, StdioSpec, TransportLink, TransportParts, WorkingDir,
};
use futures::future::BoxFuture;
use portcullis_core::{durable_dir, run_blocking};
use portcullis_store::pins::ServerIdentity;
use portcullis_wire::RequestId;
use portcullis_wire::frame::{LONG_BYTES, LineEdges, LineFrame, LineReader, PART_BYTES};
use portcullis_wire::oversized_line::{self, LineState};
use program_identity::program_identity;
use rustix::process::{Pid, Signal, kill_process_group};
use std::future::poll_fn;
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::task_tracker::TaskTrackerToken;

/// The default `PATH`. A server does not inherit the hub's.
pub const USUAL_PLACES: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How much of a line of standard error is kept.
const STDERR_LINE_BYTES_MAX: usize = 4_000;
/// The longest line that is skipped to its end; the server may go on after it. A longer one ends the server.
const LINE_BYTES_MAX: u64 = MESSAGE_BYTES_MAX as u64 + 4 * 1024 * 1024;
/// The grace period after stdin is closed, and again after SIGTERM.
const END_WITHIN: Duration = Duration::from_secs(2);
/// How long the next process of a server waits for the previous one: both grace periods, and a moment for the rest.
const PREVIOUS_ENDS_WITHIN: Duration = END_WITHIN.saturating_mul(2).saturating_add(Duration::from_secs(1));

/// How soon after its last output a process has ended that ends by itself. Part of [`LAST_LINES_WITHIN`].
const SEEN_WITHIN: Duration = Duration::from_millis(100);

impl ServerTransport for StdioSpec {
    fn open(&self, parts: TransportParts<'_>) -> Result<Arc<dyn TransportLink>, String> {
        start(self, parts)
    }

    fn identity(&self) -> BoxFuture<'_, ServerIdentity> {
        let spec = self.clone();
        // An unreadable program is a fact of the identity.
        Box::pin(async { run_blocking(move || program_identity(&spec)).await.unwrap_or_default() })
    }

    fn is_local(&self) -> bool {
        true
    }

    /// Waits until the previous process has ended, and has released what the next one needs: a lock, a port, a profile.
    ///
    /// One that goes on with calls in flight is not waited for any longer than one that ends.
    fn wait_free<'a>(&'a self, instance: &'a ServerInstanceId) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let ended = self.processes.none_left(instance);
            if tokio::time::timeout(PREVIOUS_ENDS_WITHIN, ended).await.is_err() {
                tracing::debug!(target: "upstream", server = %instance.0, "starting although the previous process has not ended");
            }
        })
    }
}

/// Starts the process. It ends when the connection is dropped, together with everything that it started.
fn start(spec: &StdioSpec, parts: TransportParts<'_>) -> Result<Arc<dyn TransportLink>, String> {
    let TransportParts { instance, inbound, diagnostics: stderr, shutdown, .. } = parts;
    if shutdown.is_running() {
        return Err("the hub is ending".to_owned());
    }
    let program = spec.program.find()?;
    let mut command = Command::new(&program);
    command.args(&spec.args).env_clear();
    // Programs often need what is in their own folder: `node` next to `npx`.
    let own_folder = program.parent().map(|folder| folder.display().to_string()).unwrap_or_default();
    command.env("PATH", format!("{own_folder}:{USUAL_PLACES}"));
    for (name, value) in &spec.env {
        command.env(name, (spec.values.0)(value).map_err(|why| format!("`env.{name}`: {why}"))?);
    }
    match &spec.cwd {
        // Checked here: the error of `spawn` does not say whether the program or the folder is missing.
        WorkingDir::Chosen(cwd) if !cwd.is_dir() => {
            return Err(format!("its folder `{}` (`cwd`) does not exist", cwd.display()));
        }
        WorkingDir::Own(cwd) => durable_dir::create_all(cwd)
            .map_err(|error| format!("its folder `{}` cannot be made: {error}", cwd.display()))?,
        WorkingDir::Chosen(_) | WorkingDir::Inherited => {}
    }
    if let Some(cwd) = spec.cwd.path() {
        command.current_dir(cwd);
    }
    let mark = spec.processes.next_mark();
    command.env(MARK, &mark);
    // Its own process group: wrappers start others, and a signal has to reach all of them.
    command.process_group(0).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let cannot = |error: io::Error| format!("`{}` cannot be started: {error}", program.display());
    let mut child = command.spawn().map_err(cannot)?;
    let (Some(stdin), Some(stdout), Some(errors)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err("the process has no pipes".to_owned());
    };
    let input = Arc::new(StdinWriter::new(stdin));
    let end = CancellationToken::new();
    tokio::spawn(read(stdout, inbound.clone(), stderr.clone()));
    stderr.set_open(true);
    let errors = tokio::spawn(read_errors(errors, stderr.clone()));
    let (processes, counted) = (spec.processes.clone(), spec.processes.counted(instance));
    let process = ServerProcess { child, errors, stderr, mark, processes, _counted: counted };
    shutdown.spawn(process.run(input.clone(), end.clone(), inbound, shutdown.clone()));
    Ok(Arc::new(StdioLink { input, _end: end.drop_guard() }))
}

/// The link to the process. Dropping it ends the process.
struct StdioLink {
    input: Arc<StdinWriter<ChildStdin>>,
    _end: DropGuard,
}

impl TransportLink for StdioLink {
    fn send<'a>(&'a self, message: OutboundMessage<'a>) -> BoxFuture<'a, Result<(), RequestError>> {
        Box::pin(self.input.send(message.bytes))
    }

    fn take<'a>(&self, message: OutboundMessage<'a>) -> Result<Option<OutboundMessage<'a>>, RequestError> {
        let back = self.input.take(message.bytes)?;
        Ok(back.map(|bytes| OutboundMessage { bytes, ..message }))
    }
}

/// A server's process, from its start to the end of everything that it started.
struct ServerProcess {
    child: Child,
    errors: JoinHandle<()>,
    stderr: DiagnosticTail,
    mark: String,
    processes: Arc<Processes>,
    /// Held to the very end; then the next process may start.
    _counted: TaskTrackerToken,
}

impl ServerProcess {
    /// Writes what the pipe does not take at once until the connection ends, then makes sure that nothing is left
    /// running.
    async fn run(
        mut self,
        input: Arc<StdinWriter<ChildStdin>>,
        end: CancellationToken,
        inbound: Arc<dyn Inbound>,
        shutdown: Shutdown,
    ) {
        let group = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(group) = group {
            self.processes.began(group);
        }
        let mut by_itself = tokio::select! {
            // The server closed its output first; the end of the connection is only the consequence.
            () = end.cancelled() => inbound.lifecycle().closed.is_cancelled() && inbound.lifecycle().given_up_for().is_none(),
            () = shutdown.requested() => false,
            _ = self.child.wait() => true,
            () = poll_fn(|context| input.poll_rest(context)) => true,
        };
        inbound.close();
        // Whether it exits or only closed its pipes has to be seen before its stdin is closed.
        if by_itself && tokio::time::timeout(SEEN_WITHIN, self.child.wait()).await.is_err() {
            by_itself = false;
            self.stderr.push("[stopped by the hub: it closed stdin or stdout and did not exit]".to_owned());
            self.stderr.set_open(false);
        }
        // The usual way to stop a server; signals follow.
        input.close();
        match tokio::time::timeout(END_WITHIN, self.child.wait()).await {
            Ok(Ok(status)) if by_itself => self.last_words(&status.to_string()).await,
            Ok(_) => {}
            Err(_) => {
                signal(group, Signal::TERM);
                let _ = tokio::time::timeout(END_WITHIN, self.child.wait()).await;
            }
        }
        // What the process has started is in its group, and would outlive it.
        signal(group, Signal::KILL);
        let _ = self.child.wait().await;
        if let Some(group) = group {
            self.processes.ended(group);
        }
        let mark = self.mark;
        let _ = portcullis_core::run_blocking(move || guardian::end_marked(&mark)).await;
    }

    /// Records how a process ended by itself, after the rest of its output.
    async fn last_words(&mut self, how: &str) {
        let _ = tokio::time::timeout(LAST_LINES_WITHIN, &mut self.errors).await;
        self.stderr.push(format!("[it ended: {how}]"));
        self.stderr.set_open(false);
    }
}

fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // A group that is gone is fine.
        let _ = kill_process_group(group, signal);
    }
}

/// Returns the request of the hub that an oversized line responds to. The hub's ids are numbers.
fn oversized_response(edges: &LineEdges, state: LineState) -> Option<u64> {
    match oversized_line::response_id(edges, state) {
        Some(RequestId::Number(id)) => Some(id),
        _ => None,
    }
}

async fn read(stdout: ChildStdout, inbound: Arc<dyn Inbound>, stderr: DiagnosticTail) {
    let (mut lines, mut throttle) = (LineReader::new(stdout, MESSAGE_BYTES_MAX), ReadThrottle::new());
    loop {
        let line = tokio::select! {
            line = lines.next() => line,
            () = inbound.lifecycle().closed.cancelled() => break,
        };
        let cost = match line {
            Ok(LineFrame::Text(text)) => match inbound.receive(&text, None) {
                Receipt::Message => continue,
                Receipt::Idle => LINE_COST,
                // A line that came in parts was throttled already.
                Receipt::Noise => LINE_COST + MEGABYTE_COST * megabytes(text.len().min(LONG_BYTES)),
            },
            Ok(LineFrame::Blank) => LINE_COST,
            Ok(LineFrame::TooLong { bytes }) => {
                tracing::warn!(target: "upstream", bytes, "oversized message dropped");
                // Its caller would wait in vain.
                if let Some(id) = oversized_response(lines.edges(), LineState::Complete) {
                    inbound.response_too_long(id, OversizedResponse::Bytes(bytes));
                }
                LINE_COST
            }
            // Too long for any message.
            Ok(LineFrame::Longer { bytes }) if bytes > LINE_BYTES_MAX => {
                tracing::warn!(target: "upstream", bytes, "oversized line; stopping the server");
                if let Some(id) = oversized_response(lines.edges(), LineState::Open) {
                    inbound.response_too_long(id, OversizedResponse::MoreThan(LINE_BYTES_MAX));
                }
                let most = LINE_BYTES_MAX / (1024 * 1024);
                stderr.push(format!("[stopped by the hub: it sent a line of more than {most} MB]"));
                break;
            }
            Ok(LineFrame::Longer { bytes }) => {
                ReadThrottle::yield_now().await;
                if bytes <= MESSAGE_BYTES_MAX as u64 {
                    // It may still become a message.
                    continue;
                }
                MEGABYTE_COST * megabytes(PART_BYTES)
            }
            Ok(LineFrame::End) | Err(_) => break,
        };
        if throttle.charge(cost).await {
            tracing::warn!(target: "upstream", "server sends useless messages; reading is throttled");
        }
    }
    inbound.close();
}

fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}

async fn read_errors(stderr: ChildStderr, tail: DiagnosticTail) {
    let mut lines = LineReader::new(stderr, STDERR_LINE_BYTES_MAX);
    while let Ok(line) = lines.next().await {
        match line {
            LineFrame::Text(text) => tail.push(one_line(&String::from_utf8_lossy(&text))),
            LineFrame::TooLong { bytes } => tail.push(format!("[a line of {bytes} bytes]")),
            LineFrame::Longer { .. } | LineFrame::Blank => {}
            LineFrame::End => break,
        }
    }
}
