//! The outcome of a sync for the caller: without paths of the host and URLs.

use super::super::git::GitError;
use schemars::JsonSchema;
use serde::Serialize;

/// Stands for the command of a push that the remote refused.
pub(super) const REFUSED: &str = "push refused";

/// Two versions of one note.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(in crate::vault) struct NoteConflict {
    /// Path of the note that was changed on both sides.
    pub(in crate::vault) path: String,
    /// Path of the other version of it.
    pub(in crate::vault) kept_as: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub(in crate::vault) struct SyncReport {
    /// Whether the changes of others were fetched first.
    pub(super) pulled: bool,
    /// Whether the note is committed.
    pub(super) committed: bool,
    /// Whether the commit is in the remote repository.
    pub(super) pushed: bool,
    /// Notes that were changed on both sides, and where both versions are.
    pub(super) conflicts: Vec<NoteConflict>,
    /// Why something did not happen.
    pub(super) problem: Option<String>,
}

impl SyncReport {
    pub(in crate::vault) fn summary(&self) -> String {
        let mut said = match (self.committed, self.pushed) {
            (true, true) => "pulled, committed and pushed".to_owned(),
            (true, false) => "written, not pushed".to_owned(),
            (false, true) => "pulled; the text is the same as before".to_owned(),
            (false, false) => "written, not committed".to_owned(),
        };
        if let Some(problem) = &self.problem {
            said += &format!(": {problem}");
        }
        if self.committed && !self.pushed {
            said += "; it is tried again";
        }
        for kept in &self.conflicts {
            said += &format!(
                "\nConflict: `{}` was also changed remotely. Both versions were saved: read `{}` and `{}`, \
                 and write one that has both.",
                kept.path, kept.path, kept.kept_as
            );
        }
        said
    }
}

/// Lists the notes in conflict, if any.
pub(super) fn conflict_notice(conflicts: &[NoteConflict]) -> Option<String> {
    let each =
        conflicts.iter().map(|kept| format!("`{}` (the other version is `{}`)", kept.path, kept.kept_as));
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| format!("changed on both sides, both versions are kept: {}", each.join(", ")))
}

/// Describes a problem for the caller.
pub(super) fn describe_problem(problem: &GitError) -> String {
    let GitError::Failed { what, said, .. } = problem else { return problem.to_string() };
    let has = |texts: &[&str]| texts.iter().any(|text| said.contains(text));
    if what == REFUSED {
        return "the remote refused the push".to_owned();
    }
    if has(&[
        "Authentication failed",
        "could not read Username",
        "error: 401",
        "error: 403",
        "Permission denied",
        "Host key verification failed",
    ]) {
        return "the remote does not let the hub in; check `vault.git_token`, or the key for ssh".to_owned();
    }
    if has(&["index.lock", ".lock': File exists"]) {
        return "another git program is at work in the vault, or left `.git/index.lock` behind".to_owned();
    }
    if has(&["not found", "does not appear to be a git repository", "does not exist"]) {
        return "the remote repository was not found; check `vault.git_repo`".to_owned();
    }
    if has(&[
        "Could not resolve",
        "Failed to connect",
        "unable to access",
        "Connection",
        "Could not read from remote",
        "hung up",
    ]) {
        return "the remote cannot be reached".to_owned();
    }
    format!("{problem}; the hub's log says more")
}
