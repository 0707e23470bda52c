//! Secrets: list, set, change allowed hosts, remove.

use crate::context::Operations;
use crate::desk::SetSecret;
use crate::{Actor, Problem, ProblemCode};
use portcullis_core::json::printable;
use portcullis_store::secrets::{
    Grant, SecretError, SecretInfo, SecretRef, VALUE_BYTES_MIN, check_strength, is_secret_name, ordinary_text,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A secret that was set.
#[derive(Debug)]
pub struct SavedSecret {
    pub info: SecretInfo,
    /// Why clients could guess the value, if it was accepted anyway.
    pub weakness: Option<String>,
    /// The key of the store, if it was created.
    pub new_key: Option<PathBuf>,
}

impl SavedSecret {
    /// Returns what was done, and where the secret may be used.
    pub fn sentence(&self) -> String {
        format!("Saved secret `{}`. {}", self.info.name, allowed_hosts(&self.info))
    }
}

/// A secret whose allowed hosts were changed.
#[derive(Debug)]
pub struct GrantedSecret(pub SecretInfo);

impl GrantedSecret {
    /// Returns what was done, and where the secret may be used.
    pub fn sentence(&self) -> String {
        format!("Updated secret `{}`. {}", self.0.name, allowed_hosts(&self.0))
    }
}

/// A secret that was removed.
#[derive(Debug)]
pub struct RemovedSecret(pub SecretInfo);

impl RemovedSecret {
    /// Returns what was done, in one sentence.
    pub fn sentence(&self) -> String {
        format!("Removed secret `{}`; it is no longer redacted.", self.0.name)
    }
}

/// Returns where a secret may be used, in one sentence.
fn allowed_hosts(info: &SecretInfo) -> String {
    match info.grants.as_slice() {
        [] => "It has no allowed hosts yet.".to_owned(),
        grants => format!("Allowed hosts: {}.", grant_words(grants)),
    }
}

/// Returns grants as people write them.
pub fn grant_words(grants: &[Grant]) -> String {
    grants.iter().map(Grant::to_string).collect::<Vec<_>>().join(" ")
}

/// Warns that a key was created.
pub fn new_key_warning(key: &Path) -> String {
    format!(
        "Created the key `{}`. Without it the secrets are lost: keep a backup, separate from the data.",
        key.display()
    )
}

/// Checks a name and grants, before a person is asked for a value or a passphrase.
pub fn check_request(name: &str, grants: &[String]) -> Result<(), Problem> {
    format!("secret:{name}").parse::<SecretRef>().map_err(problem)?;
    parsed(grants).map(drop)
}

impl Operations {
    pub fn list_secrets(&self) -> Result<Vec<SecretInfo>, Problem> {
        self.secret_store()?.list().map_err(problem)
    }

    pub fn set_secret(&self, name: &str, new: SetSecret, by: &Actor) -> Result<SavedSecret, Problem> {
        self.record(by, "secrets.set", details(name, new.grants.as_deref()), || {
            let grants = new.grants.as_deref().map(parsed).transpose()?;
            let (store, value) = (self.secret_store()?, new.value.0.expose());
            let check = if new.weak { ordinary_text::check_confirmed } else { ordinary_text::check };
            check(name, value).map_err(problem)?;
            // What is no secret at all, the store rejects.
            let is_checked = is_secret_name(name) && value.len() >= VALUE_BYTES_MIN;
            let weakness = is_checked.then(|| check_strength(name, value).err()).flatten();
            if let Some(weak) = weakness.as_ref().filter(|_| !new.weak) {
                return Err(Problem::invalid(format!(
                    "{weak}, or accept it (`--weak` on the command line, `weak` in the API)"
                )));
            }
            let had_key = store.key_file().is_none_or(Path::exists);
            let info = store.set(name, &new.value.0, grants).map_err(problem)?;
            self.apply_secrets();
            let new_key = store.key_file().filter(|_| !had_key).map(Path::to_owned);
            Ok(SavedSecret { info, weakness: weakness.map(|weak| weak.to_string()), new_key })
        })
    }

    /// Adds allowed hosts.
    pub fn grant_secret(&self, name: &str, grants: &[String], by: &Actor) -> Result<GrantedSecret, Problem> {
        self.record(by, "secrets.grant", details(name, Some(grants)), || {
            let mut info = None;
            for grant in parsed(grants)? {
                info = Some(self.secret_store()?.grant(name, grant).map_err(problem)?);
            }
            let info = info.ok_or_else(|| Problem::invalid("no grant was given"))?;
            self.apply_secrets();
            Ok(GrantedSecret(info))
        })
    }

    /// Replaces the allowed hosts.
    pub fn replace_grants(
        &self,
        name: &str,
        grants: &[String],
        by: &Actor,
    ) -> Result<GrantedSecret, Problem> {
        self.record(by, "secrets.grant", details(name, Some(grants)), || {
            let info = self.secret_store()?.set_grants(name, parsed(grants)?).map_err(problem)?;
            // Registers a secret that was pending.
            self.apply_secrets();
            Ok(GrantedSecret(info))
        })
    }

    pub fn remove_secret(&self, name: &str, by: &Actor) -> Result<RemovedSecret, Problem> {
        self.record(by, "secrets.remove", details(name, None), || {
            if !is_secret_name(name) {
                return Err(problem(SecretError::Unknown(printable(name))));
            }
            let info = self.secret_store()?.remove(name).map_err(problem)?;
            self.apply_secrets();
            Ok(RemovedSecret(info))
        })
    }
}

/// Details of a record. A value where the name should be is no part of them.
fn details(name: &str, grants: Option<&[String]>) -> Value {
    let name = is_secret_name(name).then_some(name);
    match grants {
        Some(grants) => json!({ "name": name, "grants": grants }),
        None => json!({ "name": name }),
    }
}

fn parsed(grants: &[String]) -> Result<Vec<Grant>, Problem> {
    grants.iter().map(|text| text.parse().map_err(problem)).collect()
}

fn problem(error: SecretError) -> Problem {
    let code = match &error {
        SecretError::Name(_)
        | SecretError::NoHandle
        | SecretError::TooShort { .. }
        | SecretError::TooLong { .. }
        | SecretError::Weak { .. }
        | SecretError::Grant { .. }
        | SecretError::NotAddress(_)
        | SecretError::Ordinary { .. }
        | SecretError::WeakPassphrase { .. } => ProblemCode::Invalid,
        SecretError::Unknown(_) => ProblemCode::NotFound,
        SecretError::NotGranted { .. }
        | SecretError::Taken(_)
        | SecretError::Full
        | SecretError::ManyGrants(_) => ProblemCode::Conflict,
        SecretError::Locked(_) | SecretError::Damaged(_) | SecretError::Io(_) | SecretError::Database(_) => {
            ProblemCode::Unavailable
        }
        SecretError::Cipher | SecretError::Random(_) => ProblemCode::Internal,
    };
    let message = match &error {
        SecretError::Name(name) => SecretError::Name(printable(name)).to_string(),
        other => other.to_string(),
    };
    Problem::new(code, message)
}
