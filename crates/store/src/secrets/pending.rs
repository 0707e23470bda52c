//! Pending secrets of imported servers. They are stored at once, so that no file has them in clear, and
//! registered with the redactor once a person trusts the server.

use super::contents::SecretRecord;
use super::grant::{Grant, check_name};
use super::key::KeyCreation;
use super::{
    SECRETS_MAX, SecretError, SecretInfo, SecretStore, VALUE_BYTES_MAX, VALUE_BYTES_MIN, add_grant,
    server_logins,
};
use portcullis_core::Secret;
use zeroize::Zeroizing;

impl SecretStore {
    /// Stores an imported value as pending. An existing secret keeps its state and gets the grant.
    pub fn set_pending(
        &self,
        name: &str,
        value: &Secret<Zeroizing<String>>,
        grant: Grant,
    ) -> Result<SecretInfo, SecretError> {
        check_name(name)?;
        let (value, bytes) = (value.expose(), value.expose().len());
        if bytes < VALUE_BYTES_MIN {
            return Err(SecretError::TooShort { name: name.to_owned(), bytes });
        }
        if bytes > VALUE_BYTES_MAX {
            return Err(SecretError::TooLong { name: name.to_owned(), bytes });
        }
        let now = self.now();
        self.change(KeyCreation::IfMissing, |records| {
            let known = records.iter().position(|record| record.info.name == name);
            let record = match known {
                // The name was chosen for this value; another value is a different secret.
                Some(at) if records[at].value != *value => return Err(SecretError::Taken(name.to_owned())),
                Some(at) => &mut records[at],
                None if records.len() >= SECRETS_MAX => return Err(SecretError::Full),
                None => {
                    let info =
                        SecretInfo { pending: true, ..SecretInfo::new(name.to_owned(), Vec::new(), now) };
                    records.push_mut(SecretRecord::new(info, value.clone()))
                }
            };
            add_grant(&mut record.info, grant)?;
            Ok(record.info.clone())
        })
    }

    /// Registers pending secrets. Returns whether there were any among these names.
    pub fn activate(&self, names: &[&str]) -> Result<bool, SecretError> {
        let is_pending = |info: &SecretInfo| info.pending && names.contains(&info.name.as_str());
        if !self.known(|records| Ok(records.iter().any(|record| is_pending(&record.info))))? {
            return Ok(false);
        }
        self.change(KeyCreation::Never, |records| {
            for record in records.iter_mut().filter(|record| is_pending(&record.info)) {
                record.info.pending = false;
            }
            Ok(true)
        })
    }

    /// Returns all values with their names, pending ones too, to find names and values in use.
    pub fn all_with_pending(&self) -> Result<Vec<(String, Secret<String>)>, SecretError> {
        self.known(|records| {
            let pair =
                |record: &SecretRecord| (record.info.name.clone(), Secret::new(record.value.to_string()));
            Ok(records
                .iter()
                .filter(|record| server_logins::is_masked(&record.info.name))
                .map(pair)
                .collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::KeySource;
    use portcullis_core::SystemClock;
    use std::sync::Arc;

    #[test]
    fn an_imported_value_is_registered_only_once_it_is_activated() {
        let (folder, keys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let open = || {
            let source =
                KeySource::File { path: keys.path().join("key"), data: vec![folder.path().to_owned()] };
            SecretStore::open(&crate::testing::open(folder.path()), source, Arc::new(SystemClock))
        };
        let (store, value) = (open(), Secret::new(Zeroizing::new("hunter2hunter2".to_owned())));
        let grant = |text: &str| text.parse::<Grant>().unwrap();
        assert!(store.set_pending("KEY", &value, grant("mcp.a:env")).unwrap().pending);
        // Another process reads the flag from the file.
        let other = open();
        assert!(other.all().unwrap().is_empty());
        assert_eq!(other.all_with_pending().unwrap().len(), 1);
        assert!(other.list().unwrap()[0].pending);
        assert!(other.resolve_for("KEY", "mcp.a", "env").is_ok(), "the server can be looked at");
        assert!(other.set_pending("KEY", &value, grant("mcp.b:env")).unwrap().pending);
        let another = Secret::new(Zeroizing::new("hunter3hunter3".to_owned()));
        assert!(other.set_pending("KEY", &another, grant("mcp.b:env")).is_err());
        assert!(!other.activate(&["OTHER"]).unwrap() && other.all().unwrap().is_empty());
        assert!(other.activate(&["KEY"]).unwrap() && !other.activate(&["KEY"]).unwrap());
        assert_eq!(store.all().unwrap().len(), 1);
        // A registered secret stays registered when it is imported again.
        assert!(!store.set_pending("KEY", &value, grant("mcp.c:env")).unwrap().pending);
        // A person's `set` or `grant` registers it.
        store.set_pending("NEXT", &another, grant("mcp.d:env")).unwrap();
        assert!(!store.grant("NEXT", grant("example.com")).unwrap().pending);
    }
}
