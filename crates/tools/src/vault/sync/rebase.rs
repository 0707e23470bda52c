//! Rebases local commits onto the remote, and resolves conflicts by keeping both versions.
//!
//! Local commits are rebased one by one, without touching a file. In a conflict, the remote version keeps the name,
//! because others have it already, and the local version becomes a copy next to it. Then the files are updated, and
//! only those that differ. Uncommitted changes are never overwritten: the remote version becomes the copy.

use super::super::git::GitError;
use super::super::note_store::NoteStore;
use super::super::vault_path::VaultPath;
use super::repository::{CheckedRepository, ObjectId, TreeEntry};
use super::{NoteConflict, random_name};
use portcullis_core::blocking;
use portcullis_core::root::RootedPath;
use std::collections::{BTreeMap, HashSet};

/// Commits to rebase. More were not made by a person who writes notes.
const COMMITS_MAX: usize = 1_000;
/// Files in conflict at once.
const CONFLICTS_MAX: usize = 1_000;

/// The result of an integration.
pub(super) struct IntegrationResult {
    pub(super) head: Option<ObjectId>,
    /// Whether files may have changed.
    pub(super) moved: bool,
    pub(super) kept: Vec<NoteConflict>,
}

/// Brings branch and files up to the remote, with the local commits on top.
pub(super) async fn integrate(
    repository: &CheckedRepository<'_>,
    notes: &NoteStore,
    remote: Option<&ObjectId>,
) -> Result<IntegrationResult, GitError> {
    let head = repository.head().await?;
    let same = |head| Ok(IntegrationResult { head, moved: false, kept: Vec::new() });
    let Some(remote) = remote else { return same(head) };
    let (tip, mut kept) = match &head {
        None => (remote.clone(), Vec::new()),
        Some(head) if head == remote => return same(Some(head.clone())),
        Some(head) if repository.is_ancestor(remote, head).await? => return same(Some(head.clone())),
        Some(head) if repository.is_ancestor(head, remote).await? => (remote.clone(), Vec::new()),
        Some(head) => rebased(repository, head, remote).await?,
    };
    kept.extend(advance(repository, notes, head.as_ref(), &tip).await?);
    Ok(IntegrationResult { head: Some(tip), moved: true, kept })
}

/// Rebases the local commits onto the remote, and returns the new tip.
async fn rebased(
    repository: &CheckedRepository<'_>,
    head: &ObjectId,
    remote: &ObjectId,
) -> Result<(ObjectId, Vec<NoteConflict>), GitError> {
    let base = repository.git.run(repository.order(&["merge-base", head.as_str(), remote.as_str()])).await?;
    if !base.is_good() {
        return Err(GitError::Unrelated);
    }
    let range = format!("{}..{}", remote.as_str(), head.as_str());
    let most = format!("--max-count={}", COMMITS_MAX + 1);
    let args = ["rev-list", "--reverse", "--topo-order", "--no-merges", &most, &range];
    let listed = repository.git.run_checked(repository.order(&args)).await?;
    let commits: Vec<ObjectId> = listed.lines().filter_map(ObjectId::parse).collect();
    if commits.len() > COMMITS_MAX {
        return Err(GitError::ManyCommits(COMMITS_MAX));
    }
    let (mut tip, mut kept) = (remote.clone(), Vec::new());
    for commit in &commits {
        let (tree, conflicts) = merged(repository, &tip, commit).await?;
        kept.extend(conflicts);
        let unchanged =
            repository.resolve(&format!("{}^{{tree}}", tip.as_str())).await? == Some(tree.clone());
        if !unchanged {
            let (author, message) = written_by(repository, commit).await?;
            tip = repository.commit(&tree, Some(&tip), &message, Some(&author)).await?;
        }
    }
    Ok((tip, kept))
}

