//! Upstream servers: starts, stops and restarts them to match the configuration.

mod absent_server;
mod name_reservations;
mod programs;
mod watch;

pub use name_reservations::name_reservations;
pub use watch::watch;

use crate::config::secret_detection;
use crate::config::{Config, McpServerSettings};
use crate::login::ServerLogin;
use crate::secret_store::LiveSecrets;
use absent_server::AbsentServer;
use anyhow::Context;
use parking_lot::{Mutex, MutexGuard};
use portcullis_core::{ClientBridge, Clock, Provider, Registry, ToolDef, WatchState};
use portcullis_egress::configured_client::ConfiguredEndpoint;
use portcullis_store::catalogs::CatalogStore;
use portcullis_store::database::Database;
use portcullis_store::pins::{PinStore, TrustedServer};
use portcullis_store::programs::ProgramStore;
use portcullis_store::secrets::{SecretError, SecretStore};
use portcullis_store::servers::{ServerOverride, ServerOverrides};
use portcullis_upstream::{
    ClientStatus, Credentials, HeaderSpec, HttpSpec, PerClient, Processes, ProgramDigests, ProgramLookup,
    ServerSpec, ServerStatus, ServerTransport, Shutdown, StartPhase, StartPolicy, StatusKind, StdioSpec,
    Trust, Upstream, ValueResolver, WorkingDir, pinned_tools,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Notify, watch as watch_channel};

/// The hidden command of the guardian process.
const GUARDIAN_COMMAND: &str = "__guardian";

/// Dependencies to build an upstream server.
pub struct ServerFactory {
    pub secrets: Arc<SecretStore>,
    pub pins: Arc<PinStore>,
    pub toggles: ServerOverrides,
    pub offers: Arc<CatalogStore>,
    pub programs: Arc<ProgramStore>,
    processes: Arc<Processes>,
    digests: Arc<ProgramDigests>,
    /// Registers new tokens with the redactor.
    live: OnceLock<Arc<LiveSecrets>>,
    /// Stops every server before the process exits.
    shutdown: Shutdown,
}

impl ServerFactory {
    pub fn open(
        secure: &Path,
        database: &Database,
        secrets: Arc<SecretStore>,
        clock: Arc<dyn Clock>,
        shutdown: Shutdown,
    ) -> anyhow::Result<ServerFactory> {
        let (pins, toggles) = (Arc::new(PinStore::open(database, clock)), ServerOverrides::open(database));
        let offers = Arc::new(CatalogStore::open(secure));
        let programs = Arc::new(ProgramStore::open(secure));
        let processes = Arc::new(Processes::new(secure).context("no random numbers")?);
        let (digests, live) = (Arc::default(), OnceLock::new());
        Ok(ServerFactory { secrets, pins, toggles, offers, programs, processes, digests, live, shutdown })
    }

    /// Sets how new tokens are registered with the redactor. Called before anything starts.
    pub fn masked_by(&self, live: Arc<LiveSecrets>) {
        let _ = self.live.set(live);
    }

    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Redacts a server's status, which contains its own text, such as its name.
    fn scrub(&self, status: &mut Value) {
        if let Some(live) = self.live.get() {
            live.scrub(status);
        }
    }

    /// Starts the guardian, which kills child processes if the hub is killed.
    pub fn guard(&self) {
        // The running binary, even if it was replaced on disk.
        self.processes.guard(Path::new("/proc/self/exe"), &[GUARDIAN_COMMAND]);
    }

