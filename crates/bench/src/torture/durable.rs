//! What would be on disk if the power failed now, judged from what the program asked of the kernel.
//!
//! Killing a process does not show whether it flushed: the kernel keeps what was written. So this follows every
//! write, new name and flush, and says of each acknowledgement whether all that it promises was flushed before.
//!
//! It is stricter than most file systems. What was written counts once a flush of that file that began later has
//! returned; a new name, once its folder was flushed. After a flush that failed, the kernel may have dropped the pages:
//! that part of the file has to be written again, and another flush alone does not help. Names are kept in a journal
//! and are not dropped that way.
//!
//! Calls come one after another. Before a call changes a file, its record has to be durable: of what was written to the log since
//! the last reply, something. Records of other changes follow at any moment, as of commands that the hub takes over from the
//! spool, and nothing waits for them.

use super::trace::Syscall;
use std::collections::HashMap;
use std::ops::Range;

/// Where things are on the disk that is judged.
pub struct DiskLayout {
    /// What lies above this folder was there before.
    pub home: String,
    /// Files for agents. None of them changes without a durable record.
    pub files: String,
    pub log: String,
    pub anchors: String,
}

/// What an acknowledgement promises.
pub type DurabilityPromises = HashMap<u64, String>;

/// Returns what was promised or done too early. `promises` has the file that each reply, by its id, says is written.
pub fn too_early(calls: &[Syscall], places: &DiskLayout, promises: &DurabilityPromises) -> Vec<String> {
    let mut disk = Disk::default();
    let mut problems = Vec::new();
    for (line, moment) in moments(calls) {
        match moment {
            SyscallEdge::Begins(call) => {
                let found = before(&disk, call, places, promises);
                problems.extend(found.map(|problem| format!("line {}: {problem}", line + 1)));
            }
            SyscallEdge::Ended(call) => disk.apply(call),
        }
    }
    problems
}

/// Returns whether the last change of an SQLite database is not durable after all of the calls. A commit is in the write-ahead
/// log; the last process to close the database copies it into the main file and removes the log.
pub fn database_missing_at_end(calls: &[Syscall], home: &str, database: &str) -> Vec<String> {
    let mut disk = Disk::default();
    calls.iter().filter(|call| call.ended != usize::MAX).for_each(|call| disk.apply(call));
    let log = format!("{database}-wal");
    let holder = if disk.files.contains_key(&log) { &log } else { database };
    disk.durable(holder, home).err().into_iter().collect()
}

enum SyscallEdge<'c> {
    Begins(&'c Syscall),
    Ended(&'c Syscall),
}

/// Every call twice: when it begins, and when it has ended.
fn moments(calls: &[Syscall]) -> Vec<(usize, SyscallEdge<'_>)> {
    let begins = calls.iter().map(|call| (call.begun, SyscallEdge::Begins(call)));
    let ended = calls.iter().filter(|call| call.ended != usize::MAX);
    let mut moments: Vec<_> =
        begins.chain(ended.map(|call| (call.ended, SyscallEdge::Ended(call)))).collect();
    // On one line a call begins before it ends; the sort keeps their order.
    moments.sort_by_key(|(line, _)| *line);
    moments
}

/// Returns what is wrong with making this call now.
fn before(disk: &Disk, call: &Syscall, places: &DiskLayout, promises: &DurabilityPromises) -> Option<String> {
    let records = || disk.durable(&places.log, &places.home);
    match call.name.as_str() {
        "write" if call.args.starts_with("1<") => {
            let promised = reply_ids(&call.args).into_iter().filter_map(|id| Some((id, promises.get(&id)?)));
            let mut early =
                promised.filter_map(|(id, file)| Some((id, disk.durable(file, &places.home).err()?)));
            early.next().map(|(id, problem)| format!("reply {id} leaves, but {problem}"))
        }
        "write" if call.descriptor() == Some(&places.anchors) => {
            // The first anchor comes before the first record.
            let begun = disk.files.contains_key(&places.log);
            records().err().filter(|_| begun).map(|problem| format!("an anchor is written, but {problem}"))
        }
        "rename" | "renameat" | "renameat2" => {
            let target = call.paths().pop().filter(|path| path.starts_with(&places.files))?;
            disk.recorded(&places.log, &places.home)
                .err()
                .map(|problem| format!("`{target}` is replaced, but {problem}"))
        }
        _ => None,
    }
}

/// Returns the ids of the replies in what is written to standard output. strace escapes the quotes.
fn reply_ids(args: &str) -> Vec<u64> {
    let starts = args.split("\\\"id\\\":").skip(1);
    starts.filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()).collect()
}

