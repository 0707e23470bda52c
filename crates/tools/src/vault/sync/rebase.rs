//! Putting together what was changed here and there.
//!
//! Commits of this side are put on top of those of the other, one by one, without touching a file. Where both changed the
//! same lines, the other side's version keeps the name, because others have it already, and ours is kept beside it. Only
//! then are the files brought in line, and of those only the ones that differ; what a person has changed and not
//! committed is never overwritten: the other side's version is put beside it.

use super::super::git::GitProblem;
use super::super::notes::Notes;
use super::super::place::Place;
use super::repository::{Id, Repository, TreeEntry};
use super::{Kept, random_name};
use portcullis_core::root::RootedPath;
use std::collections::{BTreeMap, HashSet};

/// How many commits are put on top of others. More were not made by one who writes notes.
const COMMITS_MAX: usize = 1_000;
/// How many files may be in conflict at once.
const CONFLICTS_MAX: usize = 1_000;

/// What came of it.
pub(super) struct Integrated {
    pub(super) head: Option<Id>,
    /// Files may have changed.
    pub(super) moved: bool,
    pub(super) kept: Vec<Kept>,
}

/// Brings the branch and the files up to the remote's, with our own commits on top.
pub(super) async fn integrate(
    repository: &Repository<'_>,
    notes: &Notes,
    remote: Option<&Id>,
) -> Result<Integrated, GitProblem> {
    let head = repository.head().await?;
    let same = |head| Ok(Integrated { head, moved: false, kept: Vec::new() });
    let Some(remote) = remote else { return same(head) };
    let (tip, mut kept) = match &head {
        None => (remote.clone(), Vec::new()),
        Some(head) if head == remote => return same(Some(head.clone())),
        Some(head) if repository.is_ancestor(remote, head).await? => return same(Some(head.clone())),
        Some(head) if repository.is_ancestor(head, remote).await? => (remote.clone(), Vec::new()),
        Some(head) => rebased(repository, head, remote).await?,
    };
    kept.extend(advance(repository, notes, head.as_ref(), &tip).await?);
    Ok(Integrated { head: Some(tip), moved: true, kept })
}

