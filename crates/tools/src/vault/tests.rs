//! The tools on a vault without sync.

mod conflicts;
mod hidden_files;
mod http;
mod index_updates;
mod no_execution;
mod remote;

use super::{VaultConfig, family};
use crate::testing::ToolsFixture;
use portcullis_core::{Output, Target};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A vault in a temporary folder, with a hub.
pub(super) struct VaultFixture {
    pub(super) folder: TempDir,
    pub(super) hub: ToolsFixture,
}

impl VaultFixture {
    pub(super) fn with(files: &[(&str, &str)]) -> VaultFixture {
        let folder = tempfile::tempdir().unwrap();
        let vault = folder.path().join("vault");
        std::fs::create_dir(&vault).unwrap();
        files.iter().for_each(|(path, text)| put(&vault, path, text));
        let config = VaultConfig { path: vault, sync: None };
        let hub = ToolsFixture::only(family(&config).unwrap().family);
        VaultFixture { folder, hub }
    }

    pub(super) fn vault(&self) -> PathBuf {
        self.folder.path().join("vault")
    }

    /// Returns the data of a successful call.
    pub(super) async fn facts(&self, tool: &str, arguments: Value) -> Value {
        facts(&self.hub, tool, arguments).await
    }

    /// Returns the paths that a search finds, best first.
    pub(super) async fn found(&self, query: &str) -> Vec<String> {
        let facts = self.facts("vault_search", json!({ "query": query })).await;
        let results = facts["results"].as_array().unwrap().iter();
        results.map(|result| result["path"].as_str().unwrap().to_owned()).collect()
    }
}

pub(super) async fn facts(hub: &ToolsFixture, tool: &str, arguments: Value) -> Value {
    match hub.call(Target::Tool(tool.to_owned()), arguments).await {
        Ok(Output::Tool(output)) => output.structured.unwrap(),
        other => panic!("{tool}: {other:?}"),
    }
}