#[derive(Default)]
struct Disk {
    files: HashMap<String, Contents>,
    /// New names, and when they were given.
    names: HashMap<String, usize>,
    /// When the last reply had left.
    replied: usize,
}

#[derive(Default)]
struct Contents {
    bytes: u64,
    unflushed: Vec<(Range<u64>, State)>,
    /// When the newest bytes were written that a flush has covered.
    flushed_through: Option<usize>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    WrittenAt(usize),
    /// Written then, and dropped by a flush that failed.
    LostAt(usize),
}

impl Disk {
    fn apply(&mut self, call: &Syscall) {
        let (path, paths) = (call.descriptor(), call.paths());
        match (call.name.as_str(), path, paths.as_slice()) {
            ("fsync" | "fdatasync", Some(path), _) => self.flushed(path, call),
            // Nothing else that failed changed anything.
            _ if call.returned.is_none() => {}
            ("write", ..) if call.args.starts_with("1<") => self.replied = call.ended,
            ("write", Some(path), _) => {
                let from = self.file(path).bytes;
                self.written(path, from, call);
            }
            ("pwrite64", Some(path), _) => {
                let from = call.number_from_end(0).unwrap_or_default();
                self.written(path, from, call);
            }
            ("ftruncate", Some(path), _) => {
                let bytes = call.number_from_end(0).unwrap_or_default();
                self.file(path).cut(bytes);
            }
            ("open" | "openat" | "openat2", ..) => self.opened(call),
            ("mkdir" | "mkdirat", _, [path]) => {
                self.names.insert(path.clone(), call.ended);
            }
            ("rename" | "renameat" | "renameat2", _, [from, to]) => {
                let contents = self.files.remove(from).unwrap_or_default();
                self.files.insert(to.clone(), contents);
                self.names.remove(from);
                self.names.insert(to.clone(), call.ended);
            }
            ("link" | "linkat", _, [from, to]) => {
                let durable = self.files.get(from).is_none_or(|contents| contents.unflushed.is_empty());
                let mut contents = Contents::default();
                if !durable {
                    contents.unflushed.push((0..u64::MAX, State::LostAt(0)));
                }
                self.files.insert(to.clone(), contents);
                self.names.insert(to.clone(), call.ended);
            }
            ("unlink" | "unlinkat" | "rmdir", _, [path]) => {
                self.files.remove(path);
                self.names.remove(path);
            }
            _ => {}
        }
    }

    fn file(&mut self, path: &str) -> &mut Contents {
        self.files.entry(path.to_owned()).or_default()
    }

    fn opened(&mut self, call: &Syscall) {
        let Some(path) = call.opened.as_deref().filter(|_| call.args.contains("O_CREAT")) else { return };
        if call.args.contains("O_TRUNC") {
            self.file(path).cut(0);
        }
        if !self.files.contains_key(path) {
            self.files.insert(path.to_owned(), Contents::default());
            self.names.insert(path.to_owned(), call.ended);
        }
    }

    fn written(&mut self, path: &str, from: u64, call: &Syscall) {
        let to = from + call.returned.unwrap_or_default();
        let contents = self.file(path);
        contents.remove(from..to);
        contents.unflushed.push((from..to, State::WrittenAt(call.ended)));
        contents.bytes = contents.bytes.max(to);
    }

