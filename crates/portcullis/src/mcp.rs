//! Other MCP servers: from what is configured to what runs.

mod absent;
mod programs;
mod watch;

pub(crate) use watch::watch;

use crate::config::{Config, McpServer};
use crate::login::Login;
use crate::private;
use crate::secrets::LiveSecrets;
use absent::Absent;
use anyhow::Context;
use portcullis_core::{Audience, Clock, Provider, Registry, ToolDef};
use portcullis_egress::own::Place;
use portcullis_store::offers::Offers;
use portcullis_store::pins::{Pins, Trusted};
use portcullis_store::programs::Programs;
use portcullis_store::secrets::{SecretError, SecretStore};
use portcullis_store::servers::{Toggle, Toggles};
use portcullis_upstream::{
    ClientStatus, Folder, HeaderSpec, HttpSpec, PerClient, Processes, Program, ServerSpec, Start, Status,
    StatusKind, StdioSpec, TransportSpec, Trust, Upstream, Values, pinned_tools,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch as watch_channel};

/// The hidden command by which the binary stands by itself.
const GUARDIAN_COMMAND: &str = "__guardian";

/// What making a server needs, besides its configuration.
pub(crate) struct Makers {
    pub(crate) secrets: Arc<SecretStore>,
    pub(crate) pins: Arc<Pins>,
    pub(crate) toggles: Toggles,
    pub(crate) offers: Arc<Offers>,
    pub(crate) programs: Arc<Programs>,
    processes: Arc<Processes>,
    /// How new tokens become masked.
    live: OnceLock<Arc<LiveSecrets>>,
}

impl Makers {
    pub(crate) fn open(
        secure: &Path,
        secrets: Arc<SecretStore>,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Makers> {
        let (pins, toggles) = (Arc::new(Pins::open(secure, clock)), Toggles::open(secure));
        let offers = Arc::new(Offers::open(secure));
        let programs = Arc::new(Programs::open(secure));
        let processes = Arc::new(Processes::new(secure).context("no random numbers")?);
        Ok(Makers { secrets, pins, toggles, offers, programs, processes, live: OnceLock::new() })
    }

    /// Says how new tokens become masked. Before anything is started.
    pub(crate) fn masked_by(&self, live: Arc<LiveSecrets>) {
        let _ = self.live.set(live);
    }

    /// Takes secrets out of how a server stands: its own words are in there, such as its name.
    fn scrub(&self, stands: &mut Value) {
        if let Some(live) = self.live.get() {
            live.scrub(stands);
        }
    }

    /// Makes sure that somebody ends the processes of a hub that cannot do it any more.
    pub(crate) fn guard(&self) {
        // The program that runs, even where another version has taken its place.
        self.processes.guard(Path::new("/proc/self/exe"), &[GUARDIAN_COMMAND]);
    }

    /// Returns what tells whether a process was started by a server.
    pub(crate) fn are_behind(&self) -> impl Fn(i32) -> bool + Send + Sync + 'static {
        let processes = self.processes.clone();
        move |pid| processes.are_behind(pid)
    }

    /// Looks for the program of a server in the places of this process, unless it is known already.
    pub(crate) fn find_program(&self, server: &McpServer) -> Result<(), String> {
        programs::find(&self.programs, &server.name, &server.command).map(drop)
    }

    /// Forgets all that is kept of a server but its login, once it is out of the configuration. Returns whether it was
    /// trusted.
    pub(crate) fn forget(&self, name: &str) -> anyhow::Result<bool> {
        let was_trusted = self.pins.revoke(name)?;
        // A hub that has not read the configuration yet would start one that was switched off.
        self.toggles.remove(name)?;
        self.offers.forget(name)?;
        self.programs.forget(name)?;
        Ok(was_trusted)
    }

    /// Returns whether a server is to run: what somebody said last counts, then the configuration.
    pub(crate) fn is_wanted(&self, server: &McpServer) -> bool {
        let toggle = self.toggles.of(&server.name);
        !toggle.removed && !self.is_unseen(server) && toggle.enabled.unwrap_or(server.enabled)
    }

    /// Returns whether a server came from elsewhere, and nobody has looked at it yet.
    pub(crate) fn is_unseen(&self, server: &McpServer) -> bool {
        let name = &server.name;
        self.toggles.of(name).unseen && !server.always_trusted && self.pins.of(name).is_none()
    }

