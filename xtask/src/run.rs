//! Child processes: run to their end with a log and a heartbeat, or in the background.
//!
//! Every wait has a timeout, and every started process is ended by its id, its children first.

use anyhow::{Context, Result, anyhow};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Timeout of a build. A cold build of everything takes ten minutes on two busy cores.
pub(crate) const BUILD_LIMIT: Duration = Duration::from_secs(45 * 60);
/// Timeout of a download. Half a minute is usual.
pub(crate) const INSTALL_LIMIT: Duration = Duration::from_secs(10 * 60);
/// Longest silence of a log, so that a person or a CI job sees that something still happens.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Poll interval for the exit of a program.
const POLL: Duration = Duration::from_millis(50);
/// Grace period after a stop request.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Timeout until a server prints its address.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgramExit {
    Ended(ExitStatus),
    TimedOut(Duration),
}

impl ProgramExit {
    pub(crate) fn passed(self) -> bool {
        matches!(self, ProgramExit::Ended(status) if status.success())
    }
}

impl std::fmt::Display for ProgramExit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProgramExit::Ended(status) => write!(f, "{status}"),
            ProgramExit::TimedOut(limit) => {
                write!(f, "not done after {} s, so it was ended", limit.as_secs())
            }
        }
    }
}

/// Runs a program to its end and shows its output.
pub(crate) fn shown(command: &mut Command, limit: Duration) -> Result<ProgramExit> {
    command.stdin(Stdio::null());
    wait_for(&mut spawn(command)?, limit, |_| ())
}

/// Runs a program to its end and appends its output to a log. `alive` is called periodically with the elapsed
/// time.
pub(crate) fn logged(
    command: &mut Command,
    log: &Path,
    limit: Duration,
    alive: impl FnMut(Duration),
) -> Result<ProgramExit> {
    let output = append(log)?;
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    wait_for(&mut spawn(command)?, limit, alive)
}

/// Runs a preparatory program. A failure shows its output.
pub(crate) fn prepare(what: &str, command: &mut Command, log: &Path, limit: Duration) -> Result<()> {
    start_log(log)?;
    let outcome = logged(command, log, limit, |elapsed| println!("{what}: {} s …", elapsed.as_secs()))?;
    if outcome.passed() {
        return Ok(());
    }
    Err(anyhow!("{}\n{what} failed: {outcome}", fs::read_to_string(log).unwrap_or_default()))
}

/// Makes an empty log.
pub(crate) fn start_log(log: &Path) -> Result<()> {
    let folder = log.parent().context("a log has a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    File::create(log).with_context(|| format!("cannot write `{}`", log.display()))?;
    Ok(())
}

/// Returns whether a program is installed, by running it with `--version`.
pub(crate) fn exists(command: &mut Command) -> bool {
    let quiet = command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Sleeps. There is no async runtime here to block.
#[expect(clippy::disallowed_methods, reason = "this program has no asynchronous runtime")]
pub(crate) fn pause() {
    std::thread::sleep(POLL);
}

/// A background program, which ends at the latest when this is dropped.
pub(crate) struct BackgroundProcess {
    child: Child,
    stdout: Option<ChildStdout>,
}

/// How a program is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopMethod {
    /// Close its stdin.
    ByStdin,
    /// `SIGTERM`.
    BySignal,
}

impl BackgroundProcess {
    /// Starts a program, with its stderr in a log.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Result<BackgroundProcess> {
        start_log(log)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(append(log)?);
        let mut child = spawn(command)?;
        let stdout = child.stdout.take();
        Ok(BackgroundProcess { child, stdout })
    }

    /// Parses the first output of the program.
    pub(crate) fn greeting<T: Send + 'static>(
        &mut self,
        read: impl FnOnce(&mut BufReader<ChildStdout>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let stdout = self.stdout.take().context("the greeting was read already")?;
        let (sender, receiver) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            let _ = sender.send(read(&mut stdout));
            // Later output is discarded, so that it cannot fill the pipe.
            let _ = io::copy(&mut stdout, &mut io::sink());
        });
        receiver.recv_timeout(READY_LIMIT).context("the server does not say where it listens")?
    }

    /// Writes to the program's stdin.
    pub(crate) fn send(&mut self, text: &str) -> Result<()> {
        let stdin = self.child.stdin.as_mut().context("the program's stdin is closed")?;
        stdin.write_all(text.as_bytes())?;
        Ok(stdin.flush()?)
    }

    /// Returns all running descendants of the program.
    pub(crate) fn descendants(&self) -> Vec<u32> {
        descendants(self.child.id())
    }

    /// Ends the program, and returns how it ended.
    pub(crate) fn end(mut self, how: StopMethod) -> Result<ProgramExit> {
        drop(self.child.stdin.take());
        if how == StopMethod::BySignal {
            signal(self.child.id(), Signal::TERM);
        }
        wait_for(&mut self.child, END_LIMIT, |_| ())
    }
}

