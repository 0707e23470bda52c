//! The `[vault]` section.

use super::git::RemoteAddress;
use super::sync::CommitAuthor;
use portcullis_family::{AbsentSection, ConfigSection, SectionChecks};
use portcullis_store::secrets::SecretRef;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer than any author name and address.
const AUTHOR_BYTES_MAX: usize = 300;

/// Obsidian vault. This section enables the vault_* tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VaultSection {
    /// Folder of the notes; relative to the home folder.
    #[schemars(length(min = 1), example = &"~/Notes")]
    path: String,
    /// Git repository to sync with; needs git 2.40 or newer.
    #[schemars(example = &"git@example.com:me/notes.git")]
    git_repo: String,
    /// Sync automatically: clone into an empty folder, pull before reads, commit and push writes.
    auto_sync: bool,
    /// Secret with the repository's HTTPS token; set it with `portcullis secrets set NAME --grant HOST`.
    #[schemars(example = &"secret:NOTES_TOKEN")]
    git_token: String,
    /// User name for the token.
    git_user: String,
    /// Author of commits.
    #[schemars(example = &"Me <me@example.com>")]
    git_author: String,
    /// Seconds between pulls.
    #[schemars(range(min = 0, max = 86_400))]
    pull_after_secs: u64,
    /// Timeout of a sync, in seconds.
    #[schemars(range(min = 1, max = 120))]
    git_timeout_secs: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultSettings {
    pub path: PathBuf,
    /// `None` if it is not synced.
    pub sync: Option<VaultSyncSettings>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultSyncSettings {
    pub address: RemoteAddress,
    pub token: Option<SecretRef>,
    pub user: String,
    pub author: CommitAuthor,
    pub pull_after: Duration,
    pub within: Duration,
}

impl Default for VaultSection {
    fn default() -> Self {
        VaultSection {
            path: "vault".to_owned(),
            git_repo: String::new(),
            auto_sync: false,
            git_token: String::new(),
            // Most servers ignore it, because the token is enough.
            git_user: "git".to_owned(),
            git_author: "Portcullis <portcullis@localhost>".to_owned(),
            pull_after_secs: 60,
            git_timeout_secs: 60,
        }
    }
}

impl ConfigSection for VaultSection {
    const KEY: &'static str = "vault";
    const ABSENT: AbsentSection = AbsentSection::Off;
    type Settings = VaultSettings;

    fn resolve(&self, checks: &mut SectionChecks<'_>) -> Option<VaultSettings> {
        let path = checks.path("/vault/path", &self.path);
        // These folders contain data that tools must never reach.
        let secure = real(&checks.workspace.secure_dir());
        let real = real(&path);
        if secure.starts_with(&real) || real.starts_with(&secure) {
            let expected = "a folder outside the hub's own data";
            checks.unexpected("/vault/path", &self.path, expected);
        }
        let address = self.address(checks);
        let token = self.token(address.as_ref(), checks);
        let author = self.author(checks);
        if self.git_user.is_empty()
            || !self.git_user.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':')
        {
            checks.unexpected("/vault/git_user", &self.git_user, "a user name without spaces and colons");
        }
        if self.auto_sync && self.git_repo.is_empty() {
            checks.unexpected("/vault/git_repo", "", "the repository that `vault.auto_sync` syncs with");
        }
        let sync = address.filter(|_| self.auto_sync).map(|address| VaultSyncSettings {
            address,
            token,
            user: self.git_user.clone(),
            author,
            pull_after: Duration::from_secs(self.pull_after_secs),
            within: Duration::from_secs(self.git_timeout_secs),
        });
        Some(VaultSettings { path, sync })
    }
}

impl VaultSection {
    fn address(&self, checks: &mut SectionChecks<'_>) -> Option<RemoteAddress> {
        let text = &self.git_repo;
        if text.is_empty() {
            return None;
        }
        let written = match text.starts_with("~/") {
            true => checks.path("/vault/git_repo", text).to_string_lossy().into_owned(),
            false => text.to_owned(),
        };
        let address = written.parse();
        address
            .map_err(|expected| checks.unexpected("/vault/git_repo", &without_password(text), expected))
            .ok()
    }

    fn token(&self, address: Option<&RemoteAddress>, checks: &mut SectionChecks<'_>) -> Option<SecretRef> {
        if self.git_token.is_empty() {
            return None;
        }
        if address.is_some_and(|address| address.secret_host().is_none()) {
            let expected = "empty: a token is sent to https:// URLs only";
            checks.unexpected("/vault/git_token", "…", expected);
        }
        // The value itself must not appear in an error message, which is logged and pasted.
        let token = self.git_token.parse();
        token.map_err(|_| checks.unexpected("/vault/git_token", "…", "a handle like secret:NOTES_TOKEN")).ok()
    }

    fn author(&self, checks: &mut SectionChecks<'_>) -> CommitAuthor {
        let text = self.git_author.as_str();
        let parsed = text.strip_suffix('>').and_then(|text| text.split_once('<'));
        let plain = |part: &str| {
            !part.is_empty() && !part.chars().any(|c| c.is_control() || matches!(c, '<' | '>' | '\n'))
        };
        match parsed.map(|(name, email)| (name.trim(), email.trim())) {
            Some((name, email)) if plain(name) && plain(email) && text.len() <= AUTHOR_BYTES_MAX => {
                CommitAuthor { name: name.to_owned(), email: email.to_owned() }
            }
            _ => {
                checks.unexpected("/vault/git_author", text, "a name and address like Me <me@example.com>");
                CommitAuthor { name: String::new(), email: String::new() }
            }
        }
    }
}

/// Returns a URL without credentials.
fn without_password(text: &str) -> String {
    match (text.find("://"), text.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 <= at => format!("{}…{}", &text[..scheme + 3], &text[at..]),
        _ => text.to_owned(),
    }
}

/// Canonicalizes the existing part of a path.
fn real(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (ancestor.canonicalize(), path.strip_prefix(ancestor)) {
            return real.join(rest);
        }
    }
    path.to_owned()
}
