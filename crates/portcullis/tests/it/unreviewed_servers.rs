//! A server that nobody has looked at yet is not started, whatever is done about it but looking.

use crate::admin::Admin;
use crate::changing_server::done;
use crate::support::home;
use portcullis_testkit::process::{TestHome, run_at_terminal};
use portcullis_testkit::wait::until;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Writes a file of another program with a server that leaves a trace when it is started. Returns file and trace.
fn traced(home: &TestHome) -> (String, PathBuf) {
    let (file, trace) = (home.user().join("mcp.json"), home.user().join("trace"));
    let server = json!({ "command": "/usr/bin/touch", "args": [trace] });
    std::fs::write(&file, json!({ "mcpServers": { "traced": server } }).to_string()).unwrap();
    (file.display().to_string(), trace)
}

#[tokio::test]
async fn what_was_held_back_is_not_started_by_its_removal() {
    let home = home();
    let (file, trace) = traced(&home);
    let before = std::fs::read_to_string(home.path().join("portcullis.toml")).unwrap();
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let configured = async |count: usize| {
        until("the hub has the configuration", async || {
            // As the hub has it, which may be later than the file.
            let written =
                std::fs::read(home.path().join("workspace/secure/servers.json")).unwrap_or_default();
            let written: Value = serde_json::from_slice(&written).unwrap_or_default();
            (written["servers"].as_object().is_some_and(|all| all.len() == count)).then_some(())
        })
        .await;
    };
    let mut with_it = before.clone();
    // Imported once more, it is held back once more.
    for on_the_page in [false, true, false] {
        done(&home, &["mcp", "import", &file, "--yes"]).await;
        with_it = std::fs::read_to_string(home.path().join("portcullis.toml")).unwrap();
        configured(1).await;
        if on_the_page {
            ann.does("DELETE", "/servers/traced", json!({})).await;
        } else {
            done(&home, &["mcp", "remove", "traced"]).await;
        }
        configured(0).await;
        assert!(!trace.exists(), "removed on the page: {on_the_page}");
    }
    // Who writes one of its name by hand wants it, and does not find it switched off.
    assert_ne!(before, with_it);
    home.configure(&with_it);
    until("it was started", async || trace.exists().then_some(())).await;
}

#[tokio::test]
async fn what_nobody_has_looked_at_is_not_switched_on_by_the_configuration() {
    let home = home();
    let (file, _) = traced(&home);
    done(&home, &["mcp", "import", &file, "--yes"]).await;
    let path = home.path().join("portcullis.toml");
    let written = std::fs::read_to_string(&path).unwrap();
    home.configure(&written.replace("[mcp.traced]\n", "[mcp.traced]\nenabled = false\n"));
    // Says nothing that the configuration does not say, so it leaves it to that.
    done(&home, &["mcp", "disable", "traced"]).await;
    home.configure(&written);
    let listed = home.run(&["mcp", "list", "--json"]).await.json();
    assert_eq!(
        (&listed[0]["enabled"], &listed[0]["enabled_in_configuration"]),
        (&json!(false), &json!(true)),
        "{listed}"
    );
    // One of its name that comes later is another.
    done(&home, &["mcp", "remove", "traced"]).await;
    home.configure(&written);
    let listed = home.run(&["mcp", "list", "--json"]).await.json();
    assert_eq!(listed[0]["enabled"], true, "{listed}");
}

#[tokio::test]
async fn it_is_shown_and_asked_about_before_it_runs() {
    let home = home();
    let (file, trace) = (home.user().join("mcp.json"), home.user().join("trace"));
    // With something that looks like a secret, so that the rest might be hidden with it.
    let script = format!("API_KEY=abcdefgh1; touch {}", trace.display());
    let server =
        json!({ "command": "/bin/sh", "args": ["-c", script], "env": { "NODE_OPTIONS": "--require x.js" } });
    std::fs::write(&file, json!({ "mcpServers": { "traced": server } }).to_string()).unwrap();
    let shown = format!("/bin/sh -c API_KEY=[HIDDEN]; touch {}", trace.display());
    done(&home, &["mcp", "import", &file.display().to_string(), "--yes"]).await;
    let listed = done(&home, &["mcp", "list"]).await;
    assert!(listed.contains(&shown), "{listed}");
    let refused = home.run(&["mcp", "trust", "traced"]).await;
    assert!(
        refused.code == 2 && refused.stderr.contains("no terminal to ask for confirmation"),
        "{refused:?}"
    );
    let (code, screen) = run_at_terminal(home.command(&["mcp", "trust", "traced"]), "n\n").await;
    assert!(
        code == 0
            && screen
                .contains(&format!("The review starts:\n  {shown}\n  with NODE_OPTIONS = --require x.js\n")),
        "{screen}"
    );
    assert!(screen.contains("Not started, not trusted."), "{screen}");
    assert!(!trace.exists());
    // It is no server; but now it was wanted that it runs.
    run_at_terminal(home.command(&["mcp", "trust", "traced"]), "y\n").await;
    assert!(trace.exists());
}
