//! Guardian: no process that the hub started outlives it, even if the hub is killed.
//!
//! Every server process carries a mark in its environment, and so does everything that it starts. When a server
//! stops, the hub ends what still carries its mark: a browser in its own session is in no process group of the
//! server. A killed hub can end nothing, so a small process, the guardian, waits on a pipe. When the hub's end
//! closes, the guardian ends everything with a mark of that hub. The hub sends it the process groups too: a process
//! that cleared its environment has no mark, but is still in its server's group.

use crate::transport::ancestry::is_server_descendant;
use crate::transport::environ_mark::{EnvironMarker, HubMark, carries, sleep};
use crate::transport::server_transport::ServerInstanceId;
use parking_lot::Mutex;
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal, test_kill_process_group,
};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// How many process groups the guardian remembers. A hub has a few hundred servers at most.
const GROUPS_MAX: usize = 100_000;
/// The grace period before processes are killed.
const END_WITHIN: Duration = Duration::from_millis(500);
/// How often the guardian checks for survivors; a killed process may have started others meanwhile.
const LOOKS_MAX: usize = 40;
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// The server processes of one hub. Each process holds this, so that the guardian stays until the last of them has
/// ended.
pub struct Processes {
    folder: PathBuf,
    mark: HubMark,
    next: AtomicU64,
    guardian: OnceLock<Option<Guardian>>,
    /// Those that have not ended, by server instance.
    running: Mutex<HashMap<ServerInstanceId, TaskTracker>>,
    /// The process groups of running servers.
    groups: Mutex<HashSet<i32>>,
}

impl std::fmt::Debug for Processes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Processes")
    }
}

impl Processes {
    /// `folder` is the private folder of the home.
    pub fn new(folder: &Path) -> io::Result<Processes> {
        let (next, guardian, running) = (AtomicU64::new(1), OnceLock::new(), Mutex::default());
        let (folder, mark) = (folder.to_owned(), HubMark::new(folder)?);
        Ok(Processes { folder, mark, next, guardian, running, groups: Mutex::default() })
    }

    /// Returns whether a process is a server of this hub or was started by one. A process that cannot be read counts
    /// as such.
    pub fn is_server_descendant(&self, pid: i32) -> bool {
        let groups = self.groups.lock().clone();
        is_server_descendant(pid, Some(std::process::id()), &self.folder, &groups)
    }

    /// Starts a guardian, unless there is one: `program arguments… MARK`, which has to call [`run_guardian`].
    pub fn guard(&self, program: &Path, arguments: &[&str]) {
        self.guardian.get_or_init(|| {
            Guardian::start(program, arguments, &self.mark)
                .inspect_err(|error| {
                    tracing::warn!(target: "upstream", %error, "guardian not started; servers may outlive a killed hub");
                })
                .ok()
        });
    }

