//! Shutdown watchdog: the process exits within its grace period, even if all runtime workers are stuck.

use crate::shutdown::ShutdownWatch;
use anyhow::{Context, Result};
use std::sync::mpsc;
use std::time::Duration;

/// Extra time for steps without a timeout of their own.
const MARGIN: Duration = Duration::from_secs(5);
/// Time to exit after a second signal.
const AT_ONCE_WITHIN: Duration = Duration::from_secs(2);
/// Time to log the forced exit.
const SAID_WITHIN: Duration = Duration::from_secs(1);

/// Exits the process if the shutdown takes longer than this, and a margin.
pub(crate) fn watch(signals: ShutdownWatch, within: Duration) -> Result<()> {
    watch_with(signals, within + MARGIN, AT_ONCE_WITHIN, || {
        // stderr may be blocked.
        let (said, is_said) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            tracing::error!(target: "hub", "shutdown timeout: forced exit");
            drop(said);
        });
        let _ = is_said.recv_timeout(SAID_WITHIN);
        #[expect(clippy::disallowed_methods, reason = "an orderly exit is no longer possible")]
        std::process::exit(1)
    })
}

/// Uses its own thread and runtime: the workers of the main one may be stuck.
fn watch_with(
    signals: ShutdownWatch,
    within: Duration,
    at_once: Duration,
    end: impl FnOnce() + Send + 'static,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let entered = runtime.enter();
    let mut ending = signals.signals().context("cannot install signal handlers")?;
    drop(entered);
    let watch = move || {
        runtime.block_on(async {
            ending.heard().await;
            if tokio::time::timeout(within, ending.heard()).await.is_ok() {
                signals.count(2);
                tokio::time::sleep(at_once).await;
            }
        });
        end();
    };
    std::thread::Builder::new().name("shutdown-watchdog".to_owned()).spawn(watch).context("no thread")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal, getpid, kill_process};

    #[test]
    fn a_process_whose_workers_are_stuck_ends_all_the_same() {
        let stuck =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (begun, is_stuck) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let (weak, weak_heard) = mpsc::channel();
        // A listener on the same runtime would receive nothing.
        stuck.spawn(async move {
            let mut ending = ShutdownWatch::default().signals().unwrap();
            tokio::spawn(async move {
                begun.send(()).unwrap();
                let _ = released.recv();
            });
            ending.heard().await;
            weak.send(()).unwrap();
        });
        let (ended, has_ended) = mpsc::channel();
        watch_with(ShutdownWatch::default(), Duration::ZERO, Duration::ZERO, move || ended.send(()).unwrap())
            .unwrap();
        is_stuck.recv().unwrap();
        kill_process(getpid(), Signal::TERM).unwrap();
        has_ended.recv().unwrap();
        assert!(weak_heard.try_recv().is_err());
        drop(release);
        weak_heard.recv().unwrap();
    }
}
