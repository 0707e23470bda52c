//! A disk that runs full in the middle of a write: the old content stays, and the error says why.

use portcullis_core::Root;
use portcullis_core::root::{RootError, RootedPath, WriteSummary};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A tmpfs of one mebibyte, unmounted when dropped.
struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    /// Returns `None` if this user may not mount.
    fn mount() -> Option<SmallDisk> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(folder.path());
        let output = mount.output().ok()?;
        output.status.success().then_some(SmallDisk { folder })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.folder.path()).status();
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_full_disk_leaves_the_old_content() {
    let Some(disk) = SmallDisk::mount() else {
        println!("skipped: a file system cannot be mounted here");
        return;
    };
    let root = Root::open(disk.path()).unwrap();
    let path = RootedPath::parse("notes.md").unwrap();
    let old = vec![b'o'; 400 * 1024];
    root.write(&path, &old).unwrap();

    assert!(matches!(root.write(&path, &vec![b'n'; 900 * 1024]), Err(RootError::NoSpace)));
    assert!(matches!(root.append(&path, &vec![b'n'; 400 * 1024], 1 << 20), Err(RootError::NoSpace)));
    assert_eq!(root.read(&path, 1 << 20).unwrap(), old);
    assert_eq!(files(disk.path()), [disk.path().join("notes.md")], "nothing half-written is left");

    // Once there is space, writes succeed again.
    assert_eq!(root.write(&path, b"small").unwrap(), WriteSummary { bytes: 5, created: false });
}
