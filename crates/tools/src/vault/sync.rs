//! A vault that follows a git repository.
//!
//! One sync at a time. It runs to its end even if the caller goes away, so that nothing is left half done; time is bounded
//! by a deadline for all of its commands. What is written is on disk before git is asked anything: whatever git
//! says, the note is there, and what could not be pushed is tried again.

mod clone;
mod rebase;
mod repository;
mod told;

use super::git::{Git, GitProblem, RemoteAddress};
use super::notes::Notes;
use super::place::{Place, told};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use portcullis_core::root::Written;
use portcullis_core::{Secret, ToolError};
use portcullis_egress::SecretSource;
use portcullis_store::secrets::SecretRef;
use rebase::{Integrated, integrate};
use repository::{Id, Pushed, Repository, TreeEntry};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;
use told::{REFUSED, conflict_notice, told_problem};

pub(super) use told::{Kept, SyncFacts};

/// What a clone is called while it is not whole.
pub(super) const CLONE_PREFIX: &str = ".portcullis-clone-";
/// How often a push is tried again at once, because others push at the same time.
const PUSH_TRIES: usize = 5;
/// How long the first copy may take. Nobody has to wait for all of it.
const CLONE_WITHIN: Duration = Duration::from_secs(600);
/// How much longer a reader waits than git does, to hear what git has to say.
const GRACE: Duration = Duration::from_secs(5);
/// The longest pause between two tries of a push that fails.
const RETRY_LAST: Duration = Duration::from_secs(600);
/// The field of a request that a token goes into, which it must be granted for.
const TOKEN_FIELD: &str = "Authorization";

/// Who makes the commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    pub name: String,
    pub email: String,
}

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct SyncTimes {
    /// How old the last pull may be before a read pulls again.
    pub pull_after: Duration,
    /// Of one sync, with all its commands.
    pub within: Duration,
    /// How long after a failed push the next is tried; then twice as long each time.
    pub retry_after: Duration,
}

/// What a vault is synced with.
#[derive(Clone)]
pub struct SyncConfig {
    pub address: RemoteAddress,
    /// Who the token belongs to, as the other side calls them.
    pub user: String,
    pub token: Option<SecretRef>,
    pub secrets: Arc<dyn SecretSource>,
    pub author: Author,
    pub times: SyncTimes,
    /// Whether to sync at once, and not only when a tool is called.
    pub at_start: bool,
}

impl fmt::Debug for SyncConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncConfig").field("address", &self.address).finish_non_exhaustive()
    }
}

/// What is known of the last sync.
#[derive(Default)]
struct Last {
    tried: Option<Instant>,
    pulled: Option<Instant>,
    problem: Option<String>,
}

pub(super) struct Syncing {
    config: SyncConfig,
    vault: PathBuf,
    notes: Arc<Notes>,
    one: AsyncMutex<()>,
    last: Mutex<Last>,
    retrying: AtomicBool,
}

/// What is to be committed.
struct Change {
    place: Place,
    content: String,
    message: String,
}

