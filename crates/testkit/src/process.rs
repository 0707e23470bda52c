//! The real program as a child process, in a temporary home.
//!
//! A test crate of the binary passes the path (`CARGO_BIN_EXE_portcullis`). No variable of the user's
//! environment reaches the program, and no process outlives its test.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails is a test that fails")]

use crate::wait::{until, within};
use parking_lot::Mutex;
use portcullis_store::database::{DatabaseError, OperationId, Topic};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// A home folder, with the program that uses it.
pub struct TestHome {
    binary: PathBuf,
    folder: tempfile::TempDir,
}

/// The output of a command.
#[derive(Debug)]
pub struct CommandOutput {
    /// The exit code; -1 for a process that a signal ended.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl CommandOutput {
    /// Parses stdout, which must be JSON.
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

impl TestHome {
    /// Changes rows of the database as another process of this home would, but without the types that protect them.
    pub async fn edit_rows(&self, topic: &'static str, sql: &'static str) {
        let database =
            portcullis_store::open(&self.path().join("workspace/secure"), &portcullis_tools::tables())
                .unwrap();
        let id = OperationId::random().unwrap();
        let edited: Result<usize, DatabaseError> = database
            .change(Topic::new(topic), id, move |transaction| {
                Box::pin(async move {
                    let edited = transaction.execute(sql, &[]).await?;
                    transaction.seal_rows()?;
                    Ok(edited)
                })
            })
            .await;
        assert!(edited.unwrap() > 0, "no row changed");
    }

    /// Returns every row of the database as text.
    pub async fn export_rows(&self) -> String {
        let database =
            portcullis_store::open(&self.path().join("workspace/secure"), &portcullis_tools::tables())
                .unwrap();
        database.export().await.unwrap().to_string()
    }

    /// Makes a home without an effective rate limit.
    pub fn new(binary: impl Into<PathBuf>) -> TestHome {
        let home = TestHome::bare(binary);
        home.configure(UNHURRIED);
        home
    }

