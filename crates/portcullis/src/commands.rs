//! Commands of the CLI, one module each, and what they share.

pub(crate) mod admin;
pub(crate) mod approvals;
pub(crate) mod audit;
mod browser;
pub(crate) mod clients;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod hub_client;
pub(crate) mod init;
pub(crate) mod mcp;
pub(crate) mod mcp_auth;
pub(crate) mod policy;
pub(crate) mod scripts;
pub(crate) mod secrets;
pub(crate) mod selftest;
pub(crate) mod serve;
pub(crate) mod stdio;
pub(crate) mod store;
pub(crate) mod tools;

use crate::Interrupted;
use crate::config::{Config, LoadedConfig};
use crate::database;
use crate::home::Home;
pub(crate) use crate::home::environment;
use crate::passphrase;
use crate::print;
use anyhow::{Context, Result, bail};
use clap::CommandFactory;
use portcullis_core::{Secret, run_blocking};
use portcullis_ops::reload::{self, ConfigFileVersion};
use portcullis_ops::{Actor, CommandUser, Operations, ShutdownWatch, origin_of};
use portcullis_server::local;
use portcullis_upstream::{HubMark, is_server_descendant};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// How long blocked reads of stdin may delay the exit.
const END_WITHIN: Duration = Duration::from_millis(200);
/// Shutdown timeout of this process's servers. Longer than that of each one.
const SERVERS_END_WITHIN: Duration = Duration::from_secs(6);

/// A home with its configuration and the version of the file.
struct LoadedHome {
    home: Home,
    loaded: LoadedConfig,
    version: ConfigFileVersion,
}

impl LoadedHome {
    /// Reloads the configuration if it changed. Called once the home is locked: earlier changes must count.
    fn current(self) -> Result<LoadedHome> {
        if reload::version(self.home.path()) == self.version {
            Ok(self)
        } else {
            open(Some(self.home.path()))
        }
    }
}

/// Finds or creates the home and loads its configuration.
fn open(home: Option<&Path>) -> Result<LoadedHome> {
    let home = Home::open(Home::locate(home, environment)?)?;
    let version = reload::version(home.path());
    let loaded = Config::load(home.path(), &environment)?;
    refuse_servers(&home, &loaded.config)?;
    print::redaction().set_home(&home, &loaded.config);
    Ok(LoadedHome { home, loaded, version })
}

/// The user of this command.
const USER: CommandUser =
    CommandUser { warn: |warning| print::note(warning), passphrase: passphrase::passphrase };

/// Opens a home for the operations of a command.
fn open_operations(home: Option<&Path>) -> Result<Operations> {
    let LoadedHome { home, loaded, .. } = open(home)?;
    let database = database::open(&home, &loaded.config)?;
    Ok(Operations::in_command(home, loaded.config, database, USER))
}

/// As [`open_operations`], for a command that only looks: it makes nothing in the home.
fn open_operations_for_reading(home: Home, config: Config) -> Result<Operations> {
    let database = database::open_or_in_memory(&home, &config)?;
    Ok(Operations::in_command(home, config, database, USER))
}

/// The user who runs this command.
pub(crate) fn this_user() -> Actor {
    Actor::LocalUser { uid: rustix::process::getuid().as_raw() }
}

/// Records the hub's process, so that commands detect when an upstream server started them.
fn name_holder(claim: &local::HubLock) {
    if let Err(error) = claim.name_holder() {
        tracing::warn!(target: "hub", %error, "cannot detect commands started by upstream servers");
    }
}

/// Refuses a command started by an upstream server: it would act as the user (confused deputy).
fn refuse_servers(home: &Home, config: &Config) -> Result<()> {
    let (secure, Ok(own)) = (config.workspace.secure_dir(), i32::try_from(std::process::id())) else {
        return Ok(());
    };
    // A PID is meaningless in another namespace.
    let hub =
        local::holder(home.path()).filter(local::HubLockHolder::is_in_this_namespace).map(|hub| hub.pid);
    if HubMark::is_ours(&secure) || is_server_descendant(own, hub, &secure, &HashSet::new()) {
        bail!("this command was started by an upstream server, which may not act as the user");
    }
    Ok(())
}

