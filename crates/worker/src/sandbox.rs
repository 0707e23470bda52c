//! The sandbox of a worker: rlimits, Landlock and seccomp.
//!
//! The worker enters it before it reads any input. Each layer is independent: rlimits bound memory, time and files;
//! Landlock denies all access to files and the network; seccomp allows only the system calls for reading one
//! descriptor, writing two others, memory and clocks. Descriptors inherited by mistake cannot be used: only 0 may be
//! read, and only 1 and 2 written.

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetStatus, Scope,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};
use std::collections::BTreeMap;

/// Native stack. The parser recurses, and so do values.
const STACK_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Memory that a script has regardless of the program's own size. With less, no script runs.
const SCRIPT_BYTES_MIN: u64 = 24 * 1024 * 1024;
/// Address space of the program before the script. A debug build has half of it. More means that the allocator
/// reserved address space ahead (see [`portcullis_script::ENVIRONMENT`]), and the memory limit would be ineffective.
const OWN_BYTES_MAX: u64 = 128 * 1024 * 1024;

const PR_SET_VMA: u64 = 0x5356_4d41;

/// Protections that are not available.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MissingProtections(pub Vec<String>);

/// Enters the sandbox with all protections that are available. This cannot be undone.
///
/// `memory_bytes_max` bounds the whole process with program and stack, `cpu_secs_max` its CPU time.
pub fn enter(memory_bytes_max: u64, cpu_secs_max: u64) -> MissingProtections {
    let mut missing = Vec::new();
    let mut note = |what: &str, done: Result<(), String>| {
        if let Err(why) = done {
            missing.push(format!("{what}: {why}"));
        }
    };
    note(
        "parent death signal",
        as_text(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))),
    );
    note("no dumps", as_text(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)));
    note("memory limit", limit_memory(memory_bytes_max));
    for (name, resource, value) in [
        ("stack limit", Resource::Stack, STACK_BYTES_MAX),
        ("time limit", Resource::Cpu, cpu_secs_max),
        ("file size limit", Resource::Fsize, 0),
        ("core limit", Resource::Core, 0),
        ("lock limit", Resource::Memlock, 0),
    ] {
        note(name, as_text(lower(resource, value)));
    }
    note("landlock", landlock());
    // After the ruleset, which needs a descriptor.
    note("descriptor limit", as_text(lower(Resource::Nofile, 3)));
    note("process limit", as_text(lower(Resource::Nproc, 0)));
    // Last, because the other steps need the system calls that it forbids. This and Landlock also set no_new_privs.
    note("seccomp", seccomp());
    MissingProtections(missing)
}

/// Limits address space (`RLIMIT_AS`), not data: memory that is not mapped cannot be used, so the accounting cannot be
/// evaded. `RLIMIT_DATA` can be: the kernel ignores it when `mprotect` turns reserved address space into data, and one
/// allocation of 2 GB did that.
fn limit_memory(memory_bytes_max: u64) -> Result<(), String> {
    let own = own_bytes().ok_or("the address space in use cannot be read")?;
    if own > OWN_BYTES_MAX {
        return Err(format!("the program itself uses {own} bytes already, at most {OWN_BYTES_MAX}"));
    }
    as_text(lower(Resource::As, memory_bytes_max.max(own + SCRIPT_BYTES_MIN)))
}

/// Returns the address space that the process uses already, mostly for its program.
fn own_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

fn as_text<E: std::fmt::Display>(done: Result<(), E>) -> Result<(), String> {
    done.map_err(|error| error.to_string())
}

/// Lowers the soft and hard limit. A lower limit stays.
fn lower(resource: Resource, value: u64) -> rustix::io::Result<()> {
    let now = rustix::process::getrlimit(resource);
    let at_most = |limit: Option<u64>| Some(limit.map_or(value, |limit| limit.min(value)));
    rustix::process::setrlimit(
        resource,
        Rlimit { current: at_most(now.current), maximum: at_most(now.maximum) },
    )
}

/// Handles every access right that this kernel knows, and grants none.
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
        // An older kernel knows fewer rights. File access is the one that matters; seccomp denies the network.
        Ok(status) if status.ruleset != RulesetStatus::NotEnforced => Ok(()),
        Ok(_) => Err("this kernel does not support it".to_owned()),
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
    // W^X: writable memory must not become executable.
    let no_code = || Ok(vec![rule(vec![when(2, MaskedEq(libc::PROT_EXEC as u64), 0)?])?]);
    let own_pid = u64::from(std::process::id());
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    rules.insert(libc::SYS_read, vec![rule(vec![when(0, Eq, 0)?])?]);
    rules.insert(libc::SYS_write, vec![rule(vec![when(0, Eq, 1)?])?, rule(vec![when(0, Eq, 2)?])?]);
    rules.insert(libc::SYS_mmap, no_code()?);
    rules.insert(libc::SYS_mprotect, no_code()?);
    // Only to itself, for abort.
    rules.insert(libc::SYS_tgkill, vec![rule(vec![when(0, Eq, own_pid)?])?]);
    // The allocator names its memory.
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
