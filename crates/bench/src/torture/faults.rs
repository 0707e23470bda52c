//! The Nth write, flush, rename or open fails: nothing is acknowledged that is not durable, nothing is torn, and
//! afterwards all goes on.
//!
//! The real program runs under strace, which makes the call fail without making it, and writes down everything else
//! for [`durable`](super::durable) to judge. strace counts for each thread apart, so one run may see several failures.

mod approved_calls;
mod commands;
mod workload;

use super::durable::{self, DiskLayout};
use super::random::SplitMix64;
use super::session::{CallReply, StdioSession, TortureHome};
use super::trace;
use anyhow::{Context, Result};
use approved_calls::ApprovedCalls;
use parking_lot::Mutex;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use workload::{CALLS, FaultWorkload};

/// The failures go from the first call to this one.
pub const NTH_MAX: u32 = 100;
/// How often a write is tried once the work is done. Each thread may still have its failure ahead.
const RECOVERY_TRIES_MAX: u64 = 40;
/// How much is told of what one run promised too early.
const TOLD_MAX: usize = 3;
/// Runs at a time: as many as there are cores on a small machine.
const AT_ONCE: usize = 2;

/// What is followed. Nothing else stops the program, so it is nearly as fast as without strace.
const FOLLOWED: &str = "trace=write,pwrite64,ftruncate,fsync,fdatasync,open,openat,openat2,mkdir,mkdirat,rename,renameat,\
    renameat2,link,linkat,unlink,unlinkat,rmdir";

/// Which calls fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultTarget {
    /// Writes to the audit log, its key and its anchors. By their paths: a write that only wakes a thread never fails.
    LogWrite,
    /// Writes of what agents write.
    FileWrite,
    Flush,
    Rename,
    Open,
}

impl FaultTarget {
    pub const ALL: [FaultTarget; 5] = [
        FaultTarget::LogWrite,
        FaultTarget::FileWrite,
        FaultTarget::Flush,
        FaultTarget::Rename,
        FaultTarget::Open,
    ];

    fn calls(self) -> &'static [&'static str] {
        match self {
            FaultTarget::LogWrite => &["write"],
            FaultTarget::FileWrite => &["pwrite64"],
            FaultTarget::Flush => &["fsync", "fdatasync"],
            FaultTarget::Rename => &["rename", "renameat", "renameat2", "link", "linkat"],
            FaultTarget::Open => &["open", "openat", "openat2"],
        }
    }
}

/// How they fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultErrno {
    NoSpace,
    Io,
}

impl FaultErrno {
    pub const ALL: [FaultErrno; 2] = [FaultErrno::NoSpace, FaultErrno::Io];

    fn as_str(self) -> &'static str {
        match self {
            FaultErrno::NoSpace => "ENOSPC",
            FaultErrno::Io => "EIO",
        }
    }
}

/// Whether those after the Nth fail too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultDuration {
    Once,
    /// To the end of the process.
    On,
}

/// One failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InjectedFault {
    pub kind: FaultTarget,
    pub errno: FaultErrno,
    pub nth: u32,
    pub lasts: FaultDuration,
}

impl InjectedFault {
    /// Returns all that fail once.
    pub fn all() -> Vec<InjectedFault> {
        let mut all = Vec::new();
        for nth in 1..=NTH_MAX {
            for kind in FaultTarget::ALL {
                all.extend(FaultErrno::ALL.map(|errno| InjectedFault {
                    kind,
                    errno,
                    nth,
                    lasts: FaultDuration::Once,
                }));
            }
        }
        all
    }

    /// Returns some that do not end by themselves.
    pub fn lasting() -> Vec<InjectedFault> {
        let some = [1, 2, 3, 5, 8, 13, 21, 34, 55, 89];
        let on = |nth| {
            FaultTarget::ALL.map(|kind| InjectedFault {
                kind,
                errno: FaultErrno::NoSpace,
                nth,
                lasts: FaultDuration::On,
            })
        };
        some.into_iter().flat_map(on).collect()
    }

    /// Returns a choice of both.
    pub fn some(count: usize, random: &mut SplitMix64) -> Vec<InjectedFault> {
        let mut left = [InjectedFault::all(), InjectedFault::lasting()].concat();
        (0..count.min(left.len())).map(|_| left.swap_remove(random.below(left.len()))).collect()
    }

    /// Returns the strace command that makes it happen.
    fn strace(&self, log: &Path, only: &[PathBuf]) -> Vec<String> {
        let mut words: Vec<String> =
            ["strace", "-f", "--seccomp-bpf", "-qq", "-y", "-s", "64", "-o"].map(str::to_owned).to_vec();
        words.push(log.display().to_string());
        words.extend(["-e", FOLLOWED].map(str::to_owned));
        for path in only {
            words.extend(["-P".to_owned(), path.display().to_string()]);
        }
        let plus = if self.lasts == FaultDuration::On { "+" } else { "" };
        for call in self.kind.calls() {
            let inject = format!("inject={call}:error={}:when={}{plus}", self.errno.as_str(), self.nth);
            words.extend(["-e".to_owned(), inject]);
        }
        words
    }
}

