//! The real program, in a home of its own.
//!
//! A test crate of the binary gives the path (`CARGO_BIN_EXE_portcullis`). Nothing of the user's own environment
//! reaches the program, and no process outlives its test.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails is a test that fails")]

use crate::wait::{until, within};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// A home folder, with the program that works on it.
pub struct Home {
    binary: PathBuf,
    folder: tempfile::TempDir,
}

/// What a command left behind.
#[derive(Debug)]
pub struct Ran {
    /// The exit code; -1 for a process that a signal ended.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// Returns what was printed, which must be JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| {
            unreadable(&format!("not JSON ({error}): {}\n{}", self.stdout, self.stderr))
        })
    }
}

#[expect(clippy::panic, reason = "this is how a test fails")]
fn unreadable(text: &str) -> ! {
    panic!("{text}")
}

impl Home {
    /// Makes a home in which nobody has to wait for the rate limit.
    pub fn new(binary: impl Into<PathBuf>) -> Home {
        let home = Home::bare(binary);
        home.configure(UNHURRIED);
        home
    }

    /// Makes a home that the program has never seen and that holds nothing.
    pub fn bare(binary: impl Into<PathBuf>) -> Home {
        let folder = tempfile::Builder::new().prefix("portcullis-it-").tempdir().unwrap();
        for name in ["home", "user"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        Home { binary: binary.into(), folder }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// The home folder of the person, for programs that look into it.
    pub fn user(&self) -> PathBuf {
        self.folder.path().join("user")
    }

    /// The only folder that tools reach.
    pub fn files(&self) -> PathBuf {
        self.path().join("workspace/ai-data")
    }

    /// Replaces the configuration in one step, as editors do.
    pub fn configure(&self, toml: &str) {
        let (new, file) = (self.path().join("new.toml"), self.path().join("portcullis.toml"));
        std::fs::write(&new, toml).unwrap();
        std::fs::rename(new, file).unwrap();
    }

    /// Writes a file of the workspace from outside, as a person would.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        write(&self.files().join(path), content.as_ref())
    }

    pub fn write_prompt(&self, name: &str, text: &str) -> PathBuf {
        write(&self.path().join("prompts").join(format!("{name}.md")), text.as_bytes())
    }

    /// Returns the command, with nothing of the environment of the test.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        // Said outright: a mistake about a default must not lead into somebody's real home.
        command.arg("--home").arg(self.path()).args(args).env_clear().env("HOME", self.user());
        // Any port that is free.
        command.env("MCP_HTTP_PORT", "0");
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// Runs a command to its end.
    pub async fn run(&self, args: &[&str]) -> Ran {
        run(self.command(args), "").await
    }

    /// Starts `serve` and waits until it says where.
    pub async fn serve(&self) -> Hub {
        Hub::start(self.command(&["serve", "--json"])).await
    }

    /// Makes a client and returns its token.
    pub async fn add_client(&self, name: &str, options: &[&str]) -> String {
        let args = [&["clients", "add", name, "--json"], options].concat();
        let ran = self.run(&args).await;
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.json()["token"].as_str().unwrap().to_owned()
    }
}

/// A configuration in which no test meets the rate limit by accident.
pub const UNHURRIED: &str = "[rate_limit]\nrequests_per_second = 1_000_000\nburst = 1_000_000\n";

fn write(path: &Path, content: &[u8]) -> PathBuf {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
    path.to_owned()
}

/// Runs a prepared command to its end at a terminal where `typed` was typed ahead. Returns its exit code, and all that was to be seen there.
pub async fn run_at_terminal(mut command: Command, typed: &str) -> (i32, String) {
    let mut screen = std::fs::File::from(openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap());
    grantpt(&screen).unwrap();
    unlockpt(&screen).unwrap();
    let name = ptsname(&screen, Vec::new()).unwrap();
    let end = || Stdio::from(open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap());
    let mut child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
    // What is left of the other end is the child's, so that reading ends with it.
    drop(command);
    screen.write_all(typed.as_bytes()).unwrap();
    let reading = tokio::task::spawn_blocking(move || {
        let mut seen = Vec::new();
        // It ends with an error, which is how a terminal hangs up.
        let _ = screen.read_to_end(&mut seen);
        String::from_utf8_lossy(&seen).replace("\r\n", "\n")
    });
    let status = within("the command at a terminal ends", child.wait()).await.unwrap();
    (status.code().unwrap_or(-1), within("the terminal hangs up", reading).await.unwrap())
}

/// Runs a prepared command to its end, with `input` as its standard input.
pub async fn run(mut command: Command, input: &str) -> Ran {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A program that does not read its input may be gone already.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let output = within("the command ends", child.wait_with_output()).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("what is printed is UTF-8");
    Ran { code: code(output.status), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or(-1)
}

/// How much memory a process has, in kB.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    pub now_kb: u64,
    /// The most since the start, or since [`Process::forget_peak`].
    pub peak_kb: u64,
}

/// A process that runs.
pub struct Process {
    child: Child,
    pid: u32,
    stderr: Arc<Mutex<String>>,
}

impl Process {
    fn of(mut child: Child) -> Process {
        let stderr = Arc::default();
        tokio::spawn(collect(child.stderr.take().unwrap(), Arc::clone(&stderr)));
        let pid = child.id().expect("the process has not been waited for");
        Process { child, pid, stderr }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns what was said on standard error so far.
    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until standard error holds `text`.
    pub async fn says(&self, text: &str) {
        until(&format!("standard error says `{text}`"), async || self.stderr().contains(text).then_some(()))
            .await;
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for the end and returns the exit code; -1 if a signal ended it.
    pub async fn end(&mut self) -> i32 {
        code(within("the process ends", self.child.wait()).await.unwrap())
    }

    /// Tells the process to end, as soon as it listens, and waits until it has.
    pub async fn stop(&mut self) {
        self.heeds(Signal::TERM).await;
        self.signal(Signal::TERM);
        assert_eq!(self.end().await, 0, "{}", self.stderr());
    }

    /// Waits until a signal would be taken in order, and not just end the process.
    pub async fn heeds(&self, signal: Signal) {
        until("the process has a handler for the signal", async || {
            let caught = u64::from_str_radix(&self.status("SigCgt:"), 16).unwrap();
            (caught & 1 << (signal.as_raw() - 1) != 0).then_some(())
        })
        .await;
    }

    /// Returns one line of what the system knows of the process.
    fn status(&self, key: &str) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = status.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn memory(&self) -> Memory {
        let kb = |key: &str| self.status(key).parse().unwrap();
        Memory { now_kb: kb("VmRSS:"), peak_kb: kb("VmHWM:") }
    }

    /// Lets the peak of the memory begin anew, at what it is now.
    pub fn forget_peak(&self) {
        match std::fs::write(format!("/proc/{}/clear_refs", self.pid), "5") {
            // The program is non-dumpable: only root may reset its peak. For others it counts from the start.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {}
            reset => reset.unwrap(),
        }
    }
}

async fn collect(mut from: impl AsyncRead + Unpin, into: Arc<Mutex<String>>) {
    let mut buffer = vec![0; 8 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let text = String::from_utf8_lossy(&buffer[..count]);
        into.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
    }
}

/// A hub that serves HTTP.
pub struct Hub {
    pub process: Process,
    pub address: SocketAddr,
    /// The token of the client that the first start made; empty where there was one already.
    pub token: String,
    /// By which the first person sets a password; empty where somebody has.
    pub admin_link: String,
    /// Held, so that a late line finds a reader.
    _stdout: BufReader<ChildStdout>,
}

impl Hub {
    /// Starts a prepared `serve --json` and waits until it says where.
    pub async fn start(mut command: Command) -> Hub {
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut process = Process::of(child);
        let mut greeting = String::new();
        within("the hub greets", async {
            while !greeting.ends_with("}\n") {
                if stdout.read_line(&mut greeting).await.unwrap() == 0 {
                    let code = process.end().await;
                    unreadable(&format!("no greeting, exit code {code}: {}", process.stderr()));
                }
            }
        })
        .await;
        let greeting: Value = serde_json::from_str(&greeting).unwrap();
        let url = greeting["url"].as_str().unwrap();
        let address = url.trim_start_matches("http://").trim_end_matches("/mcp").parse().unwrap();
        let token = greeting["token"].as_str().unwrap_or_default().to_owned();
        let admin_link = greeting["admin_link"].as_str().unwrap_or_default().to_owned();
        Hub { process, address, token, admin_link, _stdout: stdout }
    }
}

/// A process that speaks on standard input and output.
pub struct Talking {
    pub process: Process,
    pub stdin: Option<ChildStdin>,
    pub stdout: BufReader<ChildStdout>,
}

impl Talking {
    pub fn start(mut command: Command) -> Talking {
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::with_capacity(1024 * 1024, child.stdout.take().unwrap());
        Talking { process: Process::of(child), stdin, stdout }
    }
}
