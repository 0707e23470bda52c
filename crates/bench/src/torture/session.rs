//! The real program on standard input and output, for tests that end it harshly.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a reply may take. A call takes milliseconds, also when it fails.
pub const REPLY_LIMIT: Duration = Duration::from_secs(20);
/// How much of what a program says on standard error is kept.
const STDERR_BYTES_MAX: u64 = 256 * 1024;

/// Returns the program that was built beside this one, or that `PORTCULLIS_BIN` names.
pub fn program() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("PORTCULLIS_BIN") {
        return Some(named.into());
    }
    let this = std::env::current_exe().ok()?;
    let folders = this.ancestors().skip(1).take(2);
    folders.map(|folder| folder.join("portcullis")).find(|path| path.is_file())
}

/// A home, and the program that works on it.
pub struct TortureHome {
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl TortureHome {
    /// Makes a home in which no client has to wait for the rate limit.
    pub fn new(program: &Path) -> Result<TortureHome> {
        TortureHome::in_folder(program, &std::env::temp_dir())
    }

    /// Makes one below this folder.
    pub fn in_folder(program: &Path, folder: &Path) -> Result<TortureHome> {
        let folder = tempfile::Builder::new().prefix("portcullis-torture-").tempdir_in(folder)?;
        for name in ["home", "user"] {
            std::fs::create_dir(folder.path().join(name))?;
        }
        let made = TortureHome { program: program.to_owned(), folder };
        std::fs::write(made.home().join("portcullis.toml"), portcullis_testkit::process::UNHURRIED)?;
        Ok(made)
    }

    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Returns a path beside the home.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn files(&self) -> PathBuf {
        self.home().join("workspace/ai-data")
    }

    pub fn secure(&self) -> PathBuf {
        self.home().join("workspace/secure")
    }

    /// Returns the command, with `before` in front of it and nothing of the user's environment.
    pub fn command<S: AsRef<OsStr>>(&self, before: &[S], args: &[&str]) -> Command {
        let mut words = before.iter().map(AsRef::as_ref).chain([self.program.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).arg("--home").arg(self.home()).args(args);
        command.env_clear().env("HOME", self.folder.path().join("user"));
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command
    }

    /// Runs a command to its end, with `input` as its standard input.
    pub fn run<S: AsRef<OsStr>>(&self, before: &[S], args: &[&str], input: &str) -> Result<Output> {
        let mut command = self.command(before, args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that does not read its input may be gone already.
            let _ = stdin.write_all(input.as_bytes());
        }
        Ok(child.wait_with_output()?)
    }

    /// Runs a command that must succeed, and returns what it printed.
    pub fn succeeds(&self, args: &[&str]) -> Result<String> {
        let output = self.run::<&str>(&[], args, "")?;
        if !output.status.success() {
            // With `--json`, errors are printed where results are.
            let said = [output.stderr, output.stdout].concat();
            bail!("`{}`: {}", args.join(" "), String::from_utf8_lossy(&said).trim());
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum CallReply {
    Done,
    /// Refused, with these words.
    Refused(String),
    /// The process ended first.
    Gone,
    /// Nothing came within the limit.
    Silent,
}

/// A process that speaks on standard input and output.
pub struct StdioSession {
    child: Child,
    stdin: Option<ChildStdin>,
    replies: Receiver<Value>,
    /// How many calls have no reply yet.
    waiting: u64,
    stderr: Option<JoinHandle<String>>,
}

impl StdioSession {
    pub fn start(mut command: Command) -> Result<StdioSession> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("standard output")?;
        let stderr = child.stderr.take().context("standard error")?;
        let (send, replies) = mpsc::channel();
        std::thread::spawn(move || {
            // A reply that was cut off was not given.
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            let messages = lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
            for message in messages.filter(|message| message["method"].is_null()) {
                let _ = send.send(message);
            }
        });
        let stderr = std::thread::spawn(move || {
            let mut text = Vec::new();
            let mut stderr = stderr.take(STDERR_BYTES_MAX);
            let _ = stderr.read_to_end(&mut text);
            let _ = std::io::copy(&mut stderr.into_inner(), &mut std::io::sink());
            String::from_utf8_lossy(&text).into_owned()
        });
        Ok(StdioSession { child, stdin, replies, waiting: 0, stderr: Some(stderr) })
    }

    /// Says hello, and returns whether it was answered.
    pub fn initialize(&mut self) -> bool {
        let params = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "torture", "version": "1" }
        });
        self.send(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }));
        let answered = self.reply(0) == CallReply::Done;
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        answered
    }

    /// Calls a tool and waits for the reply.
    pub fn call(&mut self, id: u64, tool: &str, arguments: &Value) -> CallReply {
        self.post(id, tool, arguments);
        self.reply(id)
    }

    /// Calls a tool without waiting.
    pub fn post(&mut self, id: u64, tool: &str, arguments: &Value) {
        self.waiting += 1;
        let params = json!({ "name": tool, "arguments": arguments });
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }));
    }

    fn send(&mut self, message: &Value) {
        if let Some(stdin) = &mut self.stdin {
            // Who does not read any more does not answer either.
            let _ = stdin.write_all(format!("{message}\n").as_bytes());
        }
    }

    /// Returns how many calls have no reply yet.
    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Waits for the reply to one call; those to others are passed over.
    fn reply(&mut self, id: u64) -> CallReply {
        loop {
            match self.replies.recv_timeout(REPLY_LIMIT) {
                Ok(message) if message["id"] == id => {
                    self.waiting = self.waiting.saturating_sub(1);
                    return judged(&message);
                }
                Ok(_) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return CallReply::Gone,
                Err(mpsc::RecvTimeoutError::Timeout) => return CallReply::Silent,
            }
        }
    }

    /// Waits for the next reply, to whichever call. `None` if there is none in time, or at all any more.
    pub fn any_reply(&mut self, limit: Duration) -> Option<(u64, CallReply)> {
        let message = self.replies.recv_timeout(limit).ok()?;
        self.waiting = self.waiting.saturating_sub(1);
        Some((message["id"].as_u64()?, judged(&message)))
    }

    /// Ends it in good order, and returns what it said on standard error.
    pub fn close(mut self) -> Result<String> {
        drop(self.stdin.take());
        self.finish()
    }

    /// Ends it at once, and returns what it said on standard error.
    pub fn kill(mut self) -> Result<String> {
        self.kill_now()?;
        self.finish()
    }

    /// Ends it at once. What it said before can still be read.
    pub fn kill_now(&mut self) -> Result<()> {
        // With strace in front the hub is its child, and strace ends with it.
        let children = children(self.child.id());
        match children.as_slice() {
            [] => self.child.kill()?,
            children => children.iter().for_each(|id| end(*id)),
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<String> {
        self.child.wait()?;
        let stderr = self.stderr.take().context("standard error is read once")?;
        stderr.join().ok().context("the reader of standard error")
    }
}

fn judged(message: &Value) -> CallReply {
    let result = &message["result"];
    match result.is_object() && result["isError"] != true {
        true => CallReply::Done,
        false => CallReply::Refused(message.to_string()),
    }
}

impl Drop for StdioSession {
    fn drop(&mut self) {
        // The id of one that has ended may be another's by now.
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        children(self.child.id()).into_iter().for_each(end);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn children(id: u32) -> Vec<u32> {
    let listed = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    listed.split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

fn end(id: u32) {
    if let Some(id) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        // One that has ended already is what was wanted.
        let _ = kill_process(id, Signal::KILL);
    }
}