    /// Makes an empty home that the program has never used.
    pub fn bare(binary: impl Into<PathBuf>) -> TestHome {
        let folder = tempfile::Builder::new().prefix("portcullis-it-").tempdir().unwrap();
        for name in ["home", "user"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        TestHome { binary: binary.into(), folder }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Returns the user's home folder, for programs that look into it.
    pub fn user(&self) -> PathBuf {
        self.folder.path().join("user")
    }

    /// Returns the only folder that tools reach.
    pub fn files(&self) -> PathBuf {
        self.path().join("workspace/ai-data")
    }

    /// Replaces the configuration atomically, as editors do.
    pub fn configure(&self, toml: &str) {
        let (new, file) = (self.path().join("new.toml"), self.path().join("portcullis.toml"));
        std::fs::write(&new, toml).unwrap();
        std::fs::rename(new, file).unwrap();
    }

    /// Writes a workspace file from outside, as a person would.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        write(&self.files().join(path), content.as_ref())
    }

    pub fn write_prompt(&self, name: &str, text: &str) -> PathBuf {
        write(&self.path().join("prompts").join(format!("{name}.md")), text.as_bytes())
    }

    /// Returns the command, without the environment of the test.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        // Explicit, so that a wrong default cannot reach a developer's real home.
        command.arg("--home").arg(self.path()).args(args).env_clear().env("HOME", self.user());
        // Any free port.
        command.env("MCP_HTTP_PORT", "0");
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// Runs a command to its end.
    pub async fn run(&self, args: &[&str]) -> CommandOutput {
        run(self.command(args), "").await
    }

    /// Starts `serve` and waits for its address.
    pub async fn serve(&self) -> HubProcess {
        HubProcess::start(self.command(&["serve", "--json"])).await
    }

    /// Adds a client and returns its token.
    pub async fn add_client(&self, name: &str, options: &[&str]) -> String {
        let args = [&["clients", "add", name, "--json"], options].concat();
        let ran = self.run(&args).await;
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.json()["token"].as_str().unwrap().to_owned()
    }
}

/// A configuration without an effective rate limit.
pub const UNHURRIED: &str = "[rate_limit]\nrequests_per_second = 1_000_000\nburst = 1_000_000\n";

fn write(path: &Path, content: &[u8]) -> PathBuf {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
    path.to_owned()
}

/// Runs a prepared command to its end at a terminal with `typed` as typeahead. Returns its exit code and the
/// screen.
pub async fn run_at_terminal(mut command: Command, typed: &str) -> (i32, String) {
    let mut screen = std::fs::File::from(openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap());
    grantpt(&screen).unwrap();
    unlockpt(&screen).unwrap();
    let name = ptsname(&screen, Vec::new()).unwrap();
    let end = || Stdio::from(open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap());
    let mut child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
    // The other end is then only the child's, so that reading ends with it.
    drop(command);
    screen.write_all(typed.as_bytes()).unwrap();
    let reading = portcullis_core::run_blocking(move || {
        let mut seen = Vec::new();
        // It ends with an error, which is how a terminal hangs up.
        let _ = screen.read_to_end(&mut seen);
        String::from_utf8_lossy(&seen).replace("\r\n", "\n")
    });
    let status = within("the command at a terminal ends", child.wait()).await.unwrap();
    (status.code().unwrap_or(-1), within("the terminal hangs up", reading).await.unwrap())
}

/// Runs a prepared command to its end, with `input` as stdin.
pub async fn run(mut command: Command, input: &str) -> CommandOutput {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A program that does not read its input may have ended already.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let output = within("the command ends", child.wait_with_output()).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("what is printed is UTF-8");
    CommandOutput { code: code(output.status), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or(-1)
}

/// Memory of a process, in kB.
#[derive(Debug, Clone, Copy)]
pub struct ProcessMemory {
    pub now_kb: u64,
    /// Peak since the start, or since [`ChildProcess::forget_peak`].
    pub peak_kb: u64,
}

/// A process that runs.
pub struct ChildProcess {
    child: Child,
    pid: u32,
    stderr: Arc<Mutex<String>>,
}

impl ChildProcess {
    /// Starts a prepared command.
    pub fn start(mut command: Command) -> ChildProcess {
        ChildProcess::of(command.spawn().unwrap())
    }

    fn of(mut child: Child) -> ChildProcess {
        let stderr = Arc::default();
        tokio::spawn(collect(child.stderr.take().unwrap(), Arc::clone(&stderr)));
        let pid = child.id().expect("the process has not been waited for");
        ChildProcess { child, pid, stderr }
    }

    /// Reads stdout up to the line with `text`, once.
    pub async fn stdout_until(&mut self, text: &str) -> String {
        let mut stdout = BufReader::new(self.child.stdout.take().unwrap());
        let mut said = String::new();
        within(&format!("standard output says `{text}`"), async {
            while !said.contains(text) {
                assert_ne!(stdout.read_line(&mut said).await.unwrap(), 0, "{said}");
            }
        })
        .await;
        said
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns stderr so far.
    pub fn stderr(&self) -> String {
        self.stderr.lock().clone()
    }

    /// Waits until stderr contains `text`.
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

    /// Sends SIGTERM once the process handles it, and waits for its end.
    pub async fn stop(&mut self) {
        self.heeds(Signal::TERM).await;
        self.signal(Signal::TERM);
        assert_eq!(self.end().await, 0, "{}", self.stderr());
    }

    /// Waits until the process has a handler for a signal.
    pub async fn heeds(&self, signal: Signal) {
        until("the process has a handler for the signal", async || {
            let caught = u64::from_str_radix(&self.status("SigCgt:"), 16).unwrap();
            (caught & 1 << (signal.as_raw() - 1) != 0).then_some(())
        })
        .await;
    }

    /// Returns one line of `/proc/PID/status`.
    fn status(&self, key: &str) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = status.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn memory(&self) -> ProcessMemory {
        let kb = |key: &str| self.status(key).parse().unwrap();
        ProcessMemory { now_kb: kb("VmRSS:"), peak_kb: kb("VmHWM:") }
    }

    /// Resets the memory peak to the current value.
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
        into.lock().push_str(&text);
    }
}

/// A hub that serves HTTP.
pub struct HubProcess {
    pub process: ChildProcess,
    pub address: SocketAddr,
    /// The token of the client that the first start made; empty on later starts.
    pub token: String,
    /// The link for the first administrator's password; empty if there is one.
    pub admin_link: String,
    /// Held, so that a late line finds a reader.
    _stdout: BufReader<ChildStdout>,
}

impl HubProcess {
    /// Starts a prepared `serve --json` and waits for its address.
    pub async fn start(mut command: Command) -> HubProcess {
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut process = ChildProcess::of(child);
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
        HubProcess { process, address, token, admin_link, _stdout: stdout }
    }
}

/// A process that speaks on stdin and stdout.
pub struct StdioProcess {
    pub process: ChildProcess,
    pub stdin: Option<ChildStdin>,
    pub stdout: BufReader<ChildStdout>,
}

impl StdioProcess {
    pub fn start(mut command: Command) -> StdioProcess {
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::with_capacity(1024 * 1024, child.stdout.take().unwrap());
        StdioProcess { process: ChildProcess::of(child), stdin, stdout }
    }
}
