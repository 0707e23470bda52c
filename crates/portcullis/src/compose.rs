//! Composition root: builds a hub from its configuration.

use crate::config::Config;
use crate::database;
use crate::home::{Home, make_private};
use crate::mcp::{ServerFactory, ServerManager, name_reservations};
use crate::passphrase::open_secrets;
use crate::print;
use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use portcullis_core::{
    Caller, CatalogChange, ChangeNotifier, Client, Clock, Gate, NoOwners, Origin, OwnerId, Owners, Registry,
    Secret, Service, SystemClock, ToolDef,
};
use portcullis_family::{FamilyParts, ReadinessCheck, RegisteredFamilies};
use portcullis_guard::audit::ChangeLog;
use portcullis_guard::{AuditSettings, GuardHandles, GuardSettings, ServerStats};
use portcullis_ops::guard_settings::{approval_times, ceiling, local_client, policy, rate};
use portcullis_ops::hub_limits::hub_limits;
use portcullis_ops::secret_store::{LiveSecrets, PassphrasePrompt, known_secrets};
use portcullis_ops::tool_families::{LiveZone, family_parts, live_zone, parts_to_list};
use portcullis_server::http::{HostAllowlist, LiveHostAllowlist};
use portcullis_server::{
    Authenticate, ClientsUnavailable, Hub, HubParts, LocalClient, Ops, Readiness, ServerCounts, ToolSearch,
};
use portcullis_store::clients::ClientDirectory;
use portcullis_store::database::Database;
use portcullis_store::pins::PinStore;
use portcullis_store::secrets::SecretStore;
use portcullis_tools::FAMILIES;
use portcullis_upstream::{ServerStatus, Shutdown};
use portcullis_wire::era::ServerProfile;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// Instructions sent to clients in the handshake.
const INSTRUCTIONS: &str = "Portcullis is a gateway to tools and files. Files are under one workspace root; \
`workspace_list` shows what exists. Some calls need a person's approval; an error says so and what to do.";

/// A running hub with the handles to reload it.
pub(crate) struct ComposedHub {
    pub(crate) hub: Arc<Hub>,
    pub(crate) database: Database,
    pub(crate) identity: Arc<ClientDirectory>,
    pub(crate) handles: GuardHandles,
    pub(crate) health: Arc<ConfigHealth>,
    pub(crate) servers: Arc<ServerManager>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) registry: Registry,
    pub(crate) secrets: Arc<SecretStore>,
    pub(crate) live_secrets: Arc<LiveSecrets>,
    /// The configuration in force.
    pub(crate) config: Arc<ArcSwap<Config>>,
    pub(crate) changes: ChangeNotifier,
    pub(crate) zone: LiveZone,
    /// What tool families bring besides tools. They run in a hub that stays.
    pub(crate) family_services: Vec<Arc<dyn Service>>,
}

/// Whether the configuration file is in force.
#[derive(Debug, Default)]
pub(crate) struct ConfigHealth(Mutex<Option<String>>);

impl ConfigHealth {
    pub(crate) fn set(&self, problem: Option<String>) {
        *self.0.lock() = problem;
    }

    pub(crate) fn state(&self) -> Result<(), String> {
        match &*self.0.lock() {
            None => Ok(()),
            Some(problem) => Err(problem.clone()),
        }
    }
}

/// The owners of calls: the clients of the directory and the local one, as they are now.
struct LiveOwners {
    directory: Arc<ClientDirectory>,
    local: LocalClient,
}

impl Owners for LiveOwners {
    fn current(&self, owner: &OwnerId) -> Option<Arc<Client>> {
        // Only the local client has no token.
        if owner.token.is_none() { self.local.load().current(owner) } else { self.directory.current(owner) }
    }
}

struct DirectoryAuthenticator(Arc<ClientDirectory>);

impl Authenticate for DirectoryAuthenticator {
    fn authenticate(&self, token: Option<&str>) -> Result<Option<Arc<Client>>, ClientsUnavailable> {
        token.map_or(Ok(None), |token| self.0.authenticate(token)).map_err(|_| ClientsUnavailable)
    }

    fn named(&self, name: &str) -> Result<Option<Arc<Client>>, ClientsUnavailable> {
        self.0.named(name).map_err(|_| ClientsUnavailable)
    }

    fn admitted(&self) -> Option<HashMap<String, Arc<Client>>> {
        self.0.admitted()
    }
}

/// `/readyz` is public, so it names no client.
const CLIENTS: &str = "the list of clients is unusable, so all requests are refused; see `portcullis doctor`";

