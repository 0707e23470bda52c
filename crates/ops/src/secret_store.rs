//! The secret store of a running hub: key source, and propagation of changes to the redactor.

use crate::config::Config;
use crate::database;
use crate::home::{Home, environment};
use crate::mcp::ServerManager;
use anyhow::Result;
use parking_lot::Mutex;
use portcullis_core::{Clock, Scrub, Secret, run_blocking};
use portcullis_guard::Redactor;
use portcullis_store::database::Database;
use portcullis_store::secrets::{self, KeyPreference, KeyRequirement, KeySource, SecretError, SecretStore};
use serde_json::Value;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

/// Poll interval where file events are unavailable, as on network file systems.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The passphrase of a store.
pub type Passphrase = Secret<zeroize::Zeroizing<String>>;

/// Whether to ask a person for the passphrase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassphrasePrompt {
    /// By a hub, only if started from a terminal.
    AtStandardInput,
    /// To open a store.
    ToOpen,
    /// To open or create a store.
    ToMake,
}

impl PassphrasePrompt {
    /// Returns whether a store with this lock is opened by asking.
    pub fn asks(self, lock: KeyRequirement) -> bool {
        match (self, lock) {
            (PassphrasePrompt::AtStandardInput, KeyRequirement::Passphrase) => std::io::stdin().is_terminal(),
            (PassphrasePrompt::ToOpen | PassphrasePrompt::ToMake, KeyRequirement::Passphrase)
            | (PassphrasePrompt::ToMake, KeyRequirement::None) => true,
            (PassphrasePrompt::AtStandardInput | PassphrasePrompt::ToOpen, KeyRequirement::None)
            | (_, KeyRequirement::Key) => false,
        }
    }
}

/// Opens the store of a hub. A locked store is no error here; its health check reports why.
///
/// `passphrase` may ask a person, if the store needs one for this purpose.
pub fn open(
    home: &Home,
    config: &Config,
    database: &Database,
    clock: Arc<dyn Clock>,
    passphrase: impl FnOnce(KeyRequirement) -> Result<Option<Passphrase>>,
) -> Result<SecretStore> {
    let lock = secrets::key_requirement(database);
    let data = vec![home.path().to_owned(), config.workspace.path.clone()];
    let mut source = KeySource::detect(environment, &wanted(config), data, lock);
    if matches!(source, KeySource::Unasked)
        && let Some(given) = passphrase(lock)?
    {
        source = KeySource::Passphrase(given);
    }
    Ok(SecretStore::open(database, source, clock))
}

/// For [`open`]: asks nothing.
pub fn unasked(_: KeyRequirement) -> Result<Option<Passphrase>> {
    Ok(None)
}

fn wanted(config: &Config) -> KeyPreference {
    KeyPreference { kind: config.secrets.key, file: config.secrets.key_file.clone() }
}

/// Opens the store without interaction: no passphrase prompt, and no keyring, which might prompt to unlock.
pub fn open_quietly(home: &Home, config: &Config, clock: Arc<dyn Clock>) -> Option<SecretStore> {
    let database = database::open_or_in_memory(home, config).ok()?;
    let (lock, data) =
        (secrets::key_requirement(&database), vec![home.path().to_owned(), config.workspace.path.clone()]);
    match KeySource::detect(environment, &wanted(config), data, lock) {
        KeySource::Keyring { .. } | KeySource::Unasked | KeySource::Missing(_) => None,
        _ if lock == KeyRequirement::None => None,
        source => Some(SecretStore::open(&database, source, clock)),
    }
}

/// Returns the values to redact. If the store cannot be opened, the hub runs without secrets: calls that need one are
/// refused, and `/readyz` and `doctor` report it.
pub fn known_secrets(store: &SecretStore) -> (u64, Vec<(String, Secret<String>)>) {
    let generation = store.refresh();
    let known = store.all().unwrap_or_else(|error| {
        tracing::error!(target: "secrets", %error, "secret store unusable; its values are not redacted");
        Vec::new()
    });
    (generation, known)
}

/// The store of a running hub.
pub struct LiveSecrets {
    store: Arc<SecretStore>,
    redactor: Redactor,
    state: Mutex<State>,
}

