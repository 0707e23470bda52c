//! The folders of this crate import only what is below them, and no two modules of a folder import each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// From the bottom up, with the folders that each may import. `lib` sees everything.
const LAYERS: [(&str, &[&str]); 16] = [
    ("sanitize", &[]),
    ("backoff", &[]),
    ("shutdown", &[]),
    ("program_digests", &[]),
    ("transport", &["program_digests", "sanitize", "shutdown"]),
    ("oauth", &["sanitize", "shutdown", "transport"]),
    ("rpc", &["sanitize", "transport"]),
    ("trust", &[]),
    ("tool_rules", &[]),
    ("spec", &["shutdown", "tool_rules", "transport", "trust"]),
    ("status", &["trust"]),
    ("catalog", &["backoff", "rpc", "sanitize", "spec", "status", "tool_rules", "transport", "trust"]),
    ("call", &["catalog", "rpc", "sanitize", "transport"]),
    ("subscribe", &["backoff", "rpc", "transport"]),
    (
        "supervise",
        &["backoff", "call", "catalog", "rpc", "spec", "status", "subscribe", "transport", "trust"],
    ),
    ("provider", &["rpc", "spec", "status", "supervise", "trust"]),
];

/// The path of a module below the crate: `["rpc", "demux"]`.
type Module = Vec<String>;

fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, into) } else { into.push(path) }
    }
}

/// The shipped modules with their code.
struct Sources(BTreeMap<Module, String>);

impl Sources {
    fn read() -> Sources {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut found = Vec::new();
        files(&src, &mut found);
        let modules = found.into_iter().map(|file| {
            let path = file.strip_prefix(&src).unwrap().with_extension("");
            let module = path.iter().map(|part| part.to_str().unwrap().to_owned()).collect::<Module>();
            (module, fs::read_to_string(&file).unwrap())
        });
        Sources::of(modules.filter(|(module, _)| !module.last().unwrap().ends_with("_tests")))
    }

    fn of(modules: impl Iterator<Item = (Module, String)>) -> Sources {
        let code = |text: String| {
            let shipped = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let lines = shipped.lines().filter(|line| !line.trim_start().starts_with("//"));
            lines.collect::<Vec<_>>().join("\n")
        };
        Sources(modules.map(|(module, text)| (module, code(text))).collect())
    }

    /// Returns the module that a path leads to, through what modules pass on of their children. `None` is another crate.
    fn resolve(&self, from: &Module, path: &str) -> Option<Module> {
        let mut parts = path.split("::").map(str::trim).peekable();
        let mut at = match *parts.peek()? {
            "crate" => Module::new(),
            "super" | "self" => from.clone(),
            child => {
                let child = [from.as_slice(), &[child.to_owned()]].concat();
                return self.0.contains_key(&child).then_some(child);
            }
        };
        while let Some(part) = parts.next_if(|part| ["crate", "super", "self"].contains(part)) {
            if part == "super" {
                at.pop();
            }
        }
        for part in parts {
            let child = [at.as_slice(), &[part.to_owned()]].concat();
            if self.0.contains_key(&child) {
                at = child;
                continue;
            }
            if at != *from
                && let Some(code) = self.0.get(&at)
            {
                let passed_on = uses(code).into_iter().find(|path| path.rsplit("::").next() == Some(part));
                let child = passed_on.and_then(|path| self.resolve(&at, &path));
                at = child.filter(|child| child.starts_with(&at)).unwrap_or(at);
            }
            break;
        }
        Some(at)
    }

    /// Returns what each module imports of this crate.
    fn imports(&self) -> BTreeSet<(&Module, Module)> {
        let mut imports = BTreeSet::new();
        for (module, code) in &self.0 {
            let paths = uses(code).into_iter().chain(paths(code));
            imports.extend(paths.filter_map(|path| self.resolve(module, &path)).map(|to| (module, to)));
        }
        imports
    }