/// Describes an audit log error without its path.
fn no_path(reason: &str) -> String {
    let reason = reason.rsplit(": ").next().unwrap_or(reason);
    format!("the audit log cannot be written: {reason}")
}

struct HubOps {
    /// Of the families, by name.
    families: Vec<(&'static str, ReadinessCheck)>,
    handles: GuardHandles,
    identity: Arc<ClientDirectory>,
    config: Arc<ConfigHealth>,
    secrets: Arc<LiveSecrets>,
    pins: Arc<PinStore>,
    /// Weak: they end before the hub does.
    servers: Weak<ServerManager>,
    ai_data: PathBuf,
}

impl Ops for HubOps {
    fn readiness(&self) -> Vec<Readiness> {
        let workspace = match std::fs::metadata(&self.ai_data) {
            Ok(metadata) if metadata.is_dir() => Ok(()),
            Ok(_) => Err("the workspace is not a folder".to_owned()),
            Err(error) => Err(format!("the workspace is not accessible: {}", error.kind())),
        };
        let mut components = vec![
            Readiness {
                component: "approvals",
                state: self.handles.approvals.approvals().health().map_err(|error| error.to_string()),
            },
            Readiness { component: "audit", state: self.handles.audit.health().map_err(|e| no_path(&e)) },
            Readiness { component: "clients", state: self.identity.health().map_err(|_| CLIENTS.to_owned()) },
            Readiness { component: "config", state: self.config.state() },
            Readiness { component: "pins", state: self.pins.health() },
            Readiness { component: "secrets", state: self.secrets.health() },
            Readiness { component: "workspace", state: workspace },
        ];
        let families = self.families.iter();
        components.extend(families.map(|(component, check)| Readiness { component, state: check() }));
        components.sort_by_key(|readiness| readiness.component);
        components
    }

    fn metrics(&self, counts: &ServerCounts) -> String {
        self.handles.metrics.set_server(ServerStats {
            connections: counts.connections,
            token_failures: counts.token_failures,
            sources_locked: counts.sources_locked,
        });
        for transport in ["http", "sse", "stdio", "socket"] {
            let open = counts.sessions.get(transport).copied().unwrap_or_default();
            self.handles.metrics.sessions(transport).set(i64::try_from(open).unwrap_or(i64::MAX));
        }
        let servers = self.servers.upgrade().map(|servers| servers.statuses()).unwrap_or_default();
        let waiting =
            |status: &ServerStatus| status.quarantined.iter().filter(|what| what.kind == "tool").count();
        self.handles
            .metrics
            .set_quarantined(servers.iter().map(|(name, status)| (name.clone(), waiting(status))));
        self.handles.metrics.encode_redacted(&self.handles.redactor)
    }
}

/// Returns the native tools of a default hub, as seen by an unrestricted client.
pub(crate) fn guarded_tools() -> Result<Vec<Arc<ToolDef>>> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let config = Config::of_every_family(FAMILIES, folder.path())?;
    let (database, registry) = (database::in_memory(&config)?, Registry::default());
    let parts = parts_to_list(&config, &folder.path().join("list"), &database, registry.changes())?;
    let (owners, clock) = (Arc::new(NoOwners), Arc::new(SystemClock));
    let (gate, ..) = guarded(&config, &parts, registry, Vec::new(), owners, clock)?;
    let caller = Caller::new(local_client(&config), Origin::Admin);
    Ok(gate.tools(&caller)?)
}

/// Builds the guard stack in front of the native tools.
fn guarded(
    config: &Config,
    parts: &FamilyParts,
    registry: Registry,
    secrets: Vec<(String, Secret<String>)>,
    owners: Arc<dyn Owners>,
    clock: Arc<dyn Clock>,
) -> Result<(Gate, GuardHandles, RegisteredFamilies)> {
    let registered = portcullis_family::register(config.families, parts, &registry);
    let registered = registered.map_err(anyhow::Error::from_boxed)?;
    let settings = GuardSettings {
        rate: rate(config),
        policy: policy(config),
        secrets,
        audit: AuditSettings::in_folder(&config.workspace.secure_dir()),
        database: parts.database.clone(),
        owners,
        approval_times: approval_times(config),
        ceiling: ceiling(config),
    };
    let (gate, handles) = portcullis_guard::stack(registry, settings, clock)?;
    Ok((gate, handles, registered))
}

