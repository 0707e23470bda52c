//! Syncs a vault with a git repository.
//!
//! One sync at a time. It runs to its end even if the caller disconnects, so that no step is left half done; one
//! deadline bounds all of its commands. A note is written to disk before git runs: even if git fails, the note
//! is there, and a failed push is retried with backoff.

mod clone;
mod rebase;
mod repository;
mod sync_report;

use super::git::{Git, GitError, RemoteAddress};
use super::note_store::NoteStore;
use super::vault_path::{VaultPath, vault_path_error};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use portcullis_core::root::WriteSummary;
use portcullis_core::{
    BoxFuture, Secret, Service, ServiceCtx, ServiceError, ToolError, blocking, run_blocking,
};
use portcullis_egress::SecretSource;
use portcullis_store::secrets::SecretRef;
use rebase::{IntegrationResult, integrate};
use repository::{CheckedRepository, ObjectId, PushOutcome, TreeEntry};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use sync_report::{REFUSED, conflict_notice, describe_problem};
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::time::Instant;

pub(super) use sync_report::{NoteConflict, SyncReport};

/// Name prefix of an incomplete clone.
pub(super) const CLONE_PREFIX: &str = ".portcullis-clone-";
/// Immediate retries of a push, for concurrent pushes by others.
const PUSH_TRIES: usize = 5;
/// Timeout of the first clone. No caller waits for all of it.
const CLONE_WITHIN: Duration = Duration::from_secs(600);
/// How much longer than git's timeout a reader waits, to get git's error.
const GRACE: Duration = Duration::from_secs(5);
/// The longest backoff between two attempts to push.
const RETRY_LAST: Duration = Duration::from_secs(600);
/// The header of the token, for which the secret must be granted.
const TOKEN_FIELD: &str = "Authorization";

/// The author of the commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitAuthor {
    pub name: String,
    pub email: String,
}

/// Intervals and timeouts of a sync.
#[derive(Debug, Clone, Copy)]
pub struct SyncTimes {
    /// How old the last pull may be before a read pulls again.
    pub pull_after: Duration,
    /// Timeout of one sync, with all its commands.
    pub within: Duration,
    /// The first backoff after a failed push; it doubles each time.
    pub retry_after: Duration,
}

/// Configuration of the sync.
#[derive(Clone)]
pub struct SyncConfig {
    pub address: RemoteAddress,
    /// The user name of the token at the remote.
    pub user: String,
    pub token: Option<SecretRef>,
    pub secrets: Arc<dyn SecretSource>,
    pub author: CommitAuthor,
    pub times: SyncTimes,
}

impl fmt::Debug for SyncConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncConfig").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The state of the last sync.
#[derive(Default)]
struct LastSync {
    tried: Option<Instant>,
    pulled: Option<Instant>,
    problem: Option<String>,
}

pub(super) struct VaultSyncer {
    config: SyncConfig,
    vault: PathBuf,
    notes: Arc<NoteStore>,
    one: AsyncMutex<()>,
    last: Mutex<LastSync>,
    /// Whether a commit waits for a push that the service tries again.
    unpushed: watch::Sender<bool>,
}

/// A note to write and commit.
struct NoteChange {
    place: VaultPath,
    content: String,
    message: String,
}

impl VaultSyncer {
    pub(super) fn open(config: &SyncConfig, vault: &Path, notes: Arc<NoteStore>) -> Arc<VaultSyncer> {
        Arc::new(VaultSyncer {
            config: config.clone(),
            vault: vault.to_owned(),
            notes,
            one: AsyncMutex::new(()),
            last: Mutex::default(),
            unpushed: watch::Sender::new(false),
        })
    }

    /// Pulls if the last pull is too old, and returns a notice for a reader.
    pub(super) async fn pull_if_stale(self: &Arc<VaultSyncer>) -> Option<String> {
        if !self.is_due() {
            return self.last_problem();
        }
        let syncing = self.clone();
        let sync = tokio::spawn(async move {
            let _one = syncing.one.lock().await;
            // Another call may have pulled while this one waited.
            if !syncing.is_due() {
                return syncing.last_problem();
            }
            match syncing.sync(None).await {
                Ok(facts) => conflict_notice(&facts.conflicts),
                Err(_) => syncing.last_problem(),
            }
        });
        // A reader waits as long as a sync may take, but not for a clone.
        match tokio::time::timeout(self.config.times.within + GRACE, sync).await {
            Ok(done) => done.unwrap_or_else(|_| Some("the vault could not be synced".to_owned())),
            Err(_) => Some("the vault is still syncing; results are incomplete".to_owned()),
        }
    }