    fn flushed(&mut self, path: &str, call: &Syscall) {
        let succeeded = call.returned.is_some();
        if let Some(contents) = self.files.get_mut(path) {
            for (_, state) in &mut contents.unflushed {
                if let (false, State::WrittenAt(line)) = (succeeded, *state) {
                    *state = State::LostAt(line);
                }
            }
            let flushed_through = &mut contents.flushed_through;
            contents.unflushed.retain(|(_, state)| match state {
                State::WrittenAt(line) if *line < call.begun => {
                    *flushed_through = (*flushed_through).max(Some(*line));
                    false
                }
                State::WrittenAt(_) | State::LostAt(_) => true,
            });
        }
        if succeeded {
            let folder = |name: &str| name.rsplit_once('/').map(|(folder, _)| folder.to_owned());
            self.names.retain(|name, line| *line >= call.begun || folder(name).as_deref() != Some(path));
        }
    }

    /// Returns what of a file would be gone.
    fn durable(&self, file: &str, home: &str) -> Result<(), String> {
        let Some(contents) = self.files.get(file) else { return Err(format!("`{file}` was never written")) };
        if let Some((range, state)) = contents.unflushed.first() {
            let why = match state {
                State::WrittenAt(line) => format!("written on line {} and not flushed", line + 1),
                State::LostAt(_) => "not written again after a flush that failed".to_owned(),
            };
            return Err(format!("bytes {} to {} of `{file}` are {why}", range.start, range.end));
        }
        self.named(file, home)
    }

    /// Returns why the record of the call that came after the last reply would be gone.
    fn recorded(&self, log: &str, home: &str) -> Result<(), String> {
        let flushed = self.files.get(log).is_some_and(|contents| {
            let Some(through) = contents.flushed_through.filter(|line| *line > self.replied) else {
                return false;
            };
            !contents
                .unflushed
                .iter()
                .any(|(_, state)| matches!(state, State::LostAt(line) if *line <= through))
        });
        if flushed { self.named(log, home) } else { self.durable(log, home) }
    }

    /// Returns which name of a path would be gone.
    fn named(&self, file: &str, home: &str) -> Result<(), String> {
        let mut path = file;
        while path.len() > home.len() {
            if let Some(line) = self.names.get(path) {
                return Err(format!("the name `{path}`, given on line {}, is not flushed", line + 1));
            }
            path = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        }
        Ok(())
    }
}

impl Contents {
    fn cut(&mut self, bytes: u64) {
        self.remove(bytes..u64::MAX);
        self.bytes = bytes;
    }