    /// Returns the check whether a process was started by an upstream server.
    pub fn descendant_check(&self) -> impl Fn(i32) -> bool + Send + Sync + 'static {
        let processes = self.processes.clone();
        move |pid| processes.is_server_descendant(pid)
    }

    /// Looks a server's command up in this process's PATH, unless it is known.
    pub fn find_program(&self, server: &McpServerSettings) -> Result<(), String> {
        programs::find(&self.programs, &server.name, &server.command).map(drop)
    }

    /// Clears the stored state of a removed server, except its login. Returns whether it was trusted.
    pub fn forget(&self, name: &str) -> anyhow::Result<bool> {
        let was_trusted = self.pins.revoke(name)?;
        // A hub that has not reloaded yet would otherwise start a disabled server.
        self.toggles.remove(name)?;
        self.offers.forget(name)?;
        self.programs.forget(name)?;
        Ok(was_trusted)
    }

    /// Returns whether a server is enabled: the override counts, then the configuration.
    pub fn is_wanted(&self, server: &McpServerSettings) -> bool {
        let toggle = self.toggles.of(&server.name);
        !toggle.removed && !self.is_unreviewed(server) && toggle.enabled.unwrap_or(server.enabled)
    }

    /// Returns whether a server was imported and not reviewed yet.
    pub fn is_unreviewed(&self, server: &McpServerSettings) -> bool {
        let name = &server.name;
        self.toggles.of(name).unseen && !server.always_trusted && self.pins.of(name).is_none()
    }

    /// Registers the secrets of an imported server with the redactor, now that it is trusted.
    pub fn activate_secrets(&self, server: &McpServerSettings) -> Result<(), SecretError> {
        let headers = server.headers.iter().map(|(_, written)| written);
        let written = server.env.iter().map(|(_, written)| written).chain(headers);
        let mut names: Vec<&str> =
            written.filter_map(|written| secret_detection::handle(written)).map(|(_, name)| name).collect();
        names.extend(
            server.oauth.iter().filter_map(|oauth| oauth.client_secret.as_ref()).map(|own| own.name()),
        );
        if names.is_empty() || !self.secrets.activate(&names)? {
            return Ok(());
        }
        if let Some(live) = self.live.get() {
            live.apply();
        }
        Ok(())
    }

    /// Clears the removal marks of these servers, once the configuration in force is newer: a server of that name in it is
    /// a new one.
    pub fn forget_removed(&self, names: &[String]) {
        for name in names {
            if let Err(error) = self.toggles.forget_removed(name) {
                // Debug level: retried twice a second.
                tracing::debug!(target: "upstream", server = %name, %error, "state of a removed server not cleared yet");
            }
        }
    }
}

/// The running servers, by name.
pub struct ServerManager {
    registry: Registry,
    pub makers: ServerFactory,
    running: Mutex<ManagedServers>,
    /// Notified when a status changes.
    changed: Arc<Notify>,
    /// The same, broadcast to any number of subscribers.
    pub status_changes: watch_channel::Sender<()>,
    /// Receiver of server messages outside of calls.
    pub audience: ClientBridge,
}

#[derive(Default)]
struct ManagedServers {
    config: Option<Config>,
    /// Overrides at the last reconciliation.
    wishes: Vec<ServerOverride>,
    servers: BTreeMap<String, ManagedServer>,
    /// Placeholders of stopped servers with client subscriptions.
    absent: BTreeMap<String, AbsentServer>,
}

struct ManagedServer {
    /// Its settings, to detect changes.
    config: String,
    reloads: u64,
    /// Its pins at the last reconciliation.
    trusted: Option<Arc<TrustedServer>>,
    upstream: Upstream,
    login: Option<Arc<ServerLogin>>,
}

impl ServerManager {
    pub fn new(registry: Registry, makers: ServerFactory) -> ServerManager {
        ServerManager {
            registry,
            makers,
            running: Mutex::default(),
            changed: Arc::default(),
            status_changes: watch_channel::Sender::new(()),
            audience: ClientBridge::default(),
        }
    }

    /// Reconnects servers whose login was changed by another process (`portcullis mcp auth` or `logout`).
    pub fn secrets_changed(&self) {
        for (name, server) in &self.lock().servers {
            if server.login.as_ref().is_some_and(|login| login.was_changed()) {
                tracing::info!(target: "upstream", server = %name, "login changed; reconnecting");
                server.upstream.reconnect();
            }
        }
    }

    /// Reconciles: starts new servers, stops removed ones, restarts changed ones. Does not wait for them.
    pub fn apply(&self, config: &Config) {
        let mut running = self.lock();
        running.config = Some(config.clone());
        self.start_and_stop(&mut running);
    }

    /// Applies overrides and pins. Costs one `stat` per server if nothing changed.
    fn follow(&self) {
        // A snapshot that is stale for a moment, as after a suspend, must not stop every server.
        if self.makers.toggles.health().is_err() {
            return;
        }
        let mut running = self.lock();
        if self.wishes(&running) != running.wishes {
            self.start_and_stop(&mut running);
        }
        let mut changed = Vec::new();
        for (name, started) in &mut running.servers {
            let trusted = self.makers.pins.of(name);
            let same = match (&trusted, &started.trusted) {
                (None, None) => true,
                (Some(now), Some(then)) => Arc::ptr_eq(now, then) || now == then,
                _ => false,
            };
            if !same {
                started.trusted = trusted;
                changed.push(started.upstream.clone());
            }
        }
        drop(running);
        for upstream in changed {
            upstream.recompute_catalog();
        }
    }

