//! Puts a hub together from its configuration. The only file that sees every crate.

use crate::approvals;
use crate::config::{self, Config, McpServer};
use crate::home::{Home, make_private};
use crate::mcp::{self, Makers, Servers};
use crate::memory;
use crate::scripts;
use crate::secrets::{self, Asking, LiveSecrets};
use crate::voice;
use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use jiff::tz::TimeZone;
use portcullis_core::{
    Caller, Change, Changes, Client, Clock, Expected, Gate, Limits, Origin, Registry, Secret, SystemClock,
    ToolDef,
};
use portcullis_egress::{CertificateDer, Egress, EgressSettings, NoSecrets, SecretSource, SystemResolver};
use portcullis_guard::audit::ChangeLog;
use portcullis_guard::{
    ApprovalTimes, AuditSettings, Authorize, GuardSettings, Handles, Policy, RateSettings, Rule,
    ServerNumbers, Verdict,
};
use portcullis_server::http::{Allowed, LiveAllowed};
use portcullis_server::{Authenticate, Hub, HubLimits, HubParts, Ops, Readiness, Search, ServerCounts};
use portcullis_store::approvals::Lifetimes;
use portcullis_store::clients::Directory;
use portcullis_store::pins::Pins;
use portcullis_store::scripts::Scripts;
use portcullis_store::secrets::SecretStore;
use portcullis_tools::{
    CalendarConfig, GithubConfig, ScriptsConfig, SyncConfig, SyncTimes, ToolsConfig, VaultConfig, WebConfig,
};
use portcullis_upstream::{Status, pinned_names};
use portcullis_wire::era::ServerFace;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// What agents are told when they connect.
const INSTRUCTIONS: &str = "Portcullis stands between you and what you touch. Files are under one workspace root; \
`workspace_list` shows what exists. Some calls need a person's approval; an error says so and what to do.";

/// How long after a failed push of the vault the next is tried.
const PUSH_RETRY_AFTER: Duration = Duration::from_secs(30);

/// A hub, and what is needed to change it while it runs.
pub(crate) struct Composed {
    pub(crate) hub: Arc<Hub>,
    pub(crate) identity: Arc<Directory>,
    pub(crate) handles: Handles,
    pub(crate) health: Arc<ConfigHealth>,
    pub(crate) servers: Arc<Servers>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) registry: Registry,
    pub(crate) secrets: Arc<SecretStore>,
    pub(crate) live_secrets: Arc<LiveSecrets>,
    /// The configuration in force.
    pub(crate) config: ArcSwap<Config>,
    changes: Changes,
    zone: LiveZone,
}

/// Whether the configuration on disk is the one in force.
#[derive(Debug, Default)]
pub(crate) struct ConfigHealth(Mutex<Option<String>>);

impl ConfigHealth {
    pub(crate) fn set(&self, problem: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }

    pub(crate) fn state(&self) -> Result<(), String> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(problem) => Err(problem.clone()),
        }
    }
}

struct Known(Arc<Directory>);

impl Authenticate for Known {
    fn authenticate(&self, token: Option<&str>) -> Option<Arc<Client>> {
        self.0.authenticate(token?)
    }

    fn admitted(&self) -> Option<HashMap<String, Arc<Client>>> {
        self.0.admitted()
    }
}

/// `/readyz` needs no token, so it names no client.
const CLIENTS: &str = "the list of clients cannot be used, so nobody is let in; `portcullis doctor` says why";

/// Says what is wrong with the audit log, but not where it is.
fn no_path(reason: &str) -> String {
    let reason = reason.rsplit(": ").next().unwrap_or(reason);
    format!("the audit log cannot be written: {reason}")
}

struct HubOps {
    scripts: Option<Arc<Scripts>>,
    handles: Handles,
    identity: Arc<Directory>,
    config: Arc<ConfigHealth>,
    secrets: Arc<LiveSecrets>,
    pins: Arc<Pins>,
    /// Not held: they end before the hub does.
    servers: Weak<Servers>,
    ai_data: PathBuf,
}

