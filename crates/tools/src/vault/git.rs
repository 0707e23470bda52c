//! Runs `git` so that it starts no other program.
//!
//! A vault may come from an untrusted source, including its `.git`. Hooks, helpers and editors are disabled here;
//! settings that could start a program under a custom key are refused (`settings.rs`). The user's configuration and
//! environment are not passed on, except what ssh needs for an ssh remote.

mod remote_address;
mod settings;

pub use remote_address::RemoteAddress;
pub(super) use remote_address::RemoteScheme;
pub(super) use settings::is_forbidden;

use portcullis_core::Secret;
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// The oldest version with everything used here (`merge-tree --merge-base`).
const OLDEST: (u32, u32) = (2, 40);
/// Output of git: the names of many files, and a note.
const STDOUT_BYTES_MAX: u64 = 16 * 1024 * 1024;
const STDERR_BYTES_MAX: u64 = 64 * 1024;
/// How long git gets to clean up after SIGTERM.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// Settings that override the repository's. They come last, so they win.
const SETTINGS: [(&str, &str); 32] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.untrackedCache", "false"),
    ("core.askPass", ""),
    ("core.editor", ":"),
    ("core.pager", "cat"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    // Never prompts for an unknown host or a password.
    ("core.sshCommand", "ssh -oBatchMode=yes"),
    // Names that other file systems treat as `.git`.
    ("core.protectHFS", "true"),
    ("core.protectNTFS", "true"),
    ("core.quotePath", "false"),
    ("sequence.editor", ":"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("push.recurseSubmodules", "no"),
    ("push.followTags", "false"),
    ("push.gpgSign", "false"),
    ("commit.gpgSign", "false"),
    ("tag.gpgSign", "false"),
    ("log.showSignature", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    // An empty value clears the list so far.
    ("credential.helper", ""),
    ("protocol.ext.allow", "never"),
    ("http.followRedirects", "false"),
    ("http.proxy", ""),
    ("transfer.credentialsInUrl", "die"),
    ("safe.bareRepository", "explicit"),
    // No rename detection, so that a conflict has one path.
    ("merge.renames", "false"),
    ("merge.directoryRenames", "false"),
    ("merge.conflictStyle", "merge"),
];

/// Why git failed.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("git is not installed")]
    Missing,
    #[error("git is too old: {0}, at least 2.40 is needed")]
    Old(String),
    #[error("git could not be started")]
    Start(#[source] std::io::Error),
    #[error("git took longer than {} s", .0.as_secs())]
    Timeout(Duration),
    #[error("the output of git is too large")]
    TooMuch,
    /// The output is for the log only: it may contain paths and URLs.
    #[error("`git {what}` failed")]
    Failed { what: String, code: Option<i32>, said: String },
    #[error("the folder has files, but is not a git repository")]
    NotARepository,
    #[error("`.git` is a link or a file, which is not supported")]
    Elsewhere,
    #[error("the repository has settings that could start a program: {}", .0.join(", "))]
    Settings(Vec<String>),
    #[error("the repository is in the middle of {0}")]
    Busy(&'static str),
    #[error("the repository has no branch checked out")]
    Detached,
    #[error("the local and the remote history have no common commit")]
    Unrelated,
    #[error("there are more than {0} commits to push")]
    ManyCommits(usize),
    #[error("the local and remote changes cannot be merged")]
    Tangled,
    #[error("a file of the vault could not be written")]
    File(#[source] portcullis_core::root::RootError),
    #[error("{0}")]
    Secret(String),
}

/// Returns the path of git, for a check before its use.
pub fn find_git() -> Result<PathBuf, GitError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("git")).find(|file| file.is_file());
    found.filter(|file| file.is_absolute()).ok_or(GitError::Missing)
}

/// Checks the repository of a vault without changing it. Needs a Tokio runtime.
pub(super) async fn look_at_repository(vault: &Path) -> Result<(), GitError> {
    let git = Git::new(vault)?;
    let until = Instant::now() + Duration::from_secs(10);
    git.check_version(until).await?;
    match git.folder_state()? {
        FolderState::Repository => git.check_settings(until).await,
        FolderState::Empty => Ok(()),
        FolderState::Files => Err(GitError::NotARepository),
    }
}

/// The content of a vault's folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FolderState {
    Empty,
    Repository,
    Files,
}

/// What a command may access.
#[derive(Clone, Copy)]
pub(super) enum GitAccess<'a> {
    /// Only the repository.
    Here,
    /// The remote, with an authentication header.
    Remote { address: &'a RemoteAddress, header: Option<&'a Secret<String>> },
}