    fn wishes(&self, running: &ManagedServers) -> Vec<ServerOverride> {
        let configured = running.config.iter().flat_map(|config| &config.mcp);
        configured.map(|server| self.makers.toggles.of(&server.name)).collect()
    }

    /// Reconciles with configuration and overrides.
    fn start_and_stop(&self, running: &mut ManagedServers) {
        let Some(config) = running.config.clone() else { return };
        running.wishes = self.wishes(running);
        let wanted: BTreeMap<&str, &McpServerSettings> = config
            .mcp
            .iter()
            .filter(|server| self.makers.is_wanted(server))
            .map(|server| (server.name.as_str(), server))
            .collect();
        let ManagedServers { servers, absent, .. } = running;
        servers.retain(|name, server| {
            let stays =
                wanted.get(name.as_str()).is_some_and(|wanted| format!("{wanted:?}") == server.config);
            if !stays {
                self.registry.remove(name);
                self.leaves(name, &server.upstream, absent);
                server.upstream.stop();
            }
            stays
        });
        absent.retain(|name, _| {
            let is_configured = config.mcp.iter().any(|server| server.name == *name);
            if !is_configured {
                self.registry.remove(name);
            }
            is_configured
        });
        for (name, server) in wanted {
            let reloads = self.makers.toggles.of(name).reloads;
            if let Some(started) = servers.get_mut(name) {
                if started.reloads != reloads {
                    started.reloads = reloads;
                    started.upstream.reconnect();
                }
                continue;
            }
            // For any kind of trust. A locked store gives nothing out either.
            if let Err(error) = self.makers.activate_secrets(server) {
                tracing::debug!(target: "upstream", server = %name, %error, "server secrets not registered yet");
            }
            let (spec, login) = self.makers.spec(server, &config);
            if spec.transport.is_local() {
                self.makers.guard();
            }
            let before = absent.remove(name);
            if before.is_some() {
                self.registry.remove(name);
            }
            let upstream = Upstream::start_before(spec, self.registry.changes(), self.audience.clone());
            // It has no tools yet, so names cannot clash.
            if let Err(error) = self.registry.add(upstream.clone()) {
                tracing::error!(target: "upstream", %error, "failed to add server");
                continue;
            }
            for (uri, client) in before.iter().flat_map(AbsentServer::watched) {
                Provider::watch(&upstream, &uri, &client, WatchState::Wanted);
            }
            tokio::spawn(watch::forward(upstream.watch(), self.changed.clone()));
            let trusted = self.makers.pins.of(name);
            let started = ManagedServer { config: format!("{server:?}"), reloads, trusted, upstream, login };
            servers.insert(name.to_owned(), started);
        }
        self.changed.notify_one();
    }

    /// Leaves a placeholder that keeps the client subscriptions of a stopped server.
    fn leaves(&self, name: &str, upstream: &Upstream, absent: &mut BTreeMap<String, AbsentServer>) {
        if upstream.watched().is_empty() {
            return;
        }
        let left = AbsentServer::of(upstream);
        // It has no tools, so names cannot clash.
        if self.registry.add(left.clone()).is_ok() {
            absent.insert(name.to_owned(), left);
        }
    }

    /// Waits, with a timeout, until every server has connected or failed.
    pub async fn settled(&self, within: Duration) {
        self.settled_of(within, |_| true).await;
    }

    /// The same, for servers with trusted instructions: clients get them in the handshake only.
    pub async fn introduced(&self, within: Duration) {
        self.settled_of(within, Upstream::tells_agents).await;
    }

    async fn settled_of(&self, within: Duration, waited_for: impl Fn(&Upstream) -> bool) {
        let upstreams: Vec<Upstream> =
            self.lock().servers.values().map(|started| started.upstream.clone()).filter(waited_for).collect();
        let all = futures::future::join_all(upstreams.iter().map(Upstream::settled));
        // Late servers are not waited for.
        let _ = tokio::time::timeout(within, all).await;
    }

