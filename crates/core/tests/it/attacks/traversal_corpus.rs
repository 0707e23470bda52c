//! Path traversal: thousands of spellings, over every operation.
//!
//! The lists are `traversal_hub.jsonl` and `traversal_public.txt` of the shared fixtures. The same check runs on a
//! vulnerable implementation, to show that it detects escapes.

use crate::fixture::{CANARY, Fixture};
use std::fs;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

/// An implementation of file access: the one under test, or a vulnerable one.
trait Door {
    fn read(&self, path: &str) -> Option<Vec<u8>>;
    fn list(&self, path: &str) -> Option<Vec<String>>;
    fn write(&self, path: &str);
}

impl Door for Fixture {
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        Fixture::read(self, path).ok()
    }

    fn list(&self, path: &str) -> Option<Vec<String>> {
        Fixture::list(self, path).ok()
    }

    fn write(&self, path: &str) {
        let _ = Fixture::write(self, path);
    }
}

/// The vulnerable check: normalize the path, then compare string prefixes.
struct Weak<'a>(&'a Fixture);

impl Weak<'_> {
    fn resolve(&self, path: &str) -> Option<PathBuf> {
        let root = self.0.inside();
        let mut clean = PathBuf::new();
        for component in root.join(path.trim_start_matches('/')).components() {
            match component {
                Component::ParentDir => drop(clean.pop()),
                Component::CurDir => {}
                other => clean.push(other),
            }
        }
        clean.to_str()?.starts_with(root.to_str()?).then_some(clean)
    }
}

impl Door for Weak<'_> {
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        let mut options = fs::OpenOptions::new();
        // The vulnerable implementation must not hang the test either.
        let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = options.read(true).custom_flags(nonblock).open(self.resolve(path)?).ok()?;
        let mut content = Vec::new();
        file.take(64 * 1024).read_to_end(&mut content).ok()?;
        Some(content)
    }

    fn list(&self, path: &str) -> Option<Vec<String>> {
        let entries = fs::read_dir(self.resolve(path)?).ok()?;
        Some(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
    }

    fn write(&self, path: &str) {
        let Some(path) = self.resolve(path) else { return };
        // The escape is real, so writes are confined to the fixture.
        let target = path.canonicalize().or_else(|_| path.parent().unwrap_or(&path).canonicalize());
        if target.is_ok_and(|target| target.starts_with(self.0.ws()) && !target.ends_with("fifo")) {
            let _ = fs::write(path, "WRITTEN");
        }
    }
}

#[derive(Debug, Default, PartialEq)]
struct Escapes {
    reads: usize,
    lists: usize,
    written_outside: bool,
}

/// Runs every path through an implementation and counts the escapes.
fn check(door: &dyn Door, fixture: &Fixture, paths: &[String]) -> Escapes {
    let before = fixture.outside();
    let mut escapes = Escapes::default();
    let shows_outside = |content: Vec<u8>| {
        let text = String::from_utf8_lossy(&content).into_owned();
        text.contains(CANARY) || text.contains("root:x:0") || text.contains("PATH=")
    };
    // Reads and lists first: the writes change the tree.
    for path in paths {
        escapes.reads += usize::from(door.read(path).is_some_and(shows_outside));
        let names = door.list(path).unwrap_or_default();
        escapes.lists += usize::from(names.iter().any(|name| name == "CANARY" || name == "passwd"));
    }
    for path in paths {
        door.write(path);
    }
    for path in paths {
        escapes.reads += usize::from(door.read(path).is_some_and(shows_outside));
    }
    escapes.written_outside = fixture.outside() != before;
    escapes
}

/// Returns the shared lists, or `None` if they are missing.
fn shared() -> Option<Vec<String>> {
    let shared = std::env::var_os("PORTCULLIS_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let corpora = shared.join("fixtures/corpora");
    let hub = fs::read_to_string(corpora.join("traversal_hub.jsonl")).ok()?;
    let public = fs::read(corpora.join("traversal_public.txt")).ok()?;
    let hub = hub.lines().map(|line| {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        case["path"].as_str().unwrap().to_owned()
    });
    // A tool argument is text, so invalid UTF-8 arrives as replacement characters.
    let public = public.split(|byte| *byte == b'\n').map(|line| String::from_utf8_lossy(line).into_owned());
    Some(hub.chain(public).collect())
}

/// Returns generated traversal paths: combinations of prefixes, separators and targets.
fn generated() -> Vec<String> {
    let ups = [
        "../",
        "..//",
        "./../",
        "..\\",
        "%2e%2e/",
        "%2e%2e%2f",
        "..%00/",
        "....//",
        "\u{ff0e}\u{ff0e}/",
        "..;/",
    ];
    let throughs = [
        "",
        "/",
        "//",
        "notes/",
        "a/b/c/",
        "x/",
        "link_dot/",
        "link_dir/",
        "link_root/",
        "link_dir_abs/",
        "link_proc/root/",
        "link_proc/cwd/",
        "/workspace/",
        "/proc/self/root/",
        "/proc/self/cwd/",
        "~/",
        "file:///",
    ];
    let targets = [
        "secure/CANARY",
        "ai-data-evil/CANARY",
        "ai-data2/CANARY",
        "ai-data.bak/CANARY",
        "etc/passwd",
        "ws/secure/CANARY",
        "CANARY",
        "passwd",
        "proc/self/environ",
        "",
        ".",
    ];
    let links =
        ["link_abs", "link_rel", "link_chain", "link_loop", "hardlink_canary", "fifo", "link_dev_zero"];
    let mut paths: Vec<String> = links
        .iter()
        .flat_map(|link| {
            ["", "./", "notes/../", "link_dot/", "/workspace/"].map(|before| format!("{before}{link}"))
        })
        .collect();
    for through in throughs {
        for target in targets {
            paths.push(format!("{through}{target}"));
            for up in ups {
                paths.extend([1, 2, 3, 5, 8].map(|count| format!("{through}{}{target}", up.repeat(count))));
            }
        }
    }
    paths
}

#[test]
fn no_path_of_the_lists_leads_out() {
    let mut paths = generated();
    match shared() {
        Some(shared) => paths.extend(shared),
        None => println!("skipped: ../shared is not there; {} generated paths are used", paths.len()),
    }
    let fixture = Fixture::new();
    assert_eq!(check(&fixture, &fixture, &paths), Escapes::default());
    println!("figure:\tescapes by {} paths, read, listed and written\t0\t0\tok", paths.len());
    println!("{} paths, read, listed and written: nothing outside was seen or changed", paths.len());
}

#[test]
fn a_weak_door_is_found_out() {
    let fixture = Fixture::new();
    let mut paths = shared().unwrap_or_default();
    paths.extend(generated());
    let escapes = check(&Weak(&fixture), &fixture, &paths);
    println!("{escapes:?}");
    assert!(escapes.reads > 0 && escapes.lists > 0 && escapes.written_outside, "{escapes:?}");
}
