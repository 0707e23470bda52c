//! The program `git`, started so that nothing but git runs.
//!
//! A vault may come from anywhere, with its `.git`. Hooks, helpers and editors are switched off here; settings that could
//! start a program under a name of their own are refused (`settings.rs`). Nothing of the user's own configuration or
//! environment reaches it, apart from what ssh needs for an ssh remote.

mod address;
mod settings;

pub(super) use address::Kind;
pub use address::RemoteAddress;
pub(super) use settings::forbidden;

use portcullis_core::Secret;
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// The oldest that has all we use (`merge-tree --merge-base`).
const OLDEST: (u32, u32) = (2, 40);
/// The most that git may say: names of many files, and a note.
const STDOUT_BYTES_MAX: u64 = 16 * 1024 * 1024;
const STDERR_BYTES_MAX: u64 = 64 * 1024;
/// How long git gets to clean up after itself.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// Settings that hold whatever a repository says. They come last, so they win.
const SETTINGS: [(&str, &str); 32] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.untrackedCache", "false"),
    ("core.askPass", ""),
    ("core.editor", ":"),
    ("core.pager", "cat"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    // An unknown host or a password would be asked for; nobody is there to answer.
    ("core.sshCommand", "ssh -oBatchMode=yes"),
    // Names that other systems would take for `.git`.
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
    // An empty one ends the list of all before it.
    ("credential.helper", ""),
    ("protocol.ext.allow", "never"),
    ("http.followRedirects", "false"),
    ("http.proxy", ""),
    ("transfer.credentialsInUrl", "die"),
    ("safe.bareRepository", "explicit"),
    // Notes are merged line by line under their own names, so that a conflict has one name as well.
    ("merge.renames", "false"),
    ("merge.directoryRenames", "false"),
    ("merge.conflictStyle", "merge"),
];

/// Why git did not do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum GitProblem {
    #[error("git is not installed")]
    Missing,
    #[error("git is too old: {0}, at least 2.40 is needed")]
    Old(String),
    #[error("git could not be started")]
    Start(#[source] std::io::Error),
    #[error("git took longer than {} s", .0.as_secs())]
    Timeout(Duration),
    #[error("git had more to say than is taken")]
    TooMuch,
    /// The text is for the log only: it may name paths and addresses.
    #[error("`git {what}` failed")]
    Failed { what: String, code: Option<i32>, said: String },
    #[error("the folder has files, but is no git repository")]
    NotARepository,
    #[error("`.git` is a link or a file, and is not followed")]
    Elsewhere,
    #[error("the repository has settings that could start a program: {}", .0.join(", "))]
    Settings(Vec<String>),
    #[error("the repository is in the middle of {0}")]
    Busy(&'static str),
    #[error("the repository has no branch checked out")]
    Detached,
    #[error("the histories here and there have nothing in common")]
    Unrelated,
    #[error("there are more than {0} commits to push")]
    ManyCommits(usize),
    #[error("the changes here and there cannot be put together")]
    Tangled,
    #[error("a file of the vault could not be written")]
    File(#[source] portcullis_core::root::RootError),
    #[error("{0}")]
    Secret(String),
}

/// Where git is, for whoever wants to know before using it.
pub fn find_git() -> Result<PathBuf, GitProblem> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("git")).find(|file| file.is_file());
    found.filter(|file| file.is_absolute()).ok_or(GitProblem::Missing)
}

/// Looks at the repository of a vault without changing anything. Needs a runtime.
pub async fn look_at_repository(vault: &Path) -> Result<(), GitProblem> {
    let git = Git::new(vault)?;
    let until = Instant::now() + Duration::from_secs(10);
    git.check_version(until).await?;
    match git.folder_state()? {
        FolderState::Repository => git.check_settings(until).await,
        FolderState::Empty => Ok(()),
        FolderState::Files => Err(GitProblem::NotARepository),
    }
}

/// What is in the folder of a vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FolderState {
    Empty,
    Repository,
    Files,
}

/// What a command may reach.
#[derive(Clone, Copy)]
pub(super) enum Access<'a> {
    /// Nothing but the repository itself.
    Here,
    /// The remote, with what it wants to be shown.
    Remote { address: &'a RemoteAddress, header: Option<&'a Secret<String>> },
}

/// What a command left behind.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) code: Option<i32>,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
}

/// One command of git.
pub(super) struct Order<'a> {
    args: Vec<OsString>,
    input: &'a [u8],
    env: Vec<(&'static str, OsString)>,
    access: Access<'a>,
    /// It makes a repository, and is not in one.
    anew: bool,
    until: Instant,
}

/// Git in one vault.
#[derive(Debug, Clone)]
pub(super) struct Git {
    program: PathBuf,
    vault: PathBuf,
}

impl<'a> Order<'a> {
    pub(super) fn new<S: Into<OsString>>(args: impl IntoIterator<Item = S>, until: Instant) -> Order<'a> {
        let args = args.into_iter().map(Into::into).collect();
        Order { args, input: b"", env: Vec::new(), access: Access::Here, anew: false, until }
    }

    pub(super) fn input(self, input: &'a [u8]) -> Order<'a> {
        Order { input, ..self }
    }

    pub(super) fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Order<'a> {
        self.env.push((name, value.into()));
        self
    }

    pub(super) fn anew(self) -> Order<'a> {
        Order { anew: true, ..self }
    }

    pub(super) fn access(self, access: Access<'a>) -> Order<'a> {
        Order { access, ..self }
    }
}

impl Ran {
    pub(super) fn is_good(&self) -> bool {
        self.code == Some(0)
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end_matches('\n').to_owned()
    }

    pub(super) fn failed(self, what: &str) -> GitProblem {
        GitProblem::Failed { what: what.to_owned(), code: self.code, said: self.stderr }
    }
}