    /// Returns the status of every configured server, by name.
    pub fn statuses(&self) -> Vec<(String, ServerStatus)> {
        let running = self.lock();
        let configured = running.config.iter().flat_map(|config| &config.mcp);
        let stands = |server: &McpServerSettings| match running.servers.get(&server.name) {
            Some(started) => started.upstream.status(),
            None => ServerStatus::of(StatusKind::Disabled),
        };
        configured.map(|server| (server.name.clone(), stands(server))).collect()
    }

    /// Returns a running server.
    pub fn upstream(&self, name: &str) -> Option<Upstream> {
        self.lock().servers.get(name).map(|started| started.upstream.clone())
    }

    /// Returns the login of a running server.
    pub fn login(&self, name: &str) -> Option<Arc<ServerLogin>> {
        self.lock().servers.get(name).and_then(|started| started.login.clone())
    }

    /// Stops all servers permanently.
    pub fn stop(&self) {
        for server in self.lock().servers.values() {
            server.upstream.stop();
        }
    }

    fn lock(&self) -> MutexGuard<'_, ManagedServers> {
        self.running.lock()
    }
}

/// Returns a server's status as JSON, for `--json` and the status file.
pub fn shown(status: &ServerStatus) -> Value {
    let dropped = status.dropped.iter().map(|(what, why)| json!({ "name": what, "why": why }));
    let waiting = status
        .quarantined
        .iter()
        .map(|what| json!({ "kind": what.kind, "name": what.name, "why": what.why }));
    let clients = status.clients.as_ref().map(|all| {
        let each = |one: &ClientStatus| json!({ "client": one.client, "status": one.kind.as_str(), "reason": one.reason });
        all.iter().map(each).collect::<Vec<_>>()
    });
    json!({
        "status": status.kind.as_str(),
        "idle": status.idle,
        "clients": clients,
        "phase": status.phase.map(StartPhase::as_str),
        "reason": status.reason,
        "stderr": status.stderr,
        "server": status.server,
        "revision": status.revision,
        "tools": status.tools,
        "prompts": status.prompts,
        "resources": status.resources,
        "dropped": dropped.collect::<Vec<_>>(),
        "quarantined": waiting.collect::<Vec<_>>(),
    })
}

/// Returns the pinned tools of all servers. Starts none of them.
pub fn trusted_tools(config: &Config, makers: &ServerFactory) -> Vec<Arc<ToolDef>> {
    let wanted = config.mcp.iter().filter(|server| makers.is_wanted(server));
    wanted.flat_map(|server| pinned_tools(&makers.spec(server, config).0)).collect()
}

impl ServerFactory {
    /// Returns the pins of a server, where they count.
    pub fn trusted(&self, server: &McpServerSettings) -> Option<Arc<TrustedServer>> {
        if server.always_trusted { None } else { self.pins.of(&server.name) }
    }

    /// Builds the HTTP transport of a server.
    fn http(
        &self,
        server: &McpServerSettings,
        place: &ConfiguredEndpoint,
        config: &Config,
    ) -> (HttpSpec, Option<Arc<ServerLogin>>) {
        let headers = headers(server, place, &self.secrets);
        let extra_roots = crate::tool_families::extra_roots(config).unwrap_or_else(|error| {
            // Then only public CAs are trusted; the connection error shows it.
            tracing::error!(target: "upstream", error = format!("{error:#}"), "CA file unusable");
            Vec::new()
        });
        let login = server.oauth.as_ref().map(|wanted| {
            let (secrets, live) = (self.secrets.clone(), self.live.get().cloned());
            let login = ServerLogin::new(server, wanted, config, secrets, live, self.shutdown.clone());
            login.map(Arc::new).map_err(|error| {
                tracing::error!(target: "upstream", %error, server = %server.name, "login unavailable for server");
            })
        });
        let login = login.and_then(Result::ok);
        let oauth = login.as_ref().map(|login| login.oauth() as Arc<dyn Credentials>);
        let http = HttpSpec { place: place.clone(), headers, oauth, extra_roots };
        (http, login)
    }

