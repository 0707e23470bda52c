//! Other MCP servers: from what is configured to what runs.

use crate::config::{Config, McpServer, Verdict};
use portcullis_core::{Registry, Unruled};
use portcullis_store::secrets::SecretStore;
use portcullis_upstream::{
    Guardian, HubMark, ServerSpec, Status, StdioSpec, TransportSpec, Upstream, Values,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The hidden command by which the binary stands by itself.
pub(crate) const GUARDIAN_COMMAND: &str = "__guardian";

/// Where programs are on every machine. A server does not get the hub's own list.
const USUAL_PLACES: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The servers that run, by name.
pub(crate) struct Servers {
    registry: Registry,
    secrets: Arc<SecretStore>,
    running: Mutex<BTreeMap<String, Running>>,
    mark: HubMark,
    /// Started with the first server that is a process.
    guardian: OnceLock<Option<Guardian>>,
}

struct Running {
    /// What it was made from, to tell whether it changed.
    config: String,
    upstream: Upstream,
}

impl Servers {
    pub(crate) fn new(registry: Registry, secrets: Arc<SecretStore>) -> std::io::Result<Servers> {
        let (running, guardian) = (Mutex::default(), OnceLock::new());
        Ok(Servers { registry, secrets, running, mark: HubMark::new()?, guardian })
    }

    /// Makes sure that somebody ends the processes of a hub that cannot do it any more.
    fn guard(&self) {
        self.guardian.get_or_init(|| {
            // The program that runs, even where another version has taken its place.
            let program = Path::new("/proc/self/exe");
            Guardian::start(program, &[GUARDIAN_COMMAND], &self.mark)
                .inspect_err(|error| {
                    tracing::warn!(target: "upstream", %error, "Servers may outlive a hub that is killed.");
                })
                .ok()
        });
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
            self.guard();
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

    fn spec(&self, server: &McpServer, config: &Config) -> ServerSpec {
        let command = find_program(&server.command);
        let mut env: Vec<(String, String)> = Vec::new();
        let folder = command.parent().map(|folder| folder.display().to_string()).unwrap_or_default();
        env.push(("PATH".to_owned(), format!("{folder}:{USUAL_PLACES}")));
        if let Ok(home) = std::env::var("HOME") {
            env.push(("HOME".to_owned(), home));
        }
        env.extend(server.env.iter().cloned());
        let secrets = self.secrets.clone();
        let name = server.name.clone();
        let values = Values(Arc::new(move |written: &str| meant(written, &secrets, &name)));
        let cwd = server.cwd.clone().unwrap_or_else(|| config.workspace.data_dir());
        ServerSpec {
            name: server.name.clone(),
            transport: TransportSpec::Stdio(StdioSpec {
                command,
                args: server.args.clone(),
                cwd: Some(cwd),
                env,
                values,
                mark: self.mark.clone(),
            }),
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

/// Returns what a value stands for: `secret:NAME` a secret, `${NAME}` a variable of the hub's.
fn meant(written: &str, secrets: &SecretStore, server: &str) -> Result<String, String> {
    if let Some(name) = written.strip_prefix("secret:") {
        let value = secrets.resolve_for(name, &format!("mcp.{server}"), "env");
        return value.map(|secret| secret.expose().clone()).map_err(|error| error.to_string());
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