/// The result of a command.
#[derive(Debug)]
pub(super) struct GitOutput {
    pub(super) code: Option<i32>,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
}

/// One git command.
pub(super) struct GitCommand<'a> {
    args: Vec<OsString>,
    input: &'a [u8],
    env: Vec<(&'static str, OsString)>,
    access: GitAccess<'a>,
    /// It creates a repository, so it runs outside of one.
    anew: bool,
    until: Instant,
}

/// Git for one vault.
#[derive(Debug, Clone)]
pub(super) struct Git {
    program: PathBuf,
    vault: PathBuf,
}

impl<'a> GitCommand<'a> {
    pub(super) fn new<S: Into<OsString>>(
        args: impl IntoIterator<Item = S>,
        until: Instant,
    ) -> GitCommand<'a> {
        let args = args.into_iter().map(Into::into).collect();
        GitCommand { args, input: b"", env: Vec::new(), access: GitAccess::Here, anew: false, until }
    }

    pub(super) fn input(self, input: &'a [u8]) -> GitCommand<'a> {
        GitCommand { input, ..self }
    }

    pub(super) fn env(mut self, name: &'static str, value: impl Into<OsString>) -> GitCommand<'a> {
        self.env.push((name, value.into()));
        self
    }

    pub(super) fn outside_repository(self) -> GitCommand<'a> {
        GitCommand { anew: true, ..self }
    }

    pub(super) fn access(self, access: GitAccess<'a>) -> GitCommand<'a> {
        GitCommand { access, ..self }
    }
}

impl GitOutput {
    pub(super) fn is_good(&self) -> bool {
        self.code == Some(0)
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end_matches('\n').to_owned()
    }

    pub(super) fn failed(self, what: &str) -> GitError {
        GitError::Failed { what: what.to_owned(), code: self.code, said: self.stderr }
    }
}

impl Git {
    pub(super) fn new(vault: &Path) -> Result<Git, GitError> {
        Ok(Git { program: find_git()?, vault: vault.to_owned() })
    }

    pub(super) fn git_dir(&self) -> PathBuf {
        self.vault.join(".git")
    }

    pub(super) fn folder_state(&self) -> Result<FolderState, GitError> {
        match std::fs::symlink_metadata(self.git_dir()) {
            Ok(found) if found.is_dir() => return Ok(FolderState::Repository),
            Ok(_) => return Err(GitError::Elsewhere),
            Err(_) => {}
        }
        let entries = match std::fs::read_dir(&self.vault) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(FolderState::Empty),
            entries => entries.map_err(GitError::Start)?,
        };
        // Remains of an interrupted clone are not the user's files.
        let own =
            |name: &OsString| name.to_str().is_some_and(|name| name.starts_with(super::sync::CLONE_PREFIX));
        let any = entries.flatten().any(|entry| !own(&entry.file_name()));
        Ok(if any { FolderState::Files } else { FolderState::Empty })
    }

    pub(super) async fn check_version(&self, until: Instant) -> Result<(), GitError> {
        let ran = self.run(GitCommand::new(["version"], until)).await?;
        let text = ran.text();
        let mut numbers =
            text.trim_start_matches("git version ").split('.').map(|part| part.parse::<u32>().ok());
        match (numbers.next().flatten(), numbers.next().flatten()) {
            (Some(major), Some(minor)) if (major, minor) >= OLDEST => Ok(()),
            _ => Err(GitError::Old(text)),
        }
    }

    /// Refuses a repository with settings that could start a program.
    pub(super) async fn check_settings(&self, until: Instant) -> Result<(), GitError> {
        let file = self.git_dir().join("config");
        let args = ["config", "--no-includes", "--null", "--name-only", "--list", "--file"];
        let args = args.map(OsString::from).into_iter().chain([file.into_os_string()]);
        let ran = self.run(GitCommand::new(args, until)).await?;
        if !ran.is_good() {
            return Err(ran.failed("config"));
        }
        let keys = String::from_utf8_lossy(&ran.stdout).into_owned();
        let forbidden: Vec<String> =
            keys.split('\0').filter(|key| is_forbidden(key)).map(printable_key).collect();
        if forbidden.is_empty() { Ok(()) } else { Err(GitError::Settings(forbidden)) }
    }

    /// Runs a command that must succeed, and returns its output.
    pub(super) async fn run_checked(&self, order: GitCommand<'_>) -> Result<String, GitError> {
        let what = order.args.first().map(|first| first.to_string_lossy().into_owned()).unwrap_or_default();
        let ran = self.run(order).await?;
        if ran.is_good() { Ok(ran.text()) } else { Err(ran.failed(&what)) }
    }

    /// Runs a command to its end, or kills its process group at the deadline.
    pub(super) async fn run(&self, order: GitCommand<'_>) -> Result<GitOutput, GitError> {
        let started = Instant::now();
        let mut group = ProcessGroup(self.command(&order).spawn().map_err(GitError::Start)?);
        let (stdin, stdout, stderr) = (group.0.stdin.take(), group.0.stdout.take(), group.0.stderr.take());
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A command that does not read its input reports its error elsewhere.
                let _ = stdin.write_all(order.input).await;
            }
        };
        let work = async {
            let (_, stdout, stderr) = tokio::join!(
                feed,
                read_bounded(stdout, STDOUT_BYTES_MAX),
                read_bounded(stderr, STDERR_BYTES_MAX)
            );
            let (stdout, stderr) = (stdout?, stderr?);
            let status = group.0.wait().await.map_err(GitError::Start)?;
            Ok(GitOutput {
                code: status.code(),
                stdout,
                stderr: String::from_utf8_lossy(&stderr).into_owned(),
            })
        };
        match tokio::time::timeout_at(order.until, work).await {
            Ok(ran) => ran,
            Err(_) => {
                group.end().await;
                Err(GitError::Timeout(started.elapsed()))
            }
        }
    }

    fn command(&self, order: &GitCommand<'_>) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&order.args).env_clear().current_dir(&self.vault);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A process group, so that helpers are killed too.
        command.process_group(0);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("LC_ALL", "C");
        if !order.anew {
            command.env("GIT_DIR", self.git_dir()).env("GIT_WORK_TREE", &self.vault);
        }
        for (name, value) in [
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_CONFIG_SYSTEM", "/dev/null"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_ATTR_NOSYSTEM", "1"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_ASKPASS", ""),
            ("GIT_EDITOR", ":"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_OPTIONAL_LOCKS", "0"),
        ] {
            command.env(name, value);
        }
        let mut settings: Vec<(String, String)> =
            SETTINGS.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let allowed = match order.access {
            GitAccess::Here => "",
            GitAccess::Remote { address, header } => {
                if let Some(header) = header {
                    // In the environment, which only this user can read; arguments are public.
                    let key = format!("http.{}.extraHeader", address.as_str());
                    settings.push((key, header.expose().clone()));
                }
                // ssh needs its keys and known hosts. Other transports would read passwords (`.netrc`).
                if address.kind() == RemoteScheme::Ssh {
                    for name in ["HOME", "SSH_AUTH_SOCK"] {
                        if let Some(value) = std::env::var_os(name) {
                            command.env(name, value);
                        }
                    }
                }
                address.kind().protocol()
            }
        };
        command.env("GIT_ALLOW_PROTOCOL", allowed);
        command.env("GIT_CONFIG_COUNT", settings.len().to_string());
        for (at, (key, value)) in settings.iter().enumerate() {
            command.env(format!("GIT_CONFIG_KEY_{at}"), key).env(format!("GIT_CONFIG_VALUE_{at}"), value);
        }
        for (name, value) in &order.env {
            command.env(name, value);
        }
        command
    }
}

/// A process group, killed on drop.
struct ProcessGroup(Child);

impl ProcessGroup {
    /// Signals the group. After `wait` the id is gone, because it may have been reused.
    fn signal(&self, signal: Signal) {
        let pid = self.0.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // The processes may have exited.
            let _ = kill_process_group(pid, signal);
        }
    }

    /// Sends SIGTERM, so that git removes its locks, and then SIGKILL.
    async fn end(&mut self) {
        self.signal(Signal::TERM);
        let _ = tokio::time::timeout(ENDS_WITHIN, self.0.wait()).await;
        self.signal(Signal::KILL);
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
    }
}

async fn read_bounded(from: Option<impl AsyncRead + Unpin>, bytes_max: u64) -> Result<Vec<u8>, GitError> {
    let mut content = Vec::new();
    if let Some(from) = from {
        from.take(bytes_max + 1).read_to_end(&mut content).await.map_err(GitError::Start)?;
    }
    if content.len() as u64 > bytes_max { Err(GitError::TooMuch) } else { Ok(content) }
}

fn printable_key(key: &str) -> String {
    format!("`{}`", portcullis_core::json::printable(key))
}
