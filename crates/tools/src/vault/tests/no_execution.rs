//! A vault with planted programs (hooks, filters): none of them runs.

use super::remote::{SyncFixture, executable, git, plain_git, write};
use super::{facts, put};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Every client-side hook of git, and some invented ones.
const HOOKS: [&str; 18] = [
    "applypatch-msg",
    "pre-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "pre-merge-commit",
    "post-merge",
    "pre-rebase",
    "post-rewrite",
    "post-checkout",
    "pre-push",
    "reference-transaction",
    "post-index-change",
    "fsmonitor-watchman",
    "pre-auto-gc",
    "push-to-checkout",
    "sendemail-validate",
    "update",
];

/// A program that leaves a trace file.
fn trap(world: &SyncFixture) -> (PathBuf, PathBuf) {
    let (program, trace) = (world.folder.path().join("trap.sh"), world.folder.path().join("TRACE"));
    std::fs::write(&program, format!("#!/bin/sh\necho ran >> {}\ncat\n", trace.display())).unwrap();
    executable(&program);
    (program, trace)
}

fn set_hooks(vault: &Path, program: &Path) {
    for hook in HOOKS {
        let file = vault.join(".git/hooks").join(hook);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::copy(program, &file).unwrap();
        executable(&file);
    }
}

#[tokio::test]
async fn hooks_and_helpers_do_not_run() {
    let world = SyncFixture::with(&[
        ("Note.md", "one\ntwo\nthree\n"),
        (".gitattributes", "*.md filter=evil diff=evil merge=evil\n"),
    ]);
    let hub = world.hub();
    facts(&hub, "vault_list", json!({})).await;
    let (program, trace) = trap(&world);
    let vault = world.vault();
    set_hooks(&vault, &program);
    let run = program.to_str().unwrap();
    for key in [
        "core.fsmonitor",
        "core.sshCommand",
        "core.editor",
        "sequence.editor",
        "core.pager",
        "core.askPass",
        "credential.helper",
    ] {
        git(&vault, &["config", key, run]);
    }
    git(&vault, &["config", "core.hooksPath", vault.join(".git/hooks").to_str().unwrap()]);
    git(&vault, &["config", "commit.gpgSign", "true"]);
    // A write, a pull, a conflict and a push: every git command that sync uses.
    world.elsewhere(&[("Note.md", "one\nTWO\nthree\n"), ("New.md", "new\n")]);
    let sync = write(&hub, "Note.md", "one\n2\nthree\n").await;
    assert_eq!((&sync["pushed"], &sync["problem"]), (&json!(true), &json!(null)), "{sync}");
    assert_eq!(sync["conflicts"].as_array().unwrap().len(), 1);
    assert!(!trace.exists(), "a program of the vault ran");

    // Control: git with default settings runs them.
    put(&vault, "weak.md", "weak\n");
    plain_git(&vault, &["add", "weak.md"]);
    plain_git(&vault, &["-c", "commit.gpgSign=false", "commit", "-q", "-m", "weak"]);
    assert!(trace.exists());
}

#[tokio::test]
async fn settings_that_start_programs_are_refused() {
    let world = SyncFixture::with(&[("Note.md", "note\n"), (".gitattributes", "*.md filter=evil\n")]);
    let hub = world.hub();
    facts(&hub, "vault_list", json!({})).await;
    let (program, trace) = trap(&world);
    let (vault, run) = (world.vault(), program.to_str().unwrap().to_owned());
    for (key, value) in [
        ("filter.evil.clean", run.as_str()),
        ("filter.evil.process", &run),
        ("merge.evil.driver", &run),
        ("diff.evil.textconv", &run),
        ("remote.origin.uploadpack", &run),
        ("remote.origin.receivepack", &run),
        ("core.alternateRefsCommand", &run),
        ("gpg.program", &run),
        ("core.worktree", "/"),
        ("include.path", "/dev/null"),
        ("url.ext::sh.insteadOf", "/"),
    ] {
        git(&vault, &["config", key, value]);
        let sync = write(&hub, "Note.md", &format!("{key}\n")).await;
        let expected =
            format!("the repository has settings that could start a program: `{}`", key_as_printed(key));
        assert_eq!((&sync["committed"], &sync["problem"]), (&json!(false), &json!(expected)));
        git(&vault, &["config", "--unset-all", key]);
    }
    assert!(!trace.exists(), "a program of the vault ran");
    assert_eq!(write(&hub, "Note.md", "good again\n").await["pushed"], true);

    // Control: without the check, a filter runs as soon as a note is added.
    git(&vault, &["config", "filter.evil.clean", &run]);
    put(&vault, "weak.md", "weak\n");
    plain_git(&vault, &["add", "weak.md"]);
    assert!(trace.exists());
}

/// Git prints the section and the last part in lower case.
fn key_as_printed(key: &str) -> String {
    let (section, rest) = key.split_once('.').unwrap();
    match rest.rsplit_once('.') {
        Some((name, last)) => format!("{}.{name}.{}", section.to_lowercase(), last.to_lowercase()),
        None => key.to_lowercase(),
    }
}

#[tokio::test]
async fn a_repository_elsewhere_is_not_followed() {
    let world = SyncFixture::with(&[("Note.md", "note\n")]);
    std::fs::create_dir(world.vault()).unwrap();
    let elsewhere = world.other().join(".git");
    for (name, make) in [
        ("link", (&|git: &Path| std::os::unix::fs::symlink(&elsewhere, git).unwrap()) as &dyn Fn(&Path)),
        ("file", &|git: &Path| std::fs::write(git, format!("gitdir: {}\n", elsewhere.display())).unwrap()),
    ] {
        let dot_git = world.vault().join(".git");
        make(&dot_git);
        let listed = facts(&world.hub(), "vault_list", json!({})).await;
        assert_eq!(
            listed["notice"],
            "the vault could not be synced: `.git` is a link or a file, which is not supported",
            "{name}"
        );
        std::fs::remove_file(dot_git).unwrap();
    }
}

#[tokio::test]
async fn submodules_are_not_fetched() {
    let world = SyncFixture::with(&[("Note.md", "note\n")]);
    let other = world.other();
    git(
        &other,
        &[
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "-q",
            "add",
            world.bare().to_str().unwrap(),
            "inner",
        ],
    );
    git(&other, &["commit", "-q", "-m", "a submodule"]);
    world.elsewhere(&[("New.md", "new\n")]);
    let hub = world.hub();
    assert_eq!(write(&hub, "a.md", "a\n").await["pushed"], true);
    assert!(!world.vault().join("inner/Note.md").exists());
    assert!(!world.vault().join(".git/modules").exists());
    // Control: with submodules it would exist.
    let (deep, bare) = (world.folder.path().join("deep"), world.bare());
    let args = [
        "-c",
        "protocol.file.allow=always",
        "clone",
        "-q",
        "--recurse-submodules",
        bare.to_str().unwrap(),
        deep.to_str().unwrap(),
    ];
    git(world.folder.path(), &args);
    assert!(deep.join("inner/Note.md").exists());
}
