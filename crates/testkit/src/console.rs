//! Transcripts of a terminal: commands with the output that they have to print.
//!
//! A line after `$ ` is a command for the shell; lines after `> ` continue it. What follows is its output, standard
//! error included. In it, `…` stands for any text in a line, and for any lines if it is alone on one.
//! `[exit code N]` after the output is required where the code is not 0.
//!
//! `portcullis` and `portcullis serve` start the hub and leave it running. A command that ends with ` &` runs beside
//! the others, and `wait` prints what it printed. Some values differ in each run and have a stand-in: the user's
//! folder is `~`, the hub's port is 3000, and the id of the newest approval is [`SHOWN_APPROVAL`].
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use crate::wait::{until, within};
use parking_lot::Mutex;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

/// What stands for the id of the newest approval.
pub const SHOWN_APPROVAL: &str = "2e89j26n";
/// What stands for the hub's port.
const SHOWN_PORT: &str = "127.0.0.1:3000";
/// Commands that only read what the hub does meanwhile.
const READS: [&str; 4] =
    ["portcullis approvals", "portcullis mcp status", "portcullis audit tail", "portcullis audit search"];
/// How often a command is repeated that only reads; each try takes a process's start.
const READ_TRIES: usize = 100;
/// How often what a starting hub prints is looked at, and the pause between.
const START_LOOKS: usize = 250;
const START_PAUSE: Duration = Duration::from_millis(20);
const STARTS: [&str; 2] = ["portcullis", "portcullis serve"];

/// A command, and what it has to print.
#[derive(Debug, PartialEq, Eq)]
pub struct ConsoleStep {
    command: String,
    expected: String,
    exit_code: i32,
}

/// Returns the transcript in a Markdown page: its `console` blocks.
pub fn of_page(page: &str) -> String {
    let mut transcript = String::new();
    // How far the block is indented, as in a list.
    let mut inside = None;
    for line in page.lines() {
        match (line.trim(), inside) {
            ("```console", _) => inside = line.find('`'),
            ("```", _) => inside = None,
            (_, Some(indent)) => {
                transcript.push_str(&format!("{}\n", line.get(indent..).unwrap_or_default()))
            }
            (_, None) => {}
        }
    }
    transcript
}

/// Parses a transcript. Lines before the first command, and those after `#`, are remarks.
pub fn parse(transcript: &str) -> Vec<ConsoleStep> {
    let mut steps: Vec<ConsoleStep> = Vec::new();
    for line in transcript.lines().filter(|line| !line.starts_with("# ")) {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(ConsoleStep { command: command.to_owned(), expected: String::new(), exit_code: 0 });
            continue;
        }
        let Some(step) = steps.last_mut() else { continue };
        if let Some(more) = line.strip_prefix("> ").filter(|_| step.expected.is_empty()) {
            step.command.push_str(&format!("\n{more}"));
        } else if let Some(code) = line.strip_prefix("[exit code ").and_then(|rest| rest.strip_suffix(']')) {
            step.exit_code = code.parse().unwrap();
        } else {
            step.expected.push_str(&format!("{line}\n"));
        }
    }
    steps
}

/// Returns whether a text is what was expected, with `…` for anything.
pub fn matches(expected: &str, actual: &str) -> bool {
    let lines = |text: &str| text.trim().lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
    lines_match(&lines(expected), &lines(actual))
}

fn lines_match(expected: &[String], actual: &[String]) -> bool {
    match expected.split_first() {
        None => actual.is_empty(),
        Some((first, rest)) if first == "…" => {
            (0..=actual.len()).any(|skipped| lines_match(rest, &actual[skipped..]))
        }
        Some((first, rest)) => actual
            .split_first()
            .is_some_and(|(line, more)| line_matches(first, line) && lines_match(rest, more)),
    }
}

fn line_matches(expected: &str, actual: &str) -> bool {
    match expected.split_once('…') {
        None => expected == actual,
        Some((start, rest)) => actual.strip_prefix(start).is_some_and(|actual| {
            let mut ends = actual.char_indices().map(|(at, _)| at).chain([actual.len()]);
            ends.any(|at| line_matches(rest, &actual[at..]))
        }),
    }
}

/// A user at a terminal, with a folder and programs of their own.
pub struct Console {
    folder: tempfile::TempDir,
    binary: PathBuf,
    home: PathBuf,
    hub: Option<RunningHub>,
    /// The id of the newest approval.
    approval: String,
    beside: Vec<PrintingProcess>,
}

struct RunningHub {
    process: PrintingProcess,
    address: String,
}

/// A process whose output is collected.
struct PrintingProcess {
    child: Child,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
}

