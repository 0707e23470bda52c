//! Ordinary use of a root. Attacks have their own files in `tests/it/attacks`.

use super::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use tempfile::TempDir;

fn root() -> (TempDir, Root) {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    (folder, root)
}

fn path(text: &str) -> RootedPath {
    RootedPath::parse(text).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn what_is_written_can_be_read() {
    let (folder, root) = root();
    let written = root.write(&path("notes/deep/todo.md"), b"milk").unwrap();
    assert_eq!(written, WriteSummary { bytes: 4, created: true });
    assert_eq!(root.read(&path("notes/deep/todo.md"), 100).unwrap(), b"milk");

    let written = root.write(&path("notes/deep/todo.md"), b"").unwrap();
    assert_eq!(written, WriteSummary { bytes: 0, created: false });
    assert_eq!(root.read(&path("notes/deep/todo.md"), 100).unwrap(), b"");
    assert_eq!(names(&folder.path().join("notes/deep")), ["todo.md"], "no temporary file is left");
}

#[test]
fn a_replaced_file_keeps_its_mode() {
    let (folder, root) = root();
    let host = folder.path().join("run.sh");
    let mode = || fs::metadata(&host).unwrap().permissions().mode() & 0o7777;
    root.write(&path("run.sh"), b"1").unwrap();
    assert_eq!(mode(), 0o600);
    fs::set_permissions(&host, fs::Permissions::from_mode(0o4754)).unwrap();
    root.write(&path("run.sh"), b"2").unwrap();
    assert_eq!(mode(), 0o754, "all but set-user-id");
    root.append(&path("run.sh"), b"3", 10).unwrap();
    assert_eq!(mode(), 0o754);
}

#[test]
fn sizes_have_bounds() {
    let (_folder, root) = root();
    root.write(&path("ten"), &[0; 10]).unwrap();
    assert_eq!(root.read(&path("ten"), 10).unwrap().len(), 10);
    assert!(matches!(root.read(&path("ten"), 9), Err(RootError::TooLarge { bytes: 10, bytes_max: 9 })));
    let appended = root.append(&path("ten"), &[1; 2], 11);
    assert!(matches!(appended, Err(RootError::TooLarge { bytes: 12, bytes_max: 11 })));
    assert_eq!(root.read(&path("ten"), 10).unwrap(), [0; 10], "a refused append changes nothing");
}

#[test]
fn errors_say_what_a_caller_can_act_on() {
    let (folder, root) = root();
    root.write(&path("a/file"), b"x").unwrap();
    symlink("a/file", folder.path().join("link")).unwrap();
    symlink("a", folder.path().join("folder_link")).unwrap();
    let shown = |result: Result<(), RootError>| result.unwrap_err().to_string();
    let read = |text: &str| shown(root.read(&path(text), 100).map(drop));
    let write = |text: &str| shown(root.write(&path(text), b"y").map(drop));
    let append = |text: &str| shown(root.append(&path(text), b"y", 100).map(drop));
    let list = |text: &str| shown(root.list(&path(text), 100).map(drop));
    for (got, expected) in [
        (read("gone"), "not found"),
        (read("a"), "it is a folder"),
        (read("."), "it is a folder"),
        (read("a/file/x"), "it is not a folder"),
        (write("."), "it is a folder"),
        (write("a"), "it is a folder"),
        (write("a/file/x"), "it is not a folder"),
        (write("link"), "a symbolic link in the path is not followed here"),
        (write("folder_link/x"), "a symbolic link in the path is not followed here"),
        (append("link"), "a symbolic link in the path is not followed here"),
        (append("a"), "it is a folder"),
        (list("gone"), "not found"),
        (list("a/file"), "it is not a folder"),
    ] {
        assert_eq!(got, expected);
    }
    // A link that stays inside is followed for reading.
    assert_eq!(root.read(&path("link"), 100).unwrap(), b"x");
    assert_eq!(root.read(&path("folder_link/file"), 100).unwrap(), b"x");
    assert_eq!(root.stat(&path("link")).unwrap(), FileStatus { kind: FileKind::File, size: 1 });
    assert_eq!(root.stat(&path(".")).unwrap().kind, FileKind::Directory);
}

#[test]
fn a_list_has_folders_first_and_shows_every_name() {
    use std::os::unix::ffi::OsStrExt;
    let (folder, root) = root();
    root.write(&path("b/x"), b"").unwrap();
    root.write(&path("a.md"), b"123").unwrap();
    root.write(&path(".hidden"), b"1").unwrap();
    symlink("/etc/passwd", folder.path().join("link")).unwrap();
    fs::write(folder.path().join(std::ffi::OsStr::from_bytes(b"\xff\x1b.md")), b"").unwrap();
    let entry = |name: &str, kind, size| FolderEntry { name: name.to_owned(), kind, size };
    let mut expected = vec![
        entry("b", FileKind::Directory, 0),
        entry(".hidden", FileKind::File, 1),
        entry("a.md", FileKind::File, 3),
        entry("link", FileKind::Link, 0),
        entry("\\xff\\u{1b}.md", FileKind::File, 0),
    ];
    let listed = root.list(&RootedPath::root(), 5).unwrap();
    assert_eq!(listed, FolderListing { entries: expected.clone(), truncated: false });
    expected.truncate(2);
    assert_eq!(
        root.list(&RootedPath::root(), 2).unwrap(),
        FolderListing { entries: expected, truncated: true }
    );
}

#[test]
fn a_walk_is_in_order_and_does_not_follow_links() {
    let (folder, root) = root();
    for text in ["b/2", "b/1", "a/x/y", "c"] {
        root.write(&path(text), b"1").unwrap();
    }
    symlink(".", folder.path().join("a/loop")).unwrap();
    fs::hard_link(folder.path().join("c"), folder.path().join("c2")).unwrap();
    let files = |walked: &TreeListing| -> Vec<String> {
        walked.files.iter().map(|file| file.path.to_string()).collect()
    };
    let walked = root.walk(100, DEPTH_MAX).unwrap();
    assert_eq!(files(&walked), ["a/x/y", "b/1", "b/2"], "a file with two names is left out");
    assert_eq!(walked.folders, [path("."), path("a"), path("a/x"), path("b")]);
    assert!(!walked.truncated);

    let walked = root.walk(100, 1).unwrap();
    assert_eq!((files(&walked), walked.truncated), (vec!["b/1".to_owned(), "b/2".to_owned()], true));
    let walked = root.walk(4, DEPTH_MAX).unwrap();
    assert_eq!((files(&walked), walked.truncated), (vec!["a/x/y".to_owned()], true));
}

#[test]
fn appends_of_many_threads_are_all_there() {
    const THREADS: usize = 8;
    const APPENDS: usize = 10;
    let (_folder, root) = root();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let root = root.clone();
            scope.spawn(move || {
                for count in 0..APPENDS {
                    root.append(&path("log"), format!("{thread} {count}\n").as_bytes(), 10_000).unwrap();
                }
            });
        }
    });
    let text = String::from_utf8(root.read(&path("log"), 10_000).unwrap()).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), THREADS * APPENDS);
}

