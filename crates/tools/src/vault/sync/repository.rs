//! Git plumbing of a sync, with as few commands as possible.
//!
//! A commit is made from the text that was written, not from the work tree, and with a temporary index: other
//! changes that a person made or staged are not part of it and stay as they are.

use super::super::git::{Git, GitAccess, GitCommand, GitError, RemoteAddress};
use super::super::vault_path::VaultPath;
use super::CommitAuthor;
use portcullis_core::Secret;
use std::path::PathBuf;
use tokio::time::Instant;

/// Retries for a locked index, and the pause between them.
const LOCKED_TRIES: usize = 20;
const LOCKED_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Files in `.git` that mark an operation in progress.
const UNDER_WAY: [(&str, &str); 6] = [
    ("MERGE_HEAD", "a merge"),
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
    ("sequencer", "a cherry-pick or revert"),
];

/// A git object id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObjectId(String);

impl ObjectId {
    /// Parses an id as git prints it.
    pub(super) fn parse(text: &str) -> Option<ObjectId> {
        let fits = (40..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        fits.then(|| ObjectId(text.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the abbreviated id.
    pub(super) fn short(&self) -> &str {
        self.0.get(..10).unwrap_or(&self.0)
    }
}

/// A repository that passed every check, for one sync.
pub(super) struct CheckedRepository<'a> {
    pub(super) git: &'a Git,
    pub(super) branch: String,
    pub(super) author: &'a CommitAuthor,
    pub(super) address: &'a RemoteAddress,
    pub(super) header: Option<Secret<String>>,
    pub(super) until: Instant,
}

/// The result of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PushOutcome {
    Done,
    /// Another push came first.
    Moved,
    /// The remote refused it.
    Refused,
}

/// One file in a tree.
pub(super) struct TreeEntry {
    pub(super) mode: String,
    pub(super) id: ObjectId,
}

impl<'a> CheckedRepository<'a> {
    /// Opens a repository, if it is in a usable state.
    pub(super) async fn open(
        git: &'a Git,
        author: &'a CommitAuthor,
        address: &'a RemoteAddress,
        header: Option<Secret<String>>,
        until: Instant,
    ) -> Result<CheckedRepository<'a>, GitError> {
        git.check_settings(until).await?;
        for (file, what) in UNDER_WAY {
            if git.git_dir().join(file).exists() {
                return Err(GitError::Busy(what));
            }
        }
        let ran = git.run(GitCommand::new(["symbolic-ref", "-q", "--short", "HEAD"], until)).await?;
        if !ran.is_good() {
            return Err(GitError::Detached);
        }
        Ok(CheckedRepository { git, branch: ran.text(), author, address, header, until })
    }

    pub(super) fn order<'o>(&self, args: &[&str]) -> GitCommand<'o> {
        GitCommand::new(args.iter().map(|arg| (*arg).to_owned()), self.until)
    }

    /// Runs a command that prints an object id.
    pub(super) async fn id(&self, order: GitCommand<'_>) -> Result<ObjectId, GitError> {
        ObjectId::parse(&self.git.run_checked(order).await?).ok_or(GitError::Tangled)
    }

    fn local(&self) -> String {
        format!("refs/heads/{}", self.branch)
    }

    fn tracking(&self) -> String {
        format!("refs/remotes/origin/{}", self.branch)
    }

    /// Resolves a revision, if it exists.
    pub(super) async fn resolve(&self, name: &str) -> Result<Option<ObjectId>, GitError> {
        let ran =
            self.git.run(self.order(&["rev-parse", "-q", "--verify", "--end-of-options", name])).await?;
        Ok(ObjectId::parse(&ran.text()).filter(|_| ran.is_good()))
    }

    pub(super) async fn head(&self) -> Result<Option<ObjectId>, GitError> {
        self.resolve(&format!("{}^{{commit}}", self.local())).await
    }

    /// Returns the remote-tracking commit.
    pub(super) async fn known_remote(&self) -> Result<Option<ObjectId>, GitError> {
        self.resolve(&format!("{}^{{commit}}", self.tracking())).await
    }

    pub(super) async fn empty_tree(&self) -> Result<ObjectId, GitError> {
        self.id(self.order(&["mktree"])).await
    }

    /// Fetches the branch. `None` if the remote is empty, or has no such branch.
    pub(super) async fn fetch(&self) -> Result<Option<ObjectId>, GitError> {
        let refspec = format!("+{}:{}", self.local(), self.tracking());
        let args = [
            "fetch",
            "-q",
            "--no-tags",
            "--no-recurse-submodules",
            "--no-auto-maintenance",
            "--no-write-fetch-head",
            "--",
            self.address.as_str(),
            &refspec,
        ];
        let ran = self.git.run(self.order(&args).access(self.access())).await?;
        if ran.is_good() {
            return self.known_remote().await;
        }
        if ran.stderr.contains("couldn't find remote ref") {
            return Ok(None);
        }
        Err(ran.failed("fetch"))
    }

    pub(super) async fn push(&self, tip: &ObjectId) -> Result<PushOutcome, GitError> {
        let refspec = format!("{}:{}", tip.as_str(), self.local());
        let args = ["push", "-q", "--porcelain", "--no-verify", "--", self.address.as_str(), &refspec];
        let ran = self.git.run(self.order(&args).access(self.access())).await?;
        if ran.is_good() {
            self.git.run_checked(self.order(&["update-ref", &self.tracking(), tip.as_str()])).await?;
            return Ok(PushOutcome::Done);
        }
        let said = ran.text();
        match said.lines().find(|line| line.starts_with('!')) {
            Some(line) if line.contains("[rejected]") => Ok(PushOutcome::Moved),
            // Another push won a race.
            Some(line) if line.contains("failed to update ref") || line.contains("cannot lock ref") => {
                Ok(PushOutcome::Moved)
            }
            Some(_) => {
                tracing::warn!(said = %portcullis_core::json::printable(&ran.stderr), "remote refused a push");
                Ok(PushOutcome::Refused)
            }
            None => Err(ran.failed("push")),
        }
    }

    fn access(&self) -> GitAccess<'_> {
        GitAccess::Remote { address: self.address, header: self.header.as_ref() }
    }

