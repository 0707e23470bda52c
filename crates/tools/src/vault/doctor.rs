//! Check of the vault. Does not contact the remote.

use super::VaultSection;
use super::git::{GitError, look_at_repository};
use portcullis_core::{BoxFuture, Root};
use portcullis_family::{CheckState, DoctorParts, HealthCheck};

pub(super) fn checks<'a>(parts: &'a DoctorParts<'a>) -> BoxFuture<'a, Vec<HealthCheck>> {
    Box::pin(async { vec![check(parts).await.of("vault")] })
}

async fn check(parts: &DoctorParts<'_>) -> CheckState {
    let Some(vault) = parts.section::<VaultSection>() else {
        return CheckState::Good(
            "off; add `[vault]` to the configuration to enable the vault_* tools".to_owned(),
        );
    };
    let path = vault.path.display();
    if let Err(error) = Root::create(&vault.path) {
        return CheckState::bad(format!("{path}: {error}"), "check `vault.path` and the folder's owner");
    }
    let Some(sync) = &vault.sync else { return CheckState::Good(format!("{path}, not synced")) };
    match look_at_repository(&vault.path).await {
        Ok(()) => CheckState::Good(format!("{path}, synced with {}", sync.address)),
        Err(problem) => CheckState::bad(format!("{path}: {problem}"), advice(&problem)),
    }
}

fn advice(problem: &GitError) -> &'static str {
    match problem {
        GitError::Missing => "install git (Debian: `apt-get install git`), or turn `vault.auto_sync` off",
        GitError::Old(_) => "install a newer git, or turn `vault.auto_sync` off",
        GitError::NotARepository => {
            "run `git init` and pull, or choose an empty folder, into which the hub clones"
        }
        GitError::Elsewhere => "choose a folder with a repository of its own",
        GitError::Settings(_) => "remove them from `.git/config`; the hub starts no program but git",
        _ => "check the repository with `git status`, or turn `vault.auto_sync` off",
    }
}
