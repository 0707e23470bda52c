//! Property: no path escapes its root (path traversal).

use crate::{PropertyResult, hold};
use portcullis_core::Root;
use portcullis_core::root::{DEPTH_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX, RootedPath};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::OnceLock;

pub const WORDS: &[&str] = &[
    "..",
    "/",
    "../",
    "/workspace",
    "./",
    "link_rel",
    "link_dir",
    "link_proc",
    "link_root",
    "link_dot",
    "hard",
    "secure/CANARY",
    "CANARY",
    "%2e%2e",
    "..\\",
    "\0",
    "\u{202e}",
    "\u{ff0e}",
    "self/root",
    "cwd",
    "fd/0",
    "notes/todo.md",
    "etc/passwd",
    "~",
    "-evil",
];
const CANARY: &str = "CANARY-OUTSIDE";

/// Reads a file by a path, if the path is accepted. The system under test; tests substitute a weak one.
pub type OpenFileFn = fn(&PathFixture, &str) -> Option<Vec<u8>>;
/// Returns the normalized path, below the root.
pub type ParsePathFn = fn(&str) -> Option<String>;

/// A root, with secrets next to it and links to them inside.
pub struct PathFixture {
    folder: tempfile::TempDir,
    root: Root,
}

impl PathFixture {
    pub fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("ai-data")
    }

    fn make() -> anyhow::Result<PathFixture> {
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        for name in ["ai-data/notes", "ai-data/a/b", "secure", "ai-data-evil"] {
            std::fs::create_dir_all(at(name))?;
        }
        std::fs::write(at("ai-data/notes/todo.md"), "todo")?;
        for name in ["secure/CANARY", "ai-data-evil/CANARY", "CANARY"] {
            std::fs::write(at(name), CANARY)?;
        }
        for (name, target) in [
            ("link_rel", "../secure/CANARY"),
            ("link_dir", "../secure"),
            ("link_proc", "/proc/self"),
            ("link_root", "/"),
            ("link_dot", "."),
            ("a/link_up", ".."),
        ] {
            symlink(Path::new(target), at("ai-data").join(name))?;
        }
        std::fs::hard_link(at("secure/CANARY"), at("ai-data/hard"))?;
        let root = Root::open(&at("ai-data"))?;
        Ok(PathFixture { folder, root })
    }
}

fn fixture() -> Option<&'static PathFixture> {
    static FIXTURE: OnceLock<Option<PathFixture>> = OnceLock::new();
    FIXTURE.get_or_init(|| PathFixture::make().ok()).as_ref()
}

pub fn check(input: &[u8]) -> PropertyResult {
    let parse: ParsePathFn = |text| Some(RootedPath::parse(text).ok()?.as_str().to_owned());
    let open: OpenFileFn = |fixture, text| fixture.root.read(&RootedPath::parse(text).ok()?, 1 << 16).ok();
    check_with(input, parse, open)
}

pub fn check_with(input: &[u8], parse: ParsePathFn, open: OpenFileFn) -> PropertyResult {
    let text = String::from_utf8_lossy(input);
    if let Some(path) = parse(&text) {
        hold!(path.len() <= PATH_BYTES_MAX, "{} bytes are taken", path.len());
        hold!(!path.starts_with('/'), "`{path}` is absolute");
        hold!(!path.chars().any(char::is_control), "{path:?} has control characters");
        let names: Vec<&str> = path.split('/').filter(|_| path != ".").collect();
        hold!(names.len() <= DEPTH_MAX, "{} names are taken", names.len());
        for name in names {
            hold!(!matches!(name, "" | "." | ".."), "{path:?} has the name {name:?}");
            hold!(name.len() <= NAME_BYTES_MAX, "a name of {} bytes is taken", name.len());
        }
        hold!(parse(&path).as_ref() == Some(&path), "{path:?} is not what it means itself");
    }
    let Some(fixture) = fixture() else { return Err("the folder to look into cannot be made".to_owned()) };
    let found = open(fixture, &text).unwrap_or_default();
    let outside =
        found.windows(CANARY.len()).any(|piece| piece == CANARY.as_bytes()) || found.starts_with(b"root:");
    hold!(!outside, "{text:?} leads outside");
    Ok(())
}
