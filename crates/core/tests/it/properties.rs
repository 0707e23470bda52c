//! Property tests: no path leads out of the root.

use crate::fixture::{CANARY, Fixture};
use proptest::prelude::*;
use std::sync::LazyLock;

static FIXTURE: LazyLock<Fixture> = LazyLock::new(Fixture::new);

/// Building blocks of traversal paths.
const WORDS: [&str; 28] = [
    "..",
    ".",
    "",
    "notes",
    "todo.md",
    "a",
    "b",
    "secure",
    "CANARY",
    "ai-data-evil",
    "ai-data",
    "etc",
    "passwd",
    "proc",
    "self",
    "root",
    "workspace",
    "link_abs",
    "link_rel",
    "link_dir",
    "link_chain",
    "link_dot",
    "link_dir_abs",
    "link_proc",
    "link_root",
    "hardlink_canary",
    "..\\",
    "%2e%2e",
];

fn a_path() -> impl Strategy<Value = String> {
    let names = prop::collection::vec(prop::sample::select(&WORDS[..]), 1..8);
    (any::<bool>(), names)
        .prop_map(|(absolute, names)| format!("{}{}", if absolute { "/" } else { "" }, names.join("/")))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_read_or_list_shows_what_is_outside(path in a_path()) {
        if let Ok(content) = FIXTURE.read(&path) {
            let text = String::from_utf8_lossy(&content).into_owned();
            prop_assert!(!text.contains(CANARY) && !text.contains("root:x:0"), "{}", path);
        }
        if let Ok(names) = FIXTURE.list(&path) {
            prop_assert!(names.iter().all(|name| name != "CANARY" && name != "passwd"), "{}", path);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_write_changes_what_is_outside(path in a_path()) {
        // Its own tree, so that the reads above do not find files written here.
        static WRITTEN: LazyLock<(Fixture, String)> = LazyLock::new(|| {
            let fixture = Fixture::new();
            let before = fixture.outside();
            (fixture, before)
        });
        let (fixture, before) = &*WRITTEN;
        let _ = fixture.write(&path);
        let _ = fixture.append(&path);
        prop_assert_eq!(&fixture.outside(), before);
    }
}