    fn remove(&mut self, gone: Range<u64>) {
        let pieces = std::mem::take(&mut self.unflushed);
        for (range, state) in pieces {
            let left = range.start..range.end.min(gone.start);
            let right = range.start.max(gone.end)..range.end;
            self.unflushed
                .extend([left, right].into_iter().filter(|piece| !piece.is_empty()).map(|p| (p, state)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trace::parse;
    use super::*;

    const HONEST: &str = r#"
1 mkdir("/h/f", 0700) = 0
1 mkdir("/h/a", 0700) = 0
1 openat(AT_FDCWD</>, "/h/a/log", O_RDWR|O_CREAT|O_APPEND, 0600) = 5</h/a/log>
1 openat(AT_FDCWD</>, "/h/a", O_RDONLY) = 6</h/a>
1 fsync(6</h/a>) = 0
1 fsync(6</h>) = 0
2 write(5</h/a/log>, "{begin}", 7) = 7
2 fdatasync(5</h/a/log>) = 0
3 openat(7</h/f>, ".tmp", O_WRONLY|O_CREAT|O_EXCL, 0600) = 8</h/f/.tmp>
3 pwrite64(8</h/f/.tmp>, "text", 4, 0) = 4
3 fsync(8</h/f/.tmp>) = 0
3 renameat(7</h/f>, ".tmp", 7</h/f>, "k.md") = 0
3 fsync(7</h/f>) = 0
1 write(1<pipe:[1]>, "{\"jsonrpc\":\"2.0\",\"id\":4,\"result\"", 60) = 60
"#;

    fn check(log: &str) -> Vec<String> {
        let at = |path: &str| path.to_owned();
        let places = DiskLayout {
            home: at("/h"),
            files: at("/h/f"),
            log: at("/h/a/log"),
            anchors: at("/h/a/anchors"),
        };
        too_early(&parse(log.trim_start()), &places, &HashMap::from([(4, at("/h/f/k.md"))]))
    }

    #[test]
    fn what_is_flushed_in_order_is_no_problem() {
        assert_eq!(check(HONEST), [""; 0]);
        let retried = HONEST.replace(
            "2 fdatasync(5</h/a/log>) = 0",
            "2 fdatasync(5</h/a/log>) = -1 EIO (x) (INJECTED)\n2 pwrite64(9</h/a/log>, \"{begin}\", 7, 0) = 7\n2 fdatasync(9</h/a/log>) = 0",
        );
        assert_eq!(check(&retried), [""; 0]);
    }

    #[test]
    fn every_flush_that_is_left_out_is_seen() {
        for (flush, problem) in [
            ("1 fsync(6</h/a>) = 0\n", "the name `/h/a/log`, given on line 3, is not flushed"),
            ("1 fsync(6</h>) = 0\n", "the name `/h/a`, given on line 2, is not flushed"),
            (
                "2 fdatasync(5</h/a/log>) = 0\n",
                "bytes 0 to 7 of `/h/a/log` are written on line 7 and not flushed",
            ),
            (
                "3 fsync(8</h/f/.tmp>) = 0\n",
                "bytes 0 to 4 of `/h/f/k.md` are written on line 10 and not flushed",
            ),
            ("3 fsync(7</h/f>) = 0\n", "the name `/h/f/k.md`, given on line 12, is not flushed"),
        ] {
            let problems = check(&HONEST.replace(flush, ""));
            assert!(problems.iter().any(|told| told.contains(problem)), "{flush}: {problems:?}");
        }
    }

    /// The hub takes records over from the spool at any moment.
    #[test]
    fn only_the_record_of_the_call_has_to_be_durable() {
        let other = "2 write(5</h/a/log>, \"{other}\", 7) = 7\n";
        let begin = "2 write(5</h/a/log>, \"{begin}\", 7) = 7\n2 fdatasync(5</h/a/log>) = 0\n";
        let reply = "1 write(1<pipe:[1]>, \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":3}\", 30) = 30\n";
        assert!(HONEST.contains(begin));
        let followed = HONEST.replace(begin, &[begin, other].concat());
        assert_eq!(check(&followed), [""; 0]);
        let replied = HONEST.replace(begin, &[reply, begin, other].concat());
        assert_eq!(check(&replied), [""; 0]);
        let of_the_call_before = HONEST.replace(begin, &[begin, reply, other].concat());
        assert!(
            check(&of_the_call_before)[0].contains("and not flushed"),
            "{:?}",
            check(&of_the_call_before)
        );
        let failed = "2 fdatasync(5</h/a/log>) = -1 EIO (x) (INJECTED)\n";
        let lost_later = followed.replace(other, &[other, failed].concat());
        assert_eq!(check(&lost_later), [""; 0]);
        let lost_before = HONEST.replace(begin, &[other, failed, begin].concat());
        assert!(check(&lost_before)[0].contains("not written again"), "{:?}", check(&lost_before));
    }

    #[test]
    fn a_flush_that_fails_or_comes_too_early_does_not_count() {
        let failed = HONEST
            .replace("2 fdatasync(5</h/a/log>) = 0", "2 fdatasync(5</h/a/log>) = -1 EIO (x) (INJECTED)");
        assert!(
            check(&failed)[0].contains("not written again after a flush that failed"),
            "{:?}",
            check(&failed)
        );
        let tried_again = failed.replace("(INJECTED)", "(INJECTED)\n2 fdatasync(5</h/a/log>) = 0");
        assert!(check(&tried_again)[0].contains("not written again after a flush that failed"));
        let overtaken = HONEST
            .replace("3 fsync(8</h/f/.tmp>) = 0\n", "")
            .replace("3 pwrite64", "4 fsync(8</h/f/.tmp> <unfinished ...>\n3 pwrite64")
            .replace("3 renameat", "4 <... fsync resumed>) = 0\n3 renameat");
        assert!(check(&overtaken)[0].contains("of `/h/f/k.md` are written"), "{:?}", check(&overtaken));
    }
}
