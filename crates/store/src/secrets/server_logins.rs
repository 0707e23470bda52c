//! OAuth logins of upstream servers, as values of the secret store. No handle refers to them and no grant
//! covers them. They are in the store because they are secrets, and are masked as such.

use super::contents::SecretRecord;
use super::key::KeyCreation;
use super::{SECRETS_MAX, SecretError, SecretInfo, SecretStore, VALUE_BYTES_MAX, VALUE_BYTES_MIN};
use crate::locked_file::FileLock;
use portcullis_core::Secret;
use std::time::Duration;
use zeroize::Zeroizing;

/// With dots, which names of secrets cannot have and masks can show.
const PREFIX: &str = "oauth.";
/// The length of server names.
const OWNER_CHARS_MAX: usize = 64;
const PART_CHARS_MAX: usize = 16;
/// The part of a login that is no secret and is not masked: addresses and names.
pub const ABOUT: &str = "about";

/// Returns whether a name belongs to a login: `oauth.SERVER.PART`.
pub(super) fn is_login_name(name: &str) -> bool {
    let Some((owner, part)) = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('.')) else {
        return false;
    };
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    (1..=OWNER_CHARS_MAX).contains(&owner.len())
        && owner.chars().all(legal)
        && (1..=PART_CHARS_MAX).contains(&part.len())
        && part.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

/// Returns whether the value of this name is masked.
pub(super) fn is_masked(name: &str) -> bool {
    !(is_login_name(name) && name.ends_with(&format!(".{ABOUT}")))
}

fn name_of(owner: &str, part: &str) -> Result<String, SecretError> {
    let name = format!("{PREFIX}{owner}.{part}");
    if is_login_name(&name) { Ok(name) } else { Err(SecretError::Name(owner.to_owned())) }
}

/// Timeout for the lock of a login: longer than a token request of its holder may take.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

impl SecretStore {
    /// Takes the lock on the login of `owner`, across processes.
    ///
    /// An advisory lock. A token renewal spans more than one write: the issuer returns the next refresh token
    /// in exchange for the last one.
    pub fn lock_login(&self, owner: &str) -> Result<FileLock, SecretError> {
        name_of(owner, "x")?;
        Ok(FileLock::within(&self.folder.join(format!("{PREFIX}{owner}.lock")), LOCK_TIMEOUT)?)
    }

    /// Replaces all parts of a login atomically: those not in `parts` are deleted.
    ///
    /// Blocks on the file lock of other processes; not for an async worker.
    pub fn save_login(&self, owner: &str, parts: &[(&str, &Secret<String>)]) -> Result<(), SecretError> {
        let mut named = Vec::with_capacity(parts.len());
        for (part, value) in parts {
            let (name, bytes) = (name_of(owner, part)?, value.expose().len());
            if bytes < VALUE_BYTES_MIN {
                return Err(SecretError::TooShort { name, bytes });
            }
            if bytes > VALUE_BYTES_MAX {
                return Err(SecretError::TooLong { name, bytes });
            }
            named.push((name, Zeroizing::new(value.expose().clone())));
        }
        let (owned, now) = (name_of(owner, "x")?, self.now());
        let owned = owned[..owned.len() - 1].to_owned();
        self.change(KeyCreation::IfMissing, |records| {
            records.retain(|record| !record.info.name.starts_with(&owned));
            if records.len() + named.len() > SECRETS_MAX {
                return Err(SecretError::Full);
            }
            for (name, value) in named {
                let info = SecretInfo::new(name, Vec::new(), now);
                records.push(SecretRecord::new(info, value));
            }
            Ok(())
        })
    }

    /// Makes sure that a login can be stored: unlocks the store, or creates one with its key.
    ///
    /// Blocks like [`save_login`](Self::save_login).
    pub fn prepare(&self) -> Result<(), SecretError> {
        self.change(KeyCreation::IfMissing, |_| Ok(()))
    }

    /// Returns the parts of a login and their values.
    pub fn load_login(&self, owner: &str) -> Result<Vec<(String, Secret<String>)>, SecretError> {
        let owned = name_of(owner, "x")?;
        let owned = &owned[..owned.len() - 1];
        self.known(|records| {
            let parts = records.iter().filter_map(|record| {
                let part = record.info.name.strip_prefix(owned)?;
                Some((part.to_owned(), Secret::new(record.value.to_string())))
            });
            Ok(parts.collect())
        })
    }

    /// Deletes a login. Returns whether there was one.
    pub fn delete_login(&self, owner: &str) -> Result<bool, SecretError> {
        if self.load_login(owner)?.is_empty() {
            return Ok(false);
        }
        self.save_login(owner, &[]).map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::{KeySource, SecretRef};
    use portcullis_core::SystemClock;
    use std::sync::Arc;

    #[test]
    fn what_is_held_is_masked_and_out_of_everyones_reach() {
        let (folder, keys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let open = || {
            let source =
                KeySource::File { path: keys.path().join("key"), data: vec![folder.path().to_owned()] };
            SecretStore::open(&crate::testing::open(folder.path()), source, Arc::new(SystemClock))
        };
        let store = open();
        let secret = |text: &str| Secret::new(text.to_owned());
        let (token, about) = (secret("a token of a server"), secret(r#"{"issuer":"https://a.test"}"#));
        store.save_login("notes", &[("access", &token), (ABOUT, &about)]).unwrap();
        store.save_login("note", &[("access", &token)]).unwrap();
        let masked: Vec<String> = store.all().unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(masked, ["oauth.notes.access", "oauth.note.access"]);
        assert!(store.list().unwrap().is_empty());
        assert!(store.resolve_for("oauth.notes.access", "a.test", "Authorization").is_err());
        assert!("secret:oauth.notes.access".parse::<SecretRef>().is_err());
        assert!(store.remove("oauth.notes.access").is_err());
        let value = Secret::new(Zeroizing::new("another value".to_owned()));
        assert!(store.set("oauth.notes.access", &value, None).is_err());
        // Another process sees the same.
        let parts: Vec<(String, String)> = open()
            .load_login("notes")
            .unwrap()
            .into_iter()
            .map(|(part, value)| (part, value.expose().clone()))
            .collect();
        assert_eq!(
            parts,
            [("access".to_owned(), token.expose().clone()), (ABOUT.to_owned(), about.expose().clone())]
        );
        assert!(store.delete_login("notes").unwrap() && !store.delete_login("notes").unwrap());
        assert_eq!(store.load_login("note").unwrap().len(), 1, "another's stays");
        for (owner, part) in [("", "access"), ("a.b", "access"), ("a", ""), ("a", "A"), ("a/b", "access")] {
            assert!(store.save_login(owner, &[(part, &token)]).is_err(), "{owner} {part}");
        }
        assert!(store.save_login("notes", &[("access", &secret("short"))]).is_err());
    }
}
