//! Sync with a bare repository on disk, using real git.

use super::{facts, put};
use crate::testing::ToolsFixture;
use crate::vault::sync::{CommitAuthor, SyncConfig, SyncTimes};
use crate::vault::{VaultConfig, family};
use portcullis_core::{GateHandle, ServiceCtx, SystemClock};
use portcullis_egress::NoSecrets;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Far longer than any sync here takes.
pub(super) const PATIENT: SyncTimes = SyncTimes {
    pull_after: Duration::ZERO,
    within: Duration::from_secs(60),
    retry_after: Duration::from_secs(60),
};

/// A bare repository, a second user with a clone, and the vault.
pub(super) struct SyncFixture {
    pub(super) folder: TempDir,
}

/// Runs git as a user would, without the settings of the user who runs the test.
pub(super) fn git(folder: &Path, args: &[&str]) -> String {
    let ran = plain_git(folder, args);
    assert!(ran.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap().trim_end().to_owned()
}

pub(super) fn plain_git(folder: &Path, args: &[&str]) -> std::process::Output {
    let mut command = Command::new("git");
    command.current_dir(folder).args(args).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("HOME", folder);
    for (name, value) in [("NAME", "Somebody"), ("EMAIL", "somebody@example.com")] {
        command.env(format!("GIT_AUTHOR_{name}"), value).env(format!("GIT_COMMITTER_{name}"), value);
    }
    command.output().unwrap()
}

impl SyncFixture {
    /// Creates a repository with these notes.
    pub(super) fn with(files: &[(&str, &str)]) -> SyncFixture {
        let world = SyncFixture { folder: tempfile::tempdir().unwrap() };
        let folder = world.folder.path();
        git(folder, &["init", "-q", "--bare", "-b", "main", "notes.git"]);
        git(folder, &["clone", "-q", "notes.git", "other"]);
        git(&world.other(), &["checkout", "-q", "-b", "main"]);
        if !files.is_empty() {
            world.elsewhere(files);
        }
        world
    }

    pub(super) fn bare(&self) -> PathBuf {
        self.folder.path().join("notes.git")
    }

    pub(super) fn other(&self) -> PathBuf {
        self.folder.path().join("other")
    }

    pub(super) fn vault(&self) -> PathBuf {
        self.folder.path().join("vault")
    }

    /// The second user changes notes and pushes them.
    pub(super) fn elsewhere(&self, files: &[(&str, &str)]) {
        let other = self.other();
        if plain_git(&other, &["rev-parse", "@{u}"]).status.success() {
            git(&other, &["pull", "-q", "--rebase"]);
        }
        files.iter().for_each(|(path, text)| put(&other, path, text));
        git(&other, &["add", "-A"]);
        git(&other, &["commit", "-q", "-m", "elsewhere"]);
        git(&other, &["push", "-q", "-u", "origin", "main"]);
    }

    pub(super) fn config(&self) -> SyncConfig {
        SyncConfig {
            address: self.bare().to_str().unwrap().parse().unwrap(),
            user: "git".to_owned(),
            token: None,
            secrets: Arc::new(NoSecrets),
            author: CommitAuthor { name: "Hub".to_owned(), email: "hub@example.com".to_owned() },
            times: PATIENT,
        }
    }

    pub(super) fn hub(&self) -> ToolsFixture {
        self.hub_with(self.config())
    }

    pub(super) fn hub_with(&self, sync: SyncConfig) -> ToolsFixture {
        let config = VaultConfig { path: self.vault(), sync: Some(sync) };
        ToolsFixture::only(family(&config).unwrap().family)
    }

    /// Returns a hub whose service runs.
    fn serving_hub_with(&self, sync: SyncConfig) -> ToolsFixture {
        let config = VaultConfig { path: self.vault(), sync: Some(sync) };
        let provided = family(&config).unwrap();
        let ctx = ServiceCtx {
            shutdown: CancellationToken::new(),
            calls_over: CancellationToken::new(),
            clock: Arc::new(SystemClock),
            gate: GateHandle::default(),
        };
        assert_eq!(provided.services.len(), 1);
        for service in provided.services {
            tokio::spawn(service.run(ctx.clone()));
        }
        ToolsFixture::only(provided.family)
    }

    /// Returns a note from the remote.
    pub(super) fn there(&self, path: &str) -> Option<String> {
        let ran = plain_git(&self.bare(), &["show", &format!("main:{path}")]);
        ran.status.success().then(|| String::from_utf8(ran.stdout).unwrap())
    }

    pub(super) fn here(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.vault().join(path)).ok()
    }

    /// Returns `git status` of the vault.
    pub(super) fn status(&self) -> String {
        git(&self.vault(), &["status", "--porcelain", "--branch"])
    }
}

