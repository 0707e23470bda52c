//! `cargo xtask words`: names that a newcomer can guess, and hops that lead somewhere.
//!
//! A public type name has one meaning in the workspace, a file is named after what is in it, and every link in the
//! walkthroughs of CONTRIBUTING.md names a file and an item that exist.

use crate::layout::Layout;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// File names that say nothing about what is inside.
const MEANINGLESS: [&str; 45] = [
    "about", "again", "alone", "asides", "aside", "beside", "clean", "common", "done", "found", "greet",
    "heard", "held", "helpers", "hidden", "kept", "known", "left", "look", "looked", "misc", "outside",
    "own", "packed", "parts", "patience", "place", "ran", "recall", "said", "seen", "shown", "stands",
    "story", "stuff", "talk", "things", "tiny", "told", "util", "utils", "voice", "waits", "whole", "why",
];

/// A walkthrough is read in one sitting.
const HOPS_MAX: usize = 9;
const WALKTHROUGHS: usize = 3;

/// Looks at every source file and at the walkthroughs, and returns whether all is well.
pub(crate) fn run(layout: &Layout) -> Result<bool> {
    let mut problems = Vec::new();
    let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in sources(&layout.root)? {
        let shown = layout.shown(&file).to_string();
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if MEANINGLESS.contains(&stem.as_str()) {
            problems.push(format!(
                "{shown}: the file name says nothing; name it after the type or the job in it"
            ));
        }
        if file.extension().is_some_and(|extension| extension == "html") {
            continue;
        }
        for (line, name) in public_types(&fs::read_to_string(&file)?) {
            types.entry(name).or_default().push(format!("{shown}:{line}"));
        }
    }
    for (name, places) in types.iter().filter(|(_, places)| places.len() > 1) {
        problems.push(format!("`{name}` means {} things: {}", places.len(), places.join(", ")));
    }
    let guide = fs::read_to_string(layout.root.join("CONTRIBUTING.md")).context("CONTRIBUTING.md")?;
    problems.extend(check_walkthroughs(&layout.root, &guide));
    for problem in &problems {
        println!("{problem}");
    }
    println!("{} public type names, {} problems", types.len(), problems.len());
    Ok(problems.is_empty())
}

/// Returns the sources and templates of the product, and the sources of the tasks. Files of tests have names for their tests alone.
fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for package in fs::read_dir(root.join("crates"))? {
        let package = package?.path();
        collect(&package.join("src"), &mut found)?;
        let templates = package.join("templates");
        if templates.is_dir() {
            collect(&templates, &mut found)?;
        }
    }
    collect(&root.join("xtask/src"), &mut found)?;
    found.sort();
    Ok(found)
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if stem == "tests" || stem.ends_with("_tests") {
            continue;
        }
        if path.is_dir() {
            collect(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "html") {
            found.push(path);
        }
    }
    Ok(())
}

/// Returns the types that a file shows to others, with their lines. What stands in its test module is not shown.
fn public_types(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_tests = false;
    for (at, line) in text.lines().enumerate() {
        if line.starts_with("mod tests {") {
            in_tests = true;
        }
        let Some(rest) = line.strip_prefix("pub").filter(|_| !in_tests) else { continue };
        let rest = match rest.strip_prefix('(') {
            Some(scope) => scope.split_once(')').map_or("", |(_, rest)| rest),
            None => rest,
        };
        let mut words = rest.split_whitespace();
        let kind = words.next().unwrap_or_default();
        if ["struct", "enum", "trait", "type", "union"].contains(&kind) {
            let name = words.next().unwrap_or_default();
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
            found.push((at + 1, name.get(..end).unwrap_or_default().to_owned()));
        }
    }
    found
}

/// Checks that each walkthrough is short and that each of its hops exists: `[text](path#item)`.
fn check_walkthroughs(root: &Path, guide: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut walkthroughs = 0;
    let sections = guide.split("\n### Walkthrough: ").skip(1);
    for section in sections {
        walkthroughs += 1;
        let title = section.lines().next().unwrap_or_default();
        let section = section.split("\n## ").next().unwrap_or_default();
        let section = section.split("\n### ").next().unwrap_or_default();
        let hops = links(section);
        if hops.is_empty() || hops.len() > HOPS_MAX {
            problems.push(format!(
                "CONTRIBUTING.md: `{title}` has {} hops, expected 1 to {HOPS_MAX}",
                hops.len()
            ));
        }
        for hop in hops {
            let (path, item) = hop.split_once('#').unwrap_or((hop, ""));
            let text = fs::read_to_string(root.join(path)).unwrap_or_default();
            if !defines(&text, item) {
                problems.push(format!("CONTRIBUTING.md: `{title}`: there is no `{item}` in {path}"));
            }
        }
    }
    if walkthroughs != WALKTHROUGHS {
        problems.push(format!("CONTRIBUTING.md has {walkthroughs} walkthroughs, expected {WALKTHROUGHS}"));
    }
    problems
}

fn links(text: &str) -> Vec<&str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(link, _)| link)).collect()
}

/// Returns whether a source defines an item: a function, a type, a constant.
fn defines(text: &str, item: &str) -> bool {
    let kinds = ["fn", "struct", "enum", "trait", "type", "const"];
    !item.is_empty()
        && text.lines().any(|line| {
            kinds.iter().any(|kind| {
                let Some((_, rest)) = line.split_once(&format!("{kind} {item}")) else { return false };
                !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_others_see_are_found() {
        let text = "pub struct A;\nstruct B;\npub(crate) enum C<T> {}\npub(in crate::x) type D = A;\npub trait E: F {\n    type G;\n}\n#[cfg(test)]\nmod tests {\npub struct H;\n}";
        let names: Vec<_> = public_types(text).into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["A", "C", "D", "E"]);
    }

    #[test]
    fn hops_have_to_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let guide = |hop: &str| {
            let one = format!("\n### Walkthrough: a\n1. [x]({hop})\n");
            format!("{one}{one}{one}## Next\n[y](nowhere)")
        };
        assert_eq!(check_walkthroughs(root, &guide("src/words.rs#check_walkthroughs")), Vec::<String>::new());
        assert_eq!(check_walkthroughs(root, &guide("src/words.rs#check_walkthrough")).len(), 3);
        assert_eq!(check_walkthroughs(root, "no walkthrough").len(), 1);
    }
}