impl Ops for HubOps {
    fn readiness(&self) -> Vec<Readiness> {
        let workspace = match std::fs::metadata(&self.ai_data) {
            Ok(metadata) if metadata.is_dir() => Ok(()),
            Ok(_) => Err("the workspace is not a folder".to_owned()),
            Err(error) => Err(format!("the workspace cannot be reached: {}", error.kind())),
        };
        vec![
            Readiness {
                component: "approvals",
                state: self.handles.approvals.approvals().health().map_err(|error| error.to_string()),
            },
            Readiness { component: "audit", state: self.handles.audit.health().map_err(|e| no_path(&e)) },
            Readiness { component: "clients", state: self.identity.health().map_err(|_| CLIENTS.to_owned()) },
            Readiness { component: "config", state: self.config.state() },
            Readiness { component: "pins", state: self.pins.health() },
            Readiness {
                component: "scripts",
                state: self.scripts.as_ref().map_or(Ok(()), |scripts| scripts.health()),
            },
            Readiness { component: "secrets", state: self.secrets.health() },
            Readiness { component: "workspace", state: workspace },
        ]
    }

    fn metrics(&self, counts: &ServerCounts) -> String {
        self.handles.metrics.set_server(ServerNumbers {
            connections: counts.connections,
            token_failures: counts.token_failures,
            sources_locked: counts.sources_locked,
        });
        for transport in ["http", "sse", "stdio", "socket"] {
            let open = counts.sessions.get(transport).copied().unwrap_or_default();
            self.handles.metrics.sessions(transport).set(i64::try_from(open).unwrap_or(i64::MAX));
        }
        let servers = self.servers.upgrade().map(|servers| servers.statuses()).unwrap_or_default();
        let waiting = |status: &Status| status.quarantined.iter().filter(|what| what.kind == "tool").count();
        self.handles
            .metrics
            .set_quarantined(servers.iter().map(|(name, status)| (name.clone(), waiting(status))));
        self.handles.metrics.encode_without(&self.handles.redactor)
    }
}

/// Returns the native tools of a hub with default settings, as a client that may do everything sees them.
pub(crate) fn guarded_tools() -> Result<Vec<Arc<ToolDef>>> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    // With every family that a configuration can turn on.
    let all = "[vault]\n[web]\n[[calendars]]\nname = \"Example\"\nfile = \"example.ics\"\n[github]\n";
    std::fs::write(folder.path().join("portcullis.toml"), all).context("no temporary folder")?;
    let config = Config::load(folder.path(), &|_| None)?.config;
    let scripts = scripts::nowhere(&config);
    let tools = tools(&config, Arc::new(NoSecrets), live_zone(&config), Some(scripts))?;
    let (gate, _) = guarded(&config, &tools, Registry::default(), Vec::new(), Arc::new(SystemClock))?;
    let caller = Caller { client: local_client(&config), origin: Origin::Admin };
    Ok(gate.tools(&caller)?)
}

/// The time zone of the configuration in force.
type LiveZone = Arc<ArcSwap<TimeZone>>;

fn live_zone(config: &Config) -> LiveZone {
    Arc::new(ArcSwap::from_pointee(config.time.zone.clone()))
}

fn vault_config(vault: &config::Vault, secrets: Arc<dyn SecretSource>) -> VaultConfig {
    let sync = vault.sync.as_ref().map(|sync| SyncConfig {
        address: sync.address.clone(),
        user: sync.user.clone(),
        token: sync.token.clone(),
        secrets,
        author: sync.author.clone(),
        times: SyncTimes { pull_after: sync.pull_after, within: sync.within, retry_after: PUSH_RETRY_AFTER },
        at_start: true,
    });
    VaultConfig { path: vault.path.clone(), sync }
}

fn tools(
    config: &Config,
    secrets: Arc<dyn SecretSource>,
    zone: LiveZone,
    scripts: Option<ScriptsConfig>,
) -> Result<ToolsConfig> {
    let local = ToolsConfig::local(config.workspace.data_dir(), config.prompts.path.clone());
    let local = ToolsConfig {
        workspace: config.workspace.enabled,
        memory: config.memory.enabled,
        vault: config.vault.as_ref().map(|vault| vault_config(vault, secrets.clone())),
        scripts,
        ..local
    };
    if config.web.is_none() && config.calendars.is_empty() && config.github.is_none() {
        return Ok(local);
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let egress = Arc::new(egress(config, secrets, clock.clone())?);
    let local = local.with_egress(&egress);
    let web = config.web.as_ref().map(|web| WebConfig {
        egress: egress.clone(),
        clock: clock.clone(),
        plain_http: web.plain_http,
        respect_robots: web.respect_robots,
        user_agent: web.user_agent.clone(),
        allow: web.allow.clone(),
        deny: web.deny.clone(),
    });
    let calendars = (!config.calendars.is_empty()).then(|| CalendarConfig {
        egress: egress.clone(),
        clock: clock.clone(),
        zone: Arc::new(move || TimeZone::clone(&zone.load())),
        calendars: config.calendars.clone(),
    });
    let github = config.github.as_ref().map(|github| GithubConfig {
        egress: egress.clone(),
        clock: clock.clone(),
        base_url: github.base_url.clone(),
        token: github.token.clone(),
        repositories: github.repositories.clone(),
    });
    Ok(ToolsConfig { web, calendars, github, ..local })
}

/// Makes the one client, which all families share: pace and bounds hold for all of them together.
pub(crate) fn egress(
    config: &Config,
    secrets: Arc<dyn SecretSource>,
    clock: Arc<dyn Clock>,
) -> Result<Egress> {
    let settings = EgressSettings {
        exceptions: config.egress.exceptions.clone(),
        per_host: config.egress.per_host,
        extra_roots: extra_roots(config)?,
        ..EgressSettings::default()
    };
    Ok(Egress::new(settings, Arc::new(SystemResolver::default()), secrets, clock)?)
}

/// Reads the certificates that are trusted besides the well-known ones.
pub(crate) fn extra_roots(config: &Config) -> Result<Vec<CertificateDer<'static>>> {
    let Some(path) = &config.egress.ca_file else { return Ok(Vec::new()) };
    portcullis_egress::certificates(path).with_context(|| format!("`egress.ca_file` is `{}`", path.display()))
}