impl PrintingProcess {
    fn start(mut command: Command) -> PrintingProcess {
        let mut child = command.spawn().unwrap();
        let (stdout, stderr) = (Arc::default(), Arc::default());
        tokio::spawn(collect(child.stdout.take().unwrap(), Arc::clone(&stdout)));
        tokio::spawn(collect(child.stderr.take().unwrap(), Arc::clone(&stderr)));
        PrintingProcess { child, stdout, stderr }
    }
}

async fn collect(mut from: impl AsyncRead + Unpin, into: Arc<Mutex<String>>) {
    let mut buffer = vec![0; 8 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        into.lock().push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
}

impl Console {
    /// Opens a terminal in an empty user folder. The hub's home is the usual one.
    pub fn new(binary: impl Into<PathBuf>) -> Console {
        let folder = tempfile::Builder::new().prefix("portcullis-console-").tempdir().unwrap();
        for name in ["user", "bin"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let home = folder.path().join("user/.local/share/portcullis");
        Console {
            folder,
            binary: binary.into(),
            home,
            hub: None,
            approval: SHOWN_APPROVAL.to_owned(),
            beside: Vec::new(),
        }
    }

    /// Opens a terminal whose hub has a copy of a folder as its home.
    pub fn in_copy_of(binary: impl Into<PathBuf>, example: &Path) -> Console {
        let mut console = Console::new(binary);
        console.home = console.user().join("example");
        copy(example, &console.home);
        console
    }

    pub fn user(&self) -> PathBuf {
        self.folder.path().join("user")
    }

    /// Puts a program that starts another one with its arguments into the search path.
    pub fn add_program(&self, name: &str, script: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.folder.path().join("bin").join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    }

    /// Performs all steps, and fails at the first that prints something else.
    pub async fn perform(&mut self, steps: &[ConsoleStep]) {
        assert!(!steps.is_empty(), "a transcript without commands checks nothing");
        for step in steps {
            let file = self.configuration();
            let reloads = self.reloads();
            let (printed, exit_code) = match step.command.as_str() {
                start if STARTS.contains(&start) => (self.start_hub(start, &step.expected).await, 0),
                "wait" => self.wait().await,
                command => match command.strip_suffix(" &") {
                    Some(command) => {
                        let started = PrintingProcess::start(self.shell(command));
                        self.beside.push(started);
                        (String::new(), 0)
                    }
                    None => self.run(command, step).await,
                },
            };
            assert!(
                matches(&step.expected, &printed) && exit_code == step.exit_code,
                "$ {}\n{printed}[exit code {exit_code}]\n\n--- expected:\n{}[exit code {}]",
                step.command,
                step.expected,
                step.exit_code
            );
            self.settle(&file, reloads).await;
        }
    }

    /// Runs a command. One that only reads is repeated while it prints something else: a hub does many things beside
    /// the command that causes them.
    async fn run(&mut self, command: &str, step: &ConsoleStep) -> (String, i32) {
        let mut last = (String::new(), 0);
        let reads = READS.iter().any(|read| command == *read || command.starts_with(&format!("{read} --")));
        let tries = if reads && self.hub.is_some() { READ_TRIES } else { 1 };
        for _ in 0..tries {
            let output = within("the command ends", self.shell(command).output()).await.unwrap();
            let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            let printed = self.shown(&text).await;
            let exit_code = output.status.code().unwrap_or(-1);
            last = (printed, exit_code);
            if matches(&step.expected, &last.0) && last.1 == step.exit_code {
                break;
            }
        }
        last
    }

    async fn start_hub(&mut self, command: &str, expected: &str) -> String {
        assert!(self.hub.is_none(), "a hub runs already");
        let mut shell = self.shell(command);
        // Any free port.
        shell.env("MCP_HTTP_PORT", "0");
        let process = PrintingProcess::start(shell);
        let address = until("the hub prints its address", async || {
            let printed = process.stdout.lock().clone();
            let (_, rest) = printed.split_once("http://")?;
            Some(rest.split_once("/mcp")?.0.to_owned())
        })
        .await;
        self.hub = Some(RunningHub { process, address });
        // What it prints has no mark for its end.
        let mut printed = String::new();
        for _ in 0..START_LOOKS {
            printed = self.hub.as_ref().unwrap().process.stdout.lock().clone();
            printed = self.shown(&printed).await;
            if matches(expected, &printed) {
                break;
            }
            tokio::time::sleep(START_PAUSE).await;
        }
        printed
    }

    async fn wait(&mut self) -> (String, i32) {
        let mut printed = String::new();
        let mut exit_code = 0;
        for mut process in std::mem::take(&mut self.beside) {
            let status = within("the command beside ends", process.child.wait()).await.unwrap();
            exit_code = status.code().unwrap_or(-1).max(exit_code);
            // Its pipes are closed; the collectors are not necessarily through.
            until("its output is read", async || {
                (Arc::strong_count(&process.stdout) == 1 && Arc::strong_count(&process.stderr) == 1)
                    .then_some(())
            })
            .await;
            printed.push_str(&process.stdout.lock());
            printed.push_str(&process.stderr.lock());
        }
        (self.shown(&printed).await, exit_code)
    }

    /// Waits until the hub has followed a change of its configuration, and its servers are started.
    async fn settle(&self, before: &str, reloads: usize) {
        if self.hub.is_none() {
            return;
        }
        if self.configuration() != before {
            until("the hub follows the configuration", async || (self.reloads() > reloads).then_some(()))
                .await;
        }
        until("the servers are started", async || {
            let status = self.query("portcullis mcp status --json").await;
            let starting = |server: &Value| server["status"] == "starting";
            (!status["servers"].as_array().into_iter().flatten().any(starting)).then_some(())
        })
        .await;
    }

    fn configuration(&self) -> String {
        std::fs::read_to_string(self.home.join("portcullis.toml")).unwrap_or_default()
    }

    fn reloads(&self) -> usize {
        let Some(hub) = &self.hub else { return 0 };
        let said = hub.process.stderr.lock();
        said.matches("configuration reloaded").count() + said.matches("configuration invalid").count()
    }

    async fn query(&self, command: &str) -> Value {
        let output = self.shell(command).output().await.unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// A command of the shell, without the environment of the test.
    fn shell(&self, command: &str) -> Command {
        let command = match &self.hub {
            Some(hub) => command.replace(SHOWN_PORT, &hub.address),
            None => command.to_owned(),
        };
        let command = command.replace(SHOWN_APPROVAL, &self.approval);
        let mut shell = Command::new("/bin/sh");
        let program = self.binary.parent().unwrap().display().to_string();
        let bin = self.folder.path().join("bin");
        shell.arg("-c").env_clear().current_dir(self.user());
        // One process, so that none outlives the test.
        let is_one = command.starts_with("portcullis") && !command.contains(['\n', '|', ';', '<', '>', '&']);
        shell.arg(if is_one { format!("exec {command}") } else { command });
        shell.env("PATH", format!("{}:{program}:/usr/local/bin:/usr/bin:/bin", bin.display()));
        shell.env("HOME", self.user()).env("PORTCULLIS_HOME", &self.home);
        if let Some((_, port)) = self.hub.as_ref().and_then(|hub| hub.address.rsplit_once(':')) {
            shell.env("MCP_HTTP_PORT", port);
        }
        shell.env("TZ", "UTC").env("COLUMNS", "200");
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        shell
    }

    /// Replaces what differs in each run.
    async fn shown(&mut self, text: &str) -> String {
        let mut text = text.replace(&self.user().display().to_string(), "~");
        if let Some(hub) = &self.hub {
            text = text.replace(&hub.address, SHOWN_PORT);
            let approvals = self.query("portcullis approvals --json").await;
            let newest = approvals
                .as_array()
                .and_then(|all| all.iter().max_by_key(|one| one["requested"].to_string()));
            if let Some(id) = newest.and_then(|approval| approval["id"].as_str()) {
                self.approval = id.to_owned();
            }
            text = text.replace(&self.approval, SHOWN_APPROVAL);
        }
        text
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ellipsis_stands_for_anything_and_the_rest_for_itself() {
        let printed = "Added ci.\n\n  pcl_123\n\nDone in 3 ms\n";
        for expected in ["Added ci.\n…\nDone in … ms", "…", "Added …\n\n  pcl_…\n…"] {
            assert!(matches(expected, printed), "{expected}");
        }
        for expected in ["", "Added ci.", "…\nDone in … s", "Added ci.\n…\nDone", "Added …\n…\nAdded …\n…"]
        {
            assert!(!matches(expected, printed), "{expected}");
        }
    }

    #[test]
    fn commands_have_lines_output_and_a_code() {
        let page = "Text\n\n```console\n$ cat <<E\n> x\n> E\nx\n```\n\n```sh\nno\n```\n1. In a list\n   ```console\n   $ false\n   [exit code 1]\n   ```\n";
        let step = |command: &str, expected: &str, exit_code| ConsoleStep {
            command: command.to_owned(),
            expected: expected.to_owned(),
            exit_code,
        };
        assert_eq!(parse(&of_page(page)), [step("cat <<E\nx\nE", "x\n", 0), step("false", "", 1)]);
    }
}
