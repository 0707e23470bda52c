//! What the section of the vault means.

use super::meaning::Checks;
use super::written;
use super::{Vault, VaultSync};
use portcullis_store::secrets::SecretRef;
use portcullis_tools::{Author, RemoteAddress};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer than any name and address of a person.
const AUTHOR_BYTES_MAX: usize = 300;

impl Checks<'_> {
    pub(super) fn vault(&mut self, vault: &written::Vault, workspace: &str) -> Vault {
        let path = self.path("/vault/path", &vault.path);
        // What tools must never reach is in there, whatever the vault is called.
        let secure = real(&self.home.join(workspace).join("secure"));
        let real = real(&path);
        if secure.starts_with(&real) || real.starts_with(&secure) {
            let expected = "a folder that does not hold the hub's own data";
            self.unexpected("/vault/path", &vault.path, expected);
        }
        let address = self.address(&vault.git_repo);
        let token = self.token(vault, address.as_ref());
        let author = self.author(&vault.git_author);
        if vault.git_user.is_empty()
            || !vault.git_user.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':')
        {
            self.unexpected("/vault/git_user", &vault.git_user, "a user name without blanks and colons");
        }
        if vault.auto_sync && vault.git_repo.is_empty() {
            self.unexpected("/vault/git_repo", "", "the repository that `vault.auto_sync` syncs with");
        }
        let sync = address.filter(|_| vault.auto_sync).map(|address| VaultSync {
            address,
            token,
            user: vault.git_user.clone(),
            author,
            pull_after: Duration::from_secs(vault.pull_after_secs),
            within: Duration::from_secs(vault.git_timeout_secs),
        });
        Vault { path, sync }
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

    fn token(&mut self, vault: &written::Vault, address: Option<&RemoteAddress>) -> Option<SecretRef> {
        if vault.git_token.is_empty() {
            return None;
        }
        if address.is_some_and(|address| address.secret_host().is_none()) {
            let expected = "nothing, because a secret goes to an https:// address only";
            self.unexpected("/vault/git_token", "…", expected);
        }
        // Whoever wrote the value itself must not find it in an error message, which is logged and pasted.
        let token = vault.git_token.parse();
        token.map_err(|_| self.unexpected("/vault/git_token", "…", "a handle like secret:NOTES_TOKEN")).ok()
    }

    fn author(&mut self, text: &str) -> Author {
        let parsed = text.strip_suffix('>').and_then(|text| text.split_once('<'));
        let plain = |part: &str| {
            !part.is_empty() && !part.chars().any(|c| c.is_control() || matches!(c, '<' | '>' | '\n'))
        };
        match parsed.map(|(name, email)| (name.trim(), email.trim())) {
            Some((name, email)) if plain(name) && plain(email) && text.len() <= AUTHOR_BYTES_MAX => {
                Author { name: name.to_owned(), email: email.to_owned() }
            }
            _ => {
                self.unexpected("/vault/git_author", text, "a name and address like Me <me@example.com>");
                Author { name: String::new(), email: String::new() }
            }
        }
    }
}

/// Returns an address as it may be shown.
fn without_password(text: &str) -> String {
    match (text.find("://"), text.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 <= at => format!("{}…{}", &text[..scheme + 3], &text[at..]),
        _ => text.to_owned(),
    }
}

/// Returns where a path leads, as far as it exists.
fn real(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (ancestor.canonicalize(), path.strip_prefix(ancestor)) {
            return real.join(rest);
        }
    }
    path.to_owned()
}
