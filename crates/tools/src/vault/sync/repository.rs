//! The steps of a sync, each as few commands of git as it takes.
//!
//! A commit is made from the text that was written, not from the files that happen to be there, and with an index of its
//! own: what else a person has changed or staged is not part of it and stays as it is.

use super::super::git::{Access, Git, GitProblem, Order, RemoteAddress};
use super::super::place::Place;
use super::Author;
use portcullis_core::Secret;
use std::path::PathBuf;
use tokio::time::Instant;

/// How often an index that somebody else holds is tried again, and how long is waited before that.
const LOCKED_TRIES: usize = 20;
const LOCKED_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// What a repository is in the middle of while these are there.
const UNDER_WAY: [(&str, &str); 6] = [
    ("MERGE_HEAD", "a merge"),
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
    ("sequencer", "a cherry-pick or revert"),
];

/// The name of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Id(String);

impl Id {
    /// Reads a name as git prints it.
    pub(super) fn parse(text: &str) -> Option<Id> {
        let fits = (40..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        fits.then(|| Id(text.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns as much of it as people use.
    pub(super) fn short(&self) -> &str {
        self.0.get(..10).unwrap_or(&self.0)
    }
}

/// A repository that passed every check, for one sync.
pub(super) struct Repository<'a> {
    pub(super) git: &'a Git,
    pub(super) branch: String,
    pub(super) author: &'a Author,
    pub(super) address: &'a RemoteAddress,
    pub(super) header: Option<Secret<String>>,
    pub(super) until: Instant,
}

/// What came of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pushed {
    Done,
    /// Somebody else pushed in between.
    Moved,
    /// The other side does not want it.
    Refused,
}

/// One file in a tree.
pub(super) struct TreeEntry {
    pub(super) mode: String,
    pub(super) id: Id,
}

impl<'a> Repository<'a> {
    /// Opens a repository if it can be worked with.
    pub(super) async fn open(
        git: &'a Git,
        author: &'a Author,
        address: &'a RemoteAddress,
        header: Option<Secret<String>>,
        until: Instant,
    ) -> Result<Repository<'a>, GitProblem> {
        git.check_settings(until).await?;
        for (file, what) in UNDER_WAY {
            if git.git_dir().join(file).exists() {
                return Err(GitProblem::Busy(what));
            }
        }
        let ran = git.run(Order::new(["symbolic-ref", "-q", "--short", "HEAD"], until)).await?;
        if !ran.is_good() {
            return Err(GitProblem::Detached);
        }
        Ok(Repository { git, branch: ran.text(), author, address, header, until })
    }

    pub(super) fn order<'o>(&self, args: &[&str]) -> Order<'o> {
        Order::new(args.iter().map(|arg| (*arg).to_owned()), self.until)
    }

    /// Runs a command that prints the name of an object.
    pub(super) async fn id(&self, order: Order<'_>) -> Result<Id, GitProblem> {
        Id::parse(&self.git.good(order).await?).ok_or(GitProblem::Tangled)
    }

    fn local(&self) -> String {
        format!("refs/heads/{}", self.branch)
    }

    fn tracking(&self) -> String {
        format!("refs/remotes/origin/{}", self.branch)
    }

    /// Returns what a name stands for, if it stands for anything.
    pub(super) async fn resolve(&self, name: &str) -> Result<Option<Id>, GitProblem> {
        let ran =
            self.git.run(self.order(&["rev-parse", "-q", "--verify", "--end-of-options", name])).await?;
        Ok(Id::parse(&ran.text()).filter(|_| ran.is_good()))
    }

    pub(super) async fn head(&self) -> Result<Option<Id>, GitProblem> {
        self.resolve(&format!("{}^{{commit}}", self.local())).await
    }

    /// Returns the last commit of the remote that is known here.
    pub(super) async fn known_remote(&self) -> Result<Option<Id>, GitProblem> {
        self.resolve(&format!("{}^{{commit}}", self.tracking())).await
    }

    pub(super) async fn empty_tree(&self) -> Result<Id, GitProblem> {
        self.id(self.order(&["mktree"])).await
    }

    /// Asks the remote for its branch. Nothing is there where the repository is empty, or has no such branch yet.
    pub(super) async fn fetch(&self) -> Result<Option<Id>, GitProblem> {
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

    pub(super) async fn push(&self, tip: &Id) -> Result<Pushed, GitProblem> {
        let refspec = format!("{}:{}", tip.as_str(), self.local());
        let args = ["push", "-q", "--porcelain", "--no-verify", "--", self.address.as_str(), &refspec];
        let ran = self.git.run(self.order(&args).access(self.access())).await?;
        if ran.is_good() {
            self.git.good(self.order(&["update-ref", &self.tracking(), tip.as_str()])).await?;
            return Ok(Pushed::Done);
        }
        let said = ran.text();
        match said.lines().find(|line| line.starts_with('!')) {
            Some(line) if line.contains("[rejected]") => Ok(Pushed::Moved),
            // Another push was faster by a moment.
            Some(line) if line.contains("failed to update ref") || line.contains("cannot lock ref") => {
                Ok(Pushed::Moved)
            }
            Some(_) => {
                tracing::warn!(said = %portcullis_core::json::printable(&ran.stderr), "The remote refused a push.");
                Ok(Pushed::Refused)
            }
            None => Err(ran.failed("push")),
        }
    }

    fn access(&self) -> Access<'_> {
        Access::Remote { address: self.address, header: self.header.as_ref() }
    }

    pub(super) async fn is_ancestor(&self, older: &Id, newer: &Id) -> Result<bool, GitProblem> {
        let args = ["merge-base", "--is-ancestor", older.as_str(), newer.as_str()];
        let ran = self.git.run(self.order(&args)).await?;
        match ran.code {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(ran.failed("merge-base")),
        }
    }

    /// Returns whether the person keeps this path out of the repository.
    pub(super) async fn is_ignored(&self, place: &Place) -> Result<bool, GitProblem> {
        // With a dot in front, it cannot be taken for a pattern.
        let path = format!("./{}", place.path());
        let ran = self.git.run(self.order(&["check-ignore", "-q", "--", &path])).await?;
        match ran.code {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(ran.failed("check-ignore")),
        }
    }

    pub(super) async fn entry(&self, tree: &Id, path: &str) -> Result<Option<TreeEntry>, GitProblem> {
        let order = self.order(&["ls-tree", "-z", "--full-tree", tree.as_str(), "--", path]);
        // What a note is called is its name, and no pattern.
        let listed = self.git.good(order.env("GIT_LITERAL_PATHSPECS", "1")).await?;
        let mut words = listed.split('\t').next().unwrap_or_default().split(' ');
        let (mode, kind, id) = (words.next(), words.next(), words.next().and_then(Id::parse));
        match (mode, kind, id) {
            (Some(mode), Some("blob"), Some(id)) => Ok(Some(TreeEntry { mode: mode.to_owned(), id })),
            _ => Ok(None),
        }
    }

    /// Returns the name under which git keeps a text, and keeps it.
    pub(super) async fn keep(&self, content: &[u8]) -> Result<Id, GitProblem> {
        self.id(self.order(&["hash-object", "-w", "--stdin"]).input(content)).await
    }

    /// Makes a tree of another one, with some paths replaced (`Some`) or taken out (`None`).
    pub(super) async fn changed_tree(
        &self,
        base: Option<&Id>,
        changes: &[(String, Option<TreeEntry>)],
    ) -> Result<Id, GitProblem> {
        let index = OwnIndex::new(self.git)?;
        let with_index = |order: Order<'static>| order.env("GIT_INDEX_FILE", index.0.clone());
        let read = match base {
            Some(tree) => self.order(&["read-tree", tree.as_str()]),
            None => self.order(&["read-tree", "--empty"]),
        };
        self.git.good(with_index(read)).await?;
        let lines = index_lines(changes);
        let update: Order<'_> = self.order(&["update-index", "-z", "--index-info"]);
        self.git.good(update.env("GIT_INDEX_FILE", index.0.clone()).input(&lines)).await?;
        self.id(with_index(self.order(&["write-tree"]))).await
    }

    /// Changes entries of the index that a person sees, without looking at any file.
    pub(super) async fn update_index(
        &self,
        changes: &[(String, Option<TreeEntry>)],
    ) -> Result<(), GitProblem> {
        let lines = index_lines(changes);
        for _ in 1..LOCKED_TRIES {
            let ran = self.git.run(self.order(&["update-index", "-z", "--index-info"]).input(&lines)).await?;
            if ran.is_good() {
                return Ok(());
            }
            if !ran.stderr.contains("index.lock") {
                return Err(ran.failed("update-index"));
            }
            // Another program is at work there.
            tokio::time::sleep(LOCKED_PAUSE).await;
        }
        Err(GitProblem::Busy("something that another git does"))
    }

    /// Makes a commit, which no branch has yet.
    pub(super) async fn commit(
        &self,
        tree: &Id,
        parent: Option<&Id>,
        message: &str,
        author: Option<&[(&'static str, String)]>,
    ) -> Result<Id, GitProblem> {
        let mut args = vec!["commit-tree", tree.as_str(), "-F", "-"];
        parent.iter().for_each(|parent| args.extend(["-p", parent.as_str()]));
        let mut order: Order<'_> = self.order(&args).input(message.as_bytes());
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

    /// Moves the branch, unless somebody else did meanwhile.
    pub(super) async fn move_branch(&self, to: &Id, from: Option<&Id>) -> Result<(), GitProblem> {
        let zero = "0".repeat(to.as_str().len());
        let from = from.map_or(zero.as_str(), Id::as_str);
        let args = ["update-ref", "-m", "portcullis: sync", &self.local(), to.as_str(), from];
        self.git.good(self.order(&args)).await.map(drop)
    }
}

/// Writes changes as `update-index --index-info` reads them. Mode 0 takes a path out.
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

/// An index that nobody else sees.
struct OwnIndex(PathBuf);

impl OwnIndex {
    fn new(git: &Git) -> Result<OwnIndex, GitProblem> {
        let random = super::random_name().map_err(GitProblem::Start)?;
        Ok(OwnIndex(git.git_dir().join(format!("portcullis-index-{random}"))))
    }
}

impl Drop for OwnIndex {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_file(self.0.with_extension("lock"));
    }
}