impl Syncing {
    pub(super) fn open(config: &SyncConfig, vault: &Path, notes: Arc<Notes>) -> Arc<Syncing> {
        let syncing = Arc::new(Syncing {
            config: config.clone(),
            vault: vault.to_owned(),
            notes,
            one: AsyncMutex::new(()),
            last: Mutex::default(),
            retrying: AtomicBool::new(false),
        });
        if config.at_start
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let first = syncing.clone();
            runtime.spawn(async move { first.before_read().await });
        }
        syncing
    }

    /// Pulls if the last pull is too old, and returns what a reader should know of that.
    pub(super) async fn before_read(self: &Arc<Syncing>) -> Option<String> {
        if !self.is_due() {
            return self.stale();
        }
        let syncing = self.clone();
        let sync = tokio::spawn(async move {
            let _one = syncing.one.lock().await;
            // Somebody else may have pulled while this one waited.
            if !syncing.is_due() {
                return syncing.stale();
            }
            match syncing.sync(None).await {
                Ok(facts) => conflict_notice(&facts.conflicts),
                Err(_) => syncing.stale(),
            }
        });
        // A reader waits as long as a sync may take, and not for a clone.
        match tokio::time::timeout(self.config.times.within + GRACE, sync).await {
            Ok(done) => done.unwrap_or_else(|_| Some("the vault could not be synced".to_owned())),
            Err(_) => Some("the vault is still being synced; this is what is there so far".to_owned()),
        }
    }

    /// Writes a note, and then has it committed and pushed.
    pub(super) async fn write(
        self: &Arc<Syncing>,
        place: Place,
        content: String,
        message: String,
    ) -> Result<(Written, SyncFacts), ToolError> {
        let syncing = self.clone();
        let work = tokio::spawn(async move {
            // Given up before anything is written, so that whoever hears of it can try again.
            let Ok(_one) = tokio::time::timeout(syncing.config.times.within, syncing.one.lock()).await else {
                return Err(ToolError::unavailable("the vault is being synced, so nothing was written")
                    .hint("try again in a minute"));
            };
            syncing.write_alone(Change { place, content, message }).await
        });
        work.await.unwrap_or_else(|error| Err(ToolError::internal(error)))
    }

    async fn write_alone(self: &Arc<Syncing>, change: Change) -> Result<(Written, SyncFacts), ToolError> {
        let until = self.deadline();
        // A note in a folder that is to be cloned into would stand in the way of all the others.
        if let Err(problem) = self.ensure(until).await
            && !self.vault.join(".git").is_dir()
        {
            let said = self.failed(&problem);
            return Err(ToolError::unavailable(format!(
                "the vault is not cloned yet, so nothing was written: {said}"
            ))
            .hint("try again in a minute; `portcullis doctor` says more")
            .caused_by(problem));
        }
        let (root, path, bytes) =
            (self.notes.root.clone(), change.place.path().clone(), change.content.clone());
        let written = crate::files::blocking(move || root.write(&path, bytes.as_bytes())).await;
        let written = written.map_err(|error| told(error, "note", change.place.path().as_str()))?;
        self.notes.look_at(change.place.path());
        let facts = match self.sync(Some(&change)).await {
            Ok(facts) => facts,
            Err(partial) => partial,
        };
        if facts.committed && !facts.pushed {
            self.retry_later();
        }
        Ok((written, facts))
    }

    /// Commits, pulls and pushes. What was done is told in any case.
    async fn sync(self: &Arc<Syncing>, change: Option<&Change>) -> Result<SyncFacts, SyncFacts> {
        let mut facts = SyncFacts::default();
        let outcome = self.sync_into(change, &mut facts).await;
        // Not before: until then a reader waits for this sync instead of reading what was there before it.
        let now = Instant::now();
        self.last().tried = Some(now);
        if facts.pulled {
            self.last().pulled = Some(now);
        }
        match outcome {
            Ok(()) => {
                self.last().problem = None;
                Ok(facts)
            }
            Err(problem) => {
                facts.problem = Some(self.failed(&problem));
                self.last().problem.clone_from(&facts.problem);
                Err(facts)
            }
        }
    }

    async fn sync_into(&self, change: Option<&Change>, facts: &mut SyncFacts) -> Result<(), GitProblem> {
        self.ensure(Instant::now() + if change.is_some() { self.config.times.within } else { CLONE_WITHIN })
            .await?;
        let until = self.deadline();
        let header = self.header()?;
        let git = Git::new(&self.vault)?;
        let (author, address) = (&self.config.author, &self.config.address);
        let repository = Repository::open(&git, author, address, header, until).await?;
        if let Some(change) = change {
            if repository.is_ignored(&change.place).await? {
                facts.problem =
                    Some("the repository ignores this path, so it stays on this machine".to_owned());
                return Ok(());
            }
            facts.committed = commit_note(&repository, change).await?;
        }
        for _ in 0..PUSH_TRIES {
            let remote = repository.fetch().await?;
            let Integrated { head, moved, kept } =
                integrate(&repository, &self.notes, remote.as_ref()).await?;
            facts.pulled = true;
            facts.conflicts.extend(kept);
            if moved {
                let notes = self.notes.clone();
                // What was pulled is found by the search that waits for this.
                let _ = tokio::task::spawn_blocking(move || notes.look_again()).await;
            }
            let Some(head) = head.filter(|head| remote.as_ref() != Some(head)) else {
                facts.pushed = true;
                return Ok(());
            };
            match repository.push(&head).await? {
                Pushed::Done => {
                    facts.pushed = true;
                    return Ok(());
                }
                Pushed::Moved => {}
                Pushed::Refused => {
                    return Err(GitProblem::Failed {
                        what: REFUSED.to_owned(),
                        code: None,
                        said: String::new(),
                    });
                }
            }
        }
        Err(GitProblem::Busy("pushes of others, one after the other"))
    }

    /// Makes sure that the vault is there.
    async fn ensure(&self, until: Instant) -> Result<(), GitProblem> {
        let git = Git::new(&self.vault)?;
        let header = self.header()?;
        let came = clone::ensure(&git, &self.vault, &self.config.address, header.as_ref(), until).await?;
        if came {
            let notes = self.notes.clone();
            let _ = tokio::task::spawn_blocking(move || notes.look_again()).await;
        }
        Ok(())
    }

    /// Returns what shows the remote who we are, if it was granted for that host.
    fn header(&self) -> Result<Option<Secret<String>>, GitProblem> {
        let Some(token) = &self.config.token else { return Ok(None) };
        let Some(host) = self.config.address.secret_host() else {
            return Err(GitProblem::Secret("a token goes to https:// only".to_owned()));
        };
        let value = self.config.secrets.resolve_for(token.name(), host, TOKEN_FIELD);
        // The store's words name the secret and the place, never the value.
        let value = value.map_err(|error| GitProblem::Secret(error.to_string()))?;
        let pair = STANDARD.encode(format!("{}:{}", self.config.user, value.expose()));
        Ok(Some(Secret::new(format!("{TOKEN_FIELD}: Basic {pair}"))))
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.config.times.within
    }

    fn is_due(&self) -> bool {
        self.last().tried.is_none_or(|tried| tried.elapsed() >= self.config.times.pull_after)
    }

    /// Says what did not work the last time.
    fn stale(&self) -> Option<String> {
        let last = self.last();
        let problem = last.problem.as_ref()?;
        Some(match last.pulled {
            Some(pulled) if last.tried.is_some_and(|tried| pulled >= tried) => {
                format!("what was written here is not pushed yet: {problem}")
            }
            Some(pulled) => {
                format!(
                    "the vault could not be synced: {problem}; it was {} s ago",
                    pulled.elapsed().as_secs()
                )
            }
            None => format!("the vault could not be synced: {problem}"),
        })
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs a failure and returns it in words for a caller: without paths and addresses.
    fn failed(&self, problem: &GitProblem) -> String {
        let told = told_problem(problem);
        match problem {
            GitProblem::Failed { what, code, said } => {
                let said = portcullis_core::json::printable(said);
                tracing::warn!(what, ?code, said, "Git failed in the vault.");
            }
            other => tracing::warn!(problem = %other, "The vault was not synced."),
        }
        told
    }

    /// Tries again, later and later, until nothing is left to push. One such task at a time.
    fn retry_later(self: &Arc<Syncing>) {
        if self.retrying.swap(true, Ordering::AcqRel) {
            return;
        }
        let (weak, mut pause) = (Arc::downgrade(self), self.config.times.retry_after);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(pause).await;
                let Some(syncing) = weak.upgrade() else { return };
                let _one = syncing.one.lock().await;
                if syncing.sync(None).await.is_ok() {
                    syncing.retrying.store(false, Ordering::Release);
                    return;
                }
                pause = (pause * 2).min(RETRY_LAST);
            }
        });
    }
}

