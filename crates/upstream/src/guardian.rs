//! Nothing that the hub started outlives it, however the hub goes.
//!
//! Every server process carries a mark in its environment, and with it all that it starts. When a server is ended, what
//! still carries its mark is ended too: a browser in a session of its own is in no process group of ours. A hub that is
//! killed can end nothing, so a small process beside it, the guardian, waits at a pipe for that: when the hub's end of
//! it closes, the guardian ends everything that carries any mark of that hub's. Over the pipe it hears which groups of
//! processes there are: what cleared its environment carries no mark, and is in its server's group all the same.

use crate::ancestry::is_behind;
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal, test_kill_process_group,
};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, BufRead, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// The variable that carries the mark.
pub(crate) const MARK: &str = "PORTCULLIS_MARK";
/// How many groups of processes are remembered. A hub has a few hundred servers at most.
const GROUPS_MAX: usize = 100_000;
/// How long processes get to end by themselves before they are killed.
const END_WITHIN: Duration = Duration::from_millis(500);
/// How often is looked whether any are left; those that are killed may have started others meanwhile.
const LOOKS_MAX: usize = 40;
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// How often, and how long, a process that is becoming another program is waited for.
const BECOMING_LOOKS_MAX: usize = 20;
const BECOMING_LOOK_EVERY: Duration = Duration::from_millis(1);
/// How much of an environment is read. The kernel's own bound is far above what anybody has.
const ENVIRON_BYTES_MAX: usize = 4 * 1024 * 1024;
/// As much as nearly everybody has. Every process of the machine is looked at, so this is all that is taken at first.
const ENVIRON_BYTES_USUALLY: usize = 16 * 1024;

/// Names one hub, so that its guardian ends nobody else's processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubMark(String);

impl HubMark {
    /// Makes the mark of a process that starts servers. Its first half is the same for all such processes of one home, which is
    /// told by its private folder: a server that a command has started is not the user either.
    pub fn new(folder: &Path) -> io::Result<HubMark> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        Ok(HubMark(home_half(folder) + &hex(&random)))
    }

    /// Reads a mark that was handed over as text.
    pub fn parse(text: &str) -> Option<HubMark> {
        let is_mark = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_mark.then(|| HubMark(text.to_owned()))
    }

    /// Returns the mark of one server process.
    pub fn of_process(&self, number: u64) -> String {
        format!("{}.{number}", self.0)
    }

    /// Returns whether this process carries a mark of the home. It asks itself: a non-dumpable process cannot read its own environment in
    /// `/proc`, unless it is root's.
    pub fn is_ours(folder: &Path) -> bool {
        let own = std::env::var_os(MARK).map(|own| format!("{MARK}={}", own.to_string_lossy()));
        own.is_some_and(|own| of_home(folder).is(own.as_bytes()))
    }

    /// What the environments of all of the hub's processes hold.
    pub(crate) fn any(&self) -> Wanted {
        Wanted { entry: format!("{MARK}={}.", self.0), whole: false }
    }
}

/// What the environments of all servers hold that a process of this home has started, be it the hub or a command.
pub(crate) fn of_home(folder: &Path) -> Wanted {
    Wanted { entry: format!("{MARK}={}", home_half(folder)), whole: false }
}

