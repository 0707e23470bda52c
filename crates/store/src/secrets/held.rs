//! Values that the hub itself came by: the logins of servers. Nobody names them, and nobody grants them: no handle leads
//! here. They are in the store because they are secrets, and are masked as such.

use super::contents::Record;
use super::key::Make;
use super::{SECRETS_MAX, SecretError, SecretInfo, SecretStore, VALUE_BYTES_MAX, VALUE_BYTES_MIN};
use crate::kept::Hold;
use portcullis_core::Secret;
use std::time::Duration;
use zeroize::Zeroizing;

/// With dots, which names of secrets do not have and masks can show.
const PREFIX: &str = "oauth.";
/// As long as names of servers are.
const OWNER_CHARS_MAX: usize = 64;
const PART_CHARS_MAX: usize = 16;
/// The part of a login that is no secret, and is not masked: it holds addresses and names.
pub const ABOUT: &str = "about";

/// Returns whether a name is one of values that are held: `oauth.SERVER.PART`.
pub(super) fn is_held_name(name: &str) -> bool {
    let Some((owner, part)) = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('.')) else {
        return false;
    };
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    (1..=OWNER_CHARS_MAX).contains(&owner.len())
        && owner.chars().all(legal)
        && (1..=PART_CHARS_MAX).contains(&part.len())
        && part.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

/// Returns whether what has this name is masked.
pub(super) fn is_masked(name: &str) -> bool {
    !(is_held_name(name) && name.ends_with(&format!(".{ABOUT}")))
}

fn name_of(owner: &str, part: &str) -> Result<String, SecretError> {
    let name = format!("{PREFIX}{owner}.{part}");
    if is_held_name(&name) { Ok(name) } else { Err(SecretError::Name(owner.to_owned())) }
}

/// How long others who change a login are waited for: longer than they may take to ask who makes its tokens.
const TURN_WITHIN: Duration = Duration::from_secs(60);

impl SecretStore {
    /// Waits until nobody else, in any process, is about to change what is held for `owner`.
    ///
    /// Only a wish among those who ask for it: a change needs longer than one write, where a stranger has to be asked for
    /// the next value with the last one.
    pub fn turn(&self, owner: &str) -> Result<Hold, SecretError> {
        name_of(owner, "x")?;
        Ok(self.file.lock_named(&format!("{PREFIX}{owner}"), TURN_WITHIN)?)
    }

    /// Replaces all that is held for `owner`, at once: what is not among `parts` is forgotten.
    ///
    /// Waits for other processes that change the store at this moment; not for a runtime thread.
    pub fn hold(&self, owner: &str, parts: &[(&str, &Secret<String>)]) -> Result<(), SecretError> {
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
        self.change(Make::IfMissing, |records| {
            records.retain(|record| !record.info.name.starts_with(&owned));
            if records.len() + named.len() > SECRETS_MAX {
                return Err(SecretError::Full);
            }
            for (name, value) in named {
                let info = SecretInfo::new(name, Vec::new(), now);
                records.push(Record { info, value });
            }
            Ok(())
        })
    }

    /// Makes sure that something can be held: unlocks the store, or makes one with its key where there is none yet.
    ///
    /// Waits like [`hold`](Self::hold).
    pub fn prepare(&self) -> Result<(), SecretError> {
        self.change(Make::IfMissing, |_| Ok(()))
    }

    /// Returns all that is held for `owner`: parts, and their values.
    pub fn held(&self, owner: &str) -> Result<Vec<(String, Secret<String>)>, SecretError> {
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

    /// Forgets all that is held for `owner`. Returns whether there was something.
    pub fn let_go(&self, owner: &str) -> Result<bool, SecretError> {
        if self.held(owner)?.is_empty() {
            return Ok(false);
        }
        self.hold(owner, &[]).map(|()| true)
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
            SecretStore::open(folder.path(), source, Arc::new(SystemClock))
        };
        let store = open();
        let secret = |text: &str| Secret::new(text.to_owned());
        let (token, about) = (secret("a token of a server"), secret(r#"{"issuer":"https://a.test"}"#));
        store.hold("notes", &[("access", &token), (ABOUT, &about)]).unwrap();
        store.hold("note", &[("access", &token)]).unwrap();
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
            .held("notes")
            .unwrap()
            .into_iter()
            .map(|(part, value)| (part, value.expose().clone()))
            .collect();
        assert_eq!(
            parts,
            [("access".to_owned(), token.expose().clone()), (ABOUT.to_owned(), about.expose().clone())]
        );
        assert!(store.let_go("notes").unwrap() && !store.let_go("notes").unwrap());
        assert_eq!(store.held("note").unwrap().len(), 1, "another's stays");
        for (owner, part) in [("", "access"), ("a.b", "access"), ("a", ""), ("a", "A"), ("a/b", "access")] {
            assert!(store.hold(owner, &[(part, &token)]).is_err(), "{owner} {part}");
        }
        assert!(store.hold("notes", &[("access", &secret("short"))]).is_err());
    }
}
