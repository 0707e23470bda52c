//! A watchdog for the end of the process: it comes within its grace, even if no worker of the runtime answers any more.

use super::{Ending, SERVERS_END_WITHIN};
use anyhow::{Context, Result};
use std::sync::mpsc;
use std::time::Duration;

/// How long everything may take that has no bound of its own.
const MARGIN: Duration = Duration::from_secs(5);
/// How long the end may take after the process was told to end at once.
const AT_ONCE_WITHIN: Duration = Duration::from_secs(2);
/// How long saying so may take.
const SAID_WITHIN: Duration = Duration::from_secs(1);

/// Ends the process if it has not ended so long after it was told to, servers and all the rest not counted.
pub(super) fn watch(grace: Duration) -> Result<()> {
    let within = grace + SERVERS_END_WITHIN + MARGIN;
    watch_with(within, AT_ONCE_WITHIN, || {
        // Nobody may be reading what is said.
        let (said, is_said) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            tracing::error!(target: "hub", "The process does not end in time, and is ended.");
            drop(said);
        });
        let _ = is_said.recv_timeout(SAID_WITHIN);
        #[expect(clippy::disallowed_methods, reason = "nothing else is left to be ended in order")]
        std::process::exit(1)
    })
}

/// Signals are heard on a thread and a runtime of its own: the workers of another may all be stuck.
fn watch_with(within: Duration, at_once: Duration, end: impl FnOnce() + Send + 'static) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let entered = runtime.enter();
    let mut ending = Ending::new().context("signals cannot be heard")?;
    drop(entered);
    let watch = move || {
        runtime.block_on(async {
            ending.heard().await;
            if tokio::time::timeout(within, ending.heard()).await.is_ok() {
                tokio::time::sleep(at_once).await;
            }
        });
        end();
    };
    std::thread::Builder::new().name("overdue".to_owned()).spawn(watch).context("no thread")?;
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
        // What hears only on a worker of the same runtime hears nothing.
        stuck.spawn(async move {
            let mut ending = Ending::new().unwrap();
            tokio::spawn(async move {
                begun.send(()).unwrap();
                let _ = released.recv();
            });
            ending.heard().await;
            weak.send(()).unwrap();
        });
        let (ended, has_ended) = mpsc::channel();
        watch_with(Duration::ZERO, Duration::ZERO, move || ended.send(()).unwrap()).unwrap();
        is_stuck.recv().unwrap();
        kill_process(getpid(), Signal::TERM).unwrap();
        has_ended.recv().unwrap();
        assert!(weak_heard.try_recv().is_err());
        drop(release);
        weak_heard.recv().unwrap();
    }
}
