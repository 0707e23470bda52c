//! Magic links of `/proc`, which lead straight to an open file or another root.

use crate::fixture::Fixture;
use portcullis_core::Root;
use portcullis_core::root::{RootError, RootedPath};
use std::path::Path;

#[test]
fn a_link_to_proc_leads_nowhere() {
    let fixture = Fixture::new();
    for path in [
        "link_proc",
        "link_proc/environ",
        "link_proc/root/etc/passwd",
        "link_proc/cwd/Cargo.toml",
        "link_root/proc/self/environ",
        "/proc/self/environ",
        "/dev/fd/0",
    ] {
        fixture.check_refused(path);
    }
}

#[test]
fn even_below_proc_itself_no_magic_link_is_followed() {
    let root = Root::open(Path::new("/proc/self")).unwrap();
    for path in ["root/etc/passwd", "cwd/Cargo.toml", "exe", "fd/0", "task/self/root"] {
        let error = root.read(&RootedPath::parse(path).unwrap(), 100).unwrap_err();
        assert!(matches!(error, RootError::Link | RootError::NotFound), "{path}: {error:?}");
    }
    assert!(matches!(root.list(&RootedPath::parse("root").unwrap(), 10), Err(RootError::Link)));
}