/// Loads the secrets of the home before a usage error is printed, so that the error is redacted.
pub(crate) fn look_for_home() {
    let mut words = std::env::args_os();
    let named = words.find_map(|word| match word.to_str()?.strip_prefix("--home") {
        Some("") => Some(None),
        Some(path) => path.strip_prefix('=').map(|path| Some(path.into())),
        None => None,
    });
    let named = named.and_then(|path| path.or_else(|| words.next()));
    let home = Home::locate(named.as_deref().map(Path::new), environment).ok().filter(|path| path.is_dir());
    let Some(Ok(home)) = home.map(Home::open) else { return };
    if let Ok(loaded) = Config::load(home.path(), &environment) {
        print::redaction().set_home(&home, &loaded.config);
    }
}

/// Runs a future on a runtime that does not wait for a blocked read of stdin.
fn block_on<T>(work: impl Future<Output = T>) -> Result<T> {
    block_on_watched(&ShutdownWatch::default(), work)
}

/// As [`block_on`], for a future that starts upstream servers or listens for shutdown signals.
fn block_on_watched<T>(shutdown: &ShutdownWatch, work: impl Future<Output = T>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    let result = runtime.block_on(async {
        let result = work.await;
        end_servers(shutdown).await;
        result
    });
    runtime.shutdown_timeout(END_WITHIN);
    Ok(result)
}

/// Stops this process's servers. A second signal leaves them to the guardian.
async fn end_servers(shutdown: &ShutdownWatch) {
    let Ok(mut ending) = shutdown.signals() else { return };
    if shutdown.is_insisted() {
        return;
    }
    tokio::select! {
        _ = tokio::time::timeout(SERVERS_END_WITHIN, shutdown.servers().run()) => {}
        () = ending.received() => {}
        () = shutdown.insisted() => {}
    }
}

/// Waits for input on a thread of its own, unless a shutdown signal comes first.
///
/// A dropped runtime leaves its signal handlers installed, so a plain read could not be interrupted.
pub(crate) fn unless_interrupted<T: Send + 'static>(wait: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let answer = runtime.block_on(async {
        let mut ending = ShutdownWatch::default().signals().context("cannot install signal handlers")?;
        tokio::select! {
            answer = run_blocking(wait) => answer.context("the prompt failed"),
            () = ending.received() => Err(Interrupted.into()),
        }
    });
    // The thread may block forever.
    runtime.shutdown_background();
    answer
}

/// Returns the one-time link to set a password. Browsers do not send the fragment.
pub(crate) fn welcome_link(address: SocketAddr, link: &Secret<String>) -> String {
    format!("{}/admin/welcome#{}", origin_of(address), link.expose())
}

/// Writes one page for the program and one for each command. Their version is that of the package: a page with a commit would
/// change with every build.
pub(crate) fn manual_pages(folder: &Path) -> Result<ExitCode> {
    let command = crate::cli::Cli::command().version(env!("CARGO_PKG_VERSION"));
    clap_mangen::generate_to(command, folder)
        .with_context(|| format!("cannot write manual pages into `{}`", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal, getpid, kill_process};
    use std::sync::mpsc;

    #[test]
    fn a_question_ends_when_the_process_is_told_to() {
        // Signal handlers of an earlier runtime used to block the prompt.
        block_on(async {}).unwrap();
        for signal in [Signal::INT, Signal::TERM] {
            let (never, answer) = mpsc::channel::<()>();
            let asked = unless_interrupted(move || {
                kill_process(getpid(), signal).unwrap();
                answer.recv().is_ok()
            });
            assert!(asked.unwrap_err().is::<Interrupted>());
            drop(never);
        }
        assert!(unless_interrupted(|| true).unwrap());
    }
}