fn home_half(folder: &Path) -> String {
    use sha2::{Digest, Sha256};
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    hex(&Sha256::digest(folder.as_os_str().as_encoded_bytes())[..8])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An entry of an environment, or how one begins.
pub(crate) struct Wanted {
    entry: String,
    whole: bool,
}

impl Wanted {
    fn is(&self, entry: &[u8]) -> bool {
        let wanted = self.entry.as_bytes();
        if self.whole { entry == wanted } else { entry.starts_with(wanted) }
    }
}

/// The processes of one hub. Whoever runs one holds this, so that the guardian stays until the last of them has ended.
pub struct Processes {
    folder: PathBuf,
    mark: HubMark,
    next: AtomicU64,
    guardian: OnceLock<Option<Guardian>>,
    /// Those that have not ended, by whose they are.
    running: Mutex<HashMap<Whose, TaskTracker>>,
    /// The process groups of the servers that run.
    groups: Mutex<HashSet<i32>>,
}

/// The name of a server, and of the client that it is for, where it is not for all of them. The same before and after the server
/// is configured otherwise.
pub(crate) type Whose = (String, Option<String>);

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

    /// Returns whether a process is a server of this hub or was started by one. One that cannot be looked at counts as such.
    pub fn are_behind(&self, pid: i32) -> bool {
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner).clone();
        is_behind(pid, Some(std::process::id()), &self.folder, &groups)
    }

    /// Makes sure that a guardian stands by: `program arguments… MARK`, which has to call [`stand_by`].
    pub fn guard(&self, program: &Path, arguments: &[&str]) {
        self.guardian.get_or_init(|| {
            Guardian::start(program, arguments, &self.mark)
                .inspect_err(|error| {
                    tracing::warn!(target: "upstream", %error, "Servers may outlive a hub that is killed.");
                })
                .ok()
        });
    }

    /// Returns the mark of the next process.
    pub(crate) fn next_mark(&self) -> String {
        self.mark.of_process(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Counts a process of a server until what is returned is dropped.
    pub(crate) fn counted(&self, whose: Whose) -> TaskTrackerToken {
        let mut running = self.lock();
        // Clients come and go, and what they had is not remembered for ever.
        running.retain(|_, processes| !processes.is_empty());
        let processes = running.entry(whose).or_default();
        // One that is closed can be waited for, and takes more all the same.
        processes.close();
        processes.token()
    }

    /// Waits until a server has no process any more.
    pub(crate) async fn none_left(&self, whose: &Whose) {
        let processes = self.lock().get(whose).cloned();
        if let Some(processes) = processes {
            processes.wait().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Whose, TaskTracker>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn began(&self, group: Pid) {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).insert(group.as_raw_nonzero().get());
        self.tell('+', group);
    }

    /// Nothing is left of this group, and its number may go to another one.
    pub(crate) fn ended(&self, group: Pid) {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).remove(&group.as_raw_nonzero().get());
        self.tell('-', group);
    }

    fn tell(&self, what: char, group: Pid) {
        let pipe = self.guardian.get().and_then(Option::as_ref).and_then(|guardian| guardian.pipe.as_ref());
        if let Some(mut pipe) = pipe {
            // A guardian that is gone was somebody's wish; the marks it would have looked for are there all the same.
            let _ = pipe.write_all(format!("{what}{}\n", group.as_raw_nonzero()).as_bytes());
        }
    }
}

/// The process that stands by. It ends when this is dropped, and everything marked with it.
struct Guardian {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Guardian {
    fn start(program: &Path, arguments: &[&str], mark: &HubMark) -> io::Result<Guardian> {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(program);
        command.arg0("portcullis").args(arguments).arg(&mark.0).env_clear().current_dir("/");
        // In a group of its own: what ends the hub from a terminal must not end it too.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let pipe = child.stdin.take();
        Ok(Guardian { child, pipe })
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // It has to end soon: there is nothing left to end, or it is killed by its own bound.
        let _ = self.child.wait();
    }
}

/// What the guardian does: waits until the hub is gone, then ends what is left of it.
pub fn stand_by(mark: &HubMark) {
    // This ends when the last end of the pipe is closed.
    let groups = groups(io::stdin().lock());
    signal_groups(&groups, Signal::TERM);
    end_all(&mark.any(), true);
    let are_gone = || groups.iter().all(|group| test_kill_process_group(*group).is_err());
    if !are_gone() && !ends_by_itself(are_gone) {
        signal_groups(&groups, Signal::KILL);
    }
}

/// Reads which groups began and ended, and returns those that are left at the end.
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
        // One that is gone is what is wanted.
        let _ = kill_process_group(*group, signal);
    }
}

/// Ends what carries the mark of one server process, and tells how many there were. Blocks for a moment if there are any.
pub(crate) fn end_marked(mark: &str) -> usize {
    end_all(&Wanted { entry: format!("{MARK}={mark}"), whole: true }, false)
}