#[test]
fn a_sweep_removes_what_a_crash_left_and_nothing_else() {
    use rustix::fs::FlockOperation;
    let (folder, root) = root();
    root.write(&path("a/file"), b"x").unwrap();
    let left_behind = format!(".portcullis-{}.tmp", "0".repeat(32));
    let in_progress = format!(".portcullis-{}.tmp", "1".repeat(32));
    for name in [&left_behind, &in_progress, &".portcullis-notes.tmp".to_owned()] {
        fs::write(folder.path().join("a").join(name), b"half").unwrap();
    }
    let busy = fs::File::open(folder.path().join("a").join(&in_progress)).unwrap();
    rustix::fs::flock(&busy, FlockOperation::LockExclusive).unwrap();

    assert_eq!(root.sweep().unwrap(), 1);
    assert_eq!(names(&folder.path().join("a")), [&in_progress, ".portcullis-notes.tmp", "file"]);
    let listed: Vec<String> =
        root.list(&path("a"), 10).unwrap().entries.into_iter().map(|entry| entry.name).collect();
    assert_eq!(listed, [".portcullis-notes.tmp", "file"], "a write in progress is not shown");
}

#[test]
fn a_root_is_made_for_its_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("a/b");
    assert!(matches!(Root::open(&inner), Err(RootError::NotFound)));
    Root::create(&inner).unwrap();
    assert_eq!(fs::metadata(&inner).unwrap().permissions().mode() & 0o777, 0o700);
    fs::write(folder.path().join("file"), b"").unwrap();
    assert!(matches!(Root::open(&folder.path().join("file")), Err(RootError::NotADirectory)));
}
