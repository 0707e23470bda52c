//! The command line, as a person or a script uses it.

use crate::support::{BINARY, home, text};
use portcullis_testkit::process::{ChildProcess, HubProcess, TestHome, run};
use portcullis_testkit::raw_http::RawHttpRequest;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;

#[tokio::test]
async fn clients_come_and_go() {
    let home = home();
    let added = home
        .run(&[
            "clients",
            "add",
            "ci",
            "--allow",
            "workspace_*",
            "--effects",
            "read,create",
            "--expires",
            "30d",
            "--tools",
            "search",
            "--json",
        ])
        .await;
    assert_eq!(added.code, 0, "{added:?}");
    let added = added.json();
    let token = added["token"].as_str().unwrap();
    assert!(token.starts_with("pcl_") && token.len() >= 40, "{token}");
    assert_eq!(
        (&added["name"], &added["allow"], &added["effects"], &added["tools"]),
        (&json!("ci"), &json!(["workspace_*"]), &json!(["read", "create"]), &json!("search"))
    );
    let listed = home.run(&["clients", "list", "--json"]).await;
    assert_eq!(listed.json().as_array().unwrap().len(), 1);
    assert!(!listed.stdout.contains(token), "a token is shown once");
    assert_eq!(listed.json()[0]["tools"], "search");
    let rows = home.run(&["clients"]).await.stdout;
    assert!(rows.contains("ci") && rows.contains("search"), "listing is the default: {rows}");
    let again = home.run(&["clients", "add", "ci"]).await;
    assert_eq!(again.code, 1);
    assert!(again.stderr.contains("client `ci` exists already; choose another name"), "{}", again.stderr);
    assert_eq!(home.run(&["clients", "revoke", "ci", "--json"]).await.json(), json!({ "revoked": "ci" }));
    assert_eq!(home.run(&["clients", "list", "--json"]).await.json(), json!([]));
    let nobody = home.run(&["clients", "revoke", "ci"]).await;
    assert_eq!(nobody.code, 1);
    assert!(nobody.stderr.contains("no client is named `ci`"), "{}", nobody.stderr);
}

#[tokio::test]
async fn bad_usage_is_told_apart_from_failure() {
    let home = home();
    for args in [
        &["clients", "add", "Not A Name"][..],
        &["clients", "add", "x", "--expires", "soon"],
        &["clients", "add", "x", "--effects", "fly"],
        &["clients", "add", "x", "--install", "notepad"],
        &["tools", "call", "workspace_read", "not json"],
        &["tools", "call", "workspace_read", r#"{"path":"a","path":"b"}"#],
        &["no-such-command"],
        &["--mcp", "--selftest"],
    ] {
        let ran = home.run(args).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("error:"), "{args:?}: {}", ran.stderr);
    }
    home.configure("[http]\nlisten = \"nowhere\"\n[rate_limt]\n");
    let bad = home.run(&["serve"]).await;
    assert_eq!(bad.code, 2);
    assert!(
        bad.stderr.contains("did you mean `rate_limit`?") && bad.stderr.contains("http.listen"),
        "all problems at once: {}",
        bad.stderr
    );
    for args in [&["--help"][..], &["--version"], &["serve", "--help"]] {
        assert_eq!(home.run(args).await.code, 0);
    }
}

#[tokio::test]
async fn the_version_names_the_commit_and_the_profile() {
    let ran = home().run(&["--version"]).await;
    let version = ran.stdout.trim_end();
    let parts = version.strip_prefix(concat!("portcullis ", env!("CARGO_PKG_VERSION"), " ("));
    let (commit, profile) = parts.and_then(|parts| parts.strip_suffix(')')?.split_once(", ")).unwrap();
    let digits = commit.split('-').next().unwrap();
    let is_commit = digits.len() == 12 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(is_commit || commit == "commit unknown", "{version}");
    assert_eq!(profile == "dev", cfg!(debug_assertions), "{version}");
    assert!(!profile.contains(['/', ' ']), "{version}");
}

