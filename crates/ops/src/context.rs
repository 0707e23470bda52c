//! What every operation works on.

use crate::change::ChangeRecorder;
use crate::config::Config;
use crate::desk::ComponentHealth;
use crate::guard_settings::approval_times;
use crate::home::Home;
use crate::mcp::{ServerFactory, ServerManager};
use crate::secret_store::{self, LiveSecrets, Passphrase, PassphrasePrompt};
use crate::{Actor, Problem, script_sandbox, with_causes};
use arc_swap::ArcSwap;
use portcullis_core::{Clock, Gate, Registry, SystemClock};
use portcullis_guard::{ApprovalDesk, AuditSettings, GuardHandles};
use portcullis_store::clients::ClientDirectory;
use portcullis_store::database::Database;
use portcullis_store::secrets::{KeyRequirement, SecretStore};
use portcullis_tools::ScriptChecker;
use portcullis_upstream::Shutdown;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};

/// The context of operations: in a running hub, or in the process of a command.
///
/// A command has no [`LiveHub`]. A running hub notices its changes by the versions of the database's topics.
pub struct Operations {
    pub home: Home,
    /// The MCP endpoint, for clients on this machine.
    pub url: String,
    pub clients: Arc<ClientDirectory>,
    pub approvals: ApprovalDesk,
    pub changes: ChangeRecorder,
    pub live: Option<LiveHub>,
    /// The user of the command; `None` in a hub.
    user: Option<CommandUser>,
    database: Database,
    config: Arc<ArcSwap<Config>>,
    secrets: OnceLock<Arc<SecretStore>>,
    scripts: OnceLock<ScriptChecker>,
    servers: OnceLock<ServerFactory>,
    /// Stops the servers of this process.
    shutdown: Shutdown,
}

/// How operations reach the user of a command.
#[derive(Clone, Copy)]
pub struct CommandUser {
    /// Tells what is no error.
    pub warn: fn(&str),
    /// Asks for the passphrase of the secret store, or for a new one.
    pub passphrase: fn(KeyRequirement) -> anyhow::Result<Passphrase>,
}

/// The parts of a running hub.
#[derive(Clone)]
pub struct LiveHub {
    pub control: Arc<dyn HubControl>,
    pub secrets: Arc<LiveSecrets>,
    pub servers: Arc<ServerManager>,
    pub gate: Arc<Gate>,
    pub registry: Registry,
    pub handles: GuardHandles,
}

/// What a running hub can be told and asked.
pub trait HubControl: Send + Sync {
    /// Ends the sessions of clients that are gone, and applies changed scopes.
    fn refresh_clients(&self);

    /// Sends list-changed notifications to clients.
    fn announce_lists(&self);

    /// Returns the health of every component, as in `/readyz`.
    fn components(&self) -> Vec<ComponentHealth>;

    /// Returns the open sessions by transport.
    fn sessions(&self) -> BTreeMap<String, usize>;

    /// Returns why the configuration file is not in force, if so.
    fn config_problem(&self) -> Option<String>;
}

/// The stores that a hub has open.
pub struct HubStores {
    pub database: Database,
    pub clients: Arc<ClientDirectory>,
    pub secrets: Arc<SecretStore>,
    pub config: Arc<ArcSwap<Config>>,
}

impl Operations {
    /// Returns the context in a running hub that listens at `address`.
    pub fn in_hub(
        home: Home,
        address: SocketAddr,
        stores: HubStores,
        changes: ChangeRecorder,
        live: LiveHub,
    ) -> Operations {
        let HubStores { database, clients, secrets, config } = stores;
        let shutdown = live.servers.makers.shutdown().clone();
        Operations {
            home,
            url: url_of(address),
            clients,
            approvals: live.handles.approvals.clone(),
            changes,
            live: Some(live),
            user: None,
            database,
            config,
            secrets: OnceLock::from(secrets),
            scripts: OnceLock::new(),
            servers: OnceLock::new(),
            shutdown,
        }
    }