    pub(super) async fn is_ancestor(&self, older: &ObjectId, newer: &ObjectId) -> Result<bool, GitError> {
        let args = ["merge-base", "--is-ancestor", older.as_str(), newer.as_str()];
        let ran = self.git.run(self.order(&args)).await?;
        match ran.code {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(ran.failed("merge-base")),
        }
    }

    /// Returns whether `.gitignore` excludes this path.
    pub(super) async fn is_ignored(&self, place: &VaultPath) -> Result<bool, GitError> {
        // With a leading `./` it cannot be a pattern.
        let path = format!("./{}", place.path());
        let ran = self.git.run(self.order(&["check-ignore", "-q", "--", &path])).await?;
        match ran.code {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(ran.failed("check-ignore")),
        }
    }

    pub(super) async fn entry(&self, tree: &ObjectId, path: &str) -> Result<Option<TreeEntry>, GitError> {
        let order = self.order(&["ls-tree", "-z", "--full-tree", tree.as_str(), "--", path]);
        // The name of a note is not a pattern.
        let listed = self.git.run_checked(order.env("GIT_LITERAL_PATHSPECS", "1")).await?;
        let mut words = listed.split('\t').next().unwrap_or_default().split(' ');
        let (mode, kind, id) = (words.next(), words.next(), words.next().and_then(ObjectId::parse));
        match (mode, kind, id) {
            (Some(mode), Some("blob"), Some(id)) => Ok(Some(TreeEntry { mode: mode.to_owned(), id })),
            _ => Ok(None),
        }
    }

    /// Writes a blob and returns its id.
    pub(super) async fn write_blob(&self, content: &[u8]) -> Result<ObjectId, GitError> {
        self.id(self.order(&["hash-object", "-w", "--stdin"]).input(content)).await
    }

