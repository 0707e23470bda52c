//! The secret store in a running hub: where its key is, and how the redactor hears of every change.

use crate::config::Config;
use crate::folder_changes::FolderChanges;
use crate::hidden;
use crate::home::Home;
use crate::mcp::Servers;
use anyhow::{Result, bail};
use portcullis_core::{Clock, Scrub, Secret};
use portcullis_guard::Redactor;
use portcullis_server::Hub;
use portcullis_store::secrets::{self, KeySource, Lock, SecretError, SecretStore, WantedKey};
use serde_json::Value;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often the store is looked at where the kernel does not tell of changes, as on network file systems.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const PASSPHRASE_BYTES_MAX: usize = 1024;

/// Whether a person is asked for a passphrase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asking {
    Never,
    /// By a hub, only where someone started it by hand: elsewhere nobody would see the question.
    AtStandardInput,
    /// To open a store.
    ToOpen,
    /// And to make one.
    ToMake,
}

/// Opens the store of a hub. One that cannot be unlocked is no error here; its health says why.
pub(crate) fn open(
    home: &Home,
    config: &Config,
    clock: Arc<dyn Clock>,
    asking: Asking,
) -> Result<SecretStore> {
    let secure = config.workspace.secure_dir();
    let lock = secrets::lock_of(&secure);
    let data = vec![home.path().to_owned(), config.workspace.path.clone()];
    let mut source = KeySource::detect(super::commands::environment, &wanted(config), data, lock);
    if matches!(source, KeySource::Unasked) {
        let ask = match (asking, lock) {
            (Asking::Never, _) => false,
            (Asking::AtStandardInput, Lock::Passphrase) => std::io::stdin().is_terminal(),
            (Asking::ToOpen | Asking::ToMake, Lock::Passphrase) | (Asking::ToMake, Lock::None) => true,
            (Asking::AtStandardInput | Asking::ToOpen, Lock::None) | (_, Lock::Key) => false,
        };
        if ask {
            source = KeySource::Passphrase(passphrase(lock)?);
        }
    }
    Ok(SecretStore::open(&secure, source, clock))
}

fn wanted(config: &Config) -> WantedKey {
    WantedKey { kind: config.secrets.key, file: config.secrets.key_file.clone() }
}

/// Opens the store if that disturbs nobody: no passphrase is asked for, and no keyring, which might ask to be unlocked.
pub(crate) fn open_quietly(home: &Home, config: &Config, clock: Arc<dyn Clock>) -> Option<SecretStore> {
    let secure = config.workspace.secure_dir();
    let (lock, data) =
        (secrets::lock_of(&secure), vec![home.path().to_owned(), config.workspace.path.clone()]);
    match KeySource::detect(super::commands::environment, &wanted(config), data, lock) {
        KeySource::Keyring { .. } | KeySource::Unasked | KeySource::Missing(_) => None,
        _ if lock == Lock::None => None,
        source => Some(SecretStore::open(&secure, source, clock)),
    }
}

fn passphrase(lock: Lock) -> Result<Secret<zeroize::Zeroizing<String>>> {
    if lock == Lock::Passphrase {
        return Ok(Secret::new(hidden::ask("Passphrase of the secret store", PASSPHRASE_BYTES_MAX)?));
    }
    let new = hidden::ask("New passphrase for the secret store", PASSPHRASE_BYTES_MAX)?;
    if *new != *hidden::ask("Once more", PASSPHRASE_BYTES_MAX)? {
        bail!("the two are not the same");
    }
    Ok(Secret::new(new))
}

/// The store of a running hub.
pub(crate) struct LiveSecrets {
    store: Arc<SecretStore>,
    redactor: Redactor,
    state: Mutex<State>,
}

struct State {
    /// The reading of the store that the redactor knows.
    generation: u64,
    problem: Option<String>,
}

impl LiveSecrets {
    /// `generation` is the reading that the redactor was made with.
    pub(crate) fn new(store: Arc<SecretStore>, redactor: Redactor, generation: u64) -> LiveSecrets {
        LiveSecrets { store, redactor, state: Mutex::new(State { generation, problem: None }) }
    }

