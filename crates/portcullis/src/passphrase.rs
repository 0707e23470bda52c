//! Opens the secret store, with a prompt for its passphrase where that is due.

use crate::config::Config;
use crate::home::Home;
use crate::password_prompt;
use anyhow::{Result, bail};
use portcullis_core::{Clock, Secret};
use portcullis_ops::secret_store::{self, Passphrase};
use portcullis_store::database::Database;
use portcullis_store::secrets::{KeyRequirement, SecretStore};
use std::io::IsTerminal;
use std::sync::Arc;

const PASSPHRASE_BYTES_MAX: usize = 1024;

/// Whether to prompt for a passphrase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PassphrasePrompt {
    Never,
    /// By a hub, only if started from a terminal.
    AtStandardInput,
    /// To open a store.
    ToOpen,
    /// To open or create a store.
    ToMake,
}

/// As [`secret_store::open`].
pub(crate) fn open_secrets(
    home: &Home,
    config: &Config,
    database: &Database,
    clock: Arc<dyn Clock>,
    asking: PassphrasePrompt,
) -> Result<SecretStore> {
    secret_store::open(home, config, database, clock, |lock| {
        let ask = match (asking, lock) {
            (PassphrasePrompt::Never, _) => false,
            (PassphrasePrompt::AtStandardInput, KeyRequirement::Passphrase) => std::io::stdin().is_terminal(),
            (PassphrasePrompt::ToOpen | PassphrasePrompt::ToMake, KeyRequirement::Passphrase)
            | (PassphrasePrompt::ToMake, KeyRequirement::None) => true,
            (PassphrasePrompt::AtStandardInput | PassphrasePrompt::ToOpen, KeyRequirement::None)
            | (_, KeyRequirement::Key) => false,
        };
        ask.then(|| passphrase(lock)).transpose()
    })
}

fn passphrase(lock: KeyRequirement) -> Result<Passphrase> {
    if lock == KeyRequirement::Passphrase {
        return Ok(Secret::new(password_prompt::ask(
            "Passphrase of the secret store",
            PASSPHRASE_BYTES_MAX,
        )?));
    }
    let new = password_prompt::ask("New passphrase for the secret store", PASSPHRASE_BYTES_MAX)?;
    if *new != *password_prompt::ask("Repeat passphrase", PASSPHRASE_BYTES_MAX)? {
        bail!("the passphrases do not match");
    }
    Ok(Secret::new(new))
}
