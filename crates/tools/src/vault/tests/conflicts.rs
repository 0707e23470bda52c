//! The same note changed on both sides: nothing is lost, and no step is left half done.

use super::remote::{SyncFixture, git, plain_git, write};
use super::{facts, put};
use serde_json::json;
use std::path::Path;

const NOTE: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n";

/// Invariants after any sync: no merge in progress, no conflict markers in a note.
fn problems(vault: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    for state in ["MERGE_HEAD", "rebase-merge", "rebase-apply"] {
        if vault.join(".git").join(state).exists() {
            problems.push(state.to_owned());
        }
    }
    for entry in std::fs::read_dir(vault).unwrap().flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        if text.contains("<<<<<<<") || text.contains(">>>>>>>") {
            problems.push(entry.file_name().into_string().unwrap());
        }
    }
    problems
}

#[tokio::test]
async fn both_versions_are_kept_and_the_answer_says_so() {
    let world = SyncFixture::with(&[("Note.md", NOTE)]);
    let hub = world.hub();
    facts(&hub, "vault_read", json!({ "path": "Note.md" })).await;
    world.elsewhere(&[("Note.md", &NOTE.replace("four", "four of theirs"))]);
    let ours = NOTE.replace("four", "four of ours");
    let shown = hub.check(&[&format!("vault_write {}", json!({ "path": "Note.md", "content": ours }))]).await;
    let kept_as =
        shown.split("\"kept_as\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap().to_owned();
    insta::assert_snapshot!(shown.replace(&kept_as, "Note (conflict X).md"), @r#"
    > vault_write {"path":"Note.md","content":"one\ntwo\nthree\nfour of ours\nfive\nsix\nseven\n"}
    "Wrote 42 bytes to Note.md; pulled, committed and pushed\nConflict: `Note.md` was also changed remotely. Both versions were saved: read `Note.md` and `Note (conflict X).md`, and write one that has both."
    facts: {"path":"Note.md","bytes":42,"created":false,"sync":{"pulled":true,"committed":true,"pushed":true,"conflicts":[{"path":"Note.md","kept_as":"Note (conflict X).md"}],"problem":null}}
    "#);
    for version in [world.here("Note.md"), world.there("Note.md")] {
        assert_eq!(version, Some(NOTE.replace("four", "four of theirs")));
    }
    for version in [world.here(&kept_as), world.there(&kept_as)] {
        assert_eq!(version, Some(ours.clone()));
    }
    assert_eq!(problems(&world.vault()), Vec::<String>::new());
    assert_eq!(world.status(), "## main...origin/main");
    let found = facts(&hub, "vault_search", json!({ "query": "ours" })).await;
    assert_eq!(found["results"][0]["path"], kept_as);
}

/// Control: a plain `git pull --rebase` leaves the repository in the middle of a rebase.
#[tokio::test]
async fn a_plain_pull_is_found_out() {
    let world = SyncFixture::with(&[("Note.md", NOTE)]);
    facts(&world.hub(), "vault_list", json!({})).await;
    world.elsewhere(&[("Note.md", &NOTE.replace("four", "four of theirs"))]);
    let vault = world.vault();
    put(&vault, "Note.md", &NOTE.replace("four", "four of ours"));
    git(&vault, &["commit", "-q", "-a", "-m", "ours"]);
    assert!(!plain_git(&vault, &["pull", "-q", "--rebase", "origin", "main"]).status.success());
    assert!(problems(&vault).len() >= 2, "{:?}", problems(&vault));
}

#[tokio::test]
async fn changes_to_different_lines_are_put_together() {
    let world = SyncFixture::with(&[("Note.md", NOTE)]);
    let hub = world.hub();
    facts(&hub, "vault_read", json!({ "path": "Note.md" })).await;
    world.elsewhere(&[("Note.md", &NOTE.replace("one", "ONE")), ("Other.md", "other\n")]);
    let sync = write(&hub, "Note.md", &NOTE.replace("seven", "SEVEN")).await;
    assert_eq!((&sync["pushed"], &sync["conflicts"]), (&json!(true), &json!([])));
    let both = NOTE.replace("one", "ONE").replace("seven", "SEVEN");
    assert_eq!((world.here("Note.md"), world.there("Note.md")), (Some(both.clone()), Some(both)));
    assert_eq!(world.here("Other.md").as_deref(), Some("other\n"));
}

#[tokio::test]
async fn what_was_removed_there_and_changed_here_lives() {
    let world = SyncFixture::with(&[("Note.md", NOTE), ("Stays.md", "x\n")]);
    let hub = world.hub();
    facts(&hub, "vault_read", json!({ "path": "Note.md" })).await;
    std::fs::remove_file(world.other().join("Note.md")).unwrap();
    git(&world.other(), &["commit", "-q", "-a", "-m", "removed"]);
    world.elsewhere(&[("Stays.md", "y\n")]);
    let sync = write(&hub, "Note.md", "changed\n").await;
    assert_eq!(sync["pushed"], true);
    assert_eq!(
        (world.here("Note.md").as_deref(), world.there("Note.md").as_deref()),
        (Some("changed\n"), Some("changed\n"))
    );
}

#[tokio::test]
async fn what_a_person_has_not_committed_is_never_overwritten() {
    let world =
        SyncFixture::with(&[("Note.md", NOTE), ("Home.md", "home\n"), (".obsidian/workspace.json", "{}\n")]);
    let hub = world.hub();
    facts(&hub, "vault_list", json!({})).await;
    let vault = world.vault();
    put(&vault, "Note.md", "edited by hand\n");
    put(&vault, "New.md", "new by hand\n");
    put(&vault, ".obsidian/workspace.json", "{\"mine\": 1}\n");
    world.elsewhere(&[
        ("Note.md", "edited elsewhere\n"),
        ("New.md", "new elsewhere\n"),
        ("Home.md", "home elsewhere\n"),
        (".obsidian/workspace.json", "{\"theirs\": 1}\n"),
    ]);
    let read = facts(&hub, "vault_read", json!({ "path": "Home.md" })).await;
    assert_eq!(read["content"], "home elsewhere\n");
    assert!(
        read["notice"].as_str().unwrap().starts_with("changed on both sides, both versions are kept: "),
        "{read}"
    );
    assert_eq!(world.here("Note.md").as_deref(), Some("edited by hand\n"));
    assert_eq!(world.here("New.md").as_deref(), Some("new by hand\n"));
    assert_eq!(world.here(".obsidian/workspace.json").as_deref(), Some("{\"mine\": 1}\n"));
    let mut copies: Vec<String> = std::fs::read_dir(&vault)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("(conflict"))
        .map(|name| world.here(&name).unwrap())
        .collect();
    copies.sort();
    assert_eq!(copies, ["edited elsewhere\n", "new elsewhere\n"]);
    // A second read has no notice.
    assert_eq!(facts(&hub, "vault_read", json!({ "path": "Home.md" })).await["notice"], json!(null));
    assert_eq!(world.there("Note.md").as_deref(), Some("edited elsewhere\n"));
}

#[tokio::test]
async fn commits_of_a_person_keep_their_author() {
    let world = SyncFixture::with(&[("Note.md", NOTE)]);
    let hub = world.hub();
    facts(&hub, "vault_list", json!({})).await;
    put(&world.vault(), "Mine.md", "mine\n");
    git(&world.vault(), &["add", "Mine.md"]);
    git(&world.vault(), &["commit", "-q", "-m", "By hand\n\nWith a body."]);
    world.elsewhere(&[("Other.md", "other\n")]);
    facts(&hub, "vault_list", json!({})).await;
    let log = git(&world.bare(), &["log", "-1", "--format=%an|%B", "main"]);
    assert_eq!(log.trim_end(), "Somebody|By hand\n\nWith a body.");
    assert_eq!(world.there("Other.md").as_deref(), Some("other\n"));
}
