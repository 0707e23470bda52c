//! A hard link to a file outside the tree. `openat2` does not detect it; the link count does.

use crate::fixture::{CANARY, Fixture};
use portcullis_core::root::RootError;

#[test]
fn a_hard_link_is_neither_read_nor_written() {
    let fixture = Fixture::new();
    let before = fixture.outside();
    assert!(matches!(fixture.read("hardlink_canary"), Err(RootError::HardLink)));
    assert!(matches!(fixture.write("hardlink_canary"), Err(RootError::HardLink)));
    assert!(matches!(fixture.append("hardlink_canary"), Err(RootError::HardLink)));
    assert_eq!(fixture.outside(), before);
    // The kernel has no check for this: the file itself opens.
    assert_eq!(std::fs::read_to_string(fixture.inside().join("hardlink_canary")).unwrap(), CANARY);
}