/// Commits the text of one note. Returns whether there was anything to commit.
async fn commit_note(repository: &Repository<'_>, change: &Change) -> Result<bool, GitProblem> {
    let path = change.place.path().as_str();
    let head = repository.head().await?;
    let former = match &head {
        Some(head) => repository.entry(head, path).await?,
        None => None,
    };
    let id: Id = repository.keep(change.content.as_bytes()).await?;
    if former.as_ref().is_some_and(|former| former.id == id) {
        return Ok(false);
    }
    let mode = former.map(|former| former.mode).filter(|mode| mode.starts_with("100"));
    let mode = mode.unwrap_or_else(|| "100644".to_owned());
    let entry = || vec![(path.to_owned(), Some(TreeEntry { mode: mode.clone(), id: id.clone() }))];
    let tree = repository.changed_tree(head.as_ref(), &entry()).await?;
    let commit = repository.commit(&tree, head.as_ref(), &change.message, None).await?;
    // The index first: if another git holds it, nothing has happened yet.
    repository.update_index(&entry()).await?;
    repository.move_branch(&commit, head.as_ref()).await?;
    Ok(true)
}

/// Returns letters and digits that nobody can guess.
fn random_name() -> io::Result<String> {
    let mut random = [0; 16];
    let mut done = 0;
    while let Some(rest) = random.get_mut(done..).filter(|rest| !rest.is_empty()) {
        done += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}
