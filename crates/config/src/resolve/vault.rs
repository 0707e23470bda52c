//! Resolves the vault section.

use super::ConfigResolver;
use crate::written;
use crate::{VaultSettings, VaultSyncSettings};
use portcullis_store::secrets::SecretRef;
use portcullis_tools::{CommitAuthor, RemoteAddress};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer than any author name and address.
const AUTHOR_BYTES_MAX: usize = 300;

impl ConfigResolver<'_> {
    pub(super) fn vault(&mut self, vault: &written::WrittenVault, workspace: &str) -> VaultSettings {
        let path = self.path("/vault/path", &vault.path);
        // These folders contain data that tools must never reach.
        let secure = real(&self.home.join(workspace).join("secure"));
        let real = real(&path);
        if secure.starts_with(&real) || real.starts_with(&secure) {
            let expected = "a folder outside the hub's own data";
            self.unexpected("/vault/path", &vault.path, expected);
        }
        let address = self.address(&vault.git_repo);
        let token = self.token(vault, address.as_ref());
        let author = self.author(&vault.git_author);
        if vault.git_user.is_empty()
            || !vault.git_user.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':')
        {
            self.unexpected("/vault/git_user", &vault.git_user, "a user name without spaces and colons");
        }
        if vault.auto_sync && vault.git_repo.is_empty() {
            self.unexpected("/vault/git_repo", "", "the repository that `vault.auto_sync` syncs with");
        }
        let sync = address.filter(|_| vault.auto_sync).map(|address| VaultSyncSettings {
            address,
            token,
            user: vault.git_user.clone(),
            author,
            pull_after: Duration::from_secs(vault.pull_after_secs),
            within: Duration::from_secs(vault.git_timeout_secs),
        });
        VaultSettings { path, sync }
    }

    fn address(&mut self, text: &str) -> Option<RemoteAddress> {
        if text.is_empty() {
            return None;
        }
        let written = match text.starts_with("~/") {
            true => self.path("/vault/git_repo", text).to_string_lossy().into_owned(),
            false => text.to_owned(),
        };
        let address = written.parse();
        address.map_err(|expected| self.unexpected("/vault/git_repo", &without_password(text), expected)).ok()
    }

    fn token(&mut self, vault: &written::WrittenVault, address: Option<&RemoteAddress>) -> Option<SecretRef> {
        if vault.git_token.is_empty() {
            return None;
        }
        if address.is_some_and(|address| address.secret_host().is_none()) {
            let expected = "empty: a token is sent to https:// URLs only";
            self.unexpected("/vault/git_token", "…", expected);
        }
        // The value itself must not appear in an error message, which is logged and pasted.
        let token = vault.git_token.parse();
        token.map_err(|_| self.unexpected("/vault/git_token", "…", "a handle like secret:NOTES_TOKEN")).ok()
    }

    fn author(&mut self, text: &str) -> CommitAuthor {
        let parsed = text.strip_suffix('>').and_then(|text| text.split_once('<'));
        let plain = |part: &str| {
            !part.is_empty() && !part.chars().any(|c| c.is_control() || matches!(c, '<' | '>' | '\n'))
        };
        match parsed.map(|(name, email)| (name.trim(), email.trim())) {
            Some((name, email)) if plain(name) && plain(email) && text.len() <= AUTHOR_BYTES_MAX => {
                CommitAuthor { name: name.to_owned(), email: email.to_owned() }
            }
            _ => {
                self.unexpected("/vault/git_author", text, "a name and address like Me <me@example.com>");
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
