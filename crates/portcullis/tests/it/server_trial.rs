//! What a person sees while a server is tried, and what is left of one that is not added.

use crate::changing_server::{Shop, tool};
use crate::support::home;
use portcullis_testkit::process::{TestHome, run, run_at_terminal};
use serde_json::json;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const TOKEN: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";

/// Every path below a folder.
fn tree(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(tree(&entry.path()));
        }
        found.insert(entry.path());
    }
    found
}

/// Puts a program into a folder that the search path of the command then has.
fn add(home: &TestHome, script: &str, options: &[&str]) -> tokio::process::Command {
    let folder = home.user().join("bin");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("findable"), format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(folder.join("findable"), std::fs::Permissions::from_mode(0o700)).unwrap();
    let words = [&["mcp", "add", "shop"][..], options, &["--", "findable"]].concat();
    let mut command = home.command(&words);
    command.env("PATH", format!("{}:/usr/bin:/bin", folder.display()));
    command
}

#[tokio::test]
async fn a_server_that_is_declined_or_fails_leaves_nothing() {
    let (home, shop) = (home(), Shop::new(&json!({ "tools": [tool("pay", "Pay an invoice")] })));
    let [program, definitions, calls] = shop.words();
    let works = format!("touch made-here\nexec '{program}' '{definitions}' '{calls}'");
    let fails = "touch made-here\necho no database >&2\nexit 1";
    // The files that every command makes are there before.
    home.run(&["mcp", "list"]).await;
    run(add(&home, fails, &["--no-test", "--timeout-ms", "0"]), "").await;
    let file = || std::fs::read_to_string(home.path().join("portcullis.toml")).unwrap();
    let (before, config) = (tree(&home.path()), file());

    let (code, screen) = run_at_terminal(add(&home, &works, &[]), "n\n").await;
    let question = "Add `shop`, trust it and expose this tool? [y/N]";
    assert!(code == 0 && screen.contains(question), "{screen}");
    assert!(screen.ends_with("Not added: nothing of `shop` is kept.\n"), "{screen}");
    assert_eq!(left(&home, &before), BTreeSet::new());
    let failed = run(add(&home, fails, &[]), "").await;
    assert!(failed.code == 1 && failed.stderr.contains("Nothing was written."), "{failed:?}");
    assert_eq!(left(&home, &before), BTreeSet::new());
    assert_eq!(file(), config);
    assert_eq!(home.run(&["mcp", "list", "--json"]).await.json(), json!([]));

    // What was there before the trial stays.
    let mine = home.path().join("workspace/servers/shop/mine");
    std::fs::create_dir_all(mine.parent().unwrap()).unwrap();
    std::fs::write(&mine, "").unwrap();
    run_at_terminal(add(&home, &works, &[]), "n\n").await;
    assert!(mine.exists());

    let (code, screen) = run_at_terminal(add(&home, &works, &[]), "y\n").await;
    assert!(code == 0 && screen.contains("It is trusted;"), "{screen}");
    assert!(file().contains("[mcp.shop]"));
    let programs = home.path().join("workspace/secure/programs.json");
    assert!(std::fs::read_to_string(programs).unwrap().contains("findable"));
}

/// Returns the paths that are new and say something of the server: by their name, or in the store of programs.
fn left(home: &TestHome, before: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let programs = home.path().join("workspace/secure/programs.json");
    if let Ok(text) = std::fs::read_to_string(&programs) {
        assert!(!text.contains("shop") && !text.contains("findable"), "{text}");
    }
    let new = tree(&home.path()).difference(before).cloned().collect::<BTreeSet<_>>();
    new.into_iter().filter(|path| !path.starts_with(programs.parent().unwrap())).collect()
}

#[tokio::test]
async fn who_waits_for_a_server_sees_its_phase_and_its_last_line() {
    let home = home();
    let script = format!("printf 'waiting for \\033[2J %s\\n' {TOKEN} >&2; exec sleep 600");
    let args = ["--start-timeout-ms", "2000"];
    let mut at_terminal = add(&home, &script, &args);
    at_terminal.env("TERM", "xterm").env("NO_COLOR", "1");
    let (code, screen) = run_at_terminal(at_terminal, "").await;
    let (line, rest) = screen.rsplit_once("\r\u{1b}[2K").unwrap();
    assert!(line.starts_with("\r\u{1b}[2Kshop: "), "{screen:?}");
    assert!(line.contains("shop: handshake, 0 s: waiting for "), "{screen:?}");
    assert!(rest.starts_with("error: server `shop` failed to start (handshake)"), "{screen:?}");
    assert!(code == 1 && !screen.contains(TOKEN) && !screen.contains("\u{1b}[2J"), "{screen:?}");
    // Not where it could not be erased again.
    for dumb in [true, false] {
        let mut command = add(&home, &script, &["--start-timeout-ms", "400"]);
        let said = if dumb {
            run_at_terminal(command, "").await.1
        } else {
            command.env("TERM", "xterm");
            run(command, "").await.stderr
        };
        assert!(said.starts_with("error: ") && !said.contains('\u{1b}'), "{said:?}");
    }
}

#[tokio::test]
async fn a_failure_without_the_own_certificates_names_the_option_to_pass_them() {
    let home = home();
    let script = "echo 'npm error self-signed certificate in certificate chain' >&2; exit 1";
    let mut adding = add(&home, script, &[]);
    adding.env("SSL_CERT_FILE", "/etc/own.pem").env("https_proxy", "http://me:hunter2@proxy");
    let failed = run(adding, "").await;
    let option = "add --env 'SSL_CERT_FILE=${SSL_CERT_FILE}' --env 'https_proxy=${https_proxy}'\n";
    assert!(failed.code == 1 && failed.stderr.contains(option), "{failed:?}");
    assert!(
        failed.stderr.contains("cleared environment") && !failed.stderr.contains("hunter2"),
        "{failed:?}"
    );

    // The option is taken, and the variable passed.
    let echo = "echo \"certificate: $SSL_CERT_FILE\" >&2; exit 1";
    let options = ["--env", "SSL_CERT_FILE=${SSL_CERT_FILE}"];
    let mut adding = add(&home, echo, &options);
    adding.env("SSL_CERT_FILE", "/etc/own.pem");
    let failed = run(adding, "").await;
    assert!(failed.stderr.contains("certificate: /etc/own.pem"), "{failed:?}");
    assert!(!failed.stderr.contains("cleared environment"), "{failed:?}");

    let args = json!(["-c", script]);
    home.configure(&format!("[mcp.far]\ncommand = \"sh\"\nargs = {args}\n"));
    let mut test = home.command(&["mcp", "test", "far", "--json"]);
    test.env("UV_INDEX_URL", "https://pypi.example.com");
    let tested = run(test, "").await;
    let hint = tested.json()["hint"].as_str().unwrap_or_default().to_owned();
    assert!(hint.ends_with("add to `mcp.far.env`: UV_INDEX_URL = \"${UV_INDEX_URL}\""), "{tested:?}");
}