impl Drop for BackgroundProcess {
    fn drop(&mut self) {
        end_tree(&mut self.child);
    }
}

fn append(log: &Path) -> Result<File> {
    let file = File::options().create(true).append(true).open(log);
    file.with_context(|| format!("cannot write `{}`", log.display()))
}

fn spawn(command: &mut Command) -> Result<Child> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.spawn().with_context(|| format!("cannot start `{program}`"))
}

/// Waits for a program to end; kills it at the timeout.
fn wait_for(child: &mut Child, limit: Duration, mut alive: impl FnMut(Duration)) -> Result<ProgramExit> {
    let start = Instant::now();
    let mut beats = 1;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(ProgramExit::Ended(status));
        }
        let elapsed = start.elapsed();
        if elapsed > limit {
            end_tree(child);
            return Ok(ProgramExit::TimedOut(limit));
        }
        if elapsed > HEARTBEAT * beats {
            beats += 1;
            alive(elapsed);
        }
        pause();
    }
}

/// Kills a running program and all its descendants.
fn end_tree(child: &mut Child) {
    if !matches!(child.try_wait(), Ok(None)) {
        return;
    }
    for id in descendants(child.id()) {
        signal(id, Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

fn signal(id: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        // It may have ended already.
        let _ = kill_process(pid, signal);
    }
}

/// Returns whether a process runs. A zombie does not.
pub(crate) fn is_running(id: u32) -> bool {
    let state = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

/// Returns all descendants of a process. Linux only.
fn descendants(id: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            found.push(child);
            found.extend(descendants(child));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_that_takes_too_long_is_ended_with_its_children() {
        let mut child = shell("sleep 1000 & sleep 1000; true").spawn().unwrap();
        let start = Instant::now();
        while descendants(child.id()).len() < 2 && start.elapsed() < END_LIMIT {
            pause();
        }
        let started = descendants(child.id());
        assert_eq!(started.len(), 2);
        let limit = Duration::from_millis(1);
        assert_eq!(wait_for(&mut child, limit, |_| ()).unwrap(), ProgramExit::TimedOut(limit));
        let is_running = |id: &u32| is_running(*id);
        while started.iter().any(is_running) && start.elapsed() < END_LIMIT {
            pause();
        }
        assert!(!started.iter().any(is_running));
    }

    #[test]
    fn a_server_says_where_it_is_and_ends_when_told() {
        let log = std::env::temp_dir().join(format!("xtask-{}", std::process::id())).join("server.log");
        for how in [StopMethod::ByStdin, StopMethod::BySignal] {
            let mut command = shell("trap 'exit 0' TERM; echo here; read line; exit 0");
            let mut server = BackgroundProcess::start(&mut command, &log).unwrap();
            let said = server.greeting(|stdout| {
                let mut line = String::new();
                io::BufRead::read_line(stdout, &mut line)?;
                Ok(line)
            });
            assert_eq!(said.unwrap(), "here\n");
            assert!(server.end(how).unwrap().passed(), "{how:?}");
        }
        fs::remove_dir_all(log.parent().unwrap()).unwrap();
    }
}
