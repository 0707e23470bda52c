//! Compares what a hub does to the kernel with what the unit lets it do: units are not started here.

use super::{CheckReport, handshake};
use crate::package::release;
use crate::run;
use anyhow::{Result, bail};
use std::collections::BTreeSet;
use std::fs;

/// A write, a read and a script: together they use the disk, the database, the audit log and the sandbox.
const CALLS: [&str; 3] = [
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"workspace_write","arguments":{"path":"a.md","content":"b"}}}"#,
    r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"workspace_list","arguments":{}}}"#,
    r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"script_exec","arguments":{"code":"1 + 1"}}}"#,
];

pub(super) fn run(report: &mut CheckReport<'_>) {
    let what = "systemd: the unit permits every system call of a hub and of its scripts";
    for program in ["systemd-analyze", "strace"] {
        if !run::exists(&mut report.command(program)) {
            return report.skip(what, &format!("`{program}` is not installed"));
        }
    }
    report.check(what, permits_what_a_hub_does);
}

fn permits_what_a_hub_does(report: &CheckReport<'_>) -> Result<()> {
    let unit = report.release.source("packaging/systemd/portcullis.service")?;
    let mut permitted = permitted(&unit, &|set| expand(report, set))?;
    if rustix::process::geteuid().is_root() {
        // SQLite gives its files to the owner of the database, but only when root runs it. The service is not root.
        permitted.insert("fchown".to_owned());
    }
    let home = report.folder("strace-home")?;
    let trace = report.work.join("strace.txt");
    let mut strace = report.command("strace");
    strace.args(["--follow-forks", "-qq", "--signal=none", "--output"]).arg(&trace);
    strace.arg(&report.release.dynamic_path).arg("--home").arg(&home).arg("stdio");
    let responses = handshake::converse_with(&mut strace, &report.log(&home), &CALLS)?;
    if let Some(failed) = responses.iter().find(|response| is_error(response)) {
        bail!("a call failed: {failed}");
    }
    let trace = fs::read_to_string(&trace)?;
    let refused: Vec<&str> = refused(&trace, &permitted).into_iter().collect();
    if !refused.is_empty() {
        bail!("not permitted: {}", refused.join("; "));
    }
    // Otherwise this has looked at something else than a hub.
    for call in ["landlock_restrict_self", "seccomp", "fdatasync", "execve"] {
        if !trace.contains(&format!("{call}(")) {
            bail!("the trace has no `{call}`");
        }
    }
    Ok(())
}

fn is_error(response: &serde_json::Value) -> bool {
    response.pointer("/result/isError").and_then(serde_json::Value::as_bool) == Some(true)
}

/// Returns the system calls that a unit permits: what its lines list, without those behind `~`.
fn permitted(unit: &str, expand: &dyn Fn(&str) -> Result<BTreeSet<String>>) -> Result<BTreeSet<String>> {
    let mut permitted = expand("@default")?;
    for line in unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")) {
        let (names, is_removed) = line.strip_prefix('~').map_or((line, false), |names| (names, true));
        for name in names.split_whitespace() {
            let named = if name.starts_with('@') { expand(name)? } else { BTreeSet::from([name.to_owned()]) };
            if is_removed {
                permitted.retain(|call| !named.contains(call));
            } else {
                permitted.extend(named);
            }
        }
    }
    Ok(permitted)
}

/// Returns the system calls of a set, which may contain others.
fn expand(report: &CheckReport<'_>, set: &str) -> Result<BTreeSet<String>> {
    let printed = release::output(report.command("systemd-analyze").args(["syscall-filter", set]))?;
    let printed = String::from_utf8(printed)?;
    let mut calls = BTreeSet::new();
    // The first line is the name of the set; comments begin with `#`.
    for name in printed.lines().skip(1).map(str::trim).filter(|name| !name.is_empty()) {
        if name.starts_with('@') {
            calls.extend(expand(report, name)?);
        } else if !name.starts_with('#') {
            calls.insert(name.to_owned());
        }
    }
    if calls.is_empty() {
        bail!("systemd knows no system calls of `{set}`");
    }
    Ok(calls)
}

/// Returns what a trace has that a hardened service refuses: other system calls, memory that is written and executed, and
/// sockets of other families.
fn refused<'t>(trace: &'t str, permitted: &BTreeSet<String>) -> BTreeSet<&'t str> {
    let mut refused = BTreeSet::new();
    for line in trace.lines() {
        let call = line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
        // The rest of an interrupted line, and the ends of processes.
        let Some((name, arguments)) = call.split_once('(').filter(|_| !call.starts_with(['<', '+', '-']))
        else {
            continue;
        };
        let is_executable_data = match name {
            "mmap" => arguments.contains("PROT_WRITE") && arguments.contains("PROT_EXEC"),
            "mprotect" | "pkey_mprotect" => arguments.contains("PROT_EXEC"),
            _ => false,
        };
        let families = ["AF_UNIX", "AF_INET,", "AF_INET6"];
        let is_other_socket =
            name == "socket" && !families.iter().any(|family| arguments.starts_with(family));
        if is_executable_data || is_other_socket {
            refused.insert(call);
        } else if !permitted.contains(name) {
            refused.insert(name);
        }
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn what_a_unit_refuses_is_found() {
        let unit = "SystemCallFilter=@system-service\nSystemCallFilter=~@resources chown\nSystemCallFilter=seccomp\n";
        let expand = |name: &str| {
            Ok(match name {
                "@default" => set(&["exit", "mmap"]),
                "@system-service" => set(&["read", "chown", "nice", "mprotect", "socket"]),
                _ => set(&["nice"]),
            })
        };
        let permitted = permitted(unit, &expand).unwrap();
        assert_eq!(permitted, set(&["exit", "mmap", "mprotect", "read", "seccomp", "socket"]));
        let trace = "\
7     read(3, \"x\", 1) = 1
7     <... read resumed>) = 1
7     nice(1) = 0
7     mmap(NULL, 4096, PROT_READ|PROT_EXEC, MAP_PRIVATE, 3, 0) = 0x1
7     mmap(NULL, 4096, PROT_WRITE|PROT_EXEC, MAP_PRIVATE, 3, 0) = 0x1
7     socket(AF_INET6, SOCK_STREAM, 0) = 4
7     socket(AF_NETLINK, SOCK_RAW, 0) = 4
7     +++ exited with 0 +++
";
        let expected = [
            "mmap(NULL, 4096, PROT_WRITE|PROT_EXEC, MAP_PRIVATE, 3, 0) = 0x1",
            "nice",
            "socket(AF_NETLINK, SOCK_RAW, 0) = 4",
        ];
        assert_eq!(refused(trace, &permitted).into_iter().collect::<Vec<_>>(), expected);
    }
}
