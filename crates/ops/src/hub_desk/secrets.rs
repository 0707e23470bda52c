//! Secrets, as the page shows them.

use super::HubDesk;
use crate::desk::{GrantSecret, SecretList, SecretReceipt, SecretView, SetSecret};
use crate::{Actor, Operations, Problem};
use portcullis_store::secrets::{Grant, SecretInfo};

impl HubDesk {
    pub(super) async fn show_secrets(&self) -> Result<SecretList, Problem> {
        self.run(|ops| {
            let all = ops.list_secrets()?.into_iter();
            Ok(SecretList { secrets: all.map(|info| shown(ops, info)).collect::<Result<_, _>>()? })
        })
        .await
    }

    pub(super) async fn show_set_secret(
        &self,
        name: String,
        new: SetSecret,
        actor: Actor,
    ) -> Result<SecretReceipt, Problem> {
        self.run(move |ops| {
            let saved = ops.set_secret(&name, new, &actor)?;
            let said = saved.sentence();
            Ok(SecretReceipt { secret: shown(ops, saved.info)?, said })
        })
        .await
    }

    pub(super) async fn show_regranted_secret(
        &self,
        name: String,
        grants: GrantSecret,
        actor: Actor,
    ) -> Result<SecretReceipt, Problem> {
        self.run(move |ops| {
            let granted = ops.replace_grants(&name, &grants.grants, &actor)?;
            let said = granted.sentence();
            Ok(SecretReceipt { secret: shown(ops, granted.0)?, said })
        })
        .await
    }
}

fn shown(ops: &Operations, info: SecretInfo) -> Result<SecretView, Problem> {
    Ok(SecretView {
        last_used: ops.secret_store()?.last_used(&info.name),
        name: info.name,
        grants: info.grants.iter().map(Grant::to_string).collect(),
        created: info.created,
        updated: info.updated,
    })
}