/// Builds the hub. Needs a runtime: upstream servers start. Other background work waits for `Hub::start_services`; only the watcher
/// of a vault's files and the pool of script workers live as long as their family.
pub(crate) fn compose(home: &Home, config: &Config, shutdown: &Shutdown) -> Result<ComposedHub> {
    let (ai_data, secure) = (config.workspace.data_dir(), config.workspace.secure_dir());
    make_private(&secure)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let database = database::open(home, config)?;
    let store = open_secrets(home, config, &database, clock.clone(), PassphrasePrompt::AtStandardInput)?;
    let store = Arc::new(store);
    let (generation, known) = known_secrets(&store);
    let identity = Arc::new(ClientDirectory::open(&database, clock.clone()));
    let registry = Registry::default();
    let changes = registry.changes();
    let makers = ServerFactory::open(&secure, &database, store.clone(), clock.clone(), shutdown.clone())?;
    let pins = makers.pins.clone();
    let servers = Arc::new(ServerManager::new(registry.clone(), makers));
    let zone = live_zone(config);
    let parts = family_parts(config, &database, store.clone(), zone.clone(), changes.clone())?;
    let search = ToolSearch::default();
    registry.add(search.clone()).context("the search for tools")?;
    let local = LocalClient::new(local_client(config));
    let owners = Arc::new(LiveOwners { directory: identity.clone(), local: local.clone() });
    let (gate, handles, families) = guarded(config, &parts, registry.clone(), known, owners, clock.clone())?;
    let live = Arc::new(LiveSecrets::new(store.clone(), handles.redactor.clone(), generation));
    servers.makers.masked_by(live.clone());
    servers.apply(config);
    registry.reserve_names(name_reservations(config, &pins));
    handles.redactor.set_shapes(config.redaction.token_shapes);
    print::redaction().use_redactor(&handles.redactor);
    let health = Arc::new(ConfigHealth::default());
    let ops = HubOps {
        families: families.readiness,
        handles: handles.clone(),
        identity: identity.clone(),
        config: health.clone(),
        secrets: live.clone(),
        pins,
        servers: Arc::downgrade(&servers),
        ai_data,
    };
    let gate = Arc::new(gate);
    search.searches(&gate);
    parts.gate.connect(&gate);
    let hub = Hub::new(HubParts {
        gate: gate.clone(),
        identity: Arc::new(DirectoryAuthenticator(identity.clone())),
        local_client: local,
        ops: Arc::new(ops),
        clock,
        face: ServerProfile { instructions: Some(INSTRUCTIONS.to_owned()), tasks: !config.mcp.is_empty() },
        limits: hub_limits(config),
        scrub: Arc::new(handles.redactor.for_messages()),
    })
    .with_context(|| format!("the hub of `{}`", home.path().display()))?;
    hub.attends(&servers.audience);
    Ok(ComposedHub {
        hub,
        database,
        identity,
        handles,
        health,
        servers,
        gate,
        registry,
        secrets: store,
        live_secrets: live,
        config: Arc::new(ArcSwap::from_pointee(config.clone())),
        changes,
        zone,
        family_services: families.services,
    })
}

impl ComposedHub {
    /// Returns the audit recorder of administrators' changes.
    pub(crate) fn change_log(&self) -> ChangeLog {
        ChangeLog::new(self.handles.audit.clone(), Arc::new(SystemClock), self.handles.redactor.clone())
    }

    /// Applies a changed configuration, except settings that need a restart.
    pub(crate) fn apply(&self, config: &Config, http: Option<&BoundAddress>) {
        self.handles.apply(rate(config), policy(config), approval_times(config));
        self.handles.redactor.set_shapes(config.redaction.token_shapes);
        self.servers.apply(config);
        self.registry.reserve_names(name_reservations(config, &self.servers.makers.pins));
        self.config.store(Arc::new(config.clone()));
        self.hub.set_local_client(local_client(config));
        self.zone.store(Arc::new(config.time.zone.clone()));
        if let Some(bound) = http {
            bound.allowed.store(Arc::new(allowed(bound.address, config)));
        }
        self.health.set(None);
        // Changed rules may change lists.
        self.announce_lists();
    }

    /// Sends list-changed notifications to clients.
    pub(crate) fn announce_lists(&self) {
        for change in [CatalogChange::Tools, CatalogChange::Prompts, CatalogChange::Resources] {
            self.changes.announce(change);
        }
    }
}

/// Listen address and allowed hosts and origins.
#[derive(Clone)]
pub(crate) struct BoundAddress {
    pub(crate) address: SocketAddr,
    pub(crate) allowed: LiveHostAllowlist,
}

/// Returns the allowed hosts and origins of a listener.
pub(crate) fn allowed(address: SocketAddr, config: &Config) -> HostAllowlist {
    HostAllowlist::new(address, &config.http.allowed_hosts, &config.http.allowed_origins)
}

#[cfg(test)]
mod family_tests;