    /// Returns the context in the process of a command.
    pub fn in_command(home: Home, config: Config, database: Database, user: CommandUser) -> Operations {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let settings = AuditSettings::in_folder(&config.workspace.secure_dir());
        Operations {
            url: url_of(config.http.listen),
            clients: Arc::new(ClientDirectory::open(&database, clock.clone())),
            approvals: ApprovalDesk::open(&database, approval_times(&config), clock),
            changes: ChangeRecorder::Spool { settings, warn: user.warn },
            live: None,
            user: Some(user),
            home,
            database,
            config: Arc::new(ArcSwap::from_pointee(config)),
            secrets: OnceLock::new(),
            scripts: OnceLock::new(),
            servers: OnceLock::new(),
            shutdown: Shutdown::default(),
        }
    }

    /// Returns what stops the servers of this process.
    pub fn server_shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Returns the configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Returns the secret store; in a command's process, without asking for its passphrase.
    pub fn secret_store(&self) -> Result<&Arc<SecretStore>, Problem> {
        if let Some(store) = self.secrets.get() {
            return Ok(store);
        }
        let clock = Arc::new(SystemClock);
        let opened =
            secret_store::open(&self.home, &self.config(), &self.database, clock, secret_store::unasked);
        let store = opened.map_err(|error| Problem::unavailable(with_causes(&error)))?;
        Ok(self.secrets.get_or_init(|| Arc::new(store)))
    }

    /// As [`secret_store`](Self::secret_store), but asks the user of a command for the passphrase where that is due. Comes
    /// before anything else that uses the store.
    pub fn unlock_secrets(&self, prompt: PassphrasePrompt) -> anyhow::Result<&Arc<SecretStore>> {
        let Some(user) = self.user.filter(|_| self.secrets.get().is_none()) else {
            return Ok(self.secret_store()?);
        };
        let clock = Arc::new(SystemClock);
        let ask = |lock| prompt.asks(lock).then(|| (user.passphrase)(lock)).transpose();
        let store = secret_store::open(&self.home, &self.config(), &self.database, clock, ask)?;
        Ok(self.secrets.get_or_init(|| Arc::new(store)))
    }

    /// Tells the user of a command what is no error; a hub logs it.
    pub(crate) fn warn(&self, text: &str) {
        match self.user {
            Some(user) => (user.warn)(text),
            None => tracing::warn!(target: "admin", "{text}"),
        }
    }

    /// Returns the store of scripts and the sandbox that checks them.
    pub fn script_checker(&self) -> &ScriptChecker {
        self.scripts.get_or_init(|| script_sandbox::desk(&self.config(), &self.database))
    }

    /// Opens the stores about servers in a command's process.
    pub(crate) fn own_server_factory(&self) -> Result<&ServerFactory, Problem> {
        if let Some(factory) = self.servers.get() {
            return Ok(factory);
        }
        let (secure, secrets) = (self.config().workspace.secure_dir(), self.secret_store()?.clone());
        let factory = ServerFactory::open(
            &secure,
            &self.database,
            secrets,
            Arc::new(SystemClock),
            self.shutdown.clone(),
        );
        let factory = factory.map_err(|error| Problem::unavailable(with_causes(&error)))?;
        Ok(self.servers.get_or_init(|| factory))
    }

    /// Registers changed secrets with the redactor of a running hub, before they can be used.
    pub(crate) fn apply_secrets(&self) {
        if let Some(live) = &self.live {
            live.secrets.apply();
        }
    }

    /// Makes a change that is recorded. Blocks.
    pub(crate) fn record<T>(
        &self,
        by: &Actor,
        action: &'static str,
        details: Value,
        make: impl FnOnce() -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        self.changes.record(by, action, details, make)
    }
}

/// Returns the MCP endpoint of a hub that listens at `address`, for local clients.
pub fn url_of(address: SocketAddr) -> String {
    format!("{}/mcp", origin_of(address))
}

/// Returns the origin of a hub that listens at `address`, for local clients.
pub fn origin_of(address: SocketAddr) -> String {
    let mut reachable = address;
    if address.ip().is_unspecified() {
        // The unspecified address is not connectable; loopback is.
        reachable.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    format!("http://{reachable}")
}
