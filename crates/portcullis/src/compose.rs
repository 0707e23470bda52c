//! Composition root: builds a hub from its configuration.

use crate::config::Config;
use crate::database;
use crate::home::{Home, make_private};
use crate::mcp::{ServerFactory, ServerManager, name_reservations};
use crate::passphrase::open_secrets;
use crate::print;
use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use portcullis_core::{
    Caller, CatalogChange, ChangeNotifier, Clock, Gate, NoOwners, Origin, Owners, Registry, Secret, Service,
    SystemClock, ToolDef,
};
use portcullis_family::{FamilyParts, RegisteredFamilies, SharedEgress};
use portcullis_guard::audit::ChangeLog;
use portcullis_guard::{AuditSettings, GuardHandles, GuardSettings};
use portcullis_ops::guard_settings::{approval_times, ceiling, local_client, policy, rate};
use portcullis_ops::hub_limits::hub_limits;
use portcullis_ops::hub_readiness::{ConfigHealth, HubOps};
use portcullis_ops::live_clients::{DirectoryAuthenticator, LiveOwners};
use portcullis_ops::secret_store::{LiveSecrets, PassphrasePrompt, known_secrets};
use portcullis_ops::tool_families::{LiveZone, family_parts, live_zone, parts_to_list};
use portcullis_server::http::{HostAllowlist, LiveHostAllowlist};
use portcullis_server::{Hub, HubParts, LocalClient, ToolSearch};
use portcullis_store::clients::ClientDirectory;
use portcullis_store::database::Database;
use portcullis_store::secrets::SecretStore;
use portcullis_upstream::Shutdown;
use portcullis_wire::era::ServerProfile;
use std::net::SocketAddr;
use std::sync::Arc;

/// Instructions sent to clients in the handshake.
const INSTRUCTIONS: &str = "Portcullis is a gateway to tools and files. Files are under one workspace root; \
`workspace_list` shows what exists. Some calls need a person's approval; an error says so and what to do.";

/// A running hub with the handles to reload it.
pub struct ComposedHub {
    pub hub: Arc<Hub>,
    pub database: Database,
    pub identity: Arc<ClientDirectory>,
    pub handles: GuardHandles,
    pub health: Arc<ConfigHealth>,
    pub servers: Arc<ServerManager>,
    pub gate: Arc<Gate>,
    pub registry: Registry,
    pub secrets: Arc<SecretStore>,
    pub live_secrets: Arc<LiveSecrets>,
    /// The configuration in force.
    pub config: Arc<ArcSwap<Config>>,
    pub changes: ChangeNotifier,
    pub zone: LiveZone,
    /// The HTTP client of the families.
    pub(crate) egress: SharedEgress,
    /// What tool families bring besides tools. They run in a hub that stays.
    pub family_services: Vec<Arc<dyn Service>>,
}

/// Returns the native tools of a default hub, as seen by an unrestricted client.
pub(crate) fn guarded_tools() -> Result<Vec<Arc<ToolDef>>> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let config = Config::of_every_family(folder.path())?;
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
pub fn compose(home: &Home, config: &Config, shutdown: &Shutdown) -> Result<ComposedHub> {
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
        egress: parts.egress,
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
pub struct BoundAddress {
    pub address: SocketAddr,
    pub allowed: LiveHostAllowlist,
}

/// Returns the allowed hosts and origins of a listener.
pub(crate) fn allowed(address: SocketAddr, config: &Config) -> HostAllowlist {
    HostAllowlist::new(address, &config.http.allowed_hosts, &config.http.allowed_origins)
}