struct State {
    /// The store generation that the redactor knows.
    generation: u64,
    problem: Option<String>,
}

impl LiveSecrets {
    /// `generation` is the one that the redactor was built with.
    pub fn new(store: Arc<SecretStore>, redactor: Redactor, generation: u64) -> LiveSecrets {
        LiveSecrets { store, redactor, state: Mutex::new(State { generation, problem: None }) }
    }

    /// Health check of the store, without paths, because `/readyz` is public.
    pub fn health(&self) -> Result<(), String> {
        match self.store.health() {
            Err(SecretError::Locked(_)) => {
                return Err("the secret store is locked; see `portcullis doctor`".to_owned());
            }
            Err(other) => return Err(other.to_string()),
            Ok(()) => {}
        }
        self.state.lock().problem.clone().map_or(Ok(()), Err)
    }

    fn is_behind(&self) -> bool {
        let state = self.state.lock();
        self.store.is_stale() || self.store.generation() != state.generation
    }

    /// Returns the store generation that the redactor knows.
    fn known(&self) -> u64 {
        self.state.lock().generation
    }

    /// Returns whether there is news for subscribers that know the generation `notified`. Updating the redactor does not
    /// notify them.
    fn is_news(&self, notified: Option<u64>) -> bool {
        self.is_behind() || notified != Some(self.known())
    }

    /// Redacts text for a file.
    pub fn scrub(&self, value: &mut Value) {
        self.redactor.scrub_value(value);
    }

    /// Updates the redactor if it is behind.
    pub fn catch_up(&self) {
        if self.is_behind() {
            self.apply();
        }
    }

    /// Updates the redactor with the current store. On failure it keeps redacting the known values.
    pub fn apply(&self) {
        // Locked to the end: of two concurrent updates, the older reading must not win.
        let mut state = self.state.lock();
        let generation = self.store.refresh();
        let mut problem = None;
        match self.store.all() {
            Err(error) => {
                tracing::error!(target: "secrets", %error, "secret store unusable; known values stay redacted");
            }
            Ok(all) => match self.redactor.replace(&all) {
                Ok(()) => {
                    tracing::info!(target: "secrets", count = all.len(), "secrets reloaded");
                }
                Err(error) => {
                    tracing::error!(target: "secrets", %error, "failed to redact changed secrets");
                    problem = Some("changed secrets cannot be redacted; see the hub's log".to_owned());
                }
            },
        }
        *state = State { generation, problem };
    }
}

/// Watches the store until shutdown.
pub async fn watch(live: Arc<LiveSecrets>, servers: Arc<ServerManager>, closed: impl Future<Output = ()>) {
    tokio::pin!(closed);
    let mut changes = live.store.subscribe();
    let mut told = None;
    loop {
        // Also before the first wait: the store may have changed since startup.
        if live.is_news(told) {
            let (live, servers) = (live.clone(), servers.clone());
            let apply = move || {
                live.catch_up();
                // Read before notifying: a change meanwhile is news again.
                let known = live.known();
                // Redacted before use.
                servers.secrets_changed();
                known
            };
            // The hook has logged a panic; the next poll retries.
            told = run_blocking(apply).await.or(told);
        }
        tokio::select! {
            () = &mut closed => return,
            Ok(()) = changes.changed() => {}
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
            let database = portcullis_store::open(folder.path(), &[]).unwrap();
            Arc::new(SecretStore::open(&database, source, Arc::new(SystemClock)))
        };
        let (store, other_process) = (open(), open());
        let generation = store.refresh();
        let live = LiveSecrets::new(store, Redactor::new(&[]).unwrap(), generation);
        assert!(live.is_news(None));
        let told = Some(live.known());
        assert!(!live.is_news(told));
        let token = Secret::new("a token of another process".to_owned());
        other_process.save_login("notes", &[("access", &token)]).unwrap();
        assert!(live.is_news(told));
        // As every request of a server with a login does.
        live.catch_up();
        assert!(!live.is_behind() && live.is_news(told));
        assert!(!live.is_news(Some(live.known())));
    }
}
