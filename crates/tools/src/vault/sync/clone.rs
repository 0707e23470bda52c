//! The first copy of a repository.
//!
//! It is fetched to a folder of its own inside the vault, and moved into place when it is whole. A clone that was cut short
//! leaves nothing that could be taken for a repository, and a checkout that was cut short is finished the next time.

use super::super::git::{Access, FolderState, Git, GitProblem, Order, RemoteAddress};
use super::CLONE_PREFIX;
use portcullis_core::Secret;
use std::ffi::OsString;
use std::path::Path;
use tokio::time::Instant;

/// In `.git` from before it is in place until every file is.
const UNFINISHED: &str = "portcullis-unfinished";

/// Makes sure that there is a repository, and that its files are there. Returns whether files may have come.
pub(super) async fn ensure(
    git: &Git,
    vault: &Path,
    address: &RemoteAddress,
    header: Option<&Secret<String>>,
    until: Instant,
) -> Result<bool, GitProblem> {
    match git.folder_state()? {
        FolderState::Files => return Err(GitProblem::NotARepository),
        FolderState::Repository => {}
        FolderState::Empty => {
            sweep(vault);
            let name = format!("{CLONE_PREFIX}{}", super::random_name().map_err(GitProblem::Start)?);
            let cloned = clone(git, vault, &name, address, header, until).await;
            // Empty where all went well.
            let _ = std::fs::remove_dir_all(vault.join(name));
            cloned?;
        }
    }
    if !git.git_dir().join(UNFINISHED).exists() {
        return Ok(false);
    }
    check_out(git, until).await?;
    std::fs::remove_file(git.git_dir().join(UNFINISHED)).map_err(GitProblem::Start)?;
    Ok(true)
}

async fn clone(
    git: &Git,
    vault: &Path,
    name: &str,
    address: &RemoteAddress,
    header: Option<&Secret<String>>,
    until: Instant,
) -> Result<(), GitProblem> {
    let to = vault.join(name);
    let mut args: Vec<OsString> =
        ["clone", "-q", "--no-checkout", "--no-tags", "--no-recurse-submodules", "--no-local"]
            .map(OsString::from)
            .to_vec();
    args.extend(["--template=", "--origin=origin", "--"].map(OsString::from));
    args.extend([OsString::from(address.as_str()), to.clone().into_os_string()]);
    let order = Order::new(args, until).access(Access::Remote { address, header });
    git.good(order.anew()).await?;
    std::fs::write(to.join(".git").join(UNFINISHED), "").map_err(GitProblem::Start)?;
    // Somebody may have written a note meanwhile.
    if git.folder_state()? != FolderState::Empty {
        return Err(GitProblem::NotARepository);
    }
    std::fs::rename(to.join(".git"), git.git_dir()).map_err(GitProblem::Start)
}

/// Writes every file that is not there; one that is stays as it is.
async fn check_out(git: &Git, until: Instant) -> Result<(), GitProblem> {
    let head = git.run(Order::new(["rev-parse", "-q", "--verify", "HEAD"], until)).await?;
    if !head.is_good() {
        // An empty repository.
        return Ok(());
    }
    git.good(Order::new(["read-tree", "HEAD"], until)).await?;
    let ran = git.run(Order::new(["checkout-index", "-a", "-q", "-u"], until)).await?;
    // It complains of files that are there already.
    if ran.is_good() || ran.stderr.lines().all(|line| line.contains("already exists")) {
        return Ok(());
    }
    Err(ran.failed("checkout-index"))
}

/// Removes what clones left that were cut short.
fn sweep(vault: &Path) {
    for entry in std::fs::read_dir(vault).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(CLONE_PREFIX)) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
