//! Only this crate compares protocol eras and revisions.

use std::fs;
use std::path::{Path, PathBuf};

/// Fakes of other programs and tools of the developers, which speak the revision that they are told to.
const NEVER_SHIPPED: [&str; 3] = ["bench", "hostile", "testkit"];

/// Files that compare eras, each with the reason.
const EXCEPTIONS: [(&str, &str); 1] = [(
    "upstream/src/rpc/handshake.rs",
    "it finds out which era the server speaks, and skips the probe where that is known",
)];

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// Returns whether a line names a particular era or revision, or compares one.
fn compares(line: &str) -> bool {
    let code = line.trim_start();
    let names = ["Era::Sessions", "Era::PerRequest", "Revision::V2"];
    let compares = [".era() ==", ".era() !=", "== era ", "!= era ", ".era() {", "Revision::era) {"];
    !code.starts_with("//") && names.iter().chain(&compares).any(|part| code.contains(part))
}

/// Returns the lines of a source that compare eras, without those of its test module.
fn comparisons(text: &str) -> Vec<&str> {
    let shipped = text.split("\nmod tests {").next().unwrap_or_default();
    shipped.lines().filter(|line| compares(line)).map(str::trim).collect()
}

#[test]
fn no_other_crate_compares_eras() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut files, mut found, mut excepted) = (Vec::new(), Vec::new(), 0);
    for package in fs::read_dir(crates).unwrap() {
        let package = package.unwrap();
        let name = package.file_name().into_string().unwrap();
        let src = package.path().join("src");
        if name != "wire" && !NEVER_SHIPPED.contains(&name.as_str()) && src.is_dir() {
            sources(&src, &mut files);
        }
    }
    assert!(files.len() > 100, "the sources are elsewhere");
    for file in files {
        let shown = file.strip_prefix(crates).unwrap().display().to_string();
        let text = fs::read_to_string(&file).unwrap();
        let lines = comparisons(&text);
        if EXCEPTIONS.iter().any(|(path, _)| *path == shown) {
            assert!(!lines.is_empty(), "{shown} compares no eras any more: remove the exception");
            excepted += 1;
        } else if !shown.ends_with("_tests.rs") {
            found.extend(lines.into_iter().map(|line| format!("{shown}: {line}")));
        }
    }
    assert_eq!(found, Vec::<String>::new(), "ask `ServerDialect` or `ClientDialect` instead");
    assert_eq!(excepted, EXCEPTIONS.len(), "an exception names no file");
}

#[test]
fn a_comparison_is_found() {
    for line in [
        "if self.revision.era() == Era::Sessions {",
        "match revision.era() {",
        "let revision = revision.unwrap_or(Revision::V2026_07_28);",
        "if known != era {",
    ] {
        assert!(compares(line), "{line}");
    }
    for line in [
        "// as of Era::Sessions",
        "method == era::ask_method(kind)",
        "let era = revision.map(Revision::era);",
        "Revision::NEWEST.as_str()",
    ] {
        assert!(!compares(line), "{line}");
    }
}
