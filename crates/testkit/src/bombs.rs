//! Hostile scripts: a built-in set, and an external list that is not part of the repository.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a helper that fails is a test that fails, and one that is skipped says so"
)]

use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Short compared with the time in which a script exhausts its limits.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A script that exceeds its limits.
#[derive(Debug, Clone)]
pub struct Bomb {
    pub name: String,
    pub source: String,
}

/// Time and memory, by loops and by single builtin calls; oversized results and messages; nesting that is
/// invisible before parsing.
const OWN: [(&str, &str); 23] = [
    (
        "grown by appending",
        "def f():\n    l = []\n    for i in range(1000000000):\n        l.append(\"x\" * 100000 + str(i))\nf()",
    ),
    ("sorted at once", "x = sorted([str(i * 7919 % 1000003) for i in range(20000000)])"),
    (
        "a number squared",
        "def f():\n    x = 7\n    for i in range(40):\n        x = x * x\n    return x\nf()",
    ),
    (
        "replaced by more",
        "def f():\n    s = \"a\"\n    for i in range(40):\n        s = s.replace(\"a\", \"aaaaaaaa\")\n    return len(s)\nf()",
    ),
    (
        "shown in full",
        "def f():\n    x = [1]\n    for i in range(40):\n        x = [x, x]\n    return repr(x)\nf()",
    ),
    ("doubled", "def f():\n    l = [1]\n    for i in range(40):\n        l = l + l\n    return len(l)\nf()"),
    ("two billion of nothing", "x = [0] * 2000000000"),
    ("two gigabytes in one", "x = \"a\" * 2000000000"),
    ("one gigabyte in one", "x = \"a\" * 1000000000"),
    ("a hundred megabytes in one", "x = \"a\" * 100000000"),
    ("counted", "x = list(enumerate(range(1000000000)))"),
    ("lists of lists", "x = [[j for j in range(1000)] for i in range(1000000)]"),
    ("a dict of lists", "x = {i: [i] for i in range(100000000)}"),
    ("printed", "def f():\n    for i in range(100000000):\n        print(\"x\" * 1000)\nf()"),
    ("returned", "result = \"x\" * 20000000"),
    ("returned with escapes", "result = \"\\n\" * 1900000"),
    ("failed with much", "fail(\"x\" * 10000000)"),
    ("numbers in JSON", "x = json.decode(\"[\" + \"1,\" * 5000000 + \"1]\")"),
    ("nested in JSON", "x = json.decode(\"[\" * 100000 + \"]\" * 100000)"),
    ("encoded", "x = base64.encode(\"x\" * 60000000)"),
    ("a set", "x = set(range(1000000000))"),
    (
        "structs in structs",
        "def f():\n    x = struct(a = 1)\n    for i in range(1000000):\n        x = struct(a = x)\n    return str(x)\nf()",
    ),
    ("a pattern", "x = re.match(\"(a{1000}){1000}\", \"a\")"),
];

/// Nested scripts, generated because they are long.
fn nested() -> Vec<(&'static str, String)> {
    vec![
        ("signs before a number", format!("x = {}1", "-".repeat(200_000))),
        ("a long sum", format!("x = {}1", "1+".repeat(100_000))),
        ("lambdas", format!("x = {}1", "lambda: ".repeat(30_000))),
        ("conditions", format!("x = {}1", "1 if True else ".repeat(15_000))),
        ("fields of fields", format!("x = a{}", ".b".repeat(120_000))),
        ("functions", (0..9_000).map(|n| format!("def f{n}(): return {n}\n")).collect()),
        ("brackets", format!("x = {}{}", "[".repeat(100_000), "]".repeat(100_000))),
    ]
}

/// Returns the built-in set, and the external list if available.
pub fn bombs() -> Vec<Bomb> {
    let own = OWN.map(|(name, source)| (name, source.to_owned()));
    let own = own.into_iter().chain(nested());
    let mut bombs: Vec<Bomb> = own.map(|(name, source)| Bomb { name: name.to_owned(), source }).collect();
    let shared = std::env::var_os("PORTCULLIS_SHARED").map(PathBuf::from);
    let shared = shared.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"));
    match std::fs::read_to_string(shared.join("fixtures/corpora/starlark_bombs.jsonl")) {
        Ok(list) => bombs.extend(list.lines().map(|line| written_out(&serde_json::from_str(line).unwrap()))),
        Err(_) => eprintln!("skipped: the list of hostile scripts is not there; only our own are tried"),
    }
    bombs
}

/// Expands an entry of the list.
fn written_out(entry: &Value) -> Bomb {
    let name = entry["id"].as_str().unwrap().to_owned();
    if let Some(code) = entry["code"].as_str() {
        return Bomb { name, source: code.to_owned() };
    }
    if let Some(line) = entry["gen_lines"].as_str() {
        let lines = (0..entry["n"].as_u64().unwrap()).map(|n| line.replace("{i}", &n.to_string()) + "\n");
        return Bomb { name, source: lines.collect() };
    }
    let made = &entry["gen"];
    let part = |key: &str| made[key].as_str().unwrap_or_default();
    let times = |key: &str| usize::try_from(made[key].as_u64().unwrap_or(0)).expect("a count");
    let (before, after) = (part("repeat").repeat(times("n")), part("repeat2").repeat(times("n2")));
    let source = format!("{}{before}{}{after}{}", part("prefix"), part("middle"), part("suffix"));
    Bomb { name, source }
}

/// Watches the memory of a process's workers, on its own thread.
pub struct MemoryWatch {
    peak: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryWatch {
    /// Starts to watch the children of a process that have executed another program.
    #[expect(clippy::disallowed_methods, reason = "a thread of its own, which may wait")]
    pub fn begin(pid: u32) -> MemoryWatch {
        let (peak, stop): (Arc<AtomicU64>, Arc<AtomicBool>) = Default::default();
        let (seen, ended) = (peak.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let own = command(&pid.to_string());
            while !ended.load(Ordering::Relaxed) {
                for child in children(pid) {
                    // Before `exec`, its memory is that of the parent.
                    if command(&child).is_some_and(|words| !words.is_empty() && Some(&words) != own.as_ref())
                        && let Some(bytes) = most_memory(&child)
                    {
                        seen.fetch_max(bytes, Ordering::Relaxed);
                    }
                }
                std::thread::sleep(LOOK_EVERY);
            }
        });
        MemoryWatch { peak, stop, thread: Some(thread) }
    }

    /// Returns the peak memory of any one of them, in bytes.
    pub fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it only looks");
        }
        self.peak.load(Ordering::Relaxed)
    }
}

fn command(pid: &str) -> Option<Vec<u8>> {
    std::fs::read(format!("/proc/{pid}/cmdline")).ok()
}

fn children(pid: u32) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

fn most_memory(pid: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}
