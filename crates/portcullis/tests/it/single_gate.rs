//! There is one road: nothing but `guard::stack` builds a gate, outside of tests and the benchmark. Every crate is looked at.

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

/// Returns a file's lines up to its tests.
fn product_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().take_while(|line| line.trim() != "#[cfg(test)]")
}

#[test]
fn only_the_stack_builds_a_gate() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    for package in std::fs::read_dir(crates).unwrap() {
        sources(&package.unwrap().path().join("src"), &mut found);
    }
    found.sort();
    let is_test = |path: &Path| {
        let name = path.file_stem().unwrap().to_str().unwrap();
        name.ends_with("tests") || name == "testing"
    };
    let builders: Vec<PathBuf> = found
        .into_iter()
        .filter(|path| !is_test(path))
        .filter(|path| {
            product_lines(&std::fs::read_to_string(path).unwrap()).any(|line| line.contains("Gate::new("))
        })
        .map(|path| path.strip_prefix(crates).unwrap().to_owned())
        .collect();
    // The benchmark measures what the layers cost against a gate that has none; its crate is never shipped.
    assert_eq!(builders, [Path::new("bench/src/bin/bench-load/gate.rs"), Path::new("guard/src/stack.rs")]);
}