/// Merges the change of one commit into `tip`, keeping both versions of conflicting files.
async fn merged(
    repository: &CheckedRepository<'_>,
    tip: &ObjectId,
    commit: &ObjectId,
) -> Result<(ObjectId, Vec<NoteConflict>), GitError> {
    let parent = match repository.resolve(&format!("{}^", commit.as_str())).await? {
        Some(parent) => parent,
        None => repository.empty_tree().await?,
    };
    let base = format!("--merge-base={}", parent.as_str());
    let args = ["merge-tree", "--write-tree", "--no-messages", "-z", &base, tip.as_str(), commit.as_str()];
    let ran = repository.git.run(repository.order(&args)).await?;
    if !matches!(ran.code, Some(0 | 1)) {
        return Err(ran.failed("merge-tree"));
    }
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let mut parts = said.split('\0');
    let tree = parts.next().and_then(ObjectId::parse).ok_or(GitError::Tangled)?;
    if ran.code == Some(0) {
        return Ok((tree, Vec::new()));
    }
    // By path: the remote version (stage 2) and the local one (stage 3).
    let mut sides: BTreeMap<&str, [Option<TreeEntry>; 2]> = BTreeMap::new();
    for part in parts.filter(|part| !part.is_empty()) {
        let (about, path) = part.split_once('\t').ok_or(GitError::Tangled)?;
        let words: Vec<&str> = about.split(' ').collect();
        let [mode, id, stage] = words.as_slice() else { return Err(GitError::Tangled) };
        let entry = TreeEntry { mode: (*mode).to_owned(), id: ObjectId::parse(id).ok_or(GitError::Tangled)? };
        let side = sides.entry(path).or_default();
        match *stage {
            "2" => side[0] = Some(entry),
            "3" => side[1] = Some(entry),
            _ => {}
        }
    }
    if sides.is_empty() || sides.len() > CONFLICTS_MAX {
        return Err(GitError::Tangled);
    }
    let (mut changes, mut kept) = (Vec::new(), Vec::new());
    for (path, [theirs, ours]) in sides {
        match (theirs, ours) {
            (Some(theirs), Some(ours)) => {
                let copy = conflict_copy_path(path, commit.short());
                kept.push(NoteConflict { path: path.to_owned(), kept_as: copy.clone() });
                changes.push((path.to_owned(), Some(theirs)));
                changes.push((copy, Some(ours)));
            }
            // Deleted on one side and changed on the other: the changed version is kept.
            (Some(only), None) | (None, Some(only)) => changes.push((path.to_owned(), Some(only))),
            (None, None) => changes.push((path.to_owned(), None)),
        }
    }
    Ok((repository.changed_tree(Some(&tree), &changes).await?, kept))
}