    /// Builds the process of a local server.
    fn stdio(&self, server: &McpServerSettings, config: &Config) -> StdioSpec {
        let (programs, name, command) = (self.programs.clone(), server.name.clone(), server.command.clone());
        let program = ProgramLookup(Arc::new(move || programs::find(&programs, &name, &command)));
        let mut env: Vec<(String, String)> = Vec::new();
        if let Ok(home) = std::env::var("HOME") {
            env.push(("HOME".to_owned(), home));
        }
        env.extend(server.env.iter().cloned());
        let secrets = self.secrets.clone();
        let host = format!("mcp.{}", server.name);
        let values =
            ValueResolver(Arc::new(move |written: &str| resolve_value(written, &secrets, &host, "env")));
        // Not a folder that tools write to: many programs run files from their working directory at start.
        let own = || WorkingDir::Own(config.workspace.server_dir(&server.name));
        let cwd = server.cwd.clone().map_or_else(own, WorkingDir::Chosen);
        let (args, processes) = (server.args.clone(), self.processes.clone());
        StdioSpec { program, args, cwd, env, values, processes, digests: self.digests.clone() }
    }

    /// Chooses how a server is reached: a new transport is one line here.
    fn transport(
        &self,
        server: &McpServerSettings,
        config: &Config,
    ) -> (Arc<dyn ServerTransport>, Option<Arc<ServerLogin>>) {
        match &server.place {
            Some(place) => {
                let (http, login) = self.http(server, place, config);
                (Arc::new(http), login)
            }
            None => (Arc::new(self.stdio(server, config)), None),
        }
    }

    pub fn spec(
        &self,
        server: &McpServerSettings,
        config: &Config,
    ) -> (ServerSpec, Option<Arc<ServerLogin>>) {
        let (transport, login) = self.transport(server, config);
        let spec = ServerSpec {
            name: server.name.clone(),
            transport,
            timeout: server.timeout,
            start_timeout: server.start_timeout,
            prefix: server.prefix.clone(),
            allow: server.allow.clone(),
            deny: server.deny.clone(),
            rename: server.rename.clone(),
            effects: server.effects.clone(),
            labels: server.labels.clone(),
            decision: server.decision.map(Into::into),
            trust: if server.always_trusted { Trust::Always } else { Trust::Pinned(self.pins.clone()) },
            start: if server.lazy { StartPolicy::AtNeed(self.offers.clone()) } else { StartPolicy::AtOnce },
            idle_stop: server.idle_stop,
            per_client: server.per_client.map(|clients_max| PerClient { clients_max }),
            relist_every: server.relist_every,
            shutdown: self.shutdown.clone(),
        };
        (spec, login)
    }
}

/// Returns the headers of every request, with values resolved per request.
pub fn headers(
    server: &McpServerSettings,
    place: &ConfiguredEndpoint,
    secrets: &Arc<SecretStore>,
) -> Vec<HeaderSpec> {
    let headers = server.headers.iter().map(|(name, written)| {
        let (secrets, host, field) = (secrets.clone(), place.host().to_owned(), name.to_string());
        let values =
            ValueResolver(Arc::new(move |written: &str| resolve_value(written, &secrets, &host, &field)));
        HeaderSpec { name: name.clone(), written: written.clone(), values }
    });
    headers.collect()
}

impl Drop for ServerManager {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Resolves a value: `secret:NAME` is a secret with a grant for `field` at `host`, `${NAME}` a variable of the hub. A
/// secret may follow one word, like `Bearer`.
fn resolve_value(written: &str, secrets: &SecretStore, host: &str, field: &str) -> Result<String, String> {
    if let Some((word, name)) = secret_detection::handle(written) {
        let value = secrets.resolve_for(name, host, field).map_err(|error| match error {
            SecretError::Unknown(name) => {
                format!(
                    "no such secret: `{name}`; set it: portcullis secrets set {name} --grant '{host}:{field}'"
                )
            }
            error => error.to_string(),
        })?;
        return Ok(word.map_or_else(|| value.expose().clone(), |word| format!("{word} {}", value.expose())));
    }
    if let Some(name) = secret_detection::buried_handle(written) {
        return Err(format!(
            "`secret:{name}` is part of a longer text; use it alone or after one word, like `Bearer secret:{name}`"
        ));
    }
    let (mut text, mut rest) = (String::new(), written);
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').ok_or("`${` without `}`")?;
        text.push_str(before);
        let value = std::env::var(name).map_err(|_| format!("the variable `{name}` is not set"))?;
        text.push_str(&value);
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}
