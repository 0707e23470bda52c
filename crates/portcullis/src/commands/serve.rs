//! `portcullis serve`: the hub, over HTTP and a local socket.

use super::{LoadedHome, SERVERS_END_WITHIN, block_on_watched, open};
use crate::BadUsage;
use crate::compose::{self, BoundAddress, compose};
use crate::config::{Config, LoadedConfig};
use crate::home::Home;
use crate::install::{ClientApp, Endpoint, Transport};
use crate::services::{self, ServingHub};
use crate::{admin, logging, print};
use anyhow::{Context, Result, anyhow};
use portcullis_core::Secret;
use portcullis_ops::ShutdownWatch;
use portcullis_ops::clients::{FIRST_CLIENT, first_client};
use portcullis_ops::hub_limits::raise_open_files;
use portcullis_server::local::{self, HubLock};
use portcullis_server::{AcceptLoop, http};
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

pub(crate) fn run(home: Option<&Path>, json: bool) -> Result<ExitCode> {
    let LoadedHome { home, loaded, version } = open(home)?;
    let log_level = logging::start(loaded.config.logging, print::redaction());
    for warning in &loaded.warnings {
        tracing::warn!(target: "config", "{warning}");
    }
    let Some(claim) = local::claim(home.path()).context("the lock of the home folder")? else {
        let path = home.path().display();
        let reason = format!(
            "a hub is already running with home `{path}`; stop it, or choose another home with `--home DIR`"
        );
        return Err(anyhow!(reason));
    };
    let opened = LoadedHome { home, loaded, version }.current()?;
    raise_open_files(opened.loaded.config.limits.connections_max);
    let shutdown = ShutdownWatch::default();
    block_on_watched(&shutdown, serve(opened, log_level, claim, json, &shutdown))?
}

/// Grace period of connections once the calls are done. Longer than the server's own.
const CLOSE_WITHIN: Duration = Duration::from_secs(8);
async fn serve(
    opened: LoadedHome,
    log_level: logging::LogLevelHandle,
    claim: HubLock,
    json: bool,
    shutdown: &ShutdownWatch,
) -> Result<ExitCode> {
    let LoadedHome { home, loaded: LoadedConfig { config, path, .. }, version } = opened;
    let mut ending = shutdown.signals()?;
    let listener = listen(&config).await?;
    let address = listener.local_addr()?;
    let composed = Arc::new(compose(&home, &config, shutdown.servers())?);
    super::name_holder(&claim);
    let socket = claim.listen().context("the local socket")?;
    let token = first_client(&composed.identity)?;
    let allowed = Arc::new(Arc::new(compose::allowed(address, &config)).into());
    let bound = BoundAddress { address, allowed };

    let people = admin::open(&home, &config, &composed, address)?;
    let beside = people.beside;
    let allowed = bound.allowed.clone();
    // Before the first request is answered: readiness names every service from the start.
    let (http_loop, socket_loop) =
        (AcceptLoop::new("http", &composed.hub), AcceptLoop::new("socket", &composed.hub));
    let process = ServingHub {
        home: &home,
        config: &config,
        version: &version,
        log_level,
        bound: Some(bound),
        accept_loops: vec![http_loop.clone(), socket_loop.clone()],
        script_states: people.script_states,
    };
    composed.hub.start_services(services::of_a_hub(&composed, process))?;
    let serving_http = http_loop.spawn(http::serve(composed.hub.clone(), listener, allowed, beside));
    let is_behind = composed.servers.makers.descendant_check();
    let serving_socket = socket_loop.spawn(local::serve(composed.hub.clone(), socket, is_behind));
    let grace = config.limits.shutdown_grace;
    shutdown.exit_within(grace + CLOSE_WITHIN + SERVERS_END_WITHIN)?;
    let greeting = StartupBanner {
        home: &home,
        config_path: path.as_deref(),
        url: portcullis_ops::url_of(address),
        token,
        admin: people.page,
        admin_link: people.link,
    };
    greeting.print(&config, json);
    ending.received().await;
    tracing::info!(target: "hub", "shutting down after in-flight calls; signal again to exit at once");
    let ended = async {
        let all_done = composed.hub.shut_down(grace).await;
        // A client that does not read must not block the shutdown.
        let served = async { tokio::join!(serving_http, serving_socket) };
        let _ = tokio::time::timeout(CLOSE_WITHIN, served).await;
        composed.servers.stop();
        all_done
    };
    tokio::select! {
        all_done = ended => {
            if !all_done {
                tracing::warn!(target: "hub", grace_secs = grace.as_secs(), "shutdown timeout: some calls did not finish");
            }
        }
        () = ending.received() => tracing::warn!(target: "hub", "forced exit"),
    }
    drop(claim);
    Ok(ExitCode::SUCCESS)
}