/// Returns the native tools of a configuration, seen by nobody in particular. Touches none of its data.
pub(crate) fn native_tools(config: &Config) -> Result<Vec<Arc<ToolDef>>> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let (workspace_root, prompts_dir) = (folder.path().join("ai-data"), folder.path().join("prompts"));
    let scripts = config.scripts.enabled.then(|| scripts::nowhere(config));
    let mut tools = ToolsConfig {
        workspace_root,
        prompts_dir,
        ..tools(config, Arc::new(NoSecrets), live_zone(config), scripts)?
    };
    if let Some(vault) = &mut tools.vault {
        vault.path = folder.path().join("vault");
        vault.sync.iter_mut().for_each(|sync| sync.at_start = false);
    }
    let registry = Registry::default();
    portcullis_tools::register(&tools, &registry).map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(registry.tools())
}

/// Puts the guards before the native tools.
fn guarded(
    config: &Config,
    tools: &ToolsConfig,
    registry: Registry,
    secrets: Vec<(String, Secret<String>)>,
    clock: Arc<dyn Clock>,
) -> Result<(Gate, Handles)> {
    portcullis_tools::register(tools, &registry).map_err(|error| anyhow::anyhow!("{error}"))?;
    let settings = GuardSettings {
        rate: rate(config),
        policy: policy(config),
        secrets,
        audit: AuditSettings::in_folder(&config.workspace.secure_dir()),
        approvals_dir: config.workspace.secure_dir(),
        approval_times: approval_times(config),
        ceiling: ceiling(config),
    };
    Ok(portcullis_guard::stack(registry, settings, clock)?)
}