pub(super) async fn write(hub: &ToolsFixture, path: &str, content: &str) -> Value {
    facts(hub, "vault_write", json!({ "path": path, "content": content })).await["sync"].clone()
}

const SYNCED: (&str, &str) = ("Home.md", "home\n");

fn done(pulled: bool, committed: bool, pushed: bool) -> Value {
    json!({ "pulled": pulled, "committed": committed, "pushed": pushed, "conflicts": [], "problem": null })
}

#[tokio::test]
async fn a_search_waits_for_the_clone_that_began_before_it() {
    let world = SyncFixture::with(&[("Plan.md", "Buy oat milk.\n")]);
    let times = SyncTimes { pull_after: Duration::from_secs(60), ..PATIENT };
    let hub = world.serving_hub_with(SyncConfig { times, ..world.config() });
    // Single-threaded: enough yields for the clone to begin, and far fewer than it takes.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.here("Plan.md"), None, "the clone has only begun");
    let facts = facts(&hub, "vault_search", json!({ "query": "milk" })).await;
    assert_eq!(facts["results"][0]["path"], "Plan.md", "{facts}");
}

#[tokio::test]
async fn an_empty_folder_is_cloned_and_what_is_written_is_pushed() {
    let world = SyncFixture::with(&[SYNCED, ("Projects/Beta.md", "beta [[Home]]\n")]);
    let hub = world.hub();
    let shown = hub
        .check(&[
            r#"vault_read {"path": "Home"}"#,
            r#"vault_search {"query": "beta"}"#,
            r#"vault_write {"path": "Projects/Alpha.md", "content": "alpha\n", "commit_message": "Say alpha"}"#,
            r#"vault_write {"path": "Projects/Alpha.md", "content": "alpha\n"}"#,
        ])
        .await;
    insta::assert_snapshot!(shown, @r#"
    > vault_read {"path": "Home"}
    "home\n"
    facts: {"path":"Home.md","content":"home\n","title":null,"aliases":[],"tags":[],"links":[],"backlinks":["Projects/Beta.md"],"notice":null}
    > vault_search {"query": "beta"}
    json: {"results":[{"path":"Projects/Beta.md","title":"Beta","score":1.31,"excerpts":[{"line":1,"text":"beta [[Home]]"}]}],"total":1,"notice":null}
    > vault_write {"path": "Projects/Alpha.md", "content": "alpha\n", "commit_message": "Say alpha"}
    "Wrote 6 bytes to Projects/Alpha.md; pulled, committed and pushed"
    facts: {"path":"Projects/Alpha.md","bytes":6,"created":true,"sync":{"pulled":true,"committed":true,"pushed":true,"conflicts":[],"problem":null}}
    > vault_write {"path": "Projects/Alpha.md", "content": "alpha\n"}
    "Wrote 6 bytes to Projects/Alpha.md; pulled; the text is the same as before"
    facts: {"path":"Projects/Alpha.md","bytes":6,"created":false,"sync":{"pulled":true,"committed":false,"pushed":true,"conflicts":[],"problem":null}}
    "#);
    assert_eq!(world.there("Projects/Alpha.md").as_deref(), Some("alpha\n"));
    assert_eq!(
        git(&world.bare(), &["log", "-1", "--format=%an <%ae> %s", "main"]),
        "Hub <hub@example.com> Say alpha"
    );
    assert_eq!(world.status(), "## main...origin/main");
}

#[tokio::test]
async fn an_empty_repository_gets_its_first_note() {
    let world = SyncFixture::with(&[]);
    let hub = world.hub();
    assert_eq!(write(&hub, "First.md", "first\n").await, done(true, true, true));
    assert_eq!(world.there("First.md").as_deref(), Some("first\n"));
}

#[tokio::test]
async fn only_the_written_note_is_in_the_commit() {
    let world = SyncFixture::with(&[SYNCED, ("Edited.md", "old\n"), ("Staged.md", "old\n")]);
    let hub = world.hub();
    facts(&hub, "vault_list", json!({})).await;
    let vault = world.vault();
    put(&vault, "Edited.md", "edited by hand\n");
    put(&vault, "Staged.md", "staged by hand\n");
    put(&vault, "Untracked.md", "new by hand\n");
    git(&vault, &["add", "Staged.md"]);
    assert_eq!(write(&hub, "Home.md", "written\n").await, done(true, true, true));
    assert_eq!(git(&world.bare(), &["show", "--name-only", "--format=", "main"]), "Home.md");
    assert_eq!(world.there("Edited.md").as_deref(), Some("old\n"));
    assert_eq!(world.status(), "## main...origin/main\n M Edited.md\nM  Staged.md\n?? Untracked.md");

    // Control: `git add -A`, as most programs do it, commits everything.
    git(&vault, &["add", "-A"]);
    git(&vault, &["commit", "-q", "-m", "weak"]);
    assert_ne!(git(&vault, &["show", "--name-only", "--format=", "HEAD"]), "Home.md");
}

#[tokio::test]
async fn a_read_pulls_when_the_last_pull_is_old_and_not_before() {
    let world = SyncFixture::with(&[SYNCED]);
    let patient = SyncTimes { pull_after: Duration::from_secs(3_600), ..PATIENT };
    let fresh = world.hub();
    assert_eq!(facts(&fresh, "vault_read", json!({ "path": "Home.md" })).await["content"], "home\n");
    world.elsewhere(&[("Home.md", "changed\n"), ("New.md", "new\n")]);
    assert_eq!(facts(&fresh, "vault_read", json!({ "path": "Home.md" })).await["content"], "changed\n");
    assert_eq!(
        facts(&fresh, "vault_search", json!({ "query": "new" })).await["results"][0]["path"],
        "New.md"
    );
    drop(fresh);

    let lazy = world.hub_with(SyncConfig { times: patient, ..world.config() });
    assert_eq!(facts(&lazy, "vault_read", json!({ "path": "Home.md" })).await["content"], "changed\n");
    world.elsewhere(&[("Home.md", "changed again\n")]);
    assert_eq!(facts(&lazy, "vault_read", json!({ "path": "Home.md" })).await["content"], "changed\n");
}

#[tokio::test]
async fn a_push_that_is_refused_says_so_and_is_tried_again() {
    let world = SyncFixture::with(&[SYNCED]);
    let hook = world.bare().join("hooks/pre-receive");
    put(&world.bare(), "hooks/pre-receive", "#!/bin/sh\nexit 1\n");
    executable(&hook);
    let hub = world.hub();
    let shown = hub
        .check(&[r#"vault_write {"path": "a.md", "content": "a\n"}"#, r#"vault_read {"path": "a.md"}"#])
        .await;
    insta::assert_snapshot!(shown, @r#"
    > vault_write {"path": "a.md", "content": "a\n"}
    "Wrote 2 bytes to a.md; written, not pushed: the remote refused the push; it is tried again"
    facts: {"path":"a.md","bytes":2,"created":true,"sync":{"pulled":true,"committed":true,"pushed":false,"conflicts":[],"problem":"the remote refused the push"}}
    > vault_read {"path": "a.md"}
    "a\n\n\n[saved locally, not pushed yet: the remote refused the push]"
    facts: {"path":"a.md","content":"a\n","title":null,"aliases":[],"tags":[],"links":[],"backlinks":[],"notice":"saved locally, not pushed yet: the remote refused the push"}
    "#);
    assert_eq!(world.there("a.md"), None);
    std::fs::remove_file(hook).unwrap();
    // The next call tries again.
    let read = facts(&hub, "vault_read", json!({ "path": "a.md" })).await;
    assert_eq!((&read["content"], &read["notice"]), (&json!("a\n"), &Value::Null));
    assert_eq!(world.there("a.md").as_deref(), Some("a\n"));
}

#[tokio::test]
async fn a_push_is_tried_again_without_a_call() {
    let world = SyncFixture::with(&[SYNCED]);
    let away = world.folder.path().join("away.git");
    let times = SyncTimes { retry_after: Duration::from_millis(20), ..PATIENT };
    let hub = world.serving_hub_with(SyncConfig { times, ..world.config() });
    facts(&hub, "vault_list", json!({})).await;
    std::fs::rename(world.bare(), &away).unwrap();
    let sync = write(&hub, "a.md", "a\n").await;
    assert_eq!((&sync["committed"], &sync["pushed"]), (&json!(true), &json!(false)));
    assert_eq!(sync["problem"], "the remote repository was not found; check `vault.git_repo`");
    std::fs::rename(&away, world.bare()).unwrap();
    let arrives = async {
        while world.there("a.md").is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), arrives).await.unwrap();
}

#[tokio::test]
async fn what_the_repository_ignores_stays_here() {
    let world = SyncFixture::with(&[SYNCED, (".gitignore", "Private/\n")]);
    let hub = world.hub();
    let sync = write(&hub, "Private/Diary.md", "dear\n").await;
    assert_eq!((&sync["committed"], &sync["pushed"]), (&json!(false), &json!(false)));
    assert_eq!(sync["problem"], "the repository ignores this path, so it stays on this machine");
    assert_eq!(
        (world.here("Private/Diary.md").as_deref(), world.there("Private/Diary.md")),
        (Some("dear\n"), None)
    );
}

#[tokio::test]
async fn writes_at_the_same_time_all_arrive() {
    const WRITES: usize = 6;
    let world = SyncFixture::with(&[SYNCED]);
    let hub = world.hub();
    let (paths, texts): (Vec<String>, Vec<String>) =
        (0..WRITES).map(|n| (format!("note {n}.md"), format!("text {n}\n"))).unzip();
    let written = paths.iter().zip(&texts).map(|(path, text)| write(&hub, path, text));
    for sync in futures_of(written).await {
        assert_eq!(sync, done(true, true, true));
    }
    for (path, text) in paths.iter().zip(&texts) {
        assert_eq!(world.there(path).as_ref(), Some(text));
    }
    assert_eq!(git(&world.bare(), &["rev-list", "--count", "main"]), (WRITES + 1).to_string());
    assert_eq!(world.status(), "## main...origin/main");
}

async fn futures_of<F: Future<Output = Value>>(all: impl Iterator<Item = F>) -> Vec<Value> {
    let mut all: Vec<_> = all.map(std::boxed::Box::pin).collect();
    let mut done = Vec::new();
    std::future::poll_fn(|context| {
        all.retain_mut(|one| match one.as_mut().poll(context) {
            std::task::Poll::Ready(value) => {
                done.push(value);
                false
            }
            std::task::Poll::Pending => true,
        });
        if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done
}

#[tokio::test]
async fn a_folder_with_notes_is_not_cloned_over() {
    let world = SyncFixture::with(&[SYNCED]);
    put(&world.vault(), "Mine.md", "mine\n");
    let hub = world.hub();
    let read = facts(&hub, "vault_read", json!({ "path": "Mine.md" })).await;
    assert_eq!(
        read["notice"],
        "the vault could not be synced: the folder has files, but is not a git repository"
    );
    assert_eq!(world.here("Home.md"), None);
    assert!(!world.vault().join(".git").exists());
}

#[tokio::test]
async fn a_clone_that_was_cut_short_is_finished() {
    let world = SyncFixture::with(&[SYNCED, ("b.md", "b\n")]);
    // As after a kill: a partial clone.
    put(&world.vault(), ".portcullis-clone-abc/.git/half", "");
    facts(&world.hub(), "vault_list", json!({})).await;
    assert_eq!(world.here("Home.md").as_deref(), Some("home\n"));
    assert!(!world.vault().join(".portcullis-clone-abc").exists());

    // And a clone in place with missing files, one of which was edited since.
    std::fs::remove_file(world.vault().join("b.md")).unwrap();
    put(&world.vault(), "Home.md", "edited\n");
    put(&world.vault(), ".git/portcullis-unfinished", "");
    let listed = facts(&world.hub(), "vault_list", json!({})).await;
    assert_eq!(listed["notice"], Value::Null);
    assert_eq!(
        (world.here("b.md").as_deref(), world.here("Home.md").as_deref()),
        (Some("b\n"), Some("edited\n"))
    );
    assert_eq!(world.status(), "## main...origin/main\n M Home.md");
}

#[tokio::test]
async fn what_a_person_is_in_the_middle_of_is_left_alone() {
    let world = SyncFixture::with(&[SYNCED]);
    let hub = world.hub();
    facts(&hub, "vault_list", json!({})).await;
    let head = git(&world.vault(), &["rev-parse", "HEAD"]);
    put(&world.vault(), ".git/MERGE_HEAD", &head);
    let sync = write(&hub, "a.md", "a\n").await;
    assert_eq!(sync["problem"], "the repository is in the middle of a merge");
    assert_eq!((&sync["committed"], world.here("a.md").as_deref()), (&json!(false), Some("a\n")));
    assert_eq!(git(&world.vault(), &["rev-parse", "HEAD"]), head);
}

#[tokio::test]
async fn a_remote_that_hangs_is_given_up() {
    let world = SyncFixture::with(&[SYNCED]);
    facts(&world.hub(), "vault_list", json!({})).await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/notes.git", listener.local_addr().unwrap());
    // Accepts a connection and never responds. Returns when the client has closed it.
    let silent = std::thread::spawn(move || {
        let (mut visitor, _) = listener.accept().unwrap();
        std::io::Read::read_to_end(&mut visitor, &mut Vec::new()).map(|_| ()).unwrap_or_default();
    });
    let times = SyncTimes { within: Duration::from_millis(700), ..PATIENT };
    let config = SyncConfig { address: address.parse().unwrap(), times, ..world.config() };
    let hub = world.hub_with(config);
    let sync = write(&hub, "a.md", "a\n").await;
    assert_eq!((&sync["committed"], &sync["pushed"]), (&json!(true), &json!(false)));
    assert!(sync["problem"].as_str().unwrap().starts_with("git took longer than "), "{sync}");
    // The helper process that had the connection is gone as well.
    silent.join().unwrap();
    assert_eq!(world.here("a.md").as_deref(), Some("a\n"));
}

pub(super) fn executable(file: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
}