    pub(crate) fn next_mark(&self) -> String {
        self.mark.of_process(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Counts a process of a server until the token is dropped.
    pub(crate) fn counted(&self, instance: ServerInstanceId) -> TaskTrackerToken {
        let mut running = self.running.lock();
        // Clients come and go; their entries must not pile up.
        running.retain(|_, processes| !processes.is_empty());
        let processes = running.entry(instance).or_default();
        // A closed tracker can be waited for, and still takes more.
        processes.close();
        processes.token()
    }

    /// Waits until a server has no process.
    pub(crate) async fn none_left(&self, instance: &ServerInstanceId) {
        let processes = self.running.lock().get(instance).cloned();
        if let Some(processes) = processes {
            processes.wait().await;
        }
    }

    pub(crate) fn began(&self, group: Pid) {
        self.groups.lock().insert(group.as_raw_nonzero().get());
        self.tell('+', group);
    }

    /// Takes note that a group is gone. The kernel may give its number to another one.
    pub(crate) fn ended(&self, group: Pid) {
        self.groups.lock().remove(&group.as_raw_nonzero().get());
        self.tell('-', group);
    }

    fn tell(&self, what: char, group: Pid) {
        let pipe = self.guardian.get().and_then(Option::as_ref).and_then(|guardian| guardian.pipe.as_ref());
        if let Some(mut pipe) = pipe {
            // A guardian that is gone was ended on purpose; the marks still work.
            let _ = pipe.write_all(format!("{what}{}\n", group.as_raw_nonzero()).as_bytes());
        }
    }
}

/// The guardian process. Dropping this ends it, and everything marked with it.
struct Guardian {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Guardian {
    fn start(program: &Path, arguments: &[&str], mark: &HubMark) -> io::Result<Guardian> {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(program);
        command.arg0("portcullis").args(arguments).arg(mark.as_str()).env_clear().current_dir("/");
        // In its own group: Ctrl-C in the hub's terminal must not end it too.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let pipe = child.stdin.take();
        Ok(Guardian { child, pipe })
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // It ends soon: nothing is left to end, or its own bound stops it.
        let _ = self.child.wait();
    }
}

/// Runs the guardian: waits until the hub is gone, then ends what is left of it.
pub fn run_guardian(mark: &HubMark) {
    // Returns when the last writer has closed the pipe.
    let groups = groups(io::stdin().lock());
    signal_groups(&groups, Signal::TERM);
    end_all(&mark.any(), KillTime::AfterGrace);
    let are_gone = || groups.iter().all(|group| test_kill_process_group(*group).is_err());
    if !are_gone() && !ends_by_itself(are_gone) {
        signal_groups(&groups, Signal::KILL);
    }
}

/// Reads which groups began and ended, and returns those that are left.
fn groups(said: impl BufRead) -> HashSet<Pid> {
    let mut groups = HashSet::new();
    for line in said.lines() {
        let Ok(line) = line else { break };
        let (what, number) = line.split_at_checked(1).unwrap_or_default();
        let Some(group) = number.parse().ok().and_then(Pid::from_raw) else { continue };
        match what {
            "+" if groups.len() < GROUPS_MAX => drop(groups.insert(group)),
            "-" => drop(groups.remove(&group)),
            _ => {}
        }
    }
    groups
}

fn signal_groups(groups: &HashSet<Pid>, signal: Signal) {
    for group in groups {
        // A group that is gone is fine.
        let _ = kill_process_group(*group, signal);
    }
}

/// Ends everything with the mark of one server process, and returns how many there were. Blocks for a moment if
/// there are any.
pub(crate) fn end_marked(mark: &str) -> usize {
    end_all(&EnvironMarker::of_mark(mark), KillTime::AtOnce)
}

/// When processes are killed that have not ended by themselves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KillTime {
    AtOnce,
    /// After SIGTERM and the grace period.
    AfterGrace,
}

fn end_all(wanted: &EnvironMarker, kill: KillTime) -> usize {
    let found = marked(wanted);
    if found.is_empty() {
        return 0;
    }
    let count = found.len();
    if kill == KillTime::AfterGrace {
        found.iter().for_each(|pid| signal(*pid, wanted, Signal::TERM));
        if ends_by_itself(|| marked(wanted).is_empty()) {
            return count;
        }
    }
    for _ in 0..LOOKS_MAX {
        let left = marked(wanted);
        if left.is_empty() {
            break;
        }
        left.iter().for_each(|pid| signal(*pid, wanted, Signal::KILL));
        pause();
    }
    count
}

/// Waits out the grace period. Returns whether everything has ended.
fn ends_by_itself(has_ended: impl Fn() -> bool) -> bool {
    let looks = END_WITHIN.as_millis() / LOOK_EVERY.as_millis();
    (0..looks).any(|_| {
        pause();
        has_ended()
    })
}

fn pause() {
    sleep(LOOK_EVERY);
}

/// Returns the processes with the entry in their environment. Those of other users cannot be read, and are not the
/// hub's.
fn marked(wanted: &EnvironMarker) -> Vec<Pid> {
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    let own = std::process::id();
    all.filter_map(|process| process.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| u32::try_from(*pid).is_ok_and(|pid| pid != own) && carries(*pid, wanted))
        .filter_map(Pid::from_raw)
        .collect()
}

/// Signals a process if it is still the one that was found: its pid may have been reused.
fn signal(pid: Pid, wanted: &EnvironMarker, signal: Signal) {
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if carries(pid.as_raw_nonzero().get(), wanted) {
        // A process that is gone is fine.
        let _ = pidfd_send_signal(&process, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::environ_mark::MARK;
    use std::os::unix::process::CommandExt;

    fn sleeper(mark: Option<&str>) -> Child {
        let mut command = Command::new("sh");
        command.env_clear().env("PATH", "/usr/bin:/bin");
        match mark {
            // With a child that leaves the group, as a browser does.
            Some(mark) => command.args(["-c", "setsid sleep 600 & sleep 600"]).env(MARK, mark),
            None => command.args(["-c", "exec sleep 600"]),
        };
        command.process_group(0).spawn().unwrap()
    }

    #[test]
    fn groups_that_ended_are_forgotten() {
        let said = "+12\n+13\nwhat\n\n+0\n-12\n+x\n-99\n+14";
        let mut left: Vec<i32> =
            groups(said.as_bytes()).iter().map(|group| group.as_raw_nonzero().get()).collect();
        left.sort_unstable();
        assert_eq!(left, [13, 14]);
    }

    #[test]
    fn what_carries_the_mark_is_ended_and_nothing_else() {
        let (hub, other) =
            (HubMark::new(Path::new("/one")).unwrap(), HubMark::new(Path::new("/two")).unwrap());
        let mut first = sleeper(Some(&hub.of_process(1)));
        let mut tenth = sleeper(Some(&hub.of_process(10)));
        let mut strange = sleeper(Some(&other.of_process(1)));
        let mut unmarked = sleeper(None);
        // Until the shells have started their children.
        for _ in 0..200 {
            if marked(&hub.any()).len() == 6 && marked(&other.any()).len() == 3 {
                break;
            }
            pause();
        }
        assert_eq!(marked(&hub.any()).len(), 6);

        assert_eq!(end_marked(&hub.of_process(1)), 3);
        assert!(first.wait().is_ok());
        assert_eq!((marked(&hub.any()).len(), tenth.try_wait().unwrap()), (3, None));

        assert_eq!(end_all(&hub.any(), KillTime::AfterGrace), 3);
        assert!(tenth.wait().is_ok());
        assert_eq!(marked(&hub.any()).len(), 0);
        assert_eq!((strange.try_wait().unwrap(), unmarked.try_wait().unwrap()), (None, None));

        end_all(&other.any(), KillTime::AtOnce);
        assert!(strange.wait().is_ok());
        unmarked.kill().unwrap();
        unmarked.wait().unwrap();
    }

    #[test]
    fn one_that_keeps_becoming_another_program_is_seen_at_every_look_and_ended() {
        let hub = HubMark::new(Path::new("/one")).unwrap();
        let mut command = Command::new("sh");
        command.env_clear().env("PATH", "/usr/bin:/bin").env(MARK, hub.of_process(1));
        command.args(["-c", "eval \"$AGAIN\""]).env("AGAIN", "exec sh -c 'eval \"$AGAIN\"'");
        let mut restless = command.process_group(0).spawn().unwrap();

        let seen = (0..2_000).filter(|_| carries(restless.id().try_into().unwrap(), &hub.any())).count();
        let ended = end_all(&hub.any(), KillTime::AtOnce);
        // Before anything that may fail, so that a failure leaves nothing running.
        restless.kill().unwrap();
        restless.wait().unwrap();
        assert_eq!((seen, ended), (2_000, 1));
    }
}