fn end_all(wanted: &Wanted, gently: bool) -> usize {
    let found = marked(wanted);
    if found.is_empty() {
        return 0;
    }
    let count = found.len();
    if gently {
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

/// Waits for what was told to end, for as long as that may take. Returns whether it has ended.
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

#[expect(clippy::disallowed_methods, reason = "nothing else runs on the thread that ends processes")]
fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// Returns the processes whose environment holds the entry. Those of others cannot be read, and are none of ours.
fn marked(wanted: &Wanted) -> Vec<Pid> {
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    let own = std::process::id();
    all.filter_map(|process| process.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| u32::try_from(*pid).is_ok_and(|pid| pid != own) && carries(*pid, wanted))
        .filter_map(Pid::from_raw)
        .collect()
}

pub(crate) fn carries(pid: i32, wanted: &Wanted) -> bool {
    environ(pid).is_some_and(|environ| environ.split(|byte| *byte == 0).any(|entry| wanted.is(entry)))
}

/// Reads the environment of a process. One that is just becoming another program has none for a moment: taken at its
/// word, a wrapper that goes over to what it wraps would be overlooked, and would stay.
fn environ(pid: i32) -> Option<Vec<u8>> {
    let mut place_before = None;
    for _ in 0..BECOMING_LOOKS_MAX {
        let environ = read_at_once(pid, "environ")?;
        if !environ.is_empty() {
            return Some(environ);
        }
        let (start, end) = environ_place(&read_at_once(pid, "stat")?)?;
        if start < end {
            continue;
        }
        // What has no program either is the kernel's, or has ended.
        fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        // Every program gets its environment at another place: an empty one that stays where it is will stay empty.
        if start != 0 && place_before == Some(start) {
            return None;
        }
        place_before = Some(start);
        sleep(BECOMING_LOOK_EVERY);
    }
    None
}

/// Returns where the environment of a process begins and ends, out of its `stat`. Both are nought until it has one.
fn environ_place(stat: &[u8]) -> Option<(u64, u64)> {
    // The program's name comes second, in brackets, and may hold anything. After it comes the third field.
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = str::from_utf8(stat.get(after_name..)?).ok()?.split_ascii_whitespace().skip(50 - 3);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Reads with one call, so that all of it is of the same program.
pub(crate) fn read_at_once(pid: i32, what: &str) -> Option<Vec<u8>> {
    let mut room = ENVIRON_BYTES_USUALLY;
    loop {
        let mut bytes = vec![0; room];
        let length = fs::File::open(format!("/proc/{pid}/{what}")).ok()?.read(&mut bytes).ok()?;
        if length < room || room == ENVIRON_BYTES_MAX {
            bytes.truncate(length);
            return Some(bytes);
        }
        room = ENVIRON_BYTES_MAX.min(room * 8);
    }
}

/// Signals the process if it still is the one that was found: its number may have gone to another.
fn signal(pid: Pid, wanted: &Wanted, signal: Signal) {
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if carries(pid.as_raw_nonzero().get(), wanted) {
        // One that is gone is what is wanted.
        let _ = pidfd_send_signal(&process, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;

    fn sleeper(mark: Option<&str>) -> Child {
        let mut command = Command::new("sh");
        command.env_clear().env("PATH", "/usr/bin:/bin");
        match mark {
            // With a child of its own that leaves the group, like a browser does.
            Some(mark) => command.args(["-c", "setsid sleep 600 & sleep 600"]).env(MARK, mark),
            None => command.args(["-c", "exec sleep 600"]),
        };
        command.process_group(0).spawn().unwrap()
    }

    #[test]
    fn a_long_environment_is_read_to_its_end() {
        for bytes in [0, ENVIRON_BYTES_USUALLY, 9 * ENVIRON_BYTES_USUALLY] {
            let mut command = Command::new("sleep");
            // One variable may only be so long.
            let long = "x".repeat(bytes / 2);
            command.arg("600").env_clear().env("A", &long).env("B", &long).env("LAST", "end");
            let mut child = command.spawn().unwrap();
            let pid = i32::try_from(child.id()).unwrap();
            // It has none for a moment, until it is the other program.
            let read = (0..1_000).find_map(|_| {
                sleep(BECOMING_LOOK_EVERY);
                read_at_once(pid, "environ").filter(|read| !read.is_empty())
            });
            let read = read.unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(read.ends_with(b"LAST=end\0"), "of {bytes}, {} were read", read.len());
        }
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
        // Until the shells have started what they start.
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

        assert_eq!(end_all(&hub.any(), true), 3);
        assert!(tenth.wait().is_ok());
        assert_eq!(marked(&hub.any()).len(), 0);
        assert_eq!((strange.try_wait().unwrap(), unmarked.try_wait().unwrap()), (None, None));

        end_all(&other.any(), false);
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
        let ended = end_all(&hub.any(), false);
        // Before anything that may fail, so that a failure leaves nothing running.
        restless.kill().unwrap();
        restless.wait().unwrap();
        assert_eq!((seen, ended), (2_000, 1));
    }
}