#[tokio::test]
async fn a_client_is_written_into_cursor() {
    let home = home();
    let config = home.user().join(".cursor/mcp.json");
    std::fs::create_dir(config.parent().unwrap()).unwrap();
    std::fs::write(&config, "{\n  // mine\n  \"mcpServers\": { \"other\": { \"command\": \"x\" } }\n}\n")
        .unwrap();
    let ran = home.run(&["clients", "add", "editor", "--install", "cursor", "--json"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let token = ran.json()["token"].as_str().unwrap().to_owned();
    let written = std::fs::read_to_string(&config).unwrap();
    assert!(written.contains("// mine") && written.contains("\"other\""), "{written}");
    assert!(written.contains(&token) && written.contains("/mcp"), "{written}");
    assert!(ran.stderr.contains("backup: "), "{}", ran.stderr);
    let backups = std::fs::read_dir(config.parent().unwrap()).unwrap().count();
    assert_eq!(backups, 2);
}

#[tokio::test]
async fn doctor_says_what_works() {
    let home = home();
    let status = |found: &Value, what: &str| {
        let of = found.as_array().unwrap().iter().find(|finding| finding["what"] == what);
        of.unwrap_or_else(|| panic!("{what}: {found}"))["status"].as_str().unwrap().to_owned()
    };
    let before = home.run(&["doctor", "--json"]).await;
    assert_eq!(before.code, 0, "{before:?}");
    for what in ["config", "workspace", "clients", "hub"] {
        assert_eq!(status(&before.json(), what), "ok", "{what}: {}", before.stdout);
    }
    let _hub = home.serve().await;
    let running = home.run(&["doctor", "--json"]).await;
    assert!(running.stdout.contains("running, 10 tools"), "{}", running.stdout);
    assert!(home.run(&["doctor"]).await.stdout.contains("ok       hub"));
    home.configure("[rate_limit]\nbrust = 20\n");
    let broken = home.run(&["doctor", "--json"]).await;
    assert_eq!((broken.code, status(&broken.json(), "config").as_str()), (1, "problem"), "{broken:?}");
    let shown = home.run(&["doctor"]).await.stdout;
    let expected = "\
PROBLEM  config     portcullis.toml:2: `rate_limit.brust` is not a setting; did you mean `burst`?
                    2 | brust = 20
                      | ^^^^^
                    line 2 should be: burst = 20
";
    assert!(shown.ends_with(expected), "{shown}");
}

#[tokio::test]
async fn tools_are_listed_and_called() {
    let home = home();
    for running in [false, true] {
        // The same, whether a hub runs or not.
        let _hub = if running { Some(home.serve().await) } else { None };
        let listed = home.run(&["tools", "list", "--json"]).await.json();
        assert_eq!(listed.as_array().unwrap().len(), 10);
        assert_eq!(listed[0]["name"], "workspace_read");
        assert!(home.run(&["tools"]).await.stdout.starts_with("TOOL"));
        let write = r#"{"path":"x.md","content":"hello"}"#;
        let written = home.run(&["tools", "call", "workspace_write", write, "--json"]).await;
        assert_eq!((written.code, &written.json()["structuredContent"]["bytes"]), (0, &json!(5)));
        let read = run(home.command(&["tools", "call", "workspace_read", "-"]), r#"{"path":"x.md"}"#).await;
        assert_eq!((read.code, read.stdout.as_str()), (0, "hello\n"));
        let gone = home.run(&["tools", "call", "workspace_read", r#"{"path":"gone"}"#]).await;
        assert_eq!((gone.code, gone.stdout.as_str()), (1, ""));
        assert_eq!(gone.stderr, "Error: file `gone` not found\n`workspace_list` shows what exists\n");
        let gone = home.run(&["tools", "call", "workspace_read", r#"{"path":"gone"}"#, "--json"]).await;
        assert_eq!((gone.code, text(&gone.json()).lines().count()), (1, 2));
        let unknown = home.run(&["tools", "call", "no_such"]).await;
        assert_eq!((unknown.code, unknown.stderr.as_str()), (1, "error: Unknown tool: no_such\n"));
        let unknown = home.run(&["tools", "call", "no_such", "--json"]).await;
        assert_eq!(
            serde_json::from_str::<Value>(&unknown.stderr).unwrap(),
            json!({ "error": "Unknown tool: no_such", "code": -32602 })
        );
    }
}

#[tokio::test]
async fn a_tool_is_shown_with_what_decides_it() {
    let home = home();
    let shown = home.run(&["tools", "show", "workspace_read"]).await;
    assert_eq!(shown.code, 0, "{shown:?}");
    for part in [
        "workspace_read\n",
        "\neffect    read, local",
        "\ndecision  allow, by default:read: the call runs\n",
        "\nARGUMENT",
        "\n  portcullis tools call workspace_read '{",
    ] {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
    }
    let listed = home.run(&["tools", "show", "workspace_read", "--json"]).await.json();
    assert_eq!((&listed["effect"], &listed["rule"]), (&json!("read"), &json!("default:read")));
    assert!(listed["input_schema"]["properties"]["path"].is_object(), "{listed}");
    // A typo is met with the names that the caller may see.
    let unknown = home.run(&["tools", "show", "workspace_raed"]).await;
    assert_eq!((unknown.code, unknown.stdout.as_str()), (2, ""));
    assert_eq!(unknown.stderr, "error: no such tool: `workspace_raed`; did you mean `workspace_read`?\n");
    let unknown = home.run(&["tools", "call", "workspace_raed"]).await;
    assert_eq!(unknown.stderr, "error: Unknown tool: workspace_raed; did you mean `workspace_read`?\n");
    home.configure("[stdio]\ndeny = [\"workspace_read\"]\n");
    for name in ["workspace_raed", "workspace_read"] {
        let unknown = home.run(&["tools", "call", name]).await;
        assert_eq!(unknown.stderr, format!("error: Unknown tool: {name}\n"), "a hidden tool is not proposed");
    }
}

#[tokio::test]
async fn colours_and_times_are_for_people() {
    let home = home();
    let coloured = |args: &[&str]| {
        let mut command = home.command(args);
        command.env("CLICOLOR_FORCE", "1");
        command
    };
    let listed = run(coloured(&["tools"]), "").await.stdout;
    assert!(listed.starts_with("\u{1b}[1mTOOL") && listed.matches('\u{1b}').count() == 2, "{listed:?}");
    let failed = run(coloured(&["tools", "call", "no_such"]), "").await.stderr;
    assert_eq!(failed, "\u{1b}[1;31merror:\u{1b}[0m Unknown tool: no_such\n");
    for args in [&["tools", "--json"][..], &["clients", "--json"]] {
        assert!(!run(coloured(args), "").await.stdout.contains('\u{1b}'), "{args:?}");
    }
    assert!(!home.run(&["tools"]).await.stdout.contains('\u{1b}'), "a pipe is no terminal");
    home.configure("[logging]\nlevel = \"debug\"\n");
    for (journal, has_time) in [(None, true), (Some("8:1"), false)] {
        let mut command = home.command(&["serve", "--json"]);
        command.envs(journal.map(|stream| ("JOURNAL_STREAM", stream)));
        let mut hub = HubProcess::start(command).await;
        RawHttpRequest::post("/mcp", r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)
            .token(&hub.token)
            .send(hub.address)
            .await;
        hub.process.stop().await;
        let log = hub.process.stderr();
        let line = log.lines().find(|line| line.contains(" INFO hub: ")).unwrap_or_else(|| panic!("{log}"));
        assert_eq!(line.starts_with("20") && line.get(23..24) == Some("Z"), has_time, "{line}");
    }
}

#[tokio::test]
async fn init_writes_a_file_that_works() {
    let home = TestHome::bare(BINARY);
    let first = home.run(&["init", "--json"]).await;
    assert_eq!(first.code, 0, "{first:?}");
    let path = home.path().join("portcullis.toml");
    assert_eq!(first.json()["config"], json!(path));
    let second = home.run(&["init"]).await;
    assert_eq!(second.code, 0, "{second:?}");
    assert!(
        second.stdout.ends_with("shows every section already; nothing was changed.\n"),
        "{}",
        second.stdout
    );
    let hub = home.serve().await;
    assert_eq!(RawHttpRequest::get("/readyz").send(hub.address).await.status(), 200);
}

#[tokio::test]
async fn init_loses_nothing_that_a_person_wrote() {
    let home = TestHome::bare(BINARY);
    let printed = home.run(&["init", "--print"]).await;
    assert!(printed.stdout.starts_with("# Portcullis configuration.") && printed.code == 0, "{printed:?}");
    assert!(!home.path().join("portcullis.toml").exists(), "`--print` writes nothing");
    home.configure("# mine\n[logging]\nlevel = \"debug\"\n");
    let path = home.path().join("portcullis.toml");
    let mine = std::fs::read_to_string(&path).unwrap();
    let added = home.run(&["init", "--json"]).await.json()["added"].clone();
    assert!(added.as_array().unwrap().contains(&json!("vault")) && !added.to_string().contains("logging"));
    let completed = std::fs::read_to_string(&path).unwrap();
    assert!(completed.starts_with(&mine) && completed.contains("#[vault]\n"), "{completed}");
    let forced = home.run(&["init", "--force"]).await;
    let backup = home.path().join("portcullis.toml.bak-1");
    assert!(forced.stdout.contains(&format!("The previous file is {}.", backup.display())), "{forced:?}");
    assert_eq!(std::fs::read_to_string(backup).unwrap(), completed);
    assert_eq!(std::fs::read_to_string(path).unwrap(), printed.stdout);
}

#[tokio::test]
async fn the_greeting_is_enough_to_begin() {
    let home = TestHome::bare(BINARY);
    let mut hub = home.serve().await;
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    assert_eq!(RawHttpRequest::post("/mcp", list).token(&hub.token).send(hub.address).await.status(), 200);
    hub.process.stop().await;
    // The second start makes no other client and shows no token.
    let again = HubProcess::start(home.command(&["serve", "--json"])).await;
    assert_eq!(again.token, "");
}

#[tokio::test]
async fn the_first_start_says_what_is_needed_and_no_more() {
    let home = TestHome::bare(BINARY);
    for trace in [".cursor", ".claude", ".config/Claude", ".config/Code/User", ".config/opencode"] {
        std::fs::create_dir_all(home.user().join(trace)).unwrap();
    }
    let mut hub = ChildProcess::start(home.command(&["serve"]));
    let greeting = hub.stdout_until("other clients: ").await;
    assert!(greeting.lines().count() < 20, "{greeting}");
    for part in
        ["  MCP      http://127.0.0.1:", "  token    pcl_", "Set an admin password within one hour: http://"]
    {
        assert!(greeting.contains(part), "{part}: {greeting}");
    }
    let command = format!("portcullis --home {} clients add cursor --install cursor", home.path().display());
    assert!(greeting.contains(&command), "{greeting}");
    hub.stop().await;
    // What knows the hub is not listed again.
    let installed = home.run(&["clients", "add", "cursor", "--install", "cursor"]).await;
    assert_eq!(installed.code, 0, "{installed:?}");
    let mut hub = ChildProcess::start(home.command(&["serve"]));
    let greeting = hub.stdout_until("other clients: ").await;
    assert!(
        greeting.contains("--install claude-code") && !greeting.contains("--install cursor"),
        "{greeting}"
    );
    assert!(!greeting.contains("token "), "{greeting}");
    hub.stop().await;
}

#[tokio::test]
async fn a_snippet_names_its_file() {
    let home = home();
    home.add_client("laptop", &[]).await;
    let said = home.run(&["clients", "snippet", "laptop"]).await.stdout;
    for part in [
        format!("# Cursor: {}\n", home.user().join(".cursor/mcp.json").display()),
        format!("claude mcp add --scope user portcullis -- {BINARY} --home "),
        "\"--client\",\n".to_owned(),
    ] {
        assert!(said.contains(&part), "{part}: {said}");
    }
    let one =
        home.run(&["clients", "snippet", "laptop", "--for", "vscode", "--transport", "http", "--json"]).await;
    let one = one.json();
    let app = &one["applications"][0];
    assert_eq!((one["applications"].as_array().unwrap().len(), &app["app"]), (1, &json!("vscode")), "{one}");
    assert!(app["snippet"].as_str().unwrap().contains("Bearer YOUR_TOKEN"), "{one}");
    let unknown = home.run(&["clients", "snippet", "nobody"]).await;
    assert_eq!((unknown.code, unknown.stdout.as_str()), (2, ""));
    assert!(unknown.stderr.contains("no client is named `nobody`; "), "{}", unknown.stderr);
}

/// Where the data lives: as said, by the variable, or in the platform's folder.
#[tokio::test]
async fn the_home_is_found_in_this_order() {
    let home = TestHome::bare(BINARY);
    let write = ["tools", "call", "workspace_write", r#"{"path":"a.md","content":"x"}"#];
    let file = "workspace/ai-data/a.md";
    let (said, variable) = (home.user().join("said"), home.user().join("variable"));
    let platform = home.user().join(".local/share/portcullis");
    let run_with = async |home_arg: Option<&Path>, value: Option<&Path>| {
        let mut command = tokio::process::Command::new(BINARY);
        command.args(home_arg.into_iter().flat_map(|path| ["--home".as_ref(), path.as_os_str()])).args(write);
        command.env_clear().env("HOME", home.user()).envs(value.map(|path| ("PORTCULLIS_HOME", path)));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        assert_eq!(run(command, "").await.code, 0);
    };
    run_with(Some(&said), Some(&variable)).await;
    assert!(said.join(file).exists() && !variable.exists(), "`--home` comes first");
    run_with(None, Some(&variable)).await;
    assert!(variable.join(file).exists() && !platform.exists(), "then PORTCULLIS_HOME");
    // A variable that is empty is none.
    run_with(None, Some(Path::new(""))).await;
    assert!(platform.join(file).exists(), "then the platform's folder");
}

#[tokio::test]
async fn the_program_tests_itself() {
    let home = home();
    let ran = home.run(&["--selftest"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.ends_with("selftest: 18 passed, 0 failed\n"), "{}", ran.stdout);
    let ran = home.run(&["--selftest", "--json"]).await;
    assert_eq!((ran.code, &ran.json()["failed"]), (0, &json!(0)));
}

#[tokio::test]
async fn completions_and_the_schema_are_printed() {
    let home = home();
    for (shell, marker) in
        [("bash", "_portcullis"), ("zsh", "#compdef portcullis"), ("fish", "complete -c portcullis")]
    {
        let ran = home.run(&["completions", shell]).await;
        assert_eq!(ran.code, 0);
        assert!(ran.stdout.contains(marker), "{shell}");
    }
    home.configure("[mcp.git]\ncommand = \"git\"\n");
    home.add_client("laptop", &[]).await;
    let names = async |words: &[&str]| home.run(&[&["__complete", "--"], words].concat()).await.stdout;
    assert_eq!(names(&["mcp", "trust"]).await, "git\n");
    assert_eq!(names(&["clients", "revoke"]).await, "laptop\nlocal\n");
    assert!(names(&["tools", "call"]).await.contains("workspace_read\n"));
    assert_eq!(names(&["mcp"]).await, "");
    let schema = home.run(&["config-schema"]).await.json();
    assert!(schema["properties"]["rate_limit"].is_object());
}
