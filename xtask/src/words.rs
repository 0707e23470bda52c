//! `cargo xtask words`: names that a newcomer can guess, and hops that lead somewhere.
//!
//! A public type name has one meaning in the workspace, a file is named after what is in it, a sentence names its actor,
//! every source file that a document names exists, and every link in the walkthroughs of CONTRIBUTING.md names a file and an
//! item that exist.

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

/// Words that hide who acts.
const NO_ACTOR: [&str; 3] = ["whoever", "nobody", "somebody"];

/// A walkthrough is read in one sitting.
const HOPS_MAX: usize = 9;
const WALKTHROUGHS: usize = 3;

/// Looks at every source file and at the walkthroughs, and returns whether all is well.
pub(crate) fn run(layout: &Layout) -> Result<bool> {
    let mut problems = Vec::new();
    let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (sources, tests) = (sources(&layout.root)?, test_sources(&layout.root)?);
    for file in sources.iter().chain(&tests) {
        if is_meaningless(file) {
            let shown = layout.shown(file);
            problems.push(format!(
                "{shown}: the file name says nothing; name it after the type or the job in it"
            ));
        }
    }
    for file in &sources {
        let (shown, text) = (layout.shown(file).to_string(), fs::read_to_string(file)?);
        problems.extend(lines_without_actor(&shown, product_lines(&text)));
        if file.extension().is_some_and(|extension| extension == "html") {
            continue;
        }
        for (line, name) in public_types(&text) {
            types.entry(name).or_default().push(format!("{shown}:{line}"));
        }
    }
    let all: Vec<PathBuf> = sources.into_iter().chain(tests).collect();
    for document in documents(&layout.root)? {
        let (shown, text) = (layout.shown(&document).to_string(), fs::read_to_string(&document)?);
        problems.extend(lines_without_actor(&shown, text.lines().enumerate()));
        problems.extend(check_paths(&shown, &text, &all));
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

/// Returns the sources of tests, for the names of their files.
fn test_sources(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for package in fs::read_dir(root.join("crates"))? {
        collect_tests(&package?.path(), false, &mut found)?;
    }
    found.sort();
    Ok(found)
}

fn collect_tests(folder: &Path, are_tests: bool, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let are_tests = are_tests || stem == "tests" || stem.ends_with("_tests");
        if path.is_dir() {
            collect_tests(&path, are_tests, found)?;
        } else if are_tests && path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// Returns the documents at the root and in `docs`.
fn documents(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in [root.to_owned(), root.join("docs")] {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            found.push(entry?.path());
        }
    }
    found.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    found.sort();
    Ok(found)
}

fn is_meaningless(file: &Path) -> bool {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    MEANINGLESS.contains(&stem.as_ref())
}

/// Returns the numbered lines of a source up to its test module.
fn product_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().take_while(|(_, line)| !line.starts_with("mod tests {"))
}

/// Rejects words that hide who acts. One that is a quoted value by itself, such as a stop word, is data.
fn lines_without_actor<'t>(shown: &str, lines: impl Iterator<Item = (usize, &'t str)>) -> Vec<String> {
    let is_hiding = |line: &str| {
        let words = line.split_inclusive(|c: char| !c.is_alphanumeric());
        let mut before = None;
        for word in words {
            let (bare, after) = match word.char_indices().last() {
                Some((at, last)) if !last.is_alphanumeric() => (&word[..at], Some(last)),
                _ => (word, None),
            };
            let is_value = before == Some('"') && after == Some('"');
            if !is_value && NO_ACTOR.iter().any(|hiding| bare.eq_ignore_ascii_case(hiding)) {
                return true;
            }
            before = after;
        }
        false
    };
    let hiding = lines.filter(|(_, line)| is_hiding(line));
    hiding
        .map(|(at, _)| format!("{shown}:{}: name the actor instead of {}", at + 1, NO_ACTOR.join(", ")))
        .collect()
}