    /// Writes a note, then commits and pushes it.
    pub(super) async fn write(
        self: &Arc<VaultSyncer>,
        place: VaultPath,
        content: String,
        message: String,
    ) -> Result<(WriteSummary, SyncReport), ToolError> {
        let syncing = self.clone();
        let work = tokio::spawn(async move {
            // Times out before anything is written, so that the caller can retry.
            let Ok(_one) = tokio::time::timeout(syncing.config.times.within, syncing.one.lock()).await else {
                return Err(ToolError::unavailable("the vault is being synced, so nothing was written")
                    .hint("try again in a minute"));
            };
            syncing.write_alone(NoteChange { place, content, message }).await
        });
        work.await.unwrap_or_else(|error| Err(ToolError::internal(error)))
    }

    async fn write_alone(
        self: &Arc<VaultSyncer>,
        change: NoteChange,
    ) -> Result<(WriteSummary, SyncReport), ToolError> {
        let until = self.deadline();
        // A note in a folder that is still to be cloned would block the clone.
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
        let written = blocking(move || root.write(&path, bytes.as_bytes())).await;
        let written =
            written.map_err(|error| vault_path_error(error, "note", change.place.path().as_str()))?;
        self.notes.reindex_path(change.place.path());
        let facts = match self.sync(Some(&change)).await {
            Ok(facts) => facts,
            Err(partial) => partial,
        };
        if facts.committed && !facts.pushed {
            self.unpushed.send_replace(true);
        }
        Ok((written, facts))
    }

    /// Commits, pulls and pushes. Both results report what was done.
    async fn sync(self: &Arc<VaultSyncer>, change: Option<&NoteChange>) -> Result<SyncReport, SyncReport> {
        let mut facts = SyncReport::default();
        let outcome = self.sync_into(change, &mut facts).await;
        // Set at the end: until then a reader waits for this sync instead of reading stale notes.
        let now = Instant::now();
        self.last.lock().tried = Some(now);
        if facts.pulled {
            self.last.lock().pulled = Some(now);
        }
        match outcome {
            Ok(()) => {
                self.last.lock().problem = None;
                Ok(facts)
            }
            Err(problem) => {
                facts.problem = Some(self.failed(&problem));
                self.last.lock().problem.clone_from(&facts.problem);
                Err(facts)
            }
        }
    }