    /// Registers the secrets that came with an imported server, now that a person trusts it. What it is sent is masked first.
    pub(crate) fn activate_secrets(&self, server: &McpServer) -> Result<(), SecretError> {
        let headers = server.headers.iter().map(|(_, written)| written);
        let written = server.env.iter().map(|(_, written)| written).chain(headers);
        let mut names: Vec<&str> =
            written.filter_map(|written| private::handle(written)).map(|(_, name)| name).collect();
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

    /// Forgets that these were taken out, where the configuration in force was read after that: one of their name that is
    /// in there is another.
    pub(crate) fn forget_removed(&self, names: &[String]) {
        for name in names {
            if let Err(error) = self.toggles.forget_removed(name) {
                // The next look tries again, so this would be said twice a second.
                tracing::debug!(target: "upstream", server = %name, %error, "A removed server is not forgotten yet.");
            }
        }
    }
}

/// The servers that run, by name.
pub(crate) struct Servers {
    registry: Registry,
    pub(crate) makers: Makers,
    running: Mutex<Running>,
    /// Told whenever one of them stands otherwise than before.
    changed: Arc<Notify>,
    /// The same, for any number of those who watch.
    pub(crate) stands: watch_channel::Sender<()>,
    /// Whom servers speak to outside of calls.
    pub(crate) audience: Audience,
}

#[derive(Default)]
struct Running {
    config: Option<Config>,
    /// What people wanted when it was last looked at.
    wishes: Vec<Toggle>,
    servers: BTreeMap<String, Started>,
    /// Servers that are configured and do not run, as far as clients wait for word of them.
    absent: BTreeMap<String, Absent>,
}

struct Started {
    /// What it was made from, to tell whether it changed.
    config: String,
    reloads: u64,
    /// What was trusted of it when it was last looked at.
    trusted: Option<Arc<Trusted>>,
    upstream: Upstream,
    login: Option<Arc<Login>>,
}

impl Servers {
    pub(crate) fn new(registry: Registry, makers: Makers) -> Servers {
        Servers {
            registry,
            makers,
            running: Mutex::default(),
            changed: Arc::default(),
            stands: watch_channel::Sender::new(()),
            audience: Audience::default(),
        }
    }

    /// Tries those servers again whose login was changed by another process: by `portcullis mcp auth`, or `logout`.
    pub(crate) fn secrets_changed(&self) {
        for (name, server) in &self.lock().servers {
            if server.login.as_ref().is_some_and(|login| login.was_changed()) {
                tracing::info!(target: "upstream", server = %name, "A login was changed; the server is tried again.");
                server.upstream.again();
            }
        }
    }

    /// Starts what is new, ends what is gone, and starts again what changed. Waits for none of them.
    pub(crate) fn apply(&self, config: &Config) {
        let mut running = self.lock();
        running.config = Some(config.clone());
        self.start_and_stop(&mut running);
    }

    /// Does what people want now, and shows what they trust now. Costs a `stat` for each server where nothing changed.
    fn follow(&self) {
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
            upstream.look_again();
        }
    }

    fn wishes(&self, running: &Running) -> Vec<Toggle> {
        let configured = running.config.iter().flat_map(|config| &config.mcp);
        configured.map(|server| self.makers.toggles.of(&server.name)).collect()
    }