/// What was seen in many runs.
#[derive(Debug, Default, Clone)]
pub struct FaultFigures {
    pub runs: u64,
    /// Runs in which something was made to fail.
    pub hit: u64,
    pub faults: u64,
    pub acknowledged: u64,
    pub refused: u64,
    /// Approvals that a call has consumed.
    pub approved: u64,
    /// The program said why and did not start.
    pub not_started: u64,
    pub commands: u64,
    pub problems: Vec<String>,
}

impl FaultFigures {
    fn add(&mut self, other: FaultFigures) {
        self.runs += other.runs;
        self.hit += other.hit;
        self.faults += other.faults;
        self.acknowledged += other.acknowledged;
        self.refused += other.refused;
        self.approved += other.approved;
        self.not_started += other.not_started;
        self.commands += other.commands;
        self.problems.extend(other.problems);
    }
}

/// Returns why this cannot run here, if it cannot.
pub fn missing() -> Option<String> {
    let mut strace = Command::new("strace");
    strace.args(["-f", "--seccomp-bpf", "-o", "/dev/null", "-e", "inject=sync:error=EIO", "true"]);
    let ran = strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match ran {
        Ok(status) if status.success() => None,
        Ok(_) => Some("strace may not trace here".to_owned()),
        Err(_) => Some("strace is not installed: apt-get install strace".to_owned()),
    }
}

/// Where homes are made. Whether something was flushed is judged by the trace, so memory will do, and is faster.
fn workplace() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if tempfile::tempfile_in(memory).is_ok() { memory.to_owned() } else { std::env::temp_dir() }
}

/// Runs the hub with all of the failures.
pub fn run(program: &Path, faults: &[InjectedFault], seed: u64) -> Result<FaultFigures> {
    some_at_once(faults, |fault| {
        let mut random = SplitMix64::new(seed ^ u64::from(fault.nth));
        hub(program, fault, &mut random).with_context(|| format!("{fault:?}"))
    })
}

/// Runs `secrets set` and `clients add` until nothing is left that could fail.
pub fn commands(program: &Path, kinds: &[(FaultTarget, FaultErrno)]) -> Result<FaultFigures> {
    let homes = [commands::HomeState::New, commands::HomeState::Used];
    let all: Vec<_> = kinds.iter().flat_map(|kind| homes.map(|home| (kind.0, kind.1, home))).collect();
    some_at_once(&all, |(kind, errno, home)| commands::run(program, *kind, *errno, *home))
}

/// Does something for each, [`AT_ONCE`] at a time, and adds up what was seen.
fn some_at_once<T: Sync>(all: &[T], run: impl Fn(&T) -> Result<FaultFigures> + Sync) -> Result<FaultFigures> {
    let next = AtomicUsize::new(0);
    let seen: Mutex<Result<FaultFigures>> = Mutex::new(Ok(FaultFigures::default()));
    let work = || {
        while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let one = run(one);
            let mut seen = seen.lock();
            match (&mut *seen, one) {
                (Ok(seen), Ok(one)) => seen.add(one),
                (_, Err(error)) => *seen = Err(error),
                (Err(_), Ok(_)) => return,
            }
        }
    };
    std::thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(work))));
    seen.into_inner()
}

/// Returns what would be said of a hub that leaves out every flush whose line in the trace holds `left_out`.
pub fn weakened(program: &Path, left_out: &str) -> Result<Vec<String>> {
    // So late that it never comes.
    let fault = InjectedFault {
        kind: FaultTarget::Rename,
        errno: FaultErrno::Io,
        nth: u32::from(u16::MAX),
        lasts: FaultDuration::Once,
    };
    let lab = TortureHome::in_folder(program, &workplace())?;
    let log = lab.beside("trace");
    let mut session = StdioSession::start(lab.command(&fault.strace(&log, &[]), &["--mcp"]))?;
    session.initialize();
    let mut work = FaultWorkload::new(lab.files());
    for id in 1..=3 {
        let (tool, arguments) = work.call(id);
        let reply = session.call(id, tool, &arguments);
        work.replied(id, &reply);
    }
    session.close()?;
    let trace = std::fs::read_to_string(&log)?;
    let is_flush = |line: &&str| ["fsync(", "fdatasync("].iter().any(|call| line.contains(call));
    let kept = trace.lines().filter(|line| !(is_flush(line) && line.contains(left_out)));
    let calls = trace::parse(&kept.collect::<Vec<_>>().join("\n"));
    Ok(durable::too_early(&calls, &places(&lab), &work.promises()))
}

