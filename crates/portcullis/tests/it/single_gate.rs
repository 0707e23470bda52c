//! Only `guard::stack` builds a gate, outside of tests and the benchmark, and other promises of ARCHITECTURE.md about who may name
//! what. Every crate is scanned.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Returns a file's lines up to its tests. A declaration of a test module in a file of its own does not end it.
fn product_lines(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    let begins_tests = |at: usize| {
        lines[at].trim() == "#[cfg(test)]"
            && lines
                .get(at + 1)
                .is_some_and(|next| next.trim_start().starts_with("mod ") && next.ends_with('{'))
    };
    let end = (0..lines.len()).find(|at| begins_tests(*at)).unwrap_or(lines.len());
    lines[..end].to_vec()
}

/// Returns the product's files in which a line has one of these words, relative to `crates/`.
fn files_with(words: &[&str]) -> Vec<PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    for package in std::fs::read_dir(crates).unwrap() {
        sources(&package.unwrap().path().join("src"), &mut found);
    }
    found.sort();
    let is_test = |path: &Path| {
        let name = path.file_stem().unwrap().to_str().unwrap();
        name.ends_with("tests") || name.starts_with("test_") || name == "testing"
    };
    let has = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap();
        product_lines(&text).iter().any(|line| words.iter().any(|word| line.contains(word)))
    };
    let found = found.into_iter().filter(|path| !is_test(path) && has(path));
    found.map(|path| path.strip_prefix(crates).unwrap().to_owned()).collect()
}

#[test]
fn only_the_stack_builds_a_gate() {
    // The benchmark measures what the layers cost against a gate that has none; its crate is never shipped.
    let expected = [Path::new("bench/src/bin/bench-load/gate.rs"), Path::new("guard/src/stack.rs")];
    assert_eq!(files_with(&["Gate::new("]), expected);
    // The owners decide on whose behalf the hub may act.
    assert_eq!(files_with(&[".with_owners("]), [Path::new("guard/src/stack.rs")]);
}

#[test]
fn only_transports_make_calls_of_clients() {
    // The hub's own calls are made by `Gate::call_as`, with a principal.
    let expected = [
        Path::new("bench/src/abuse/file_access.rs"),
        Path::new("bench/src/bin/bench-load/gate.rs"),
        Path::new("core/src/call.rs"),
        Path::new("server/src/dispatch.rs"),
    ];
    assert_eq!(files_with(&[" Call::new(", "(Call::new(", "::Call::new("]), expected);
}

#[test]
fn only_the_admin_page_acts_for_administrators() {
    let expected = [Path::new("ops/src/hub_desk/tools.rs")];
    assert_eq!(files_with(&["Principal::administrator("]), expected);
}

#[test]
fn only_config_names_the_list_of_families() {
    let files = files_with(&["FAMILIES"]);
    let crates: BTreeSet<_> = files.iter().filter_map(|path| path.iter().next()?.to_str()).collect();
    assert_eq!(crates, BTreeSet::from(["config", "tools"]), "{files:?}");
}