/// Returns author, date and message of a commit, as git's environment variables expect them.
async fn written_by(
    repository: &CheckedRepository<'_>,
    commit: &ObjectId,
) -> Result<(Vec<(&'static str, String)>, String), GitError> {
    let text = repository.git.run_checked(repository.order(&["cat-file", "commit", commit.as_str()])).await?;
    let (headers, message) = text.split_once("\n\n").unwrap_or((&text, ""));
    let author = headers.lines().find_map(|line| line.strip_prefix("author ")).ok_or(GitError::Tangled)?;
    let (name, rest) = author.split_once('<').ok_or(GitError::Tangled)?;
    let (email, date) = rest.rsplit_once('>').ok_or(GitError::Tangled)?;
    let author = vec![
        ("GIT_AUTHOR_NAME", name.trim().to_owned()),
        ("GIT_AUTHOR_EMAIL", email.to_owned()),
        ("GIT_AUTHOR_DATE", format!("@{}", date.trim())),
    ];
    Ok((author, message.to_owned()))
}

/// Moves files, index and branch from one commit to another.
async fn advance(
    repository: &CheckedRepository<'_>,
    notes: &NoteStore,
    from: Option<&ObjectId>,
    to: &ObjectId,
) -> Result<Vec<NoteConflict>, GitError> {
    let old = match from {
        Some(from) => from.clone(),
        None => repository.empty_tree().await?,
    };
    // Refreshes the index; files that differ are no error.
    repository.git.run(repository.order(&["update-index", "-q", "--refresh"])).await?;
    let read = ["read-tree", "-m", "-u", old.as_str(), to.as_str()];
    let ran = repository.git.run(repository.order(&read)).await?;
    let mut kept = Vec::new();
    if !ran.is_good() {
        kept = keep_both_versions(repository, notes, &old, to).await?;
        repository.git.run_checked(repository.order(&read)).await?;
    }
    repository.move_branch(to, from).await?;
    Ok(kept)
}

/// Keeps uncommitted local changes, and writes the remote version as a copy.
async fn keep_both_versions(
    repository: &CheckedRepository<'_>,
    notes: &NoteStore,
    old: &ObjectId,
    to: &ObjectId,
) -> Result<Vec<NoteConflict>, GitError> {
    let edited = repository.git.run_checked(repository.order(&["diff-files", "-z", "--name-only"])).await?;
    let edited: HashSet<&str> = edited.split('\0').collect();
    let args = ["diff-tree", "-r", "-z", "--name-status", "--no-renames", old.as_str(), to.as_str()];
    let changed = repository.git.run_checked(repository.order(&args)).await?;
    let mut changed = changed.split('\0');
    let (mut entries, mut kept) = (Vec::new(), Vec::new());
    while let (Some(status), Some(path)) = (changed.next(), changed.next()) {
        // A file that is new on the remote may exist here without being in the index.
        if status != "A" && !edited.contains(path) {
            continue;
        }
        let before = repository.entry(old, path).await?;
        let Some(here) = hash_worktree_file(repository, notes, path).await? else { continue };
        if before.is_some_and(|before| before.id == here) {
            continue;
        }
        let theirs = repository.entry(to, path).await?;
        if let Some(theirs) = theirs.as_ref().filter(|theirs| theirs.id != here)
            && let Some(copy) = write_conflict_copy(repository, notes, path, theirs).await?
        {
            kept.push(NoteConflict { path: path.to_owned(), kept_as: copy });
        }
        entries.push((path.to_owned(), theirs));
        if entries.len() > CONFLICTS_MAX {
            return Err(GitError::Tangled);
        }
    }
    repository.update_index(&entries).await?;
    Ok(kept)
}

/// Returns the object id of a file on disk; `None` if there is no file.
async fn hash_worktree_file(
    repository: &CheckedRepository<'_>,
    notes: &NoteStore,
    path: &str,
) -> Result<Option<ObjectId>, GitError> {
    let Ok(rooted) = RootedPath::parse(path) else { return Ok(None) };
    if !notes.root.shows(&rooted) {
        return Ok(None);
    }
    // With git's line-ending conversion for this path.
    repository.id(repository.order(&["hash-object", "--", path])).await.map(Some)
}

/// Writes the remote version of a file as a copy next to it. Hidden files stay in the history only.
async fn write_conflict_copy(
    repository: &CheckedRepository<'_>,
    notes: &NoteStore,
    path: &str,
    theirs: &TreeEntry,
) -> Result<Option<String>, GitError> {
    let copy = conflict_copy_path(path, theirs.id.short());
    let Some(place) = RootedPath::parse(&copy).ok().and_then(VaultPath::of) else { return Ok(None) };
    let ran = repository.git.run(repository.order(&["cat-file", "blob", theirs.id.as_str()])).await?;
    if !ran.is_good() {
        return Err(ran.failed("cat-file"));
    }
    let (root, content) = (notes.root.clone(), ran.stdout);
    let target = place.clone();
    let written = blocking(move || root.write(target.path(), &content)).await;
    written.map_err(GitError::File)?;
    Ok(Some(place.path().to_string()))
}

/// Returns a unique name for the second version of a file.
fn conflict_copy_path(path: &str, of: &str) -> String {
    let (folder, name) = path.rsplit_once('/').map_or(("", path), |(folder, name)| (folder, name));
    let (stem, extension) = match name.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() => (stem, format!(".{extension}")),
        _ => (name, String::new()),
    };
    // One version can conflict twice, so its id alone is not unique.
    let random = random_name().unwrap_or_default();
    let mark = format!(" (conflict {of} {})", random.get(..6).unwrap_or_default());
    // File names have at most 255 bytes.
    let room = 255_usize.saturating_sub(mark.len() + extension.len());
    let end = (0..=room.min(stem.len())).rev().find(|end| stem.is_char_boundary(*end)).unwrap_or(0);
    let name = format!("{}{mark}{extension}", &stem[..end]);
    if folder.is_empty() { name } else { format!("{folder}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_version_has_a_name_of_its_own_that_fits() {
        let name = conflict_copy_path("a/Note.md", "0123456789");
        assert!(name.starts_with("a/Note (conflict 0123456789 ") && name.ends_with(").md"), "{name}");
        assert_ne!(name, conflict_copy_path("a/Note.md", "0123456789"));
        let long = conflict_copy_path(&format!("{}.md", "ä".repeat(126)), "0123456789");
        assert!(long.len() <= 255 && long.ends_with(".md"));
        assert!(conflict_copy_path("README", "x").starts_with("README (conflict x "));
    }
}