    /// Does what the configuration and the wishes of people say.
    fn start_and_stop(&self, running: &mut Running) {
        let Some(config) = running.config.clone() else { return };
        running.wishes = self.wishes(running);
        let wanted: BTreeMap<&str, &McpServer> = config
            .mcp
            .iter()
            .filter(|server| self.makers.is_wanted(server))
            .map(|server| (server.name.as_str(), server))
            .collect();
        let Running { servers, absent, .. } = running;
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
                    started.upstream.again();
                }
                continue;
            }
            if server.place.is_none() {
                self.makers.guard();
            }
            // Whichever way it was trusted. A store that is locked gives nothing out either.
            if let Err(error) = self.makers.activate_secrets(server) {
                tracing::debug!(target: "upstream", server = %name, %error, "The secrets of a server are not registered yet.");
            }
            let (spec, login) = self.makers.spec(server, &config);
            let before = absent.remove(name);
            if before.is_some() {
                self.registry.remove(name);
            }
            let upstream = Upstream::start_before(spec, self.registry.changes(), self.audience.clone());
            // It offers nothing yet, so no name can be taken.
            if let Err(error) = self.registry.add(upstream.clone()) {
                tracing::error!(target: "upstream", %error, "A server cannot be added.");
                continue;
            }
            for (uri, client) in before.iter().flat_map(Absent::watched) {
                Provider::watch(&upstream, &uri, &client, true);
            }
            tokio::spawn(watch::forward(upstream.watch(), self.changed.clone()));
            let trusted = self.makers.pins.of(name);
            let started = Started { config: format!("{server:?}"), reloads, trusted, upstream, login };
            servers.insert(name.to_owned(), started);
        }
        self.changed.notify_one();
    }

    /// Leaves somebody behind who remembers which clients wait for word of a server that ends.
    fn leaves(&self, name: &str, upstream: &Upstream, absent: &mut BTreeMap<String, Absent>) {
        if upstream.watched().is_empty() {
            return;
        }
        let left = Absent::of(upstream);
        // It offers nothing, so no name can be taken.
        if self.registry.add(left.clone()).is_ok() {
            absent.insert(name.to_owned(), left);
        }
    }

    /// Waits until it is known of every server whether it can be connected, but not for ever.
    pub(crate) async fn settled(&self, within: Duration) {
        self.settled_of(within, |_| true).await;
    }

    /// The same, of those servers whose own words agents are to hear: they are told when a client introduces itself, and
    /// not again.
    pub(crate) async fn introduced(&self, within: Duration) {
        self.settled_of(within, Upstream::tells_agents).await;
    }

    async fn settled_of(&self, within: Duration, waited_for: impl Fn(&Upstream) -> bool) {
        let upstreams: Vec<Upstream> =
            self.lock().servers.values().map(|started| started.upstream.clone()).filter(waited_for).collect();
        let all = futures::future::join_all(upstreams.iter().map(Upstream::settled));
        // Whoever is late is not waited for.
        let _ = tokio::time::timeout(within, all).await;
    }

    /// Returns how every configured server stands, in the order of their names.
    pub(crate) fn statuses(&self) -> Vec<(String, Status)> {
        let running = self.lock();
        let configured = running.config.iter().flat_map(|config| &config.mcp);
        let stands = |server: &McpServer| match running.servers.get(&server.name) {
            Some(started) => started.upstream.status(),
            None => Status::of(StatusKind::Disabled),
        };
        configured.map(|server| (server.name.clone(), stands(server))).collect()
    }

    /// Returns a server that runs.
    pub(crate) fn upstream(&self, name: &str) -> Option<Upstream> {
        self.lock().servers.get(name).map(|started| started.upstream.clone())
    }

    /// Returns the login of a server that runs.
    pub(crate) fn login(&self, name: &str) -> Option<Arc<Login>> {
        self.lock().servers.get(name).and_then(|started| started.login.clone())
    }

    /// Ends all of them, for good.
    pub(crate) fn stop(&self) {
        for server in self.lock().servers.values() {
            server.upstream.stop();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns how a server stands, for programs and for the file that others read.
pub(crate) fn shown(status: &Status) -> Value {
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

/// Returns the tools of all servers as they were when a person trusted them. Starts none of them.
pub(crate) fn trusted_tools(config: &Config, makers: &Makers) -> Vec<Arc<ToolDef>> {
    let wanted = config.mcp.iter().filter(|server| makers.is_wanted(server));
    wanted.flat_map(|server| pinned_tools(&makers.spec(server, config).0)).collect()
}

impl Makers {
    /// How a server is reached over HTTP.
    fn http(&self, server: &McpServer, place: &Place, config: &Config) -> (HttpSpec, Option<Arc<Login>>) {
        let headers = headers(server, place, &self.secrets);
        let extra_roots = crate::compose::extra_roots(config).unwrap_or_else(|error| {
            // Then only the well-known authorities are trusted; the connection says so.
            tracing::error!(target: "upstream", error = format!("{error:#}"), "A file of certificates cannot be used.");
            Vec::new()
        });
        let login = server.oauth.as_ref().map(|wanted| {
            let login = Login::new(server, wanted, config, self.secrets.clone(), self.live.get().cloned());
            login.map(Arc::new).map_err(|error| {
                tracing::error!(target: "upstream", %error, server = %server.name, "Nobody can log in to a server.");
            })
        });
        let login = login.and_then(Result::ok);
        let oauth = login.as_ref().map(|login| login.oauth());
        let http = HttpSpec { place: place.clone(), headers, oauth, extra_roots };
        (http, login)
    }

    /// How a server is started.
    fn stdio(&self, server: &McpServer, config: &Config) -> StdioSpec {
        let (programs, name, command) = (self.programs.clone(), server.name.clone(), server.command.clone());
        let program = Program(Arc::new(move || programs::find(&programs, &name, &command)));
        let mut env: Vec<(String, String)> = Vec::new();
        if let Ok(home) = std::env::var("HOME") {
            env.push(("HOME".to_owned(), home));
        }
        env.extend(server.env.iter().cloned());
        let secrets = self.secrets.clone();
        let host = format!("mcp.{}", server.name);
        let values = Values(Arc::new(move |written: &str| meant(written, &secrets, &host, "env")));
        // Not where tools write: what an agent left there would be run by many programs when they start.
        let own = || Folder::Own(config.workspace.server_dir(&server.name));
        let cwd = server.cwd.clone().map_or_else(own, Folder::Chosen);
        let (args, processes) = (server.args.clone(), self.processes.clone());
        StdioSpec { program, args, cwd, env, values, processes }
    }

    pub(crate) fn spec(&self, server: &McpServer, config: &Config) -> (ServerSpec, Option<Arc<Login>>) {
        let (transport, login) = match &server.place {
            Some(place) => {
                let (http, login) = self.http(server, place, config);
                (TransportSpec::Http(http), login)
            }
            None => (TransportSpec::Stdio(self.stdio(server, config)), None),
        };
        let spec = ServerSpec {
            name: server.name.clone(),
            transport,
            timeout: server.timeout,
            prefix: server.prefix.clone(),
            allow: server.allow.clone(),
            deny: server.deny.clone(),
            rename: server.rename.clone(),
            effects: server.effects.clone(),
            labels: server.labels.clone(),
            decision: server.decision.into(),
            trust: if server.always_trusted { Trust::Always } else { Trust::Pinned(self.pins.clone()) },
            start: if server.lazy { Start::AtNeed(self.offers.clone()) } else { Start::AtOnce },
            idle_stop: server.idle_stop,
            per_client: server.per_client.map(|clients_max| PerClient { clients_max }),
            relist_every: server.relist_every,
        };
        (spec, login)
    }
}

/// Returns what every request to a server carries, each value looked up when it is sent.
pub(crate) fn headers(server: &McpServer, place: &Place, secrets: &Arc<SecretStore>) -> Vec<HeaderSpec> {
    let headers = server.headers.iter().map(|(name, written)| {
        let (secrets, host, field) = (secrets.clone(), place.host().to_owned(), name.to_string());
        let values = Values(Arc::new(move |written: &str| meant(written, &secrets, &host, &field)));
        HeaderSpec { name: name.clone(), written: written.clone(), values }
    });
    headers.collect()
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns what a value stands for: `secret:NAME` a secret that was granted for `field` at `host`, `${NAME}` a variable
/// of the hub's. A secret may follow one word, like `Bearer`.
fn meant(written: &str, secrets: &SecretStore, host: &str, field: &str) -> Result<String, String> {
    if let Some((word, name)) = private::handle(written) {
        let value = secrets.resolve_for(name, host, field).map_err(|error| match error {
            SecretError::Unknown(name) => {
                format!("no secret is named `{name}`; set it: portcullis secrets set {name} --grant '{host}:{field}'")
            }
            error => error.to_string(),
        })?;
        return Ok(word.map_or_else(|| value.expose().clone(), |word| format!("{word} {}", value.expose())));
    }
    if let Some(name) = private::buried_handle(written) {
        return Err(format!(
            "`secret:{name}` stands within a longer text; it is put in alone, or after one word and one blank, like `Bearer secret:{name}`"
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
