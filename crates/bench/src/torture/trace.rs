//! What a program asked of the kernel, read from the log of `strace -f -y`.

use std::collections::HashMap;

/// One system call.
#[derive(Debug, Clone, PartialEq)]
pub struct Syscall {
    /// The line on which it was made, and the one on which it returned. Others may stand between.
    pub begun: usize,
    pub ended: usize,
    pub name: String,
    pub args: String,
    /// What it returned, if it returned and did not fail.
    pub returned: Option<u64>,
    /// The path of the descriptor that it returned.
    pub opened: Option<String>,
    /// The failure was made up.
    pub injected: bool,
}

/// Reads a log.
pub fn parse(log: &str) -> Vec<Syscall> {
    let mut pending: HashMap<&str, (usize, String)> = HashMap::new();
    let mut calls = Vec::new();
    for (line, text) in log.lines().enumerate() {
        let Some((thread, text)) = text.split_once(' ') else { continue };
        let text = text.trim_start();
        if let Some(start) = text.strip_suffix("<unfinished ...>") {
            pending.insert(thread, (line, start.trim_end().to_owned()));
            continue;
        }
        let (begun, whole) = match text.strip_prefix("<... ").and_then(|text| text.split_once("resumed>")) {
            Some((_, rest)) => {
                let Some((begun, start)) = pending.remove(thread) else { continue };
                (begun, start + rest)
            }
            None => (line, text.to_owned()),
        };
        calls.extend(call(begun, line, &whole));
    }
    // What never returned was made all the same.
    for (begun, start) in pending.into_values() {
        calls.extend(call(begun, usize::MAX, &format!("{start}) = ?")));
    }
    calls.sort_by_key(|call| (call.ended, call.begun));
    calls
}

fn call(begun: usize, ended: usize, text: &str) -> Option<Syscall> {
    let (name, rest) = text.split_once('(')?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let (args, result) = rest.rsplit_once(" = ").filter(|_| is_name)?;
    let args = args.trim_end().strip_suffix(')').unwrap_or(args).to_owned();
    let digits = result.bytes().take_while(u8::is_ascii_digit).count();
    Some(Syscall {
        begun,
        ended,
        name: name.to_owned(),
        args,
        returned: result.get(..digits).and_then(|digits| digits.parse().ok()),
        opened: result.get(digits..).and_then(|rest| path_in(rest)).map(str::to_owned),
        injected: result.ends_with("(INJECTED)"),
    })
}

/// Returns the path in `<path>` at the start of a text.
fn path_in(text: &str) -> Option<&str> {
    Some(text.strip_prefix('<')?.split_once('>')?.0)
}

impl Syscall {
    /// Returns the path of the descriptor that is the first argument.
    pub fn descriptor(&self) -> Option<&str> {
        path_in(self.args.trim_start_matches(|c: char| c.is_ascii_digit()))
    }

    /// Returns the paths that the arguments name: each below the folder that stands before it, if one does.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        let mut folder = None;
        for argument in self.args.split(", ") {
            if let Some(quoted) = argument.strip_prefix('"') {
                let name = quoted.trim_end_matches('"');
                let below = folder.take().filter(|_| !name.starts_with('/'));
                paths.push(match below {
                    Some(folder) if name == "." => folder,
                    Some(folder) => format!("{folder}/{name}"),
                    None => name.to_owned(),
                });
            } else {
                folder =
                    argument.split_once('<').and_then(|(_, path)| path.strip_suffix('>')).map(str::to_owned);
            }
        }
        paths
    }

    /// Returns the argument at a place counted from the end, as a number.
    pub fn number_from_end(&self, at: usize) -> Option<u64> {
        self.args.rsplit(", ").nth(at)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
7 mkdir(\"/h/a\", 0700) = 0
8 openat(3</h>, \"b\", O_WRONLY|O_CREAT, 0600 <unfinished ...>
7 fsync(15</h/x.tmp>) = -1 EIO (Input/output error) (INJECTED)
8 <... openat resumed>) = 4</h/b>
8 pwrite64(4</h/b>, \"a = b\", 5, 10) = 5
8 renameat(3</h>, \"b\", 3</h>, \"c\") = 0
9 write(4</h/b>, \"x\", 1 <unfinished ...>
7 +++ exited with 0 +++
";

    #[test]
    fn a_log_is_understood() {
        let calls = parse(LOG);
        let told: Vec<_> =
            calls.iter().map(|call| (call.name.as_str(), call.returned, call.injected)).collect();
        let expected = [
            ("mkdir", Some(0), false),
            ("fsync", None, true),
            ("openat", Some(4), false),
            ("pwrite64", Some(5), false),
            ("renameat", Some(0), false),
            ("write", None, false),
        ];
        assert_eq!(told, expected);
        assert_eq!((calls[2].begun, calls[2].ended, calls[2].opened.as_deref()), (1, 3, Some("/h/b")));
        assert_eq!(calls[1].descriptor(), Some("/h/x.tmp"));
        assert_eq!(calls[0].paths(), ["/h/a"]);
        assert_eq!(calls[4].paths(), ["/h/b", "/h/c"]);
        assert_eq!((calls[3].number_from_end(0), calls[3].number_from_end(1)), (Some(10), Some(5)));
        assert_eq!(calls[5].ended, usize::MAX);
    }
}
