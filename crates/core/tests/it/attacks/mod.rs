//! One file per attack. Each was, or could have been, a vulnerability.

mod fifo_and_device;
mod full_disk;
mod hard_link;
mod nul_and_controls;
mod proc_magic_link;
mod sibling_prefix;
mod symlink_escape;
mod toctou_swap;
mod traversal_corpus;

/// A file without a `mod` line would be a test that never runs.
#[test]
fn every_attack_runs() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/attacks");
    let named = include_str!("mod.rs");
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let name = file.strip_suffix(".rs").unwrap();
        assert!(name == "mod" || named.contains(&format!("mod {name};\n")), "`{name}` is not in mod.rs");
    }
}
