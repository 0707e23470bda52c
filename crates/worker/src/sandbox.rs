//! Giving up every right but that to compute, and to talk over two pipes.
//!
//! Done by the worker to itself, before it reads anything. Each part stands alone: rlimits bound memory, time and files;
//! Landlock takes every right to files and the network; seccomp takes every system call but those that reading one
//! descriptor, writing two others, memory and clocks need. Descriptors that were inherited by mistake cannot be used: only
//! 0 may be read, and only 1 and 2 written.

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetStatus, Scope,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};
use std::collections::BTreeMap;

/// How deep the native stack may grow. The parser recurses, and so do values.
const STACK_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// What a script has in any case, however large the program itself is. With less, none runs.
const SCRIPT_BYTES_MIN: u64 = 24 * 1024 * 1024;
/// What the program itself may have by then. One that is built for debugging has half of it; more has been reserved by an
/// allocator that was not told to leave that ([`portcullis_script::ENVIRONMENT`]), and then the limit would mean nothing.
const OWN_BYTES_MAX: u64 = 128 * 1024 * 1024;

const PR_SET_VMA: u64 = 0x5356_4d41;

/// What of the sandbox could not be had.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Missing(pub Vec<String>);

/// Enters the sandbox, as far as it is to be had. There is no way out.
///
/// `memory_bytes_max` is what the process may take in all, its program and stack included, `cpu_secs_max` the time that it
/// may compute.
pub fn enter(memory_bytes_max: u64, cpu_secs_max: u64) -> Missing {
    let mut missing = Vec::new();
    let mut note = |what: &str, done: Result<(), String>| {
        if let Err(why) = done {
            missing.push(format!("{what}: {why}"));
        }
    };
    note("parent death signal", told(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))));
    note("no dumps", told(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)));
    note("memory limit", limit_memory(memory_bytes_max));
    for (name, resource, value) in [
        ("stack limit", Resource::Stack, STACK_BYTES_MAX),
        ("time limit", Resource::Cpu, cpu_secs_max),
        ("file size limit", Resource::Fsize, 0),
        ("core limit", Resource::Core, 0),
        ("lock limit", Resource::Memlock, 0),
    ] {
        note(name, told(lower(resource, value)));
    }
    note("landlock", landlock());
    // After the ruleset is made, which needs a descriptor.
    note("descriptor limit", told(lower(Resource::Nofile, 3)));
    note("process limit", told(lower(Resource::Nproc, 0)));
    // Last: it takes away what all the others need. This and Landlock also give up new privileges.
    note("seccomp", seccomp());
    Missing(missing)
}

/// Bounds the addresses, not the data: what is not mapped cannot be in memory, so that nothing is left to be counted
/// wrongly. The limit of data can be stepped over: the kernel does not heed it where reserved addresses become data and there
/// are not as many left again (`mprotect`), and one allocation of 2 GB did that.
fn limit_memory(memory_bytes_max: u64) -> Result<(), String> {
    let own = own_bytes().ok_or("it cannot be seen how much there is already")?;
    if own > OWN_BYTES_MAX {
        return Err(format!("the program itself has {own} bytes already, at most {OWN_BYTES_MAX}"));
    }
    told(lower(Resource::As, memory_bytes_max.max(own + SCRIPT_BYTES_MIN)))
}

/// Returns how many addresses the process has already: its program, most of all.
fn own_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

fn told<E: std::fmt::Display>(done: Result<(), E>) -> Result<(), String> {
    done.map_err(|error| error.to_string())
}

/// Lowers both limits. What is lower already stays.
fn lower(resource: Resource, value: u64) -> rustix::io::Result<()> {
    let now = rustix::process::getrlimit(resource);
    let at_most = |limit: Option<u64>| Some(limit.map_or(value, |limit| limit.min(value)));
    rustix::process::setrlimit(
        resource,
        Rlimit { current: at_most(now.current), maximum: at_most(now.maximum) },
    )
}

/// Handles every right that this kernel knows, and grants none.
fn landlock() -> Result<(), String> {
    let abi = ABI::V6;
    let restricted = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(abi)))
        .and_then(|rules| rules.scope(Scope::from_all(abi)))
        .and_then(Ruleset::create)
        .and_then(|rules| rules.restrict_self());
    match restricted {
        // An older kernel knows fewer rights; what it knows of files is what counts, seccomp takes the network.
        Ok(status) if status.ruleset != RulesetStatus::NotEnforced => Ok(()),
        Ok(_) => Err("this kernel does not have it".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn seccomp() -> Result<(), String> {
    let program = program().map_err(|error| error.to_string())?;
    seccompiler::apply_filter(&program).map_err(|error| error.to_string())
}

fn program() -> Result<BpfProgram, seccompiler::BackendError> {
    use SeccompCmpOp::{Eq, MaskedEq};
    let any = Vec::new;
    let when = |argument, op, value| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value);
    let rule = |conditions| SeccompRule::new(conditions);
    // Memory that is written must not become code.
    let no_code = || Ok(vec![rule(vec![when(2, MaskedEq(libc::PROT_EXEC as u64), 0)?])?]);
    let own_pid = u64::from(std::process::id());
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    rules.insert(libc::SYS_read, vec![rule(vec![when(0, Eq, 0)?])?]);
    rules.insert(libc::SYS_write, vec![rule(vec![when(0, Eq, 1)?])?, rule(vec![when(0, Eq, 2)?])?]);
    rules.insert(libc::SYS_mmap, no_code()?);
    rules.insert(libc::SYS_mprotect, no_code()?);
    // To itself only: how a process aborts.
    rules.insert(libc::SYS_tgkill, vec![rule(vec![when(0, Eq, own_pid)?])?]);
    // The allocator gives its memory a name.
    rules.insert(libc::SYS_prctl, vec![rule(vec![when(0, Eq, PR_SET_VMA)?])?]);
    for call in [
        libc::SYS_brk,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_madvise,
        libc::SYS_futex,
        libc::SYS_clock_gettime,
        libc::SYS_clock_nanosleep,
        libc::SYS_nanosleep,
        libc::SYS_getrandom,
        libc::SYS_getpid,
        libc::SYS_gettid,
        libc::SYS_sched_yield,
        libc::SYS_sched_getaffinity,
        libc::SYS_getrusage,
        libc::SYS_restart_syscall,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sigaltstack,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ] {
        rules.insert(call, any());
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, arch)?.try_into()
}
