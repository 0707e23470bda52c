//! `portcullis serve`: the hub, over HTTP and a local socket.

use super::{LoadedHome, SERVERS_END_WITHIN, block_on_watched, browser, environment, open};
use crate::BadUsage;
use crate::cli::ServeArgs;
use crate::compose::{self, BoundAddress, compose};
use crate::config::{Config, LoadedConfig, atomic_write};
use crate::home::Home;
use crate::install::{AppPresence, ClientApp, ClientFolders, Platform, shell_word};
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
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

pub(crate) fn run(given_home: Option<&Path>, args: &ServeArgs, json: bool) -> Result<ExitCode> {
    let LoadedHome { home, loaded, version } = open(given_home)?;
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
    let output = StartupOutput { json, open: args.open, named_home: given_home.is_some() };
    block_on_watched(&shutdown, serve(opened, log_level, claim, output, &shutdown))?
}

/// Grace period of connections once the calls are done. Longer than the server's own.
const CLOSE_WITHIN: Duration = Duration::from_secs(8);
async fn serve(
    opened: LoadedHome,
    log_level: logging::LogLevelHandle,
    claim: HubLock,
    output: StartupOutput,
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
        output,
    };
    greeting.print(&config);
    let redirect = if output.open && config.admin.enabled { greeting.open_page() } else { None };
    ending.received().await;
    // Before anything that may take long: a forced exit drops nothing.
    drop(redirect);
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

/// How the start is shown.
#[derive(Debug, Clone, Copy)]
struct StartupOutput {
    json: bool,
    /// Open the admin page.
    open: bool,
    /// Whether `--home` was given, so that other commands need it too.
    named_home: bool,
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
    output: StartupOutput,
}

impl StartupBanner<'_> {
    fn print(&self, config: &Config) {
        if self.output.json {
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
            print::out_showing(format!("\nSet an admin password within one hour: {link}\n"), link);
        }
        print::out(self.applications());
    }

    fn text(&self, config: &Config) -> String {
        let home = self.home.path().display();
        let settings = match self.config_path {
            Some(path) => path.display().to_string(),
            None => format!("defaults; to change them: {} init", self.command()),
        };
        let mut text = format!(
            "Portcullis {} is ready.\n\n  MCP      {}\n  admin    {}\n  data     {home}\n  files    {}\n  config   {settings}\n",
            env!("CARGO_PKG_VERSION"),
            self.url,
            self.admin,
            config.workspace.data_dir().display(),
        );
        if let Some(token) = &self.token {
            let token = token.expose();
            text.push_str(&format!("  token    {token}   (client `{FIRST_CLIENT}`; not shown again)\n"));
        }
        text
    }

    /// Returns one line per application on this machine that does not know the hub yet, with the command that changes that.
    fn applications(&self) -> String {
        let folders = ClientFolders::from_env(Platform::current(), &environment).ok();
        let presence = |app: ClientApp| folders.as_ref().map_or(AppPresence::Absent, |of| app.presence(of));
        let command = self.command();
        let found: Vec<Vec<String>> = ClientApp::ALL
            .into_iter()
            .filter(|app| presence(*app) == AppPresence::Found)
            .map(|app| {
                let name = app.as_str();
                vec![format!("  {}", app.title()), format!("{command} clients add {name} --install {name}")]
            })
            .collect();
        let others = format!("other clients: {command} clients add NAME; {command} clients snippet NAME");
        match found.is_empty() {
            true => format!(
                "\nTo add a client: {command} clients add NAME; what to paste: {command} clients snippet NAME\n"
            ),
            false => {
                format!("\nTo connect an application on this machine:\n{}  {others}\n", print::table(&found))
            }
        }
    }

    /// Returns the beginning of a command for this home.
    fn command(&self) -> String {
        match self.output.named_home {
            true => format!("portcullis --home {}", shell_word(&self.home.path().to_string_lossy())),
            false => "portcullis".to_owned(),
        }
    }

    /// Opens the admin page. That it is not opened is no error. Returns the file that the browser was given, if any.
    fn open_page(&self) -> Option<RedirectFile> {
        let opened = match &self.admin_link {
            None => browser::open(&self.admin, &environment).map(|()| None),
            // Arguments of a process are readable by other users; a private file is not.
            Some(link) => RedirectFile::create(self.home, link)
                .and_then(|file| browser::open(&file_url(&file.0), &environment).map(|()| Some(file))),
        };
        opened.unwrap_or_else(|reason| {
            print::note(format!("The admin page was not opened: {reason}. Open it yourself."));
            None
        })
    }
}

fn file_url(path: &Path) -> String {
    let path = path.to_string_lossy().replace('%', "%25").replace(' ', "%20").replace('#', "%23");
    format!("file://{}", path.replace('?', "%3f"))
}

/// A private page that leads to the one-time link. Deleted when dropped.
struct RedirectFile(PathBuf);

impl RedirectFile {
    fn create(home: &Home, link: &Secret<String>) -> Result<RedirectFile, String> {
        let path = home.path().join("open-admin.html");
        let page = format!(
            "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\"><script>location.replace({})</script>\n",
            serde_json::Value::from(link.expose().as_str()),
        );
        atomic_write::replace(&path, &page, 0o600)
            .map_err(|error| format!("cannot write `{}`: {error}", path.display()))?;
        Ok(RedirectFile(path))
    }
}

impl Drop for RedirectFile {
    fn drop(&mut self) {
        match std::fs::remove_file(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(target: "hub", %error, "cannot delete `{}`", self.0.display());
            }
            Ok(()) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_with_the_link_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path().join("home")).unwrap();
        let file = RedirectFile::create(&home, &Secret::new("http://h/#t".to_owned())).unwrap();
        let path = file.0.clone();
        assert!(std::fs::read_to_string(&path).unwrap().contains(r#"location.replace("http://h/#t")"#));
        drop(file);
        assert!(!path.exists());
    }
}