fn places(lab: &TortureHome) -> DiskLayout {
    let text = |path: PathBuf| path.display().to_string();
    DiskLayout {
        home: text(lab.home()),
        files: text(lab.files()),
        log: text(lab.secure().join("audit/audit.jsonl")),
        anchors: text(lab.secure().join("anchors/audit.anchors")),
    }
}

/// One run of the hub: works while the failure happens, is killed, and is looked at.
fn hub(program: &Path, fault: &InjectedFault, random: &mut SplitMix64) -> Result<FaultFigures> {
    let lab = TortureHome::in_folder(program, &workplace())?;
    let config = [portcullis_testkit::process::UNHURRIED, approved_calls::CONFIG].concat();
    std::fs::write(lab.home().join("portcullis.toml"), config)?;
    let (log, places) = (lab.beside("trace"), places(&lab));
    let only = match fault.kind {
        FaultTarget::LogWrite => {
            vec![places.log.clone().into(), places.anchors.clone().into(), lab.secure().join("audit.key.new")]
        }
        _ => Vec::new(),
    };
    let mut session = StdioSession::start(lab.command(&fault.strace(&log, &only), &["--mcp"]))?;
    let mut seen = FaultFigures { runs: 1, ..FaultFigures::default() };
    let mut problems = Vec::new();
    let mut work = FaultWorkload::new(lab.files());
    let mut approved = ApprovedCalls::default();
    let started = session.initialize();
    if started {
        for id in 1..=CALLS {
            let (tool, arguments) = work.call(id);
            let reply = session.call(id, tool, &arguments);
            match &reply {
                CallReply::Done => seen.acknowledged += 1,
                CallReply::Refused(_) => seen.refused += 1,
                CallReply::Gone | CallReply::Silent => {
                    problems.push(format!("call {id} got no reply: {reply:?}"))
                }
            }
            work.replied(id, &reply);
            if approved_calls::AT.contains(&id)
                && let Err(error) = approved.one(&lab, &mut session)
            {
                problems.push(format!("after call {id}: {error:#}"));
            }
            if matches!(reply, CallReply::Gone | CallReply::Silent) {
                break;
            }
        }
        if fault.lasts == FaultDuration::Once && !recovers(&mut session) {
            problems.push("it does not work again after the failure".to_owned());
        }
    }
    seen.approved = approved.count;
    let killed = random.roll().is_multiple_of(2);
    let said = if killed && started { session.kill()? } else { session.close()? };
    if !started {
        seen.not_started = 1;
        if !said.contains("error") && !said.to_lowercase().contains("cannot") {
            problems.push(format!("it did not start and did not say why: {said}"));
        }
    }
    if said.contains("panicked") {
        problems.push(format!("something panicked: {said}"));
    }

    if started && !has_write_ahead_log(&lab.secure().join("portcullis.db"))? {
        problems.push("the hub works on a database without a write-ahead log".to_owned());
    }

    let calls = trace::parse(&std::fs::read_to_string(&log)?);
    seen.faults = calls.iter().filter(|call| call.injected).count() as u64;
    seen.hit = u64::from(seen.faults > 0);
    if fault.kind != FaultTarget::LogWrite {
        // One cause makes many, and the first says most.
        problems.extend(durable::too_early(&calls, &places, &work.promises()).into_iter().take(TOLD_MAX));
    }
    if let Err(error) = afterwards(&lab, &work, &mut approved) {
        problems.push(format!("{error:#}"));
    }
    seen.problems = problems.into_iter().map(|problem| format!("{fault:?}: {problem}")).collect();
    Ok(seen)
}

/// Returns whether both format versions in the header of a database name the write-ahead log.
fn has_write_ahead_log(database: &Path) -> Result<bool> {
    let header = std::fs::read(database)?;
    Ok(header.get(18..20) == Some(&[2, 2]))
}

fn recovers(session: &mut StdioSession) -> bool {
    let arguments = json!({ "path": "recovered.md", "content": "again" });
    (0..RECOVERY_TRIES_MAX)
        .any(|tried| session.call(CALLS + 1 + tried, "workspace_write", &arguments) == CallReply::Done)
}

/// Looks at what is left, first as it is and then with a hub that has no failures.
fn afterwards(lab: &TortureHome, work: &FaultWorkload, approved: &mut ApprovedCalls) -> Result<()> {
    work.check().context("after the end")?;
    let mut session = StdioSession::start(lab.command::<&str>(&[], &["--mcp"]))?;
    anyhow::ensure!(session.initialize(), "a hub without failures does not start: {}", session.close()?);
    anyhow::ensure!(recovers(&mut session), "a hub without failures does not write: {}", session.close()?);
    approved.check(&mut session)?;
    session.close()?;
    work.check().context("after another start")?;
    let left: Vec<_> = workload::temporaries(&lab.files())?;
    anyhow::ensure!(left.is_empty(), "half-written files are left: {left:?}");
    lab.succeeds(&["audit", "verify"])?;
    work.check_records(&lab.succeeds(&["audit", "search", "--json"])?)
}
