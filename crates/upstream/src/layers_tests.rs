//! The folders of this crate import only what is below them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// From the bottom up, with the folders that each may import.
const LAYERS: [(&str, &[&str]); 14] = [
    ("sanitize", &[]),
    ("backoff", &[]),
    ("shutdown", &[]),
    ("program_digests", &[]),
    ("transport", &["program_digests", "sanitize", "shutdown"]),
    ("oauth", &["sanitize", "shutdown", "transport"]),
    ("rpc", &["sanitize", "transport"]),
    ("trust", &[]),
    ("spec", &["shutdown", "transport", "trust"]),
    ("status", &["trust"]),
    ("catalog", &["backoff", "rpc", "sanitize", "spec", "status", "transport", "trust"]),
    ("call", &["catalog", "rpc", "sanitize", "transport"]),
    ("subscribe", &["backoff", "rpc", "transport"]),
    (
        "supervise",
        &["backoff", "call", "catalog", "rpc", "spec", "status", "subscribe", "transport", "trust"],
    ),
];

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else {
            into.push(path);
        }
    }
}

/// Returns the modules that follow `crate::` in a text.
fn imports(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split("crate::").skip(1))
        .filter_map(|after| after.split(|c: char| !(c.is_alphanumeric() || c == '_')).next())
}

#[test]
fn a_folder_imports_only_what_is_below_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let layers = BTreeMap::from(LAYERS);
    let (mut files, mut forbidden) = (Vec::new(), Vec::new());
    sources(&src, &mut files);
    for file in files {
        let path = file.strip_prefix(&src).unwrap();
        let layer = path.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_owned();
        // These two see everything.
        if ["lib", "provider", "layers_tests"].contains(&layer.as_str()) {
            continue;
        }
        let allowed = layers.get(layer.as_str()).unwrap_or_else(|| panic!("`{layer}` has no layer"));
        for import in imports(&fs::read_to_string(&file).unwrap()) {
            if import != layer && !allowed.contains(&import) {
                forbidden.push(format!("{} imports `{import}`", path.display()));
            }
        }
    }
    assert_eq!(forbidden, Vec::<String>::new());
}

#[test]
fn no_layer_is_above_itself() {
    for (at, (layer, allowed)) in LAYERS.iter().enumerate() {
        let below: Vec<&str> = LAYERS[..at].iter().map(|(below, _)| *below).collect();
        assert!(allowed.iter().all(|import| below.contains(import)), "{layer}");
    }
}