pub(super) fn put(vault: &Path, path: &str, text: &str) {
    let path = vault.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

const GARDEN: &[(&str, &str)] = &[
    ("Home.md", "# Home\n\nSee [[Alpha]] and [[Projects/Beta|the other]].\n"),
    (
        "Projects/Alpha.md",
        "---\ntags: [project/active]\naliases: [First]\nstatus: active\n---\n# Alpha plan\n\nThe café is near.\nPlant tomatoes in the garden.\n",
    ),
    ("Projects/Beta.md", "Gardening is slow. #project/done\nThe garden in spring, the garden in autumn.\n"),
    ("Archive/Old.md", "tomatoes in the cellar; in the garden plant tomatoes\n"),
    ("image.png", "not text"),
];

#[tokio::test]
async fn a_search_ranks_and_shows_lines() {
    let vault = VaultFixture::with(GARDEN);
    let shown = vault
        .hub
        .check(&[
            r#"vault_search {"query": "CAFE"}"#,
            r#"vault_search {"query": "garden", "limit": 1}"#,
            r#"vault_search {"query": "nowhere to"}"#,
        ])
        .await;
    insta::assert_snapshot!(shown, @r#"
    > vault_search {"query": "CAFE"}
    json: {"results":[{"path":"Projects/Alpha.md","title":"Alpha plan","score":1.0,"excerpts":[{"line":8,"text":"The café is near."}]}],"total":1,"notice":null}
    > vault_search {"query": "garden", "limit": 1}
    json: {"results":[{"path":"Projects/Beta.md","title":"Beta","score":0.48,"excerpts":[{"line":2,"text":"The garden in spring, the garden in autumn."}]}],"total":3,"notice":null}
    > vault_search {"query": "nowhere to"}
    json: {"results":[],"total":0,"notice":"no note has `nowhere` or `to`; `begin*` finds longer words"}
    "#);
}

#[tokio::test]
async fn every_condition_is_understood() {
    let vault = VaultFixture::with(GARDEN);
    for (query, expected) in [
        ("tomatoes", &["Archive/Old.md", "Projects/Alpha.md"][..]),
        ("\"plant tomatoes\"", &["Archive/Old.md", "Projects/Alpha.md"]),
        ("\"tomatoes in the garden\"", &["Projects/Alpha.md"]),
        ("\"garden plant\"", &["Archive/Old.md"]),
        ("garden -tomatoes", &["Projects/Beta.md"]),
        ("garden -\"plant tomatoes\"", &["Projects/Beta.md"]),
        ("gardening", &["Projects/Beta.md"]),
        ("tag:#project", &["Projects/Alpha.md", "Projects/Beta.md"]),
        ("tag:project/active", &["Projects/Alpha.md"]),
        ("#project/done", &["Projects/Beta.md"]),
        ("tag:#proj", &[]),
        ("path:Projects/", &["Projects/Alpha.md", "Projects/Beta.md"]),
        ("path:projects/ garden -path:Projects/B", &["Projects/Alpha.md"]),
        ("[[Alpha]]", &["Home.md"]),
        ("[[Projects/Beta]]", &["Home.md"]),
        ("[[beta]]", &["Home.md"]),
        ("[status:active]", &["Projects/Alpha.md"]),
        ("[status]", &["Projects/Alpha.md"]),
        ("[status:done]", &[]),
        ("first", &["Projects/Alpha.md"]),
        ("café", &["Projects/Alpha.md"]),
        ("cafe\u{301}", &["Projects/Alpha.md"]),
        ("alpha", &["Projects/Alpha.md", "Home.md"]),
    ] {
        assert_eq!(vault.found(query).await, expected, "{query}");
    }
    let mut begins = vault.found("garden*").await;
    begins.sort();
    assert_eq!(begins, ["Archive/Old.md", "Projects/Alpha.md", "Projects/Beta.md"]);
    let within = vault.facts("vault_search", json!({ "query": "garden", "path": "Archive" })).await;
    assert_eq!((&within["total"], &within["results"][0]["path"]), (&json!(1), &json!("Archive/Old.md")));
}

#[tokio::test]
async fn a_note_is_read_by_path_or_name_with_what_links_to_it() {
    let vault = VaultFixture::with(
        &[GARDEN, &[("A/Same.md", "one"), ("B/Same.md", "two [[A/Same]]"), ("C.md", "[[Same]]")]].concat(),
    );
    let shown = vault
        .hub
        .check(&[
            r#"vault_read {"path": "Alpha"}"#,
            r#"vault_read {"path": "projects/alpha"}"#,
            r#"vault_read {"path": "[[Home#Part|shown]]"}"#,
            r#"vault_read {"path": "A/Same.md"}"#,
            r#"vault_read {"path": "B/Same.md"}"#,
            r#"vault_read {"path": "Same"}"#,
            r#"vault_read {"path": "Nothing"}"#,
            r#"vault_read {"path": "../secret"}"#,
        ])
        .await;
    insta::assert_snapshot!(shown, @r##"
    > vault_read {"path": "Alpha"}
    "---\ntags: [project/active]\naliases: [First]\nstatus: active\n---\n# Alpha plan\n\nThe café is near.\nPlant tomatoes in the garden.\n"
    facts: {"path":"Projects/Alpha.md","content":"---\ntags: [project/active]\naliases: [First]\nstatus: active\n---\n# Alpha plan\n\nThe café is near.\nPlant tomatoes in the garden.\n","title":"Alpha plan","aliases":["First"],"tags":["project/active"],"links":[],"backlinks":["Home.md"],"notice":null}
    > vault_read {"path": "projects/alpha"}
    "---\ntags: [project/active]\naliases: [First]\nstatus: active\n---\n# Alpha plan\n\nThe café is near.\nPlant tomatoes in the garden.\n"
    facts: {"path":"Projects/Alpha.md","content":"---\ntags: [project/active]\naliases: [First]\nstatus: active\n---\n# Alpha plan\n\nThe café is near.\nPlant tomatoes in the garden.\n","title":"Alpha plan","aliases":["First"],"tags":["project/active"],"links":[],"backlinks":["Home.md"],"notice":null}
    > vault_read {"path": "[[Home#Part|shown]]"}
    "# Home\n\nSee [[Alpha]] and [[Projects/Beta|the other]].\n"
    facts: {"path":"Home.md","content":"# Home\n\nSee [[Alpha]] and [[Projects/Beta|the other]].\n","title":"Home","aliases":[],"tags":[],"links":["Alpha","Projects/Beta"],"backlinks":[],"notice":null}
    > vault_read {"path": "A/Same.md"}
    "one"
    facts: {"path":"A/Same.md","content":"one","title":null,"aliases":[],"tags":[],"links":[],"backlinks":["B/Same.md","C.md"],"notice":null}
    > vault_read {"path": "B/Same.md"}
    "two [[A/Same]]"
    facts: {"path":"B/Same.md","content":"two [[A/Same]]","title":null,"aliases":[],"tags":[],"links":["A/Same"],"backlinks":[],"notice":null}
    > vault_read {"path": "Same"}
    invalid_args: 2 notes have the name `Same`: `A/Same.md`, `B/Same.md`
    hint: give the path of one of them
    > vault_read {"path": "Nothing"}
    not_found: note `Nothing` not found
    hint: `vault_search` finds notes by what is in them, `vault_list` shows what exists
    > vault_read {"path": "../secret"}
    denied: path `../secret` leads outside the folder of this tool
    hint: paths are relative, like `notes/todo.md`, and `..` is not allowed
    "##);
}

#[tokio::test]
async fn lists_show_one_folder_or_all_below() {
    let vault = VaultFixture::with(GARDEN);
    let shown = vault
        .hub
        .check(&[
            "vault_list {}",
            r#"vault_list {"path": "Projects"}"#,
            r#"vault_list {"recursive": true}"#,
            r#"vault_list {"path": "Home.md"}"#,
            r#"vault_list {"path": "Gone", "recursive": true}"#,
        ])
        .await;
    insta::assert_snapshot!(shown, @r#"
    > vault_list {}
    json: {"path":".","entries":[{"path":"Archive","kind":"folder","size":0},{"path":"Projects","kind":"folder","size":0},{"path":"Home.md","kind":"note","size":55},{"path":"image.png","kind":"file","size":8}],"truncated":false,"notice":null}
    > vault_list {"path": "Projects"}
    json: {"path":"Projects","entries":[{"path":"Projects/Alpha.md","kind":"note","size":126},{"path":"Projects/Beta.md","kind":"note","size":77}],"truncated":false,"notice":null}
    > vault_list {"recursive": true}
    json: {"path":".","entries":[{"path":"Archive","kind":"folder","size":0},{"path":"Archive/Old.md","kind":"note","size":53},{"path":"Home.md","kind":"note","size":55},{"path":"Projects","kind":"folder","size":0},{"path":"Projects/Alpha.md","kind":"note","size":126},{"path":"Projects/Beta.md","kind":"note","size":77},{"path":"image.png","kind":"file","size":8}],"truncated":false,"notice":null}
    > vault_list {"path": "Home.md"}
    invalid_args: a part of `Home.md` is a file, not a folder
    hint: `vault_list` shows which entries are folders
    > vault_list {"path": "Gone", "recursive": true}
    not_found: folder `Gone` not found
    hint: `vault_list` shows what exists
    "#);
}

#[tokio::test]
async fn what_is_written_is_found_at_once() {
    let vault = VaultFixture::with(GARDEN);
    let shown = vault
        .hub
        .check(&[
            r##"vault_write {"path": "New/Note.md", "content": "# Rhubarb\n[[Home]]\n"}"##,
            r#"vault_search {"query": "rhubarb"}"#,
            r##"vault_write {"path": "New/Note.md", "content": "# Quince\n"}"##,
            r#"vault_search {"query": "rhubarb"}"#,
            r#"vault_write {"path": "New", "content": "x"}"#,
            r#"vault_write {"path": "x.md", "content": "x", "commit_message": "a\u0007b"}"#,
        ])
        .await;
    insta::assert_snapshot!(shown, @r##"
    > vault_write {"path": "New/Note.md", "content": "# Rhubarb\n[[Home]]\n"}
    "Wrote 19 bytes to New/Note.md"
    facts: {"path":"New/Note.md","bytes":19,"created":true,"sync":null}
    > vault_search {"query": "rhubarb"}
    json: {"results":[{"path":"New/Note.md","title":"Rhubarb","score":2.9,"excerpts":[{"line":1,"text":"# Rhubarb"}]}],"total":1,"notice":null}
    > vault_write {"path": "New/Note.md", "content": "# Quince\n"}
    "Wrote 9 bytes to New/Note.md"
    facts: {"path":"New/Note.md","bytes":9,"created":false,"sync":null}
    > vault_search {"query": "rhubarb"}
    json: {"results":[],"total":0,"notice":"no note has `rhubarb`; `begin*` finds longer words"}
    > vault_write {"path": "New", "content": "x"}
    invalid_args: `New` is a folder, not a file
    hint: `vault_list` shows what is in it
    > vault_write {"path": "x.md", "content": "x", "commit_message": "a\u0007b"}
    invalid_args: `commit_message` holds control characters
    hint: use plain text
    "##);
    assert_eq!(std::fs::read_to_string(vault.vault().join("New/Note.md")).unwrap(), "# Quince\n");
}

#[tokio::test]
async fn every_input_has_a_bound() {
    let vault = VaultFixture::with(&[]);
    let long = "x".repeat(1_048_577);
    for (tool, arguments, code) in [
        ("vault_search", json!({ "query": "x".repeat(1_001) }), "too_large"),
        ("vault_search", json!({ "query": "x ".repeat(40) }), "invalid_args"),
        ("vault_search", json!({ "query": "x", "limit": 51 }), "invalid_args"),
        ("vault_search", json!({ "query": "x", "limit": 0 }), "invalid_args"),
        ("vault_write", json!({ "path": "a.md", "content": long }), "too_large"),
        (
            "vault_write",
            json!({ "path": "a.md", "content": "x", "commit_message": "x".repeat(2_001) }),
            "too_large",
        ),
        ("vault_read", json!({ "path": "x".repeat(5_000) }), "invalid_args"),
    ] {
        let outcome = vault.hub.call(Target::Tool(tool.to_owned()), arguments).await;
        assert_eq!(outcome.unwrap_err().kind.code(), code, "{tool}");
    }
}
