//! Opens the secret store, with a prompt for its passphrase where that is due.

use crate::config::Config;
use crate::home::Home;
use crate::password_prompt;
use crate::secret_store::{self, Passphrase, PassphrasePrompt};
use anyhow::{Result, bail};
use portcullis_core::{Clock, Secret};
use portcullis_store::database::Database;
use portcullis_store::secrets::{KeyRequirement, SecretStore};
use std::sync::Arc;

const PASSPHRASE_BYTES_MAX: usize = 1024;

/// As [`secret_store::open`].
pub fn open_secrets(
    home: &Home,
    config: &Config,
    database: &Database,
    clock: Arc<dyn Clock>,
    prompt: PassphrasePrompt,
) -> Result<SecretStore> {
    let ask = |lock| prompt.asks(lock).then(|| passphrase(lock)).transpose();
    secret_store::open(home, config, database, clock, ask)
}

/// Asks for the passphrase, or for a new one.
pub fn passphrase(lock: KeyRequirement) -> Result<Passphrase> {
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