/// Builds the hub. Needs a runtime.
pub(crate) fn compose(home: &Home, config: &Config) -> Result<Composed> {
    let (ai_data, secure) = (config.workspace.data_dir(), config.workspace.secure_dir());
    make_private(&secure)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let store = Arc::new(secrets::open(home, config, clock.clone(), Asking::AtStandardInput)?);
    let (generation, known) = known_secrets(&store);
    let identity = Arc::new(Directory::open(&secure, clock.clone()).context("the list of clients")?);
    let registry = Registry::default();
    let changes = registry.changes();
    let makers = Makers::open(&secure, store.clone(), clock.clone())?;
    let pins = makers.pins.clone();
    let servers = Arc::new(Servers::new(registry.clone(), makers));
    let zone = live_zone(config);
    let scripts = config.scripts.enabled.then(|| scripts::family(config, &store));
    let scripts_gate = scripts.as_ref().map(|scripts| scripts.gate.clone());
    let decisions = scripts.as_ref().map(|scripts| scripts.scripts.clone());
    let tools = tools(config, store.clone(), zone.clone(), scripts)?;
    let search = Search::default();
    registry.add(search.clone()).context("the search for tools")?;
    let (gate, handles) = guarded(config, &tools, registry.clone(), known, clock.clone())?;
    let live = Arc::new(LiveSecrets::new(store.clone(), handles.redactor.clone(), generation));
    servers.makers.masked_by(live.clone());
    servers.apply(config);
    registry.expects(expected(config, &pins));
    handles.redactor.set_shapes(config.redaction.token_shapes);
    voice::follows(&handles.redactor);
    let health = Arc::new(ConfigHealth::default());
    let ops = HubOps {
        scripts: decisions,
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
    if let Some(reaches) = scripts_gate {
        let _ = reaches.set(Arc::downgrade(&gate));
    }
    let hub = Hub::new(HubParts {
        gate: gate.clone(),
        identity: Arc::new(Known(identity.clone())),
        local_client: local_client(config),
        ops: Arc::new(ops),
        clock,
        face: ServerFace { instructions: Some(INSTRUCTIONS.to_owned()), tasks: !config.mcp.is_empty() },
        limits: limits(config),
        scrub: Arc::new(handles.redactor.for_messages()),
    })
    .with_context(|| format!("the hub of `{}`", home.path().display()))?;
    hub.attends(&servers.audience);
    tokio::spawn(approvals::watch(handles.approvals.clone(), secure.clone(), hub.clone()));
    tokio::spawn(secrets::watch(live.clone(), servers.clone(), secure.clone(), hub.clone()));
    tokio::spawn(mcp::watch(servers.clone(), secure, hub.clone()));
    tokio::spawn(memory::give_back());
    tokio::spawn(watch_windows(handles.policy.clone(), changes.clone(), hub.clone()));
    Ok(Composed {
        hub,
        identity,
        handles,
        health,
        servers,
        gate,
        registry,
        secrets: store,
        live_secrets: live,
        config: ArcSwap::from_pointee(config.clone()),
        changes,
        zone,
    })
}

/// Returns which servers are configured, and which names are theirs before they have said so.
fn expected(config: &Config, pins: &Pins) -> Vec<Expected> {
    let expected = config.mcp.iter().map(|server| {
        let McpServer { prefix, rename, allow, deny, .. } = server;
        let trusted = if server.always_trusted { None } else { pins.of(&server.name) };
        let lists = |own: &str| allow.matches(own) && !deny.as_ref().is_some_and(|deny| deny.matches(own));
        let names = trusted.map(|trusted| pinned_names(&trusted, prefix, rename, lists));
        let (tools, prompts) = names.unwrap_or_default();
        let naming = format!("{:?}", (prefix, rename, allow, deny));
        Expected { server: server.name.clone(), prefix: prefix.clone(), naming, tools, prompts }
    });
    expected.collect()
}

/// Tells clients when the time changes what they may see, until the hub closes.
async fn watch_windows(policy: Authorize, changes: Changes, hub: Arc<Hub>) {
    tokio::select! {
        () = hub.closed() => {}
        () = portcullis_guard::announce_windows(policy, changes) => {}
    }
}

/// Returns what must be masked. A store that cannot be opened has nothing to tell, and the hub goes on without it:
/// whoever needs a secret is refused, `/readyz` and `doctor` say so.
fn known_secrets(store: &SecretStore) -> (u64, Vec<(String, Secret<String>)>) {
    let generation = store.refresh();
    let known = store.all().unwrap_or_else(|error| {
        tracing::error!(target: "secrets", %error, "The secret store cannot be used; its values are not masked.");
        Vec::new()
    });
    (generation, known)
}

impl Composed {
    /// Returns what puts people's changes on the record.
    pub(crate) fn change_log(&self) -> ChangeLog {
        ChangeLog::new(self.handles.audit.clone(), Arc::new(SystemClock), self.handles.redactor.clone())
    }

    /// Puts a changed configuration in force, as far as that goes without a restart.
    pub(crate) fn apply(&self, config: &Config, http: Option<&Bound>) {
        self.handles.apply(rate(config), policy(config), approval_times(config));
        self.handles.redactor.set_shapes(config.redaction.token_shapes);
        self.servers.apply(config);
        self.registry.expects(expected(config, &self.servers.makers.pins));
        self.config.store(Arc::new(config.clone()));
        self.hub.set_local_client(local_client(config));
        self.zone.store(Arc::new(config.time.zone.clone()));
        if let Some(bound) = http {
            bound.allowed.store(Arc::new(allowed(bound.address, config)));
        }
        self.health.set(None);
        // Other rules may show other things.
        self.announce_lists();
    }

    /// Tells clients that they may see other things than before.
    pub(crate) fn announce_lists(&self) {
        for change in [Change::Tools, Change::Prompts, Change::Resources] {
            self.changes.announce(change);
        }
    }
}

/// Where the hub listens, and who may come there.
#[derive(Clone)]
pub(crate) struct Bound {
    pub(crate) address: SocketAddr,
    pub(crate) allowed: LiveAllowed,
}

/// Returns what a listener at `address` answers to.
pub(crate) fn allowed(address: SocketAddr, config: &Config) -> Allowed {
    Allowed::new(address, &config.http.allowed_hosts, &config.http.allowed_origins)
}

pub(crate) fn local_client(config: &Config) -> Arc<Client> {
    Arc::new(Client { name: config.stdio.client.clone(), scope: config.stdio.scope.clone(), token: None })
}

fn rate(config: &Config) -> RateSettings {
    let at_least_one = |n: u32| NonZeroU32::new(n).unwrap_or(NonZeroU32::MIN);
    RateSettings {
        per_second: at_least_one(config.rate_limit.requests_per_second),
        burst: at_least_one(config.rate_limit.burst),
    }
}

pub(crate) fn approval_times(config: &Config) -> ApprovalTimes {
    let approvals = &config.approvals;
    let lifetimes = Lifetimes { pending: approvals.pending, approved: approvals.approved };
    ApprovalTimes { wait: approvals.wait, lifetimes }
}

pub(crate) fn policy(config: &Config) -> Policy {
    let rules = config.policy.iter().enumerate().map(|(at, rule)| Rule {
        name: format!("policy[{at}]"),
        clients: rule.clients.clone(),
        tools: rule.tools.clone(),
        origins: Some(rule.origins.clone()),
        effects: Some(rule.effects),
        reach: rule.reach,
        labels: rule.labels,
        when: rule.when,
        decision: match rule.decision {
            config::Verdict::Allow => Verdict::Allow,
            config::Verdict::Ask => Verdict::Ask,
            config::Verdict::Deny => Verdict::Deny,
        },
    });
    Policy { rules: rules.collect(), zone: config.time.zone.clone() }
}

fn ceiling(config: &Config) -> Limits {
    let deadline_ms = u64::try_from(config.limits.call_within.as_millis()).unwrap_or(u64::MAX);
    Limits { deadline_ms, output_bytes_max: config.limits.result_bytes_max, ..Limits::CEILING }
}

/// Files that the hub itself has open, besides one for each connection.
pub(crate) const OWN_FILES: u64 = 256;

/// Keeps files for the hub itself: where few can be open, connections do not take them all. One source gets three quarters of
/// what is left.
fn within_open_files(limits: HubLimits, open_files: Option<u64>) -> HubLimits {
    let Some(open_files) = open_files else { return limits };
    let connections = open_files - OWN_FILES.min(open_files / 2);
    let connections = usize::try_from(connections).unwrap_or(usize::MAX).max(1);
    if limits.connections_max <= connections {
        return limits;
    }
    let per_source = limits.connections_per_source_max.min((connections * 3 / 4).max(1));
    HubLimits { connections_max: connections, connections_per_source_max: per_source, ..limits }
}

fn limits(config: &Config) -> HubLimits {
    let open_files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    within_open_files(wanted_limits(config), open_files)
}

fn wanted_limits(config: &Config) -> HubLimits {
    let limits = &config.limits;
    HubLimits {
        line_bytes_max: limits.line_bytes_max,
        body_bytes_max: limits.body_bytes_max,
        sessions_max: limits.sessions_max,
        sessions_per_client_max: limits.sessions_per_client_max,
        session_idle: limits.session_idle,
        in_flight_max: limits.in_flight_max,
        connections_max: limits.connections_max,
        connections_per_source_max: limits.connections_per_source_max,
        headers_within: limits.headers_within,
        body_within: limits.body_within,
        write_within: limits.write_within,
        keep_alive: limits.keep_alive,
        token_failures_max: limits.token_failures_max,
        token_lockout: limits.token_lockout,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether there are files left for the hub itself when all connections are open.
    fn leaves_files(limits: &HubLimits, open_files: u64) -> bool {
        let left = open_files.saturating_sub(limits.connections_max as u64);
        left >= OWN_FILES.min(open_files / 2)
    }

    #[test]
    fn connections_leave_files_for_the_hub() {
        for open_files in [1, 2, 64, 256, 1_024, 4_096, 4_256, 1_000_000] {
            let clamped = within_open_files(HubLimits::default(), Some(open_files));
            assert!(open_files < 2 || leaves_files(&clamped, open_files), "{open_files}: {clamped:?}");
            assert!(clamped.connections_max >= 1 && clamped.connections_per_source_max >= 1);
        }
        let few = within_open_files(HubLimits::default(), Some(256));
        assert_eq!((few.connections_max, few.connections_per_source_max), (128, 96));
        let enough = within_open_files(HubLimits::default(), Some(4_256));
        assert_eq!((enough.connections_max, enough.connections_per_source_max), (4_000, 3_000));
        // The check can fail: what the configuration says is too many where few files can be open.
        assert!(!leaves_files(&within_open_files(HubLimits::default(), None), 256));
    }
}
