//! What is said of files that were written for other programs, or wrongly.

use super::*;

#[test]
fn keys_of_other_programs_are_told_ours() {
    insta::assert_snapshot!(check(r#"
[mcpServers.a]
command = "x"
[mcp_servers.b]
command = "x"
[mcp.c]
type = "local"
command = ["npx", "-y", "pkg"]
environment = { A = "b" }
disabled = true
timeout = 5
startup = 1
[mcp.d]
serverUrl = "https://x.test/mcp"
transport = "sse"
alwaysAllow = ["read"]
[mcp.servers.e]
command = "x"
"#), @r#"
portcullis.toml:2: `mcpServers` is not a setting; servers are `[mcp.NAME]` here; `portcullis mcp import FILE` converts another program's file
portcullis.toml:4: `mcp_servers` is not a setting; servers are `[mcp.NAME]` here; `portcullis mcp import FILE` converts another program's file
portcullis.toml:7: `mcp.c.type` is not a setting; remove it: a server with `command` runs here, one with `url` is remote
portcullis.toml:8: `mcp.c.command` is a list, expected the program alone; its arguments are `args`
portcullis.toml:9: `mcp.c.environment` is not a setting; use `env`
portcullis.toml:10: `mcp.c.disabled` is not a setting; use `enabled`, which is its opposite
portcullis.toml:11: `mcp.c.timeout` is not a setting; use `timeout_ms`, in milliseconds
portcullis.toml:12: `mcp.c.startup` is not a setting; did you mean `start`?
portcullis.toml:14: `mcp.d.serverUrl` is not a setting; use `url`
portcullis.toml:15: `mcp.d.transport` is not a setting; remove it: a server with `command` runs here, one with `url` is remote
portcullis.toml:16: `mcp.d.alwaysAllow` is not a setting; use a `[[policy]]` rule for these tools with `decision` = "allow"
portcullis.toml:17: `mcp.servers.e` is not a setting; write `[mcp.e]`: servers are `[mcp.NAME]` here; `portcullis mcp import FILE` converts another program's file
"#);
    // As other programs write it.
    insta::assert_snapshot!(
        check_file("portcullis.yaml", "mcp:\n  servers:\n    openpact:\n      command: x\n", &[]),
        @"portcullis.yaml:3: `mcp.servers.openpact` is not a setting; write `[mcp.openpact]`: servers are `[mcp.NAME]` here; `portcullis mcp import FILE` converts another program's file"
    );
}

/// Shows what `doctor` shows of a file.
fn excerpts(name: &str, text: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join(name), text).unwrap();
    let errors = Config::load(home.path(), &of(&[])).unwrap_err();
    let excerpt = |error: &ConfigError| match &error.excerpt {
        Some(excerpt) => {
            let correct = excerpt.correction().map(|line| format!("\n= {line}")).unwrap_or_default();
            format!("{excerpt}{correct}\n")
        }
        None => "nowhere\n".to_owned(),
    };
    errors.problems.iter().map(excerpt).collect()
}

#[test]
fn the_faulty_part_of_a_line_is_shown_and_corrected() {
    insta::assert_snapshot!(excerpts("portcullis.toml", r#"
[rate_limit]
brust = 20
requests_per_second = 0 # none
[logging]
level = "inf"
[workspace]
enabled = "yes"
[mcp.x]
command = ["npx", "hunter2"]
environment = { PASSWORD = "hunter2" }
headers = { Authorization = 5 }
"#), @r#"
3 | brust = 20
  | ^^^^^
= burst = 20
4 | requests_per_second = 0
  |                       ^
= requests_per_second = 1
6 | level = "inf"
  |         ^^^^^
= level = "info"
8 | enabled = "yes"
  |           ^^^^^
= enabled = true
10 | command = ["…", "…"]
   |           ^^^^^^^^^^
11 | environment = { PASSWORD = "…" }
   | ^^^^^^^^^^^
= env = { PASSWORD = "…" }
12 | headers = { Authorization = 5 }
   |                             ^
"#);
    for text in ["[http\n", "[memory]\nenabled = yes\n", "[memory]\nenabled = true\nenabled = \"hunter2\n"] {
        let shown = excerpts("portcullis.toml", text);
        assert!(shown.contains(" | ") && shown.contains('^') && !shown.contains("hunter2"), "{shown}");
    }
    insta::assert_snapshot!(excerpts("portcullis.yaml", "memory:\n  enabeld: hunter2\n"), @"
    2 |   enabeld: …
      |   ^^^^^^^^^^
    ");
    insta::assert_snapshot!(excerpts("portcullis.json", "{\n  \"memory\": nope\n}"), @r#"
    2 |   "memory": …
      |   ^^^^^^^^^^^
    "#);
}
