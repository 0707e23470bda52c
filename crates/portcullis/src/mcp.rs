//! Other MCP servers: from what is configured to what runs.

use crate::config::{Config, McpServer, Verdict};
use portcullis_core::{Registry, Unruled};
use portcullis_egress::own::Place;
use portcullis_store::secrets::SecretStore;
use portcullis_upstream::{
    HeaderSpec, HttpSpec, ServerSpec, Status, StdioSpec, TransportSpec, Upstream, Values,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where programs are on every machine. A server does not get the hub's own list.
const USUAL_PLACES: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The servers that run, by name.
pub(crate) struct Servers {
    registry: Registry,
    secrets: Arc<SecretStore>,
    running: Mutex<BTreeMap<String, Running>>,
}

struct Running {
    /// What it was made from, to tell whether it changed.
    config: String,
    upstream: Upstream,
}

impl Servers {
    pub(crate) fn new(registry: Registry, secrets: Arc<SecretStore>) -> Servers {
        Servers { registry, secrets, running: Mutex::default() }
    }

    /// Starts what is new, ends what is gone, and starts again what changed. Waits for none of them.
    pub(crate) fn apply(&self, config: &Config) {
        let mut running = self.lock();
        let wanted: BTreeMap<&str, &McpServer> = config
            .mcp
            .iter()
            .filter(|server| server.enabled)
            .map(|server| (server.name.as_str(), server))
            .collect();
        running.retain(|name, server| {
            let stays =
                wanted.get(name.as_str()).is_some_and(|wanted| format!("{wanted:?}") == server.config);
            if !stays {
                self.registry.remove(name);
                server.upstream.stop();
            }
            stays
        });
        for (name, server) in wanted {
            if running.contains_key(name) {
                continue;
            }
            let upstream = Upstream::start(self.spec(server, config), self.registry.changes());
            // It offers nothing yet, so no name can be taken.
            if let Err(error) = self.registry.add(upstream.clone()) {
                tracing::error!(target: "upstream", %error, "A server cannot be added.");
                continue;
            }
            running.insert(name.to_owned(), Running { config: format!("{server:?}"), upstream });
        }
    }

    pub(crate) fn statuses(&self) -> Vec<(String, Status)> {
        self.lock().iter().map(|(name, server)| (name.clone(), server.upstream.status())).collect()
    }

    /// How a server is reached over HTTP.
    fn http(&self, server: &McpServer, place: &Place) -> HttpSpec {
        let headers = server.headers.iter().map(|(name, written)| {
            let (secrets, host, field) = (self.secrets.clone(), place.host().to_owned(), name.to_string());
            let values = Values(Arc::new(move |written: &str| meant(written, &secrets, &host, &field)));
            HeaderSpec { name: name.clone(), written: written.clone(), values }
        });
        HttpSpec { place: place.clone(), headers: headers.collect(), extra_roots: Vec::new() }
    }

    /// How a server is started.
    fn stdio(&self, server: &McpServer, config: &Config) -> StdioSpec {
        let command = find_program(&server.command);
        let mut env: Vec<(String, String)> = Vec::new();
        let folder = command.parent().map(|folder| folder.display().to_string()).unwrap_or_default();
        env.push(("PATH".to_owned(), format!("{folder}:{USUAL_PLACES}")));
        if let Ok(home) = std::env::var("HOME") {
            env.push(("HOME".to_owned(), home));
        }
        env.extend(server.env.iter().cloned());
        let secrets = self.secrets.clone();
        let host = format!("mcp.{}", server.name);
        let values = Values(Arc::new(move |written: &str| meant(written, &secrets, &host, "env")));
        let cwd = server.cwd.clone().unwrap_or_else(|| config.workspace.data_dir());
        StdioSpec { command, args: server.args.clone(), cwd: Some(cwd), env, values }
    }

    fn spec(&self, server: &McpServer, config: &Config) -> ServerSpec {
        ServerSpec {
            name: server.name.clone(),
            transport: match &server.place {
                Some(place) => TransportSpec::Http(self.http(server, place)),
                None => TransportSpec::Stdio(self.stdio(server, config)),
            },
            timeout: server.timeout,
            prefix: server.prefix.clone(),
            allow: server.allow.clone(),
            deny: server.deny.clone(),
            rename: Vec::new(),
            effects: server.effects.clone(),
            decision: match server.decision {
                Verdict::Allow => Unruled::Allow,
                Verdict::Ask => Unruled::Ask,
                Verdict::Deny => Unruled::Deny,
            },
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in self.lock().values() {
            server.upstream.stop();
        }
    }
}

/// Returns where a program is. One that is not found is left as it was written: starting it says why.
fn find_program(command: &str) -> PathBuf {
    if command.contains('/') {
        return PathBuf::from(command);
    }
    let places = std::env::var_os("PATH").unwrap_or_else(|| USUAL_PLACES.into());
    let found = std::env::split_paths(&places).map(|place| place.join(command)).find(|path| is_program(path));
    found.unwrap_or_else(|| PathBuf::from(command))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.is_absolute()
        && std::fs::metadata(path)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Returns what a value stands for: `secret:NAME` a secret that was granted for `field` at `host`, `${NAME}` a variable
/// of the hub's. A secret may follow one word, like `Bearer`.
fn meant(written: &str, secrets: &SecretStore, host: &str, field: &str) -> Result<String, String> {
    let (word, rest) = match written.split_once(' ') {
        Some((word, rest)) if rest.starts_with("secret:") => (Some(word), rest),
        _ => (None, written),
    };
    if let Some(name) = rest.strip_prefix("secret:") {
        let value = secrets.resolve_for(name, host, field).map_err(|error| error.to_string())?;
        return Ok(word.map_or_else(|| value.expose().clone(), |word| format!("{word} {}", value.expose())));
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
