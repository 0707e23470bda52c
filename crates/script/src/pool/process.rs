//! One worker process, from outside.

use super::{Failure, PoolSettings};
use crate::ENVIRONMENT;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// How much of what a dying worker says is read.
const LAST_WORDS_BYTES_MAX: u64 = 4 * 1024;
/// How long its end is waited for once it has closed its pipes.
const END_WITHIN: Duration = Duration::from_secs(2);

pub(super) struct Process {
    child: Child,
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    stderr: ChildStderr,
    pub(super) missing: Vec<String>,
}

impl Process {
    /// Starts one. It is killed when this is dropped.
    ///
    /// Not to be called on a thread that ends before the hub: the kernel would take its end for the hub's.
    pub(super) fn spawn(settings: &PoolSettings) -> Result<Process, String> {
        let mut command = Command::new(&settings.program);
        command.arg0("portcullis").args(&settings.arguments).arg(settings.memory_bytes_max.to_string());
        command.env_clear().envs(ENVIRONMENT);
        command.current_dir("/").kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            (Some(stdin), Some(stdout), Some(stderr)) => {
                Ok(Process { child, stdin, stdout, stderr, missing: Vec::new() })
            }
            _ => Err("it has no pipes".to_owned()),
        }
    }

    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Bounds the time that it may compute, so that one that the hub cannot kill ends all the same.
    pub(super) fn limit_time(&self, timeout: Duration) {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let seconds = Some(timeout.as_secs() + 1);
        // One that has ended already has no limits. The hub's own clock is what counts.
        let _ = prlimit(pid, Resource::Cpu, Rlimit { current: seconds, maximum: seconds });
    }

    /// Returns the most memory that it had at one time.
    pub(super) fn peak_memory(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()?)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
    }

    /// Says why it ended without a result.
    pub(super) async fn why(
        &mut self,
        memory_bytes_max: u64,
        timeout_after: Duration,
        parsed: bool,
    ) -> Failure {
        let status = self.end().await;
        let said = self.stderr_text().await;
        match status.as_ref().and_then(ExitStatus::signal) {
            _ if said.contains("memory allocation of") || said.contains("out of memory") => {
                Failure::Memory(memory_bytes_max)
            }
            _ if said.contains("overflowed its stack") => Failure::Depth,
            Some(SIGXCPU | SIGKILL) => Failure::Time(timeout_after),
            Some(SIGSEGV | SIGBUS | SIGABRT) if !parsed => Failure::Depth,
            Some(SIGSEGV | SIGBUS | SIGABRT) => Failure::Memory(memory_bytes_max),
            Some(SIGSYS) => Failure::Broke("it did what the sandbox forbids".to_owned()),
            _ => Failure::Broke(match status {
                Some(status) => status.to_string(),
                None => "it closed its pipes and did not end".to_owned(),
            }),
        }
    }

    /// Says why one that never got ready ended.
    pub(super) async fn last_words(&mut self, error: &std::io::Error) -> String {
        let status = self.end().await.map_or_else(|| error.to_string(), |status| status.to_string());
        let said = self.stderr_text().await;
        if said.trim().is_empty() { status } else { format!("{status}: {}", said.trim()) }
    }

    async fn end(&mut self) -> Option<ExitStatus> {
        timeout(END_WITHIN, self.child.wait()).await.ok()?.ok()
    }

    async fn stderr_text(&mut self) -> String {
        let mut bytes = Vec::new();
        let read = (&mut self.stderr).take(LAST_WORDS_BYTES_MAX);
        tokio::pin!(read);
        // What is there is there: the process has ended, or holds the pipe for no good reason.
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