impl Git {
    pub(super) fn new(vault: &Path) -> Result<Git, GitProblem> {
        Ok(Git { program: find_git()?, vault: vault.to_owned() })
    }

    pub(super) fn git_dir(&self) -> PathBuf {
        self.vault.join(".git")
    }

    pub(super) fn folder_state(&self) -> Result<FolderState, GitProblem> {
        match std::fs::symlink_metadata(self.git_dir()) {
            Ok(found) if found.is_dir() => return Ok(FolderState::Repository),
            Ok(_) => return Err(GitProblem::Elsewhere),
            Err(_) => {}
        }
        let entries = match std::fs::read_dir(&self.vault) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(FolderState::Empty),
            entries => entries.map_err(GitProblem::Start)?,
        };
        // What a clone that was cut short left is not the user's.
        let own =
            |name: &OsString| name.to_str().is_some_and(|name| name.starts_with(super::sync::CLONE_PREFIX));
        let any = entries.flatten().any(|entry| !own(&entry.file_name()));
        Ok(if any { FolderState::Files } else { FolderState::Empty })
    }

    pub(super) async fn check_version(&self, until: Instant) -> Result<(), GitProblem> {
        let ran = self.run(Order::new(["version"], until)).await?;
        let text = ran.text();
        let mut numbers =
            text.trim_start_matches("git version ").split('.').map(|part| part.parse::<u32>().ok());
        match (numbers.next().flatten(), numbers.next().flatten()) {
            (Some(major), Some(minor)) if (major, minor) >= OLDEST => Ok(()),
            _ => Err(GitProblem::Old(text)),
        }
    }

    /// Refuses a repository whose own settings could start a program.
    pub(super) async fn check_settings(&self, until: Instant) -> Result<(), GitProblem> {
        let file = self.git_dir().join("config");
        let args = ["config", "--no-includes", "--null", "--name-only", "--list", "--file"];
        let args = args.map(OsString::from).into_iter().chain([file.into_os_string()]);
        let ran = self.run(Order::new(args, until)).await?;
        if !ran.is_good() {
            return Err(ran.failed("config"));
        }
        let keys = String::from_utf8_lossy(&ran.stdout).into_owned();
        let forbidden: Vec<String> =
            keys.split('\0').filter(|key| forbidden(key)).map(printable_key).collect();
        if forbidden.is_empty() { Ok(()) } else { Err(GitProblem::Settings(forbidden)) }
    }

    /// Runs a command and returns what it printed, which must have worked.
    pub(super) async fn good(&self, order: Order<'_>) -> Result<String, GitProblem> {
        let what = order.args.first().map(|first| first.to_string_lossy().into_owned()).unwrap_or_default();
        let ran = self.run(order).await?;
        if ran.is_good() { Ok(ran.text()) } else { Err(ran.failed(&what)) }
    }

    /// Runs a command to its end, or ends it with everything that it started.
    pub(super) async fn run(&self, order: Order<'_>) -> Result<Ran, GitProblem> {
        let started = Instant::now();
        let mut group = Group(self.command(&order).spawn().map_err(GitProblem::Start)?);
        let (stdin, stdout, stderr) = (group.0.stdin.take(), group.0.stdout.take(), group.0.stderr.take());
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A command that does not read its input has a reason, which it tells otherwise.
                let _ = stdin.write_all(order.input).await;
            }
        };
        let work = async {
            let (_, stdout, stderr) =
                tokio::join!(feed, all_of(stdout, STDOUT_BYTES_MAX), all_of(stderr, STDERR_BYTES_MAX));
            let (stdout, stderr) = (stdout?, stderr?);
            let status = group.0.wait().await.map_err(GitProblem::Start)?;
            Ok(Ran { code: status.code(), stdout, stderr: String::from_utf8_lossy(&stderr).into_owned() })
        };
        match tokio::time::timeout_at(order.until, work).await {
            Ok(ran) => ran,
            Err(_) => {
                group.end().await;
                Err(GitProblem::Timeout(started.elapsed()))
            }
        }
    }

    fn command(&self, order: &Order<'_>) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&order.args).env_clear().current_dir(&self.vault);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own, so that its helpers end with it.
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
            Access::Here => "",
            Access::Remote { address, header } => {
                if let Some(header) = header {
                    // In the environment, which only this user can read; arguments are everybody's.
                    let key = format!("http.{}.extraHeader", address.as_str());
                    settings.push((key, header.expose().clone()));
                }
                // ssh has its keys and known hosts there. Others would look for passwords (`.netrc`).
                if address.kind() == Kind::Ssh {
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

/// A command and all that it started. Dropped, they end.
struct Group(Child);

impl Group {
    /// Tells all of them. One that was waited for has no number any more, and the number may be another's.
    fn signal(&self, signal: Signal) {
        let pid = self.0.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // They may have ended just now.
            let _ = kill_process_group(pid, signal);
        }
    }

    /// Asks them to end, so that git takes its locks away, and then ends them.
    async fn end(&mut self) {
        self.signal(Signal::TERM);
        let _ = tokio::time::timeout(ENDS_WITHIN, self.0.wait()).await;
        self.signal(Signal::KILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
    }
}

async fn all_of(from: Option<impl AsyncRead + Unpin>, bytes_max: u64) -> Result<Vec<u8>, GitProblem> {
    let mut content = Vec::new();
    if let Some(from) = from {
        from.take(bytes_max + 1).read_to_end(&mut content).await.map_err(GitProblem::Start)?;
    }
    if content.len() as u64 > bytes_max { Err(GitProblem::TooMuch) } else { Ok(content) }
}

fn printable_key(key: &str) -> String {
    format!("`{}`", portcullis_core::json::printable(key))
}
