//! A vault and the real program: what is told before anything is used, and one note from end to end.

use crate::support::{home, stdio, text};
use portcullis_testkit::process::{TestHome, UNHURRIED, run};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

fn git(folder: &Path, args: &[&str]) {
    let mut command = Command::new("git");
    command
        .current_dir(folder)
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1");
    let output = command.output().unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes an empty repository beside the home, and a configuration that syncs with it.
fn synced() -> TestHome {
    let home = home();
    git(&home.user(), &["init", "-q", "--bare", "-b", "main", "notes.git"]);
    let repo = home.user().join("notes.git");
    home.configure(&format!("{UNHURRIED}[vault]\ngit_repo = {repo:?}\nauto_sync = true\n"));
    home
}

/// Returns what `doctor` says of the vault: status, and all its words.
async fn doctor(home: &TestHome, path: Option<&str>) -> (String, String) {
    let mut command = home.command(&["doctor", "--json"]);
    if let Some(path) = path {
        command.env("PATH", path);
    }
    let ran = run(command, "").await;
    let findings: Value = ran.json();
    let vault = findings.as_array().unwrap().iter().find(|finding| finding["what"] == "vault").unwrap();
    let words =
        format!("{} / {}", vault["detail"].as_str().unwrap(), vault["advice"].as_str().unwrap_or_default());
    (vault["status"].as_str().unwrap().to_owned(), words)
}

#[tokio::test]
async fn doctor_says_what_is_missing() {
    let plain = home();
    let (status, words) = doctor(&plain, None).await;
    assert!(status == "ok" && words.starts_with("off; add `[vault]`"), "{words}");

    let home = synced();
    let (status, words) = doctor(&home, None).await;
    assert!(status == "ok" && words.contains("synced with"), "{words}");
    let (status, words) = doctor(&home, Some("/nowhere")).await;
    assert!(
        status == "problem"
            && words.contains("git is not installed")
            && words.contains("apt-get install git"),
        "{words}"
    );

    let vault = home.path().join("vault");
    std::fs::write(vault.join("note.md"), "x").unwrap();
    let (status, words) = doctor(&home, None).await;
    assert!(status == "problem" && words.contains("is not a git repository"), "{words}");
    git(&vault, &["init", "-q"]);
    git(&vault, &["config", "filter.x.clean", "touch /tmp/x"]);
    let (status, words) = doctor(&home, None).await;
    assert!(status == "problem" && words.contains("`filter.x.clean`"), "{words}");
}

#[tokio::test]
async fn the_tools_are_there_when_the_section_is_and_a_push_is_asked_about() {
    let plain = home();
    let listed = plain.run(&["tools", "list"]).await;
    assert!(!listed.stdout.contains("vault_"), "{}", listed.stdout);
    plain.configure(&format!("{UNHURRIED}[vault]\n"));
    let listed = plain.run(&["tools", "list"]).await;
    assert_eq!(listed.stdout.matches("vault_").count(), 4, "{}", listed.stdout);
    // What stays on this machine is allowed, what leaves it is asked about.
    assert_eq!(plain.run(&["policy", "test", "local", "vault_write"]).await.code, 0);
    assert_eq!(synced().run(&["policy", "test", "local", "vault_write"]).await.code, 3);
}

#[tokio::test]
async fn a_note_goes_from_an_agent_to_the_repository() {
    let home = synced();
    let repo = home.user().join("notes.git");
    let rules = "[[policy]]\ntools = [\"vault_*\"]\ndecision = \"allow\"\n";
    home.configure(&format!("{UNHURRIED}[vault]\ngit_repo = {repo:?}\nauto_sync = true\n{rules}"));
    let mut client = stdio(&home, "2025-11-25");
    client.initialize(json!({})).await;
    let written =
        client.call("vault_write", json!({ "path": "a/Note.md", "content": "# Note\nrhubarb\n" })).await;
    assert_eq!(text(&written), "Wrote 15 bytes to a/Note.md; pulled, committed and pushed");
    let found = client.call("vault_search", json!({ "query": "rhubarb" })).await;
    assert_eq!(found["structuredContent"]["results"][0]["excerpts"][0]["line"], 2);
    git(&repo, &["cat-file", "-e", "main:a/Note.md"]);
}