    /// Writes a tree like another one, with some paths replaced (`Some`) or removed (`None`).
    pub(super) async fn changed_tree(
        &self,
        base: Option<&ObjectId>,
        changes: &[(String, Option<TreeEntry>)],
    ) -> Result<ObjectId, GitError> {
        let index = TemporaryIndex::new(self.git)?;
        let with_index = |order: GitCommand<'static>| order.env("GIT_INDEX_FILE", index.0.clone());
        let read = match base {
            Some(tree) => self.order(&["read-tree", tree.as_str()]),
            None => self.order(&["read-tree", "--empty"]),
        };
        self.git.run_checked(with_index(read)).await?;
        let lines = index_lines(changes);
        let update: GitCommand<'_> = self.order(&["update-index", "-z", "--index-info"]);
        self.git.run_checked(update.env("GIT_INDEX_FILE", index.0.clone()).input(&lines)).await?;
        self.id(with_index(self.order(&["write-tree"]))).await
    }

    /// Changes entries of the real index, without looking at any file.
    pub(super) async fn update_index(&self, changes: &[(String, Option<TreeEntry>)]) -> Result<(), GitError> {
        let lines = index_lines(changes);
        for _ in 1..LOCKED_TRIES {
            let ran = self.git.run(self.order(&["update-index", "-z", "--index-info"]).input(&lines)).await?;
            if ran.is_good() {
                return Ok(());
            }
            if !ran.stderr.contains("index.lock") {
                return Err(ran.failed("update-index"));
            }
            // Another process has locked the index.
            tokio::time::sleep(LOCKED_PAUSE).await;
        }
        Err(GitError::Busy("something that another git does"))
    }

    /// Writes a commit that is on no branch yet.
    pub(super) async fn commit(
        &self,
        tree: &ObjectId,
        parent: Option<&ObjectId>,
        message: &str,
        author: Option<&[(&'static str, String)]>,
    ) -> Result<ObjectId, GitError> {
        let mut args = vec!["commit-tree", tree.as_str(), "-F", "-"];
        parent.iter().for_each(|parent| args.extend(["-p", parent.as_str()]));
        let mut order: GitCommand<'_> = self.order(&args).input(message.as_bytes());
        for (name, value) in
            [("GIT_COMMITTER_NAME", &self.author.name), ("GIT_COMMITTER_EMAIL", &self.author.email)]
        {
            order = order.env(name, value.clone());
        }
        let own =
            [("GIT_AUTHOR_NAME", self.author.name.clone()), ("GIT_AUTHOR_EMAIL", self.author.email.clone())];
        for (name, value) in author.unwrap_or(&own) {
            order = order.env(name, value.clone());
        }
        self.id(order).await
    }

    /// Moves the branch, unless it was moved meanwhile (compare and swap).
    pub(super) async fn move_branch(&self, to: &ObjectId, from: Option<&ObjectId>) -> Result<(), GitError> {
        let zero = "0".repeat(to.as_str().len());
        let from = from.map_or(zero.as_str(), ObjectId::as_str);
        let args = ["update-ref", "-m", "portcullis: sync", &self.local(), to.as_str(), from];
        self.git.run_checked(self.order(&args)).await.map(drop)
    }
}

/// Formats changes for `update-index --index-info`. Mode 0 removes a path.
fn index_lines(changes: &[(String, Option<TreeEntry>)]) -> Vec<u8> {
    let mut lines = Vec::new();
    for (path, entry) in changes {
        let (mode, id) = match entry {
            Some(entry) => (entry.mode.as_str(), entry.id.as_str()),
            None => ("0", "0000000000000000000000000000000000000000"),
        };
        lines.extend(format!("{mode} {id}\t{path}\0").into_bytes());
    }
    lines
}

/// A temporary index file.
struct TemporaryIndex(PathBuf);

impl TemporaryIndex {
    fn new(git: &Git) -> Result<TemporaryIndex, GitError> {
        let random = super::random_name().map_err(GitError::Start)?;
        Ok(TemporaryIndex(git.git_dir().join(format!("portcullis-index-{random}"))))
    }
}

impl Drop for TemporaryIndex {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_file(self.0.with_extension("lock"));
    }
}
