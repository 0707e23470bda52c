//! Secrets: list, set, change allowed hosts, remove.

use super::{HubDesk, blocking, done};
use portcullis_ops::desk::{ActionReceipt, GrantSecret, SecretList, SecretView, SetSecret};
use portcullis_ops::{Actor, Problem, ProblemCode};
use portcullis_store::secrets::{
    Grant, SecretError, SecretInfo, VALUE_BYTES_MIN, check_strength, is_secret_name, vocabulary,
};

impl HubDesk {
    pub(super) async fn list_secrets(&self) -> Result<SecretList, Problem> {
        let store = self.composed.secrets.clone();
        let all = blocking(move || store.list().map_err(problem)).await?;
        Ok(SecretList { secrets: all.into_iter().map(|info| self.shown_secret(info)).collect() })
    }

    pub(super) async fn keep_secret(
        &self,
        name: String,
        new: SetSecret,
        actor: Actor,
    ) -> Result<SecretView, Problem> {
        let grants = new.grants.as_deref().map(parsed).transpose()?;
        let (store, live) = (self.composed.secrets.clone(), self.composed.live_secrets.clone());
        let info = blocking(move || {
            let value = new.value.0.expose();
            let check = if new.weak { vocabulary::check_confirmed } else { vocabulary::check };
            check(&name, value).map_err(problem)?;
            if !new.weak && is_secret_name(&name) && value.len() >= VALUE_BYTES_MIN {
                check_strength(&name, value).map_err(problem)?;
            }
            let info = store.set(&name, &new.value.0, grants).map_err(problem)?;
            // Redacted before it can be used.
            live.apply();
            Ok(info)
        })
        .await?;
        tracing::info!(target: "admin", by = %actor, secret = info.name, "secret set");
        Ok(self.shown_secret(info))
    }

    pub(super) async fn regrant_secret(
        &self,
        name: String,
        grants: GrantSecret,
        actor: Actor,
    ) -> Result<SecretView, Problem> {
        let grants = parsed(&grants.grants)?;
        let (store, live) = (self.composed.secrets.clone(), self.composed.live_secrets.clone());
        let info = blocking(move || {
            let info = store.set_grants(&name, grants).map_err(problem)?;
            // Registers a secret that was pending.
            live.apply();
            Ok(info)
        })
        .await?;
        tracing::info!(target: "admin", by = %actor, secret = info.name, "secret grants changed");
        Ok(self.shown_secret(info))
    }

    pub(super) async fn forget_secret(&self, name: String, actor: Actor) -> Result<ActionReceipt, Problem> {
        if !is_secret_name(&name) {
            return Err(problem(SecretError::Unknown(portcullis_core::json::printable(&name))));
        }
        let (store, live) = (self.composed.secrets.clone(), self.composed.live_secrets.clone());
        let info = blocking(move || {
            let info = store.remove(&name).map_err(problem)?;
            live.apply();
            Ok(info)
        })
        .await?;
        tracing::info!(target: "admin", by = %actor, secret = info.name, "secret removed");
        Ok(done(format!("Removed secret `{}`; it is no longer redacted.", info.name)))
    }
}

impl HubDesk {
    fn shown_secret(&self, info: SecretInfo) -> SecretView {
        SecretView {
            last_used: self.composed.secrets.last_used(&info.name),
            name: info.name,
            grants: info.grants.iter().map(Grant::to_string).collect(),
            created: info.created,
            updated: info.updated,
        }
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
        SecretError::Name(name) => SecretError::Name(portcullis_core::json::printable(name)).to_string(),
        SecretError::Weak { .. } => format!("{error}, or accept the weak value (`weak`)"),
        other => other.to_string(),
    };
    Problem::new(code, message)
}