    async fn sync_into(&self, change: Option<&NoteChange>, facts: &mut SyncReport) -> Result<(), GitError> {
        self.ensure(Instant::now() + if change.is_some() { self.config.times.within } else { CLONE_WITHIN })
            .await?;
        let until = self.deadline();
        let header = self.header()?;
        let git = Git::new(&self.vault)?;
        let (author, address) = (&self.config.author, &self.config.address);
        let repository = CheckedRepository::open(&git, author, address, header, until).await?;
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
            let IntegrationResult { head, moved, kept } =
                integrate(&repository, &self.notes, remote.as_ref()).await?;
            facts.pulled = true;
            facts.conflicts.extend(kept);
            if moved {
                let notes = self.notes.clone();
                // The search that waits for this pull must find the new notes.
                let _ = run_blocking(move || notes.rescan()).await;
            }
            let Some(head) = head.filter(|head| remote.as_ref() != Some(head)) else {
                facts.pushed = true;
                return Ok(());
            };
            match repository.push(&head).await? {
                PushOutcome::Done => {
                    facts.pushed = true;
                    return Ok(());
                }
                PushOutcome::Moved => {}
                PushOutcome::Refused => {
                    return Err(GitError::Failed {
                        what: REFUSED.to_owned(),
                        code: None,
                        said: String::new(),
                    });
                }
            }
        }
        Err(GitError::Busy("pushes of others, one after the other"))
    }

    /// Clones the vault if needed.
    async fn ensure(&self, until: Instant) -> Result<(), GitError> {
        let git = Git::new(&self.vault)?;
        let header = self.header()?;
        let came = clone::ensure(&git, &self.vault, &self.config.address, header.as_ref(), until).await?;
        if came {
            let notes = self.notes.clone();
            let _ = run_blocking(move || notes.rescan()).await;
        }
        Ok(())
    }

    /// Returns the authentication header, if the token is granted for the host.
    fn header(&self) -> Result<Option<Secret<String>>, GitError> {
        let Some(token) = &self.config.token else { return Ok(None) };
        let Some(host) = self.config.address.secret_host() else {
            return Err(GitError::Secret("a token goes to https:// only".to_owned()));
        };
        let value = self.config.secrets.resolve_for(token.name(), host, TOKEN_FIELD);
        // The store's error names the secret and the host, never the value.
        let value = value.map_err(|error| GitError::Secret(error.to_string()))?;
        let pair = STANDARD.encode(format!("{}:{}", self.config.user, value.expose()));
        Ok(Some(Secret::new(format!("{TOKEN_FIELD}: Basic {pair}"))))
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.config.times.within
    }

    fn is_due(&self) -> bool {
        self.last.lock().tried.is_none_or(|tried| tried.elapsed() >= self.config.times.pull_after)
    }

    /// Returns the problem of the last sync.
    fn last_problem(&self) -> Option<String> {
        let last = self.last.lock();
        let problem = last.problem.as_ref()?;
        Some(match last.pulled {
            Some(pulled) if last.tried.is_some_and(|tried| pulled >= tried) => {
                format!("saved locally, not pushed yet: {problem}")
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

    /// Logs a failure, and returns a message for the caller without paths and URLs.
    fn failed(&self, problem: &GitError) -> String {
        let message = describe_problem(problem);
        match problem {
            GitError::Failed { what, code, said } => {
                let said = portcullis_core::json::printable(said);
                tracing::warn!(what, ?code, said, "git failed in the vault");
            }
            other => tracing::warn!(problem = %other, "vault was not synced"),
        }
        message
    }

    /// Pulls once, and pushes again what could not be pushed.
    async fn sync_unasked(self: Arc<VaultSyncer>) {
        self.pull_if_stale().await;
        let mut unpushed = self.unpushed.subscribe();
        // The sender is a field, so it lives as long as this.
        while unpushed.wait_for(|unpushed| *unpushed).await.is_ok() {
            self.push_again().await;
        }
    }

    /// Syncs with exponential backoff until nothing is left to push.
    async fn push_again(self: &Arc<VaultSyncer>) {
        let mut pause = self.config.times.retry_after;
        loop {
            tokio::time::sleep(pause).await;
            let syncing = self.clone();
            let sync = tokio::spawn(async move {
                let _one = syncing.one.lock().await;
                let done = syncing.sync(None).await.is_ok();
                if done {
                    // Writes hold the same lock, so none has failed to push since.
                    syncing.unpushed.send_replace(false);
                }
                done
            });
            if sync.await.unwrap_or(false) {
                return;
            }
            pause = (pause * 2).min(RETRY_LAST);
        }
    }
}

impl Service for VaultSyncer {
    fn name(&self) -> &'static str {
        "vault-sync"
    }

    /// At shutdown nothing new begins. A note that is not pushed by then is on disk and committed, and the next start pushes it.
    fn run(self: Arc<Self>, ctx: ServiceCtx) -> BoxFuture<'static, Result<(), ServiceError>> {
        Box::pin(async move {
            tokio::select! {
                () = ctx.shutdown.cancelled() => {}
                () = self.sync_unasked() => {}
            }
            Ok(())
        })
    }
}

/// Commits the text of one note. Returns whether there was a change.
async fn commit_note(repository: &CheckedRepository<'_>, change: &NoteChange) -> Result<bool, GitError> {
    let path = change.place.path().as_str();
    let head = repository.head().await?;
    let former = match &head {
        Some(head) => repository.entry(head, path).await?,
        None => None,
    };
    let id: ObjectId = repository.write_blob(change.content.as_bytes()).await?;
    if former.as_ref().is_some_and(|former| former.id == id) {
        return Ok(false);
    }
    let mode = former.map(|former| former.mode).filter(|mode| mode.starts_with("100"));
    let mode = mode.unwrap_or_else(|| "100644".to_owned());
    let entry = || vec![(path.to_owned(), Some(TreeEntry { mode: mode.clone(), id: id.clone() }))];
    let tree = repository.changed_tree(head.as_ref(), &entry()).await?;
    let commit = repository.commit(&tree, head.as_ref(), &change.message, None).await?;
    // The index first: if another git process has locked it, nothing has changed yet.
    repository.update_index(&entry()).await?;
    repository.move_branch(&commit, head.as_ref()).await?;
    Ok(true)
}

/// Returns a random hexadecimal name.
fn random_name() -> io::Result<String> {
    let mut random = [0; 16];
    let mut done = 0;
    while let Some(rest) = random.get_mut(done..).filter(|rest| !rest.is_empty()) {
        done += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(HEXLOWER.encode(&random))
}