/// Checks that each source file that a document names in backticks exists: its path, or the end of it.
fn check_paths(shown: &str, text: &str, files: &[PathBuf]) -> Vec<String> {
    let named = text.lines().enumerate().flat_map(|(at, line)| {
        let quoted = line.split('`').skip(1).step_by(2);
        quoted.map(move |path| (at, path.split("::").next().unwrap_or_default()))
    });
    let is_path = |path: &str| path.ends_with(".rs") && path.len() > 3 && !path.contains([' ', '*', '<']);
    named
        .filter(|(_, path)| is_path(path) && !files.iter().any(|file| file.ends_with(path)))
        .map(|(at, path)| format!("{shown}:{}: there is no `{path}`", at + 1))
        .collect()
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
        for (label, hop) in hops {
            let (path, item) = hop.split_once('#').unwrap_or((hop, ""));
            let text = fs::read_to_string(root.join(path)).unwrap_or_default();
            let exists = match label.trim_matches('`').split_once("::") {
                Some((owner, method)) => method == item && defines_method(&text, owner, item),
                None => defines(&text, item),
            };
            if !exists {
                problems
                    .push(format!("CONTRIBUTING.md: `{title}`: there is no {label} in {path} at `{item}`"));
            }
        }
    }
    if walkthroughs != WALKTHROUGHS {
        problems.push(format!("CONTRIBUTING.md has {walkthroughs} walkthroughs, expected {WALKTHROUGHS}"));
    }
    problems
}

/// Returns the labels and the targets of links.
fn links(text: &str) -> Vec<(&str, &str)> {
    let ends = text.match_indices("](").map(|(at, _)| at);
    let link = |at: usize| {
        let (_, label) = text[..at].rsplit_once('[')?;
        let (target, _) = text[at + 2..].split_once(')')?;
        Some((label, target))
    };
    ends.filter_map(link).collect()
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

/// Returns whether a source defines a method of a type: in one of its `impl` blocks, or in the trait.
fn defines_method(text: &str, owner: &str, method: &str) -> bool {
    let mut is_inside = false;
    text.lines().any(|line| {
        if line.starts_with("impl") || line.contains("trait ") && !line.starts_with(' ') {
            let implemented = line.rsplit_once(" for ").map_or(line, |(_, rest)| rest);
            let mut names = implemented.split(|c: char| !c.is_alphanumeric() && c != '_');
            is_inside = names.any(|name| name == owner);
        } else if line.starts_with('}') {
            is_inside = false;
        }
        is_inside && defines(line, method)
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

    #[test]
    fn a_method_is_one_of_its_type() {
        let text = "impl A {\n    fn own(&self) {}\n}\nimpl<T> B<T> for C {\n    fn given(&self) {}\n}\nfn free() {}\n\
            pub trait D {\n    fn asked(&self);\n}\n";
        for (owner, method) in [("A", "own"), ("C", "given"), ("D", "asked")] {
            assert!(defines_method(text, owner, method), "{owner}::{method}");
        }
        for (owner, method) in [("C", "own"), ("A", "given"), ("B", "given"), ("A", "free"), ("A", "ow")] {
            assert!(!defines_method(text, owner, method), "{owner}::{method}");
        }
    }

    #[test]
    fn a_sentence_names_its_actor() {
        let problems = |line: &str| lines_without_actor("a.rs", [(6, line)].into_iter());
        let told = ["a.rs:7: name the actor instead of whoever, nobody, somebody"];
        for line in ["/// Whoever asks.", "a call that nobody approved", "\"for nobody\"", "somebody's"] {
            assert_eq!(problems(line), told, "{line}");
        }
        for line in ["        | \"somebody\"", "contains(&\"nobody\")", "anybody", "an administrator"] {
            assert_eq!(problems(line), [""; 0], "{line}");
        }
        let text = "a\nmod tests {\nnobody\n";
        assert_eq!(product_lines(text).collect::<Vec<_>>(), [(0, "a")]);
    }

    #[test]
    fn a_file_that_a_document_names_exists() {
        let files = [PathBuf::from("/x/crates/ops/src/output_redaction.rs")];
        let text = "`ops/src/output_redaction.rs` and `output_redaction.rs::text`, `*.rs`, `.rs`\n`gone.rs`, \
            `portcullis/src/output_redaction.rs`, `redaction.rs`\n";
        assert_eq!(
            check_paths("A.md", text, &files),
            [
                "A.md:2: there is no `gone.rs`",
                "A.md:2: there is no `portcullis/src/output_redaction.rs`",
                "A.md:2: there is no `redaction.rs`",
            ]
        );
        assert!(
            is_meaningless(Path::new("a/tests/hidden.rs")) && !is_meaningless(Path::new("a/hidden_names.rs"))
        );
    }
}
