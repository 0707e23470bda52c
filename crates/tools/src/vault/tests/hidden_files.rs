//! Hidden files of a vault cannot be read, listed, found or written, by any spelling.

use super::{VaultFixture, put};
use portcullis_core::Target;
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const CANARY: &str = "CANARY-HIDDEN";
const HIDDEN: [&str; 8] = [
    ".git/config",
    ".git/hooks/post-commit",
    ".obsidian/plugins/x/main.js",
    ".obsidian/app.json",
    ".gitattributes",
    ".gitmodules",
    ".trash/note.md",
    "sub/.hidden/note.md",
];

fn set_traps(vault: &Path) {
    for path in HIDDEN {
        put(vault, path, CANARY);
    }
    put(vault, "sub/seen.md", "seen\n");
    // Harmless names that link to hidden files.
    for (target, link) in [
        (".git", "git"),
        (".git/config", "config.md"),
        ("../.git/hooks", "sub/hooks"),
        (".", "here"),
        (".trash", "trash"),
    ] {
        symlink(target, vault.join(link)).unwrap();
    }
}

/// Every spelling of a hidden path.
fn paths() -> Vec<String> {
    let mut paths: Vec<String> = HIDDEN.iter().map(|path| (*path).to_owned()).collect();
    for path in HIDDEN {
        for way in ["./", "/workspace/", "/vault/", "here/", "sub/../", "sub/./../", "here/here/", "/"] {
            paths.push(format!("{way}{path}"));
        }
        paths.push(path.to_uppercase());
        paths.push(format!("{path}/"));
    }
    for link in [
        "git/config",
        "git/hooks/post-commit",
        "config.md",
        "config",
        "sub/hooks/post-commit",
        "trash/note.md",
        "trash/note",
    ] {
        paths.push(link.to_owned());
    }
    for folder in
        [".git", ".obsidian", ".obsidian/plugins", "git", "here/.git", "sub/hooks", "trash", "sub/.hidden"]
    {
        paths.push(folder.to_owned());
    }
    paths
}

/// Returns the paths whose result leaks hidden content.
fn leaks(answers: &[(String, String)]) -> Vec<&str> {
    let shows = |answer: &str| {
        answer.contains(CANARY)
            || ["post-commit", "main.js", "app.json", "plugins"].iter().any(|name| answer.contains(name))
    };
    // Errors repeat the requested path, which is no leak.
    let leaked = answers.iter().filter(|(path, answer)| shows(&answer.replace(path.as_str(), "")));
    leaked.map(|(path, _)| path.as_str()).collect()
}

fn contents(vault: &Path) -> Vec<(PathBuf, String)> {
    let read = |path: &str| (vault.join(path), std::fs::read_to_string(vault.join(path)).unwrap());
    HIDDEN.into_iter().map(read).collect()
}

#[tokio::test]
async fn nothing_hidden_is_seen_or_changed() {
    let vault = VaultFixture::with(&[]);
    set_traps(&vault.vault());
    let before = contents(&vault.vault());
    let mut answers = Vec::new();
    for path in paths() {
        for (tool, arguments) in [
            ("vault_read", json!({ "path": path })),
            ("vault_list", json!({ "path": path })),
            ("vault_list", json!({ "path": path, "recursive": true })),
            ("vault_search", json!({ "query": "canary", "path": path })),
            ("vault_write", json!({ "path": path, "content": "WRITTEN" })),
        ] {
            let outcome = vault.hub.call(Target::Tool(tool.to_owned()), arguments).await;
            let answer = crate::testing::shown(outcome);
            answers.push((path.clone(), answer.replace(&path.to_lowercase(), "")));
        }
    }
    for arguments in [json!({}), json!({ "recursive": true })] {
        let listed = vault.facts("vault_list", arguments).await;
        answers.push((String::new(), listed.to_string()));
    }
    assert_eq!(leaks(&answers), Vec::<&str>::new());
    assert_eq!(vault.found("canary").await, Vec::<String>::new());
    assert_eq!(contents(&vault.vault()), before, "nothing hidden was changed");
    // Visible files are still reachable.
    let listed: Value = vault.facts("vault_list", json!({ "path": "sub" })).await;
    assert_eq!(listed["entries"][0]["path"], "sub/seen.md");
    println!("{} paths by 5 ways: nothing hidden was seen or changed", paths().len());
}

/// Control: `Root` alone confines access to the vault, and shows all of it.
#[test]
fn a_vault_that_only_keeps_to_its_folder_is_found_out() {
    let vault = VaultFixture::with(&[]);
    set_traps(&vault.vault());
    let root = portcullis_core::Root::open(&vault.vault()).unwrap();
    let read = |path: String| {
        let rooted = portcullis_core::root::RootedPath::parse(&path).ok()?;
        let content = root.read(&rooted, 1024).ok()?;
        Some((path, String::from_utf8(content).unwrap()))
    };
    let answers: Vec<(String, String)> = paths().into_iter().filter_map(read).collect();
    assert!(leaks(&answers).len() > HIDDEN.len(), "{:?}", leaks(&answers));
    // A check of names alone does not see where links lead.
    let visible: Vec<(String, String)> = answers
        .into_iter()
        .filter(|(path, _)| crate::vault::VaultPath::parse(path, "note").is_ok())
        .collect();
    assert!(!leaks(&visible).is_empty());
}
