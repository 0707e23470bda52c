//! Process ancestry: whether a process was started by a server behind the hub, so that it is not taken for the user.
//!
//! A process is looked at with all its ancestors. One that descends from the hub was started by a server; so was one in
//! the process group of a server, or with the hub's mark in its environment. A process that clears its environment and
//! is orphaned outside of every group (a daemon) shows none of these.

use crate::guardian::{carries, of_home, read_at_once};
use rustix::process::{Pid, test_kill_process};
use std::collections::HashSet;
use std::path::Path;

/// How many ancestors are looked at. A process with more is taken for one that hides.
const ANCESTORS_MAX: usize = 256;
/// The ancestor of all, and the parent of orphans.
const INIT: i32 = 1;

/// Returns whether a process was started by a server of the home with this private folder. `hub` is the process id of its hub,
/// where one runs in the same namespace of processes. A process that is gone counts as such.
pub fn is_behind(pid: i32, hub: Option<u32>, folder: &Path, groups: &HashSet<i32>) -> bool {
    let wanted = of_home(folder);
    let is_hub = |pid: i32| hub.is_some() && u32::try_from(pid).ok() == hub;
    let mut pid = pid;
    for _ in 0..ANCESTORS_MAX {
        let Some(lineage) = read_at_once(pid, "stat").and_then(|stat| Lineage::parse(&stat)) else {
            // Where processes are hidden (`hidepid`) those of others cannot be looked at, and servers are not others.
            return !is_alive(pid);
        };
        if groups.contains(&lineage.group) || carries(pid, &wanted) || is_hub(lineage.parent) {
            return true;
        }
        if lineage.parent <= INIT {
            return false;
        }
        pid = lineage.parent;
    }
    true
}

fn is_alive(pid: i32) -> bool {
    let Some(pid) = Pid::from_raw(pid) else { return false };
    !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH))
}

/// Where a process stands among the others.
#[derive(Debug, PartialEq, Eq)]
struct Lineage {
    parent: i32,
    group: i32,
}

impl Lineage {
    fn parse(stat: &[u8]) -> Option<Lineage> {
        // The program's name comes second, in brackets, and may hold anything. After it comes the state.
        let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
        let mut fields = str::from_utf8(stat.get(after_name..)?).ok()?.split_ascii_whitespace().skip(1);
        Some(Lineage { parent: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_move_the_fields() {
        let stat = b"12 (a) S 99 99) R 7 8 9 0 -1";
        assert_eq!(Lineage::parse(stat), Some(Lineage { parent: 7, group: 8 }));
        assert_eq!(Lineage::parse(b"12 (a"), None);
    }

    #[test]
    fn what_is_gone_is_not_let_through() {
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let pid = i32::try_from(gone.id()).unwrap();
        assert!(is_behind(pid, None, Path::new("/nowhere"), &HashSet::new()));
    }
}