    /// Says whether secrets can be used, in words for whoever may ask: without paths.
    pub(crate) fn health(&self) -> Result<(), String> {
        match self.store.health() {
            Err(SecretError::Locked(_)) => {
                return Err("the secret store is locked; `portcullis doctor` says why".to_owned());
            }
            Err(other) => return Err(other.to_string()),
            Ok(()) => {}
        }
        self.state.lock().unwrap_or_else(PoisonError::into_inner).problem.clone().map_or(Ok(()), Err)
    }

    fn is_behind(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.store.is_stale() || self.store.generation() != state.generation
    }

    /// Returns the reading of the store that the redactor knows.
    fn known(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).generation
    }

    /// Returns whether there is something to hear for those who were told of the reading `told`, if of any. Whoever told the
    /// redactor of it has not told them.
    fn is_news(&self, told: Option<u64>) -> bool {
        self.is_behind() || told != Some(self.known())
    }

    /// Takes secrets out of what is written to a file.
    pub(crate) fn scrub(&self, value: &mut Value) {
        self.redactor.scrub_value(value);
    }

    /// Tells the redactor of a change that it has not heard of yet.
    pub(crate) fn catch_up(&self) {
        if self.is_behind() {
            self.apply();
        }
    }

    /// Tells the redactor what the store holds now. What it cannot be told leaves it as it is: it goes on masking what
    /// it knows.
    pub(crate) fn apply(&self) {
        // Held to the end: of two that apply at once, the one who read earlier must not have the last word.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = self.store.refresh();
        let mut problem = None;
        match self.store.all() {
            Err(error) => {
                tracing::error!(target: "secrets", %error, "The secret store cannot be used; what was known goes on being masked.");
            }
            Ok(all) => match self.redactor.replace(&all) {
                Ok(()) => {
                    tracing::info!(target: "secrets", count = all.len(), "The changed secrets are in force.");
                }
                Err(error) => {
                    tracing::error!(target: "secrets", %error, "The changed secrets cannot be masked.");
                    problem = Some("changed secrets cannot be masked; see the log".to_owned());
                }
            },
        }
        *state = State { generation, problem };
    }
}

/// Looks at the store in the folder `secure` until the hub closes.
pub(crate) async fn watch(live: Arc<LiveSecrets>, servers: Arc<Servers>, secure: PathBuf, hub: Arc<Hub>) {
    let changes = FolderChanges::of(&secure);
    let mut told = None;
    loop {
        // Before the first wait, too: something may have changed since the redactor and the servers were made.
        if live.is_news(told) {
            let (live, servers) = (live.clone(), servers.clone());
            let apply = move || {
                live.catch_up();
                // Taken before they are told: what comes meanwhile is news again.
                let known = live.known();
                // Masked first, used afterwards.
                servers.secrets_changed();
                known
            };
            // A panic in there was told by the hook; the next look tries again.
            told = tokio::task::spawn_blocking(apply).await.ok().or(told);
        }
        tokio::select! {
            () = hub.closed() => return,
            () = changes.next() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::SystemClock;

    #[test]
    fn what_a_request_told_the_redactor_of_is_news_to_the_servers() {
        let (folder, keys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let open = || {
            let source =
                KeySource::File { path: keys.path().join("key"), data: vec![folder.path().to_owned()] };
            Arc::new(SecretStore::open(folder.path(), source, Arc::new(SystemClock)))
        };
        let (store, other_process) = (open(), open());
        let generation = store.refresh();
        let live = LiveSecrets::new(store, Redactor::new(&[]).unwrap(), generation);
        assert!(live.is_news(None));
        let told = Some(live.known());
        assert!(!live.is_news(told));
        let token = Secret::new("a token of another process".to_owned());
        other_process.hold("notes", &[("access", &token)]).unwrap();
        assert!(live.is_news(told));
        // As every request of a server with a login does.
        live.catch_up();
        assert!(!live.is_behind() && live.is_news(told));
        assert!(!live.is_news(Some(live.known())));
    }
}