async fn listen(config: &Config) -> Result<TcpListener> {
    let address = config.http.listen;
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => anyhow!(
            "{address} is in use by another program; choose a port with MCP_HTTP_PORT or `http.listen`"
        ),
        _ => BadUsage(format!("cannot listen on {address}: {error}; see `http.listen`")).into(),
    })
}

struct StartupBanner<'a> {
    home: &'a Home,
    config_path: Option<&'a Path>,
    url: String,
    token: Option<Secret<String>>,
    /// URL of the admin page, or why it is not served.
    admin: String,
    /// One-time link for the first password.
    admin_link: Option<Secret<String>>,
}

impl StartupBanner<'_> {
    fn print(&self, config: &Config, json: bool) {
        if json {
            let greeting = serde_json::json!({
                "url": self.url,
                "home": self.home.path(),
                "config": self.config_path,
            });
            let shown =
                |secret: &'_ Option<Secret<String>>| secret.as_ref().map(|secret| secret.expose().clone());
            let (token, link) = (shown(&self.token), shown(&self.admin_link));
            print::json_showing(&greeting, &[("token", token.as_deref()), ("admin_link", link.as_deref())]);
            return;
        }
        let token = self.token.as_ref().map_or("", |token| token.expose());
        print::out_showing(self.text(config), token);
        if let Some(link) = &self.admin_link {
            let link = link.expose();
            let text = format!("\nAdmin page: set a password within one hour at:\n\n  {link}\n");
            print::out_showing(text, link);
        }
    }

    fn text(&self, config: &Config) -> String {
        let home = self.home.path().display();
        let settings = match self.config_path {
            Some(path) => path.display().to_string(),
            None => "defaults; to change them, run `portcullis init`".to_owned(),
        };
        let mut text = format!(
            "Portcullis {} is ready.\n\n  MCP      {}\n  admin    {}\n  data     {home}\n  files    {}\n  config   {settings}\n",
            env!("CARGO_PKG_VERSION"),
            self.url,
            self.admin,
            config.workspace.data_dir().display(),
        );
        let Some(token) = &self.token else {
            text.push_str("\nTo add a client: portcullis clients add NAME [--install cursor]\n");
            return text;
        };
        text.push_str(&format!(
            "  token    {}   (client `{FIRST_CLIENT}`; not shown again)\n",
            token.expose()
        ));
        let endpoint = Endpoint::of_this_program(self.home.path(), &self.url, FIRST_CLIENT, token);
        text.push_str("\nTry it:\n\n");
        text.push_str(&format!(
            "  curl -s {} -H 'Authorization: Bearer {}' \\\n    -H 'Content-Type: application/json' -d '{}'\n",
            self.url,
            token.expose(),
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
        ));
        for (transport, heading) in [
            (Transport::Stdio, "On stdio, as the same client"),
            (Transport::Http, "Over HTTP, with the token"),
        ] {
            text.push_str(&format!("\n== {heading} ==\n"));
            for app in ClientApp::ALL {
                let name = app.title();
                text.push_str(&match app.note(transport) {
                    Some(note) => format!("\n# {name}: {note}\n"),
                    None => format!("\n# {name}\n{}", app.snippet(transport, &endpoint)),
                });
            }
        }
        text.push_str("\nTo configure an application: portcullis clients add NAME --install cursor\n");
        text
    }
}