    /// Returns the modules of one folder that import each other, directly or by others of the folder.
    fn cycles(&self) -> Vec<String> {
        let mut folders = BTreeMap::<Module, BTreeMap<String, BTreeSet<String>>>::new();
        for (from, to) in self.imports() {
            let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            // A module and its parent are one unit.
            if let (Some(from_child), Some(to_child)) = (from.get(common), to.get(common)) {
                let folder = folders.entry(from[..common].to_vec()).or_default();
                folder.entry(from_child.clone()).or_default().insert(to_child.clone());
            }
        }
        let mut cycles = Vec::new();
        for (folder, imports) in &folders {
            for from in imports.keys() {
                let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
                while let Some(to) = open.pop() {
                    let next = imports.get(to).into_iter().flatten().filter(|to| reached.insert(*to));
                    open.extend(next);
                }
                if reached.contains(from) {
                    cycles.push(format!("{}/{from}", folder.join("/")));
                }
            }
        }
        cycles
    }
}

/// Returns the paths of all `use` declarations, one for each name.
fn uses(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let before = code[..at].rsplit('\n').next().unwrap_or_default().trim();
        if before.is_empty() || (before.starts_with("pub") && !before.contains(' ')) {
            let tree = code[at + 4..].split(';').next().unwrap_or_default();
            expand("", tree, &mut found);
        }
    }
    found
}

/// Expands a `use` tree with braces.
fn expand(prefix: &str, tree: &str, into: &mut Vec<String>) {
    let Some((head, rest)) = tree.split_once('{') else {
        let path = format!("{prefix}{}", tree.trim());
        let path = path.split(" as ").next().unwrap_or_default().trim_end_matches("::self");
        return into.push(path.to_owned());
    };
    let (prefix, mut depth, mut item) = (format!("{prefix}{}", head.trim()), 0, String::new());
    let rest = rest.trim_end();
    for c in rest.strip_suffix('}').unwrap_or(rest).chars().chain([',']) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 {
            if !item.trim().is_empty() {
                expand(&prefix, item.trim(), into);
            }
            item.clear();
        } else {
            item.push(c);
        }
    }
}

/// Returns the paths into this crate that stand in the code itself.
fn paths(code: &str) -> Vec<String> {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = code.split(|c| !is_path(c));
    let of_crate = |word: &&str| ["crate::", "super::", "self::"].iter().any(|start| word.starts_with(start));
    words.filter(of_crate).map(|word| word.trim_end_matches(':').to_owned()).collect()
}

#[test]
fn a_folder_imports_only_what_is_below_it() {
    let (sources, layers) = (Sources::read(), BTreeMap::from(LAYERS));
    let mut forbidden = Vec::new();
    for (from, to) in sources.imports() {
        let (layer, Some(import)) = (from[0].as_str(), to.first()) else { continue };
        if layer == "lib" || layer == import {
            continue;
        }
        let allowed = layers.get(layer).unwrap_or_else(|| panic!("`{layer}` has no layer"));
        if !allowed.contains(&import.as_str()) {
            forbidden.push(format!("{} imports `{import}`", from.join("/")));
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

#[test]
fn modules_of_a_folder_do_not_import_each_other() {
    assert_eq!(Sources::read().cycles(), Vec::<String>::new());
}

#[test]
fn a_cycle_is_found_however_it_is_written() {
    let cycles = |a: &str, b: &str| {
        let module = |path: &str| path.split('/').map(str::to_owned).collect::<Module>();
        let folder = "mod a;\nmod b;\npub(crate) use b::{B, self as other};\n";
        let all = [("f", folder), ("f/a", a), ("f/b", b), ("f/b/c", "")];
        Sources::of(all.into_iter().map(|(path, text)| (module(path), text.to_owned()))).cycles()
    };
    let both = ["f/a", "f/b"];
    assert_eq!(cycles("use super::b::B;", "use super::a::{A, self};"), both);
    assert_eq!(cycles("use crate::f::B;", "fn f() { crate::f::a::f() }"), both);
    assert_eq!(cycles("use crate::{x, f::{y, b::c::C}};", "use super::super::f::a;"), both);
    // One direction is not a cycle, nor is a comment or a test.
    assert!(cycles("use super::b::B;", "// use super::a::A;").is_empty());
    let test = "fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::f::a::A;\n}";
    assert!(cycles("use super::b::B;", test).is_empty());
}
