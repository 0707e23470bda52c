//! No file of these tests is forgotten: each is named as a module by the file above it.

use std::path::{Path, PathBuf};

/// Returns every file below `folder` that `parent` does not name.
fn forgotten(parent: &Path, folder: &Path) -> Vec<PathBuf> {
    let declared = std::fs::read_to_string(parent).unwrap();
    let mut missing = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            missing.extend(forgotten(&folder.join(format!("{stem}.rs")), &path));
            continue;
        }
        let is_named =
            declared.lines().any(|line| line.trim_start_matches("pub(crate) ") == format!("mod {stem};"));
        if path.extension().is_some_and(|extension| extension == "rs") && path != parent && !is_named {
            missing.push(path);
        }
    }
    missing
}

#[test]
fn every_file_is_part_of_the_tests() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    assert_eq!(forgotten(&folder.join("main.rs"), &folder), Vec::<PathBuf>::new());
}

#[test]
fn a_file_that_nobody_names_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    std::fs::create_dir(folder.path().join("known")).unwrap();
    write("main.rs", "mod known;\n");
    write("known.rs", "mod inner;\n");
    write("known/inner.rs", "");
    write("known/stray.rs", "");
    let missing = forgotten(&folder.path().join("main.rs"), folder.path());
    assert_eq!(missing, [folder.path().join("known/stray.rs")]);
}

/// Cargo would make a binary of its own of every other file in `tests/`.
#[test]
fn there_is_one_binary() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let programs = std::fs::read_dir(tests).unwrap().map(|entry| entry.unwrap()).filter(|entry| {
        let path = entry.path();
        path.extension().is_some_and(|extension| extension == "rs") || path.join("main.rs").exists()
    });
    let names: Vec<_> = programs.map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["it"]);
}
