//! One worker process: spawn, limits, exit reason.

use super::{PoolSettings, ScriptFailure};
use crate::ENVIRONMENT;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// How much of the standard error of a failed worker is read.
const STDERR_BYTES_MAX: u64 = 4 * 1024;
/// How long to wait for the exit after the worker closed its pipes.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) struct WorkerProcess {
    child: Child,
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    stderr: ChildStderr,
    pub(super) missing: Vec<String>,
}

impl WorkerProcess {
    /// Spawns a worker, which is killed when this is dropped.
    ///
    /// Not for a thread that ends before the hub: the parent death signal fires at the end of the spawning thread.
    pub(super) fn spawn(settings: &PoolSettings) -> Result<WorkerProcess, String> {
        let mut command = Command::new(&settings.program);
        command.arg0("portcullis").args(&settings.arguments).arg(settings.memory_bytes_max.to_string());
        command.env_clear().envs(ENVIRONMENT);
        command.current_dir("/").kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            (Some(stdin), Some(stdout), Some(stderr)) => {
                Ok(WorkerProcess { child, stdin, stdout, stderr, missing: Vec::new() })
            }
            _ => Err("the process has no pipes".to_owned()),
        }
    }

    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sets a CPU time limit, so that a worker which outlives the hub exits too.
    pub(super) fn limit_time(&self, timeout: Duration) {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let seconds = Some(timeout.as_secs() + 1);
        // Fails if the process has exited. The hub's own deadline is authoritative.
        let _ = prlimit(pid, Resource::Cpu, Rlimit { current: seconds, maximum: seconds });
    }

    /// Returns the peak memory.
    pub(super) fn peak_memory(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()?)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
    }

    /// Returns why the process exited without a result.
    pub(super) async fn exit_reason(
        &mut self,
        memory_bytes_max: u64,
        timeout_after: Duration,
        parsed: bool,
    ) -> ScriptFailure {
        let status = self.end().await;
        let stderr = self.stderr_text().await;
        match status.as_ref().and_then(ExitStatus::signal) {
            _ if stderr.contains("memory allocation of") || stderr.contains("out of memory") => {
                ScriptFailure::Memory(memory_bytes_max)
            }
            _ if stderr.contains("overflowed its stack") => ScriptFailure::Depth,
            Some(SIGXCPU | SIGKILL) => ScriptFailure::Time(timeout_after),
            Some(SIGSEGV | SIGBUS | SIGABRT) if !parsed => ScriptFailure::Depth,
            Some(SIGSEGV | SIGBUS | SIGABRT) => ScriptFailure::Memory(memory_bytes_max),
            Some(SIGSYS) => ScriptFailure::Broke("the sandbox forbids a system call that it made".to_owned()),
            _ => ScriptFailure::Broke(match status {
                Some(status) => status.to_string(),
                None => "it closed its pipes but did not exit".to_owned(),
            }),
        }
    }

    /// Returns why the process exited during startup.
    pub(super) async fn startup_failure(&mut self, error: &std::io::Error) -> String {
        let status = self.end().await.map_or_else(|| error.to_string(), |status| status.to_string());
        let stderr = self.stderr_text().await;
        if stderr.trim().is_empty() { status } else { format!("{status}: {}", stderr.trim()) }
    }

    async fn end(&mut self) -> Option<ExitStatus> {
        timeout(EXIT_TIMEOUT, self.child.wait()).await.ok()?.ok()
    }

    async fn stderr_text(&mut self) -> String {
        let mut bytes = Vec::new();
        let read = (&mut self.stderr).take(STDERR_BYTES_MAX);
        tokio::pin!(read);
        // A timeout here is no error: the process has exited, or another process holds the pipe.
        let _ = timeout(Duration::from_millis(200), read.read_to_end(&mut bytes)).await;
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

const SIGABRT: i32 = libc::SIGABRT;
const SIGBUS: i32 = libc::SIGBUS;
const SIGKILL: i32 = libc::SIGKILL;
const SIGSEGV: i32 = libc::SIGSEGV;
const SIGSYS: i32 = libc::SIGSYS;
const SIGXCPU: i32 = libc::SIGXCPU;
