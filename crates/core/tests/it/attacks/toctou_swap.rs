//! TOCTOU: a folder replaced by a link to the outside between check and use.

use crate::fixture::{BYTES_MAX, CANARY, Fixture};
use portcullis_core::root::{RootError, RootedPath};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

const SWAPS: usize = 2_000;

#[test]
fn a_swapped_folder_never_leads_out() {
    let fixture = Fixture::new();
    let inside = fixture.inside();
    std::fs::create_dir(inside.join("swap")).unwrap();
    std::fs::write(inside.join("swap/CANARY"), "inside").unwrap();
    symlink("../secure", inside.join("other")).unwrap();
    let before = fixture.outside();

    let done = AtomicBool::new(false);
    let (mut seen_inside, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..SWAPS {
                let (a, b) = (inside.join("swap"), inside.join("other"));
                renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        let canary = RootedPath::parse("swap/CANARY").unwrap();
        let new = RootedPath::parse("swap/new/file").unwrap();
        let mut last_round = false;
        while !last_round {
            // One more round after the last swap, so that there is always one.
            last_round = done.load(Ordering::Acquire);
            match fixture.root.read(&canary, BYTES_MAX) {
                Ok(content) => {
                    assert_ne!(content, CANARY.as_bytes());
                    seen_inside += 1;
                }
                Err(RootError::Outside | RootError::Busy) => refused += 1,
                Err(other) => panic!("{other:?}"),
            }
            let _ = fixture.root.list(&RootedPath::parse("swap").unwrap(), 10).map(|listed| {
                assert!(listed.entries.iter().all(|entry| entry.name != "CANARY" || entry.size == 6));
            });
            let _ = fixture.root.write(&new, b"WRITTEN");
            let _ = fixture.root.append(&new, b"WRITTEN", BYTES_MAX);
        }
    });
    println!("{SWAPS} swaps, {seen_inside} reads inside, {refused} refused");
    assert!(seen_inside + refused > 0);
    assert_eq!(fixture.outside(), before);
}
