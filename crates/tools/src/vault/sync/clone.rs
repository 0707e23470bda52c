//! The first clone of a repository.
//!
//! It goes to a temporary folder inside the vault, and is renamed into place when complete. An interrupted clone
//! leaves nothing that looks like a repository, and an interrupted checkout is finished the next time.

use super::super::git::{FolderState, Git, GitAccess, GitCommand, GitError, RemoteAddress};
use super::CLONE_PREFIX;
use portcullis_core::Secret;
use std::ffi::OsString;
use std::path::Path;
use tokio::time::Instant;

/// Marker file in `.git` until every file is checked out.
const UNFINISHED: &str = "portcullis-unfinished";

/// Makes sure that the repository and its files exist. Returns whether files may have been added.
pub(super) async fn ensure(
    git: &Git,
    vault: &Path,
    address: &RemoteAddress,
    header: Option<&Secret<String>>,
    until: Instant,
) -> Result<bool, GitError> {
    match git.folder_state()? {
        FolderState::Files => return Err(GitError::NotARepository),
        FolderState::Repository => {}
        FolderState::Empty => {
            sweep(vault);
            let name = format!("{CLONE_PREFIX}{}", super::random_name().map_err(GitError::Start)?);
            let cloned = clone(git, vault, &name, address, header, until).await;
            // Empty after success.
            let _ = std::fs::remove_dir_all(vault.join(name));
            cloned?;
        }
    }
    if !git.git_dir().join(UNFINISHED).exists() {
        return Ok(false);
    }
    check_out(git, until).await?;
    std::fs::remove_file(git.git_dir().join(UNFINISHED)).map_err(GitError::Start)?;
    Ok(true)
}

async fn clone(
    git: &Git,
    vault: &Path,
    name: &str,
    address: &RemoteAddress,
    header: Option<&Secret<String>>,
    until: Instant,
) -> Result<(), GitError> {
    let to = vault.join(name);
    let mut args: Vec<OsString> =
        ["clone", "-q", "--no-checkout", "--no-tags", "--no-recurse-submodules", "--no-local"]
            .map(OsString::from)
            .to_vec();
    args.extend(["--template=", "--origin=origin", "--"].map(OsString::from));
    args.extend([OsString::from(address.as_str()), to.clone().into_os_string()]);
    let order = GitCommand::new(args, until).access(GitAccess::Remote { address, header });
    git.run_checked(order.outside_repository()).await?;
    std::fs::write(to.join(".git").join(UNFINISHED), "").map_err(GitError::Start)?;
    // A note may have been written meanwhile.
    if git.folder_state()? != FolderState::Empty {
        return Err(GitError::NotARepository);
    }
    std::fs::rename(to.join(".git"), git.git_dir()).map_err(GitError::Start)
}

/// Checks out every missing file; existing ones stay unchanged.
async fn check_out(git: &Git, until: Instant) -> Result<(), GitError> {
    let head = git.run(GitCommand::new(["rev-parse", "-q", "--verify", "HEAD"], until)).await?;
    if !head.is_good() {
        // An empty repository.
        return Ok(());
    }
    git.run_checked(GitCommand::new(["read-tree", "HEAD"], until)).await?;
    let ran = git.run(GitCommand::new(["checkout-index", "-a", "-q", "-u"], until)).await?;
    // It reports files that already exist.
    if ran.is_good() || ran.stderr.lines().all(|line| line.contains("already exists")) {
        return Ok(());
    }
    Err(ran.failed("checkout-index"))
}

/// Removes interrupted clones.
fn sweep(vault: &Path) {
    for entry in std::fs::read_dir(vault).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(CLONE_PREFIX)) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
