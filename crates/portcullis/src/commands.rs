//! One file per command.

pub(crate) mod admin;
pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod clients;
pub(crate) mod doctor;
pub(crate) mod init;
pub(crate) mod link;
pub(crate) mod mcp;
pub(crate) mod mcp_auth;
mod overdue;
pub(crate) mod policy;
pub(crate) mod scripts;
pub(crate) mod secrets;
pub(crate) mod selftest;
pub(crate) mod serve;
pub(crate) mod stdio;
pub(crate) mod tools;

use crate::Interrupted;
use crate::cli::Cli;
use crate::config::{Config, Loaded};
use crate::home::Home;
use crate::print;
use crate::reload::{self, Version};
use crate::voice;
use anyhow::{Context, Result, bail};
use clap::CommandFactory;
use portcullis_core::Secret;
use portcullis_guard::AuditSettings;
use portcullis_server::local;
use portcullis_upstream::{HubMark, is_behind};
use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long threads that wait for input may hold up the end of the process.
const END_WITHIN: Duration = Duration::from_millis(200);
/// How long the servers of this process get to end. Longer than each of them may take.
const SERVERS_END_WITHIN: Duration = Duration::from_secs(6);

pub(crate) fn environment(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

/// A home, its configuration, and which version of the file that was.
struct Opened {
    home: Home,
    loaded: Loaded,
    version: Version,
}

impl Opened {
    /// Reads the configuration again where it was changed since. For whoever holds the home by now: what was changed
    /// before that counts.
    fn current(self) -> Result<Opened> {
        if reload::version(self.home.path()) == self.version {
            Ok(self)
        } else {
            open(Some(self.home.path()))
        }
    }
}

/// Finds or makes the home and reads its configuration.
fn open(home: Option<&Path>) -> Result<Opened> {
    let home = Home::open(Home::locate(home, environment)?)?;
    let version = reload::version(home.path());
    let loaded = Config::load(home.path(), &environment)?;
    refuse_servers(&home, &loaded.config)?;
    voice::works_on(&home, &loaded.config);
    Ok(Opened { home, loaded, version })
}

/// Returns where the audit log of a home is.
pub(crate) fn audit_settings(home: Option<&Path>) -> Result<AuditSettings> {
    let Opened { loaded, .. } = open(home)?;
    Ok(AuditSettings::in_folder(&loaded.config.workspace.secure_dir()))
}

/// Says which process is the hub of its home, so that commands know when one of its servers started them.
fn name_holder(claim: &local::Claim) {
    if let Err(error) = claim.name_holder() {
        tracing::warn!(target: "hub", %error, "Commands that a server starts are not told from the user's.");
    }
}

/// Refuses a command that a server of this home started, one of the hub or of another command: it would act as the user.
fn refuse_servers(home: &Home, config: &Config) -> Result<()> {
    let (secure, Ok(own)) = (config.workspace.secure_dir(), i32::try_from(std::process::id())) else {
        return Ok(());
    };
    // A process id says nothing in another namespace.
    let hub = local::holder(home.path()).filter(local::Holder::is_in_this_namespace).map(|hub| hub.pid);
    if HubMark::is_ours(&secure) || is_behind(own, hub, &secure, &HashSet::new()) {
        bail!("a server behind the hub started this command; a server may not act as its user");
    }
    Ok(())
}

/// Lets a process whose command line is not understood know the secrets of the home that it names, if it can.
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
        voice::works_on(&home, &loaded.config);
    }
}

/// Runs to the end, on a runtime that does not wait for a read of standard input that never returns.
fn block_on<T>(work: impl Future<Output = T>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    let result = runtime.block_on(async {
        let result = work.await;
        end_servers().await;
        result
    });
    runtime.shutdown_timeout(END_WITHIN);
    Ok(result)
}

/// Ends the servers that this process has started. Whoever is told to end twice leaves them to the guardian.
async fn end_servers() {
    let Ok(mut ending) = Ending::new() else { return };
    if TOLD.load(Ordering::Relaxed) > 1 {
        return;
    }
    tokio::select! {
        _ = tokio::time::timeout(SERVERS_END_WITHIN, portcullis_upstream::end_processes()) => {}
        () = ending.told() => {}
    }
}

/// Waits for a person, on a thread of its own, unless the process is told to end first.
///
/// A runtime that is gone leaves its handlers of signals behind: after one, nothing else ends a plain read.
pub(crate) fn unless_told<T: Send + 'static>(wait: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let answer = runtime.block_on(async {
        let mut ending = Ending::new().context("signals cannot be heard")?;
        tokio::select! {
            answer = tokio::task::spawn_blocking(wait) => answer.context("the question failed"),
            () = ending.told() => Err(Interrupted.into()),
        }
    });
    // The thread may wait for ever.
    runtime.shutdown_background();
    answer
}

/// Returns where a client on this machine finds a hub that listens at `address`.
pub(crate) fn url_of(address: SocketAddr) -> String {
    format!("{}/mcp", origin_of(address))
}

/// Returns the link by which a person sets a password. What is after the `#` is not sent to anyone by itself.
pub(crate) fn welcome_link(address: SocketAddr, link: &Secret<String>) -> String {
    format!("{}/admin/welcome#{}", origin_of(address), link.expose())
}

fn origin_of(address: SocketAddr) -> String {
    let mut reachable = address;
    if address.ip().is_unspecified() {
        // Nobody's address; the hub answers to the machine's own there.
        reachable.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    format!("http://{reachable}")
}

/// How often the process was told to end.
static TOLD: AtomicU32 = AtomicU32::new(0);

/// Hears when the process is told to end. Made early: a signal that comes before is not heard.
struct Ending {
    terminate: Signal,
    interrupt: Signal,
}

impl Ending {
    fn new() -> std::io::Result<Ending> {
        Ok(Ending {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Resolves when the process is told to end, each time that it is.
    async fn told(&mut self) {
        self.heard().await;
        TOLD.fetch_add(1, Ordering::Relaxed);
    }

    /// As [`told`](Self::told), for one that only listens in.
    async fn heard(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

pub(crate) fn completions(shell: clap_complete::Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "portcullis", &mut script);
    print::out(String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal, getpid, kill_process};
    use std::sync::mpsc;

    #[test]
    fn a_question_ends_when_the_process_is_told_to() {
        // What a runtime before it left behind is what made a question deaf.
        block_on(async {}).unwrap();
        for signal in [Signal::INT, Signal::TERM] {
            let (never, answer) = mpsc::channel::<()>();
            let asked = unless_told(move || {
                kill_process(getpid(), signal).unwrap();
                answer.recv().is_ok()
            });
            assert!(asked.unwrap_err().is::<Interrupted>());
            drop(never);
        }
        assert!(unless_told(|| true).unwrap());
    }
}
