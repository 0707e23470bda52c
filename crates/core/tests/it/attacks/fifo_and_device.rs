//! Pipes and devices: opening or reading them would hang or never end.

use crate::fixture::Fixture;
use portcullis_core::root::{FileKind, RootError};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

#[test]
fn a_pipe_answers_at_once() {
    let fixture = Fixture::new();
    assert!(matches!(fixture.read("fifo"), Err(RootError::NotAFile { kind: FileKind::Pipe })));
    assert!(matches!(fixture.append("fifo"), Err(RootError::NotAFile { kind: FileKind::Pipe })));
    assert!(matches!(fixture.write("fifo"), Err(RootError::NotAFile { kind: FileKind::Pipe })));
    fixture.check_refused("fifo");
    fixture.check_refused("link_dev_zero");
}

#[test]
fn a_socket_is_not_a_file() {
    let fixture = Fixture::new();
    let _socket = std::os::unix::net::UnixListener::bind(fixture.inside().join("socket")).unwrap();
    assert!(matches!(fixture.read("socket"), Err(RootError::NotAFile { kind: FileKind::Other })));
    fixture.check_refused("socket");
}

#[test]
fn a_device_is_not_a_file() {
    let fixture = Fixture::new();
    let mode = Mode::from_raw_mode(0o600);
    let made = mknodat(CWD, fixture.inside().join("zero"), FileType::CharacterDevice, mode, makedev(1, 5));
    if let Err(errno) = made {
        println!("skipped: a device cannot be made here ({errno})");
        return;
    }
    // A tmpfs may refuse to open devices at all, which is fine.
    let refused = fixture.read("zero").unwrap_err();
    assert!(
        matches!(refused, RootError::NotAFile { kind: FileKind::Device } | RootError::NotPermitted(_)),
        "{refused:?}"
    );
    fixture.check_refused("zero");
}
