//! Process ancestry: whether an upstream server started a process, so that the hub does not take it for the user.
//!
//! The check walks from the process to its ancestors. A server started it if one of them is a child of the hub, is
//! in the process group of a server, or has the hub's mark in its environment. A daemon that clears its environment
//! and leaves every group shows none of these.

use crate::transport::environ_mark::{carries, of_home, read_at_once};
use rustix::process::{Pid, test_kill_process};
use std::collections::HashSet;
use std::path::Path;

/// How many ancestors are checked. A process with more counts as one that hides.
const ANCESTORS_MAX: usize = 256;
/// The parent of orphans.
const INIT: i32 = 1;

/// Returns whether a server of the home with this private folder started a process. `hub` is the process id of the
/// hub, where one runs in the same PID namespace. A process that is gone counts as started by a server.
pub fn is_server_descendant(pid: i32, hub: Option<u32>, folder: &Path, groups: &HashSet<i32>) -> bool {
    let wanted = of_home(folder);
    let is_hub = |pid: i32| hub.is_some() && u32::try_from(pid).ok() == hub;
    let mut pid = pid;
    for _ in 0..ANCESTORS_MAX {
        let Some(lineage) = read_at_once(pid, "stat").and_then(|stat| Lineage::parse(&stat)) else {
            // With `hidepid` the processes of other users are invisible, and servers run as this user.
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

/// Parent and process group of a process.
#[derive(Debug, PartialEq, Eq)]
struct Lineage {
    parent: i32,
    group: i32,
}

impl Lineage {
    fn parse(stat: &[u8]) -> Option<Lineage> {
        // The second field is the program's name in parentheses, which may hold anything. The state follows.
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
        assert!(is_server_descendant(pid, None, Path::new("/nowhere"), &HashSet::new()));
    }
}
