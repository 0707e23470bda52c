//! Marks in the environment of processes: by them the hub knows what its servers have started, in whatever session.

use data_encoding::HEXLOWER;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

/// The environment variable with the mark.
pub(crate) const MARK: &str = "PORTCULLIS_MARK";
/// How often, and how long, the guardian waits for a process in `execve`.
const BECOMING_LOOKS_MAX: usize = 20;
const BECOMING_LOOK_EVERY: Duration = Duration::from_millis(1);
/// How much of an environment is read. The kernel allows far more than any process has.
const ENVIRON_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Enough for nearly every process. All processes of the machine are read, so this much is allocated first.
const ENVIRON_BYTES_USUALLY: usize = 16 * 1024;

/// Identifies one hub, so that its guardian ends no other hub's processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubMark(String);

impl HubMark {
    /// Makes the mark of a process that starts servers. The first half is the same for all processes of one home,
    /// derived from its private folder: a server that a command has started is not the user either.
    pub fn new(folder: &Path) -> io::Result<HubMark> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        Ok(HubMark(home_half(folder) + &HEXLOWER.encode(&random)))
    }

    /// Parses a mark.
    pub fn parse(text: &str) -> Option<HubMark> {
        let is_mark = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_mark.then(|| HubMark(text.to_owned()))
    }

    pub fn of_process(&self, number: u64) -> String {
        format!("{}.{number}", self.0)
    }

    /// Returns whether this process carries a mark of the home. It reads its own variables: a non-dumpable process
    /// that is not root's cannot read its environment in `/proc`.
    pub fn is_ours(folder: &Path) -> bool {
        let own = std::env::var_os(MARK).map(|own| format!("{MARK}={}", own.to_string_lossy()));
        own.is_some_and(|own| of_home(folder).is(own.as_bytes()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the marker of all processes of this hub.
    pub(crate) fn any(&self) -> EnvironMarker {
        EnvironMarker { entry: format!("{MARK}={}.", self.0), whole: false }
    }
}

/// Returns the marker of all servers of this home, whether the hub or a command has started them.
pub(crate) fn of_home(folder: &Path) -> EnvironMarker {
    EnvironMarker { entry: format!("{MARK}={}", home_half(folder)), whole: false }
}

fn home_half(folder: &Path) -> String {
    use sha2::{Digest, Sha256};
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    HEXLOWER.encode(&Sha256::digest(folder.as_os_str().as_encoded_bytes())[..8])
}

/// An environment entry, or the prefix of one.
pub(crate) struct EnvironMarker {
    entry: String,
    whole: bool,
}

impl EnvironMarker {
    /// Returns the marker of one server process.
    pub(super) fn of_mark(mark: &str) -> EnvironMarker {
        EnvironMarker { entry: format!("{MARK}={mark}"), whole: true }
    }

    fn is(&self, entry: &[u8]) -> bool {
        let wanted = self.entry.as_bytes();
        if self.whole { entry == wanted } else { entry.starts_with(wanted) }
    }
}

pub(crate) fn carries(pid: i32, wanted: &EnvironMarker) -> bool {
    environ(pid).is_some_and(|environ| environ.split(|byte| *byte == 0).any(|entry| wanted.is(entry)))
}

/// Reads the environment of a process. A process in `execve` has none for a moment; without the retries a wrapper
/// that replaces itself would be overlooked, and would survive.
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
        // A process without a program is the kernel's, or has ended.
        fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        // `execve` moves the environment: one that is empty and stays in place will stay empty.
        if start != 0 && place_before == Some(start) {
            return None;
        }
        place_before = Some(start);
        sleep(BECOMING_LOOK_EVERY);
    }
    None
}

/// Returns the bounds of a process's environment from its `stat`. Both are zero until it has one.
fn environ_place(stat: &[u8]) -> Option<(u64, u64)> {
    // The second field is the program's name in parentheses, which may hold anything. The third field follows.
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = str::from_utf8(stat.get(after_name..)?).ok()?.split_ascii_whitespace().skip(50 - 3);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Reads with one system call, so that all of it is of the same program.
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

#[expect(clippy::disallowed_methods, reason = "nothing else runs on the thread that ends processes")]
pub(super) fn sleep(time: Duration) {
    std::thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_long_environment_is_read_to_its_end() {
        for bytes in [0, ENVIRON_BYTES_USUALLY, 9 * ENVIRON_BYTES_USUALLY] {
            let mut command = Command::new("sleep");
            // The kernel bounds the length of one variable.
            let long = "x".repeat(bytes / 2);
            command.arg("600").env_clear().env("A", &long).env("B", &long).env("LAST", "end");
            let mut child = command.spawn().unwrap();
            let pid = i32::try_from(child.id()).unwrap();
            // It has none until `execve` is done.
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
}
