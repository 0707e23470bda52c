//! A workspace with traps: links that lead out, a hard link, a pipe, and siblings with similar names.

use data_encoding::HEXLOWER;
use portcullis_core::Root;
use portcullis_core::root::{RootError, RootedPath};
use sha2::{Digest, Sha256};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The content of every file outside, which must never be returned.
pub(crate) const CANARY: &str = "CANARY-OUTSIDE";
/// Larger than any file of the fixture.
pub(crate) const BYTES_MAX: usize = 1024 * 1024;

pub(crate) struct Fixture {
    base: TempDir,
    pub(crate) root: Root,
}

impl Fixture {
    pub(crate) fn new() -> Fixture {
        // On tmpfs, thousands of fsyncs are fast.
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let ws = base.path().join("ws");
        for folder in ["ai-data/notes", "ai-data/a/b/c", "secure", "ai-data-evil", "ai-data2", "ai-data.bak"]
        {
            fs::create_dir_all(ws.join(folder)).unwrap();
        }
        for neighbour in ["secure", "ai-data-evil", "ai-data2", "ai-data.bak"] {
            fs::write(ws.join(neighbour).join("CANARY"), CANARY).unwrap();
        }
        let inside = ws.join("ai-data");
        fs::write(inside.join("notes/todo.md"), "milk").unwrap();
        for (target, link) in [
            ("/etc/passwd", "link_abs"),
            ("../secure/CANARY", "link_rel"),
            ("../secure", "link_dir"),
            ("link_rel", "link_chain"),
            ("link_loop", "link_loop"),
            ("/etc", "link_dir_abs"),
            ("/proc/self", "link_proc"),
            ("/", "link_root"),
            (".", "link_dot"),
            ("/dev/zero", "link_dev_zero"),
            ("../secure/new", "link_dangling_out"),
        ] {
            symlink(target, inside.join(link)).unwrap();
        }
        fs::hard_link(ws.join("secure/CANARY"), inside.join("hardlink_canary")).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, inside.join("fifo"), rustix::fs::FileType::Fifo, mode, 0)
            .unwrap();
        let root = Root::open(&inside).unwrap();
        Fixture { base, root }
    }

    /// Returns the folder that holds the root and its siblings.
    pub(crate) fn ws(&self) -> PathBuf {
        self.base.path().join("ws")
    }

    pub(crate) fn inside(&self) -> PathBuf {
        self.ws().join("ai-data")
    }

    /// Returns a digest of everything outside the root: names, modes and contents.
    pub(crate) fn outside(&self) -> String {
        let mut hash = Sha256::new();
        digest_into(&mut hash, self.base.path(), &self.inside());
        hash.update(fs::read("/etc/passwd").unwrap_or_default());
        HEXLOWER.encode(&hash.finalize())
    }

    pub(crate) fn read(&self, path: &str) -> Result<Vec<u8>, RootError> {
        self.root.read(&RootedPath::parse(path)?, BYTES_MAX)
    }

    pub(crate) fn write(&self, path: &str) -> Result<(), RootError> {
        self.root.write(&RootedPath::parse(path)?, b"WRITTEN").map(drop)
    }

    pub(crate) fn append(&self, path: &str) -> Result<(), RootError> {
        self.root.append(&RootedPath::parse(path)?, b"WRITTEN", BYTES_MAX).map(drop)
    }

    pub(crate) fn list(&self, path: &str) -> Result<Vec<String>, RootError> {
        let listed = self.root.list(&RootedPath::parse(path)?, 10_000)?;
        Ok(listed.entries.into_iter().map(|entry| entry.name).collect())
    }

    /// Asserts that every operation refuses a path, and that nothing outside changes.
    pub(crate) fn check_refused(&self, path: &str) {
        let before = self.outside();
        assert!(self.read(path).is_err(), "read {path:?}");
        assert!(self.list(path).is_err(), "list {path:?}");
        assert!(self.write(path).is_err(), "write {path:?}");
        assert!(self.append(path).is_err(), "append {path:?}");
        assert_eq!(self.outside(), before, "{path:?} changed something outside");
    }
}

fn digest_into(hash: &mut Sha256, path: &Path, leave_out: &Path) {
    if path == leave_out {
        return;
    }
    let metadata = fs::symlink_metadata(path).unwrap();
    hash.update(path.as_os_str().as_encoded_bytes());
    hash.update(metadata.permissions().mode().to_le_bytes());
    if metadata.is_dir() {
        let mut inner: Vec<PathBuf> =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        inner.sort();
        inner.iter().for_each(|path| digest_into(hash, path, leave_out));
    } else {
        hash.update(fs::read(path).unwrap());
    }
}
