//! Servers that are programs: which one is started, how it ends, and what is said of that.

use crate::changing_server::done;
use crate::support::{home, http};
use crate::upstream::{lives, sees, serving};
use portcullis_testkit::process::{TestHome, UNHURRIED};
use portcullis_testkit::wait::until;
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A server of these tests, started by a shell.
fn wrapped(before: &str, after: &str, more: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let script =
        format!("{before} '{}' --exact upstream::serves --ignored --nocapture; {after}", program.display());
    format!("[mcp.far]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\ntrust = \"always\"\n{more}\n")
}

/// Writes a program that is such a server.
fn program(folder: &Path, name: &str) -> PathBuf {
    let (path, server) = (folder.join(name), std::env::current_exe().unwrap());
    std::fs::create_dir_all(folder).unwrap();
    let text =
        format!("#!/bin/sh\nexec '{}' --exact upstream::serves --ignored --nocapture\n", server.display());
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

async fn status(home: &TestHome) -> Value {
    home.run(&["mcp", "status", "--json"]).await.json()["servers"][0].clone()
}

async fn failed(home: &TestHome) -> Value {
    until("the server has failed", async || {
        let status = status(home).await;
        (status["status"] == "failed").then_some(status)
    })
    .await
}

#[tokio::test]
async fn a_server_ends_by_itself_when_the_hub_is_told_to() {
    let home = home();
    let last = home.path().join("last");
    let after = format!("sleep 0.2; echo done > '{}'", last.display());
    let mut hub = serving(&home, &[wrapped("", &after, "")]).await;
    sees(&mut http(&hub, "2025-11-25").await, "far_echo").await;
    hub.process.signal(Signal::TERM);
    assert_eq!(hub.process.end().await, 0);
    assert!(last.exists(), "it had no time to finish");

    std::fs::remove_file(&last).unwrap();
    let tested = done(&home, &["mcp", "test", "far"]).await;
    assert!(tested.contains("is connected") && last.exists(), "{tested}");
}

#[tokio::test]
async fn a_hub_that_is_told_to_end_twice_waits_for_no_server() {
    let home = home();
    let (file, closed, told) =
        (home.path().join("pid"), home.path().join("closed"), home.path().join("told"));
    let before = format!("echo $$ > '{}'; trap 'echo > \"{}\"' TERM;", file.display(), told.display());
    let after = format!("echo > '{}'; while :; do sleep 0.1; done", closed.display());
    let mut hub = serving(&home, &[wrapped(&before, &after, "")]).await;
    sees(&mut http(&hub, "2025-11-25").await, "far_echo").await;
    let server: i32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    hub.process.signal(Signal::TERM);
    until("its input is closed", async || closed.exists().then_some(())).await;
    let was_slow = told.exists();
    hub.process.signal(Signal::TERM);
    assert_eq!(hub.process.end().await, 0);
    assert!(was_slow || !told.exists(), "the hub waited until it was time to tell the server once more");
    until("it is gone", async || (!lives(server)).then_some(())).await;
}

#[tokio::test]
async fn what_cleared_its_environment_is_ended_with_its_server() {
    for signal in [Signal::TERM, Signal::KILL] {
        let home = home();
        let file = home.path().join("pid");
        let before = format!("env -i sleep 600 & echo $! > '{}';", file.display());
        let mut hub = serving(&home, &[wrapped(&before, "", "")]).await;
        sees(&mut http(&hub, "2025-11-25").await, "far_echo").await;
        let left: i32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        assert!(lives(left));
        hub.process.signal(signal);
        hub.process.end().await;
        until("it is gone", async || (!lives(left)).then_some(())).await;
    }
}

#[tokio::test]
async fn how_a_server_ended_is_told() {
    let home = home();
    home.configure("[mcp.far]\ncommand = \"sh\"\nargs = [\"-c\", \"echo no luck >&2; exit 3\"]\n");
    let _hub = home.serve().await;
    let status = failed(&home).await;
    assert_eq!(status["stderr"], serde_json::json!(["no luck", "[it ended: exit status: 3]"]), "{status}");

    home.configure("[mcp.far]\ncommand = \"sh\"\ncwd = \"nowhere\"\n");
    until("the folder is missed", async || {
        let reason = status_reason(&home).await;
        (reason.contains("nowhere") && reason.contains("does not exist")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_server_that_hangs_at_its_start_is_told_with_the_phase_and_its_last_words() {
    const TOKEN: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let home = home();
    let script = format!("printf 'waiting for \\033[2J %s\\n' {TOKEN} >&2; exec sleep 600");
    let args = serde_json::json!(["-c", script]);
    home.configure(&format!("[mcp.far]\ncommand = \"sh\"\nargs = {args}\nstart_timeout_ms = 400\n"));
    let tested = home.run(&["mcp", "test", "far"]).await;
    let expected = "server `far` failed to start (handshake): the server did not respond within 400 ms\nstderr:\n  waiting for ";
    assert!(tested.code == 1 && tested.stderr.contains(expected), "{tested:?}");
    assert!(tested.stderr.contains("`mcp.far.start_timeout_ms` is 400"), "{tested:?}");
    assert!(!tested.stderr.contains(TOKEN) && !tested.stderr.contains('\u{1b}'), "{tested:?}");
    let tested = home.run(&["mcp", "test", "far", "--json"]).await;
    let tested: serde_json::Value = serde_json::from_str(&tested.stdout).unwrap();
    assert_eq!(tested["phase"], "handshake", "{tested}");
    assert!(!tested.to_string().contains(TOKEN), "{tested}");
}

/// Many programs read what is where they are started, and some run it: `python -m` whatever is called like a module.
#[tokio::test]
async fn a_server_is_not_started_where_agents_write() {
    let home = home();
    home.write("json.py", "raise SystemExit('planted')");
    home.configure("[mcp.far]\ncommand = \"sh\"\nargs = [\"-c\", \"pwd >&2; ls -A >&2; exit 3\"]\n");
    let _hub = home.serve().await;
    let status = failed(&home).await;
    let folder = home.path().canonicalize().unwrap().join("workspace/servers/far");
    let said = serde_json::json!([folder.display().to_string(), "[it ended: exit status: 3]"]);
    assert_eq!(status["stderr"], said, "{status}");
}

async fn status_reason(home: &TestHome) -> String {
    status(home).await["reason"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn no_program_is_taken_from_where_agents_write() {
    let home = home();
    program(&home.files(), "planted");
    home.configure("[mcp.far]\ncommand = \"planted\"\ntrust = \"always\"\n");
    let hub = home.serve().await;
    let status = failed(&home).await;
    let reason = status["reason"].as_str().unwrap();
    assert!(reason.contains("command `planted` not found in PATH"), "{reason}");
    drop(hub);

    home.configure("[mcp.far]\ncommand = \"./planted\"\ntrust = \"always\"\n");
    let refused = home.run(&["mcp", "list"]).await;
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("an absolute path"), "{refused:?}");
}

#[tokio::test]
async fn a_name_is_looked_up_once_whoever_looks() {
    let home = home();
    let (first, second) = (home.path().join("first"), home.path().join("second"));
    let found = program(&first, "findable");
    program(&second, "findable");
    let path_with = |folder: &Path| format!("{}:/usr/bin:/bin", folder.display());
    home.configure(UNHURRIED);
    // Found by the person who adds it …
    let mut add = home.command(&["mcp", "add", "far", "--yes", "--", "findable"]);
    add.env("PATH", path_with(&first));
    let added = portcullis_testkit::process::run(add, "").await;
    assert_eq!(added.code, 0, "{added:?}");
    // … it is the same for a hub that looks elsewhere, or nowhere.
    for places in [path_with(&second), "/usr/bin:/bin".to_owned()] {
        let mut serve = home.command(&["serve", "--json"]);
        serve.env("PATH", places);
        let mut hub = portcullis_testkit::process::HubProcess::start(serve).await;
        until("it is trusted still", async || {
            let status = status(&home).await;
            (status["status"] == "connected" && status["quarantined"] == serde_json::json!([])).then_some(())
        })
        .await;
        hub.process.stop().await;
    }
    // Where it is no longer there, it is looked for again, and is another one then.
    std::fs::remove_file(&found).unwrap();
    let mut test = home.command(&["mcp", "test", "far"]);
    test.env("PATH", path_with(&second));
    let tested = portcullis_testkit::process::run(test, "").await;
    assert_eq!(tested.code, 0, "{tested:?}");
    let mut trust = home.command(&["mcp", "trust", "far", "--diff"]);
    trust.env("PATH", path_with(&first));
    let differs = portcullis_testkit::process::run(trust, "").await;
    assert!(differs.stdout.contains("second/findable"), "{differs:?}");
}

#[tokio::test]
async fn a_program_that_is_installed_later_is_found() {
    let home = home();
    let folder = home.path().join("later");
    std::fs::create_dir(&folder).unwrap();
    home.configure("[mcp.far]\ncommand = \"findable\"\ntrust = \"always\"\n");
    let mut serve = home.command(&["serve", "--json"]);
    serve.env("PATH", format!("{}:/usr/bin:/bin", folder.display()));
    let _hub = portcullis_testkit::process::HubProcess::start(serve).await;
    failed(&home).await;
    program(&folder, "findable");
    done(&home, &["mcp", "reload", "far"]).await;
    until("it is connected", async || (status(&home).await["status"] == "connected").then_some(())).await;
}