/// Makes commits like ours on top of the remote's, and returns the last.
async fn rebased(repository: &Repository<'_>, head: &Id, remote: &Id) -> Result<(Id, Vec<Kept>), GitProblem> {
    let base = repository.git.run(repository.order(&["merge-base", head.as_str(), remote.as_str()])).await?;
    if !base.is_good() {
        return Err(GitProblem::Unrelated);
    }
    let range = format!("{}..{}", remote.as_str(), head.as_str());
    let most = format!("--max-count={}", COMMITS_MAX + 1);
    let args = ["rev-list", "--reverse", "--topo-order", "--no-merges", &most, &range];
    let listed = repository.git.good(repository.order(&args)).await?;
    let commits: Vec<Id> = listed.lines().filter_map(Id::parse).collect();
    if commits.len() > COMMITS_MAX {
        return Err(GitProblem::ManyCommits(COMMITS_MAX));
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

/// Merges the change of one commit into `tip`, with both versions of whatever is in conflict.
async fn merged(repository: &Repository<'_>, tip: &Id, commit: &Id) -> Result<(Id, Vec<Kept>), GitProblem> {
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
    let tree = parts.next().and_then(Id::parse).ok_or(GitProblem::Tangled)?;
    if ran.code == Some(0) {
        return Ok((tree, Vec::new()));
    }
    // Of each path: the version of the remote (2) and ours (3).
    let mut sides: BTreeMap<&str, [Option<TreeEntry>; 2]> = BTreeMap::new();
    for part in parts.filter(|part| !part.is_empty()) {
        let (about, path) = part.split_once('\t').ok_or(GitProblem::Tangled)?;
        let words: Vec<&str> = about.split(' ').collect();
        let [mode, id, stage] = words.as_slice() else { return Err(GitProblem::Tangled) };
        let entry = TreeEntry { mode: (*mode).to_owned(), id: Id::parse(id).ok_or(GitProblem::Tangled)? };
        let side = sides.entry(path).or_default();
        match *stage {
            "2" => side[0] = Some(entry),
            "3" => side[1] = Some(entry),
            _ => {}
        }
    }
    if sides.is_empty() || sides.len() > CONFLICTS_MAX {
        return Err(GitProblem::Tangled);
    }
    let (mut changes, mut kept) = (Vec::new(), Vec::new());
    for (path, [theirs, ours]) in sides {
        match (theirs, ours) {
            (Some(theirs), Some(ours)) => {
                let copy = beside(path, commit.short());
                kept.push(Kept { path: path.to_owned(), kept_as: copy.clone() });
                changes.push((path.to_owned(), Some(theirs)));
                changes.push((copy, Some(ours)));
            }
            // Removed on one side and changed on the other: what was changed is still wanted.
            (Some(only), None) | (None, Some(only)) => changes.push((path.to_owned(), Some(only))),
            (None, None) => changes.push((path.to_owned(), None)),
        }
    }
    Ok((repository.changed_tree(Some(&tree), &changes).await?, kept))
}

/// Returns who wrote a commit and when, as git wants to be told, and what they said about it.
async fn written_by(
    repository: &Repository<'_>,
    commit: &Id,
) -> Result<(Vec<(&'static str, String)>, String), GitProblem> {
    let text = repository.git.good(repository.order(&["cat-file", "commit", commit.as_str()])).await?;
    let (headers, message) = text.split_once("\n\n").unwrap_or((&text, ""));
    let author = headers.lines().find_map(|line| line.strip_prefix("author ")).ok_or(GitProblem::Tangled)?;
    let (name, rest) = author.split_once('<').ok_or(GitProblem::Tangled)?;
    let (email, date) = rest.rsplit_once('>').ok_or(GitProblem::Tangled)?;
    let author = vec![
        ("GIT_AUTHOR_NAME", name.trim().to_owned()),
        ("GIT_AUTHOR_EMAIL", email.to_owned()),
        ("GIT_AUTHOR_DATE", format!("@{}", date.trim())),
    ];
    Ok((author, message.to_owned()))
}

/// Brings files, index and branch from one commit to another.
async fn advance(
    repository: &Repository<'_>,
    notes: &Notes,
    from: Option<&Id>,
    to: &Id,
) -> Result<Vec<Kept>, GitProblem> {
    let old = match from {
        Some(from) => from.clone(),
        None => repository.empty_tree().await?,
    };
    // Says which files are as the index has them; that some are not is no failure.
    repository.git.run(repository.order(&["update-index", "-q", "--refresh"])).await?;
    let read = ["read-tree", "-m", "-u", old.as_str(), to.as_str()];
    let ran = repository.git.run(repository.order(&read)).await?;
    let mut kept = Vec::new();
    if !ran.is_good() {
        kept = set_aside(repository, notes, &old, to).await?;
        repository.git.good(repository.order(&read)).await?;
    }
    repository.move_branch(to, from).await?;
    Ok(kept)
}

/// Keeps what was changed here and not committed, and puts the other side's version beside it.
async fn set_aside(
    repository: &Repository<'_>,
    notes: &Notes,
    old: &Id,
    to: &Id,
) -> Result<Vec<Kept>, GitProblem> {
    let edited = repository.git.good(repository.order(&["diff-files", "-z", "--name-only"])).await?;
    let edited: HashSet<&str> = edited.split('\0').collect();
    let args = ["diff-tree", "-r", "-z", "--name-status", "--no-renames", old.as_str(), to.as_str()];
    let changed = repository.git.good(repository.order(&args)).await?;
    let mut changed = changed.split('\0');
    let (mut entries, mut kept) = (Vec::new(), Vec::new());
    while let (Some(status), Some(path)) = (changed.next(), changed.next()) {
        // What is new there may be here too, unknown to the index.
        if status != "A" && !edited.contains(path) {
            continue;
        }
        let before = repository.entry(old, path).await?;
        let Some(here) = content_here(repository, notes, path).await? else { continue };
        if before.is_some_and(|before| before.id == here) {
            continue;
        }
        let theirs = repository.entry(to, path).await?;
        if let Some(theirs) = theirs.as_ref().filter(|theirs| theirs.id != here)
            && let Some(copy) = put_beside(repository, notes, path, theirs).await?
        {
            kept.push(Kept { path: path.to_owned(), kept_as: copy });
        }
        entries.push((path.to_owned(), theirs));
        if entries.len() > CONFLICTS_MAX {
            return Err(GitProblem::Tangled);
        }
    }
    repository.update_index(&entries).await?;
    Ok(kept)
}

/// Returns the name git would keep the file under, as it is on disk; nothing if there is none.
async fn content_here(
    repository: &Repository<'_>,
    notes: &Notes,
    path: &str,
) -> Result<Option<Id>, GitProblem> {
    let Ok(rooted) = RootedPath::parse(path) else { return Ok(None) };
    if !notes.root.shows(&rooted) {
        return Ok(None);
    }
    // With the conversions of line ends that git makes for this path.
    repository.id(repository.order(&["hash-object", "--", path])).await.map(Some)
}

/// Writes the other side's version of a file beside it. Of what is hidden, only history keeps it.
async fn put_beside(
    repository: &Repository<'_>,
    notes: &Notes,
    path: &str,
    theirs: &TreeEntry,
) -> Result<Option<String>, GitProblem> {
    let copy = beside(path, theirs.id.short());
    let Some(place) = RootedPath::parse(&copy).ok().and_then(Place::of) else { return Ok(None) };
    let ran = repository.git.run(repository.order(&["cat-file", "blob", theirs.id.as_str()])).await?;
    if !ran.is_good() {
        return Err(ran.failed("cat-file"));
    }
    let (root, content) = (notes.root.clone(), ran.stdout);
    let target = place.clone();
    let written = crate::files::blocking(move || root.write(target.path(), &content)).await;
    written.map_err(GitProblem::File)?;
    Ok(Some(place.path().to_string()))
}

/// Returns a name for a second version of a file, which nobody else uses.
fn beside(path: &str, of: &str) -> String {
    let (folder, name) = path.rsplit_once('/').map_or(("", path), |(folder, name)| (folder, name));
    let (stem, extension) = match name.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() => (stem, format!(".{extension}")),
        _ => (name, String::new()),
    };
    // Two conflicts of one version are possible, so its name alone is not enough.
    let random = random_name().unwrap_or_default();
    let mark = format!(" (conflict {of} {})", random.get(..6).unwrap_or_default());
    // A name has at most 255 bytes.
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
        let name = beside("a/Note.md", "0123456789");
        assert!(name.starts_with("a/Note (conflict 0123456789 ") && name.ends_with(").md"), "{name}");
        assert_ne!(name, beside("a/Note.md", "0123456789"));
        let long = beside(&format!("{}.md", "ä".repeat(126)), "0123456789");
        assert!(long.len() <= 255 && long.ends_with(".md"));
        assert!(beside("README", "x").starts_with("README (conflict x "));
    }
}
