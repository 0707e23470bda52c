//! A symbolic link in the tree that leads out of it (CVE-2025-53109).

use crate::fixture::Fixture;
use portcullis_core::root::RootError;

#[test]
fn no_link_leads_out() {
    let fixture = Fixture::new();
    for path in [
        "link_abs",
        "link_rel",
        "link_chain",
        "link_loop",
        "link_dir",
        "link_dir/CANARY",
        "link_dir_abs/passwd",
        "link_root/etc/passwd",
        "link_dot/link_rel",
        "link_dot/link_dot/link_dir/CANARY",
        "link_dangling_out",
        "link_dangling_out/x",
    ] {
        fixture.check_refused(path);
    }
    assert!(matches!(fixture.read("link_rel"), Err(RootError::Outside)));
}

#[test]
fn a_link_that_stays_inside_is_read_but_never_written_through() {
    let fixture = Fixture::new();
    assert_eq!(fixture.read("link_dot/notes/todo.md").unwrap(), b"milk");
    assert!(matches!(fixture.write("link_dot/notes/todo.md"), Err(RootError::Link)));
    assert_eq!(fixture.read("notes/todo.md").unwrap(), b"milk");
}

#[test]
fn a_walk_and_a_sweep_stay_inside() {
    let fixture = Fixture::new();
    let before = fixture.outside();
    // Outside the root, with the name of a temporary file.
    let name = format!(".portcullis-{}.tmp", "0".repeat(32));
    let walked = fixture.root.walk(10_000, 64).unwrap();
    let files: Vec<&str> = walked.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(files, ["notes/todo.md"]);
    std::fs::write(fixture.ws().join("secure").join(&name), "x").unwrap();
    assert_eq!(fixture.root.sweep().unwrap(), 0);
    std::fs::remove_file(fixture.ws().join("secure").join(&name)).unwrap();
    assert_eq!(fixture.outside(), before);
}
