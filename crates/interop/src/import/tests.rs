//! The files of every program, as they write them.

use super::*;

mod foreign_formats;
mod oauth;
mod program;
mod settings;

/// Returns what would be written, and what is said besides.
fn check(path: &str, text: &str) -> String {
    let around = ImportEnvironment {
        user_home: Some(Path::new("/home/me")),
        project: Some(Path::new("/home/me/work")),
        is_set: &|name| name == "SET",
    };
    let found = match of_text(Path::new(path), text, &around) {
        Ok(found) => found,
        Err(why) => return format!("refused: {why}\n"),
    };
    let mut told = String::new();
    for imported in &found.servers {
        told.push_str(&imported.server.written());
        for secret in &imported.secrets {
            let value = secret.value.as_ref().map_or("asked for", |value| value.expose());
            told.push_str(&format!("  {} = {value} -> {} for {}\n", secret.key, secret.name, secret.grant));
        }
        imported.all_notes().iter().for_each(|note| told.push_str(&format!("  note: {note}\n")));
    }
    for (own, why) in &found.skipped {
        told.push_str(&format!("{own} is left out: {why}\n"));
    }
    found.notes.iter().for_each(|note| told.push_str(&format!("note: {note}\n")));
    told
}

#[test]
fn claude_desktop() {
    insta::assert_snapshot!(check("/home/me/.config/Claude/claude_desktop_config.json", r#"{
        "mcpServers": {
            "filesystem": { "command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/me/Documents"] },
            "brave search": { "command": "npx", "args": ["-y", "server-brave"], "env": { "BRAVE_API_KEY": "BSAabcdefgh12345", "LANG": "de" } },
            "portcullis": { "command": "/usr/bin/portcullis", "args": ["stdio"] }
        }
    }"#), @r#"
    [mcp.filesystem]
    command = "npx"
    args = ["-y", "@modelcontextprotocol/server-filesystem", "/home/me/Documents"]
    [mcp.brave-search]
    command = "npx"
    args = ["-y", "server-brave"]
    env = { "BRAVE_API_KEY" = "secret:BRAVE_SEARCH_BRAVE_API_KEY", "LANG" = "de" }
      BRAVE_API_KEY = BSAabcdefgh12345 -> BRAVE_SEARCH_BRAVE_API_KEY for mcp.brave-search:env
    portcullis is left out: it is this hub
    "#);
}

#[test]
fn claude_code_and_its_projects() {
    insta::assert_snapshot!(check("/home/me/work/.mcp.json", r#"{
        "mcpServers": {
            "db": { "type": "stdio", "command": "./db-server", "args": [], "env": { "URL": "${DB_URL}", "PASSWORD": "${PW:-none}" } },
            "api": { "type": "http", "url": "https://api.example.com/mcp", "headers": { "Authorization": "Bearer abcdef0123456789", "X-Team": "red" } },
            "odd": { "command": "run", "args": ["${HOME}/x"] }
        }
    }"#), @r#"
    [mcp.db]
    command = "/home/me/work/db-server"
    cwd = "/home/me/work"
    env = { "URL" = "${DB_URL}", "PASSWORD" = "none" }
      note: `PW` is not set now; its default was imported
      note: `PASSWORD` is too short for a secret; it stays in the configuration
    [mcp.api]
    url = "https://api.example.com/mcp"
    headers = { "Authorization" = "Bearer secret:API_AUTHORIZATION", "X-Team" = "red" }
      Authorization = abcdef0123456789 -> API_AUTHORIZATION for api.example.com:Authorization
    [mcp.odd]
    command = "run"
    cwd = "/home/me/work"
    args = ["/home/me/x"]
    "#);
}

#[test]
fn cursor() {
    let token = format!("ghp_{}", "a1B2c3D4e5".repeat(4).get(..36).unwrap());
    let text = r#"{ "mcpServers": {
        "github": { "command": "docker", "args": ["run", "TOKEN"], "env": { "WHO": "TOKEN", "GITHUB_KEY": "short" }, "disabled": true },
        "remote": { "url": "http://127.0.0.1:9000/sse" }
    } }"#;
    insta::assert_snapshot!(check("/home/me/.cursor/mcp.json", &text.replace("TOKEN", &token)), @r#"
    [mcp.github-mcp]
    command = "docker"
    args = ["run", "ghp_a1B2c3D4e5a1B2c3D4e5a1B2c3D4e5a1B2c3"]
    env = { "WHO" = "secret:GITHUB_WHO", "GITHUB_KEY" = "short" }
      WHO = ghp_a1B2c3D4e5a1B2c3D4e5a1B2c3D4e5a1B2c3 -> GITHUB_WHO for mcp.github-mcp:env
      note: it is named `github-mcp` here: tools named `github_*` would pass for the hub's own
      note: `GITHUB_KEY` is too short for a secret; it stays in the configuration
      note: argument 2 looks like a secret and stays in the configuration in plain text: arguments cannot refer to the secret store. If the program also reads it from a variable, remove the argument and: portcullis secrets set NAME --grant 'mcp.github-mcp:env', then `env = { VARIABLE = "secret:NAME" }`
      note: it is disabled there
    [mcp.remote]
    url = "http://127.0.0.1:9000/sse"
    "#);
}

#[test]
fn vs_code_with_inputs() {
    insta::assert_snapshot!(check("/home/me/work/.vscode/mcp.json", r#"{
        // asked for once
        "inputs": [{ "type": "promptString", "id": "key", "description": "Key", "password": true }],
        "servers": {
            "perplexity": { "type": "stdio", "command": "npx", "args": ["-y", "server-perplexity"], "env": { "PERPLEXITY_API_KEY": "${input:key}" } },
            "site": { "type": "http", "url": "https://web.example.com/mcp", "headers": { "Authorization": "Bearer ${input:key}" } },
            "local": { "command": "${workspaceFolder}/bin/server", "env": { "H": "${userHome}", "E": "${env:EDITOR}" }, },
            "bad": { "command": "x", "env": { "A": "${input:other}" } },
        },
    }"#), @r#"
    [mcp.perplexity]
    command = "npx"
    cwd = "/home/me/work"
    args = ["-y", "server-perplexity"]
    env = { "PERPLEXITY_API_KEY" = "secret:PERPLEXITY_API_KEY" }
      PERPLEXITY_API_KEY = asked for -> PERPLEXITY_API_KEY for mcp.perplexity:env
      note: the value of `PERPLEXITY_API_KEY` is not in the file; to set the whole value: portcullis secrets set PERPLEXITY_API_KEY --grant 'mcp.perplexity:env'
    [mcp.site]
    url = "https://web.example.com/mcp"
    headers = { "Authorization" = "Bearer secret:SITE_AUTHORIZATION" }
      Authorization = asked for -> SITE_AUTHORIZATION for web.example.com:Authorization
      note: the value of `Authorization` is not in the file; to set the part after `Bearer`: portcullis secrets set SITE_AUTHORIZATION --grant 'web.example.com:Authorization'
    [mcp.local]
    command = "/home/me/work/bin/server"
    cwd = "/home/me/work"
    env = { "H" = "/home/me", "E" = "${EDITOR}" }
    bad is left out: `${input:other}` is not among its inputs
    "#);
}

#[test]
fn opencode() {
    insta::assert_snapshot!(check("/home/me/.config/opencode/opencode.jsonc", r#"{
        "$schema": "https://opencode.ai/config.json",
        "mcp": {
            /* mine */
            "git": { "type": "local", "command": ["uvx", "mcp-server-git"], "environment": { "T": "{env:TOKEN}" }, "enabled": true, "timeout": 60000 },
            "far": { "type": "remote", "url": "https://far.example.com/mcp", "headers": { "X-Api-Key": "{file:~/.key}" } },
            "auth": { "type": "remote", "url": "https://auth.example.com/mcp", "oauth": { "clientId": "x" }, "enabled": false },
            "inherited": { "enabled": false }
        }
    }"#), @r#"
    [mcp.git]
    command = "uvx"
    args = ["mcp-server-git"]
    env = { "T" = "${TOKEN}" }
    timeout_ms = 60000
    [mcp.auth]
    url = "https://auth.example.com/mcp"
    oauth = { "client_id" = "x" }
      note: it is disabled there
      note: it needs a login before the review: `portcullis mcp auth auth`
    far is left out: it reads a file into its settings; move the value to the secret store
    inherited is left out: it has neither a command nor a URL, or both
    "#);
    let two = r#"{ "mcp": { "servers": { "git": { "type": "local", "command": ["git-server"], "disabled": true } } } }"#;
    insta::assert_snapshot!(check("/home/me/work/opencode.json", two), @r#"
    [mcp.git]
    command = "git-server"
    cwd = "/home/me/work"
      note: it is disabled there
    "#);
}

#[test]
fn claude_code_keeps_servers_for_single_projects() {
    insta::assert_snapshot!(check("/home/me/.claude.json", r#"{
        "numStartups": 7,
        "mcpServers": { "git": { "command": "git-server" }, "mine": { "command": "mine" } },
        "projects": {
            "/home/me/work": { "allowedTools": [], "mcpServers": { "git": { "command": "./run.sh" } } },
            "/home/me/empty": { "mcpServers": {} },
            "/home/me/other": { "mcpServers": { "a": { "command": "a" }, "b": { "command": "b" } } }
        }
    }"#), @r#"
    [mcp.git]
    command = "/home/me/work/run.sh"
    cwd = "/home/me/work"
    [mcp.mine]
    command = "mine"
    git is left out: the project has a server of this name, which takes precedence
    note: these projects have their own servers; import them from their folders: `/home/me/other` (2)
    "#);
    insta::assert_snapshot!(check("/home/me/.claude.json", r#"{ "projects": { "/x": { "history": [] } } }"#), @"");
}

#[test]
fn defaults_of_variables_are_taken_where_the_variable_is_not_set() {
    insta::assert_snapshot!(check("/home/me/work/.mcp.json", r#"{ "mcpServers": {
        "a": { "command": "run", "args": ["--dir", "${DIR:-/tmp}"], "env": { "A": "${SET:-x}", "B": "${UNSET:-y}", "API_KEY": "${KEY:-abcdefgh12345}" } },
        "b": { "command": "run", "args": ["${SET:-/tmp}"] },
        "c": { "type": "http", "url": "${BASE:-https://c.example.com}/mcp" }
    } }"#), @r#"
    [mcp.a]
    command = "run"
    cwd = "/home/me/work"
    args = ["--dir", "/tmp"]
    env = { "A" = "${SET}", "B" = "y", "API_KEY" = "secret:A_API_KEY" }
      API_KEY = abcdefgh12345 -> A_API_KEY for mcp.a:env
      note: `DIR` is not set now; its default was imported
      note: `SET` is set now and must stay set for the hub; its default was not imported
      note: `UNSET` is not set now; its default was imported
      note: `KEY` is not set now; its default was imported
    [mcp.c]
    url = "https://c.example.com/mcp"
      note: `BASE` is not set now; its default was imported
    b is left out: `${SET}` is a variable, which works in `env` and `headers` only
    "#);
}

#[test]
fn what_another_program_adds_is_told() {
    insta::assert_snapshot!(check("/home/me/work/.vscode/mcp.json", r#"{
        "inputs": [
            { "type": "pickString", "id": "region", "options": ["eu", "us"], "default": "eu" },
            { "type": "pickString", "id": "zone", "options": ["a"] },
            { "type": "promptString", "id": "pin", "password": true, "default": "x" }
        ],
        "servers": {
            "a": { "command": "run", "args": ["--region=${input:region}"], "env": { "R": "${input:region}", "P": "${input:pin}" }, "envFile": "${workspaceFolder}/.env" },
            "b": { "command": "run", "args": ["${input:zone}"] },
            "c": { "command": "./bin/run.sh", "cwd": "tools" },
            "d": { "command": "../run" }
        }
    }"#), @r#"
    [mcp.a]
    command = "run"
    cwd = "/home/me/work"
    args = ["--region=eu"]
    env = { "R" = "eu", "P" = "secret:A_P" }
      P = asked for -> A_P for mcp.a:env
      note: `region` is prompted for there; its default was imported
      note: the variables in its `envFile`, ${workspaceFolder}/.env, are not imported; add those it needs to `mcp.a.env`
      note: the value of `P` is not in the file; to set the whole value: portcullis secrets set A_P --grant 'mcp.a:env'
    [mcp.c]
    command = "/home/me/work/tools/bin/run.sh"
    cwd = "/home/me/work/tools"
    [mcp.d]
    command = "/home/me/work/../run"
    cwd = "/home/me/work"
    b is left out: its command contains `zone`, which is prompted for there; add it yourself: portcullis mcp add
    "#);
    insta::assert_snapshot!(check("/home/me/.cursor/mcp.json", r#"{ "mcpServers": { "a": { "command": "./run" } } }"#), @r#"
    [mcp.a]
    command = "./run"
      note: its command is a relative path, and its base folder is unknown
    "#);
}

#[test]
fn secrets_among_arguments_and_in_addresses_are_noticed_and_not_shown() {
    let text = r#"{ "mcpServers": {
        "plain": { "command": "run", "args": ["--api-key", "hunter2hunter2", "--header", "Authorization: Bearer hunter2hunter2"] },
        "box": { "command": "/usr/bin/docker", "args": ["run", "-e", "API_TOKEN=hunter2hunter2", "-e", "LANG=de", "image"] },
        "bridge": { "command": "npx", "args": ["-y", "mcp-remote@1", "https://b.example.com/sse", "--header", "Authorization: Bearer hunter2hunter2"] },
        "ready": { "command": "npx", "args": ["mcp-remote", "https://b.example.com/sse", "--header", "Authorization:${AUTH}"], "env": { "AUTH": "Bearer hunter2hunter2" } },
        "query": { "url": "https://q.example.com/mcp?team=red&api_key=hunter2hunter2" },
        "user": { "url": "https://me:hunter2hunter2@u.example.com/mcp" }
    } }"#;
    insta::assert_snapshot!(check("/home/me/.cursor/mcp.json", text), @r#"
    [mcp.plain]
    command = "run"
    args = ["--api-key", "hunter2hunter2", "--header", "Authorization: Bearer hunter2hunter2"]
      note: arguments 2 and 4 look like secrets and stays in the configuration in plain text: arguments cannot refer to the secret store. If the program also reads it from a variable, remove the argument and: portcullis secrets set NAME --grant 'mcp.plain:env', then `env = { VARIABLE = "secret:NAME" }`
    [mcp.box]
    command = "/usr/bin/docker"
    args = ["run", "-e", "API_TOKEN", "-e", "LANG=de", "image"]
    env = { "API_TOKEN" = "secret:BOX_API_TOKEN" }
      API_TOKEN = hunter2hunter2 -> BOX_API_TOKEN for mcp.box:env
    [mcp.bridge]
    command = "npx"
    args = ["-y", "mcp-remote@1", "https://b.example.com/sse", "--header", "Authorization:${BRIDGE_AUTHORIZATION}"]
    env = { "BRIDGE_AUTHORIZATION" = "Bearer secret:BRIDGE_AUTHORIZATION" }
      BRIDGE_AUTHORIZATION = hunter2hunter2 -> BRIDGE_AUTHORIZATION for mcp.bridge:env
    [mcp.ready]
    command = "npx"
    args = ["mcp-remote", "https://b.example.com/sse", "--header", "Authorization:${AUTH}"]
    env = { "AUTH" = "Bearer secret:READY_AUTH" }
      AUTH = hunter2hunter2 -> READY_AUTH for mcp.ready:env
    [mcp.query]
    url = "https://q.example.com/mcp?team=red&api_key=hunter2hunter2"
      note: its URL seems to contain a key. It stays in the configuration in plain text: URLs cannot refer to the secret store. If the server also accepts it in a header: portcullis secrets set NAME --grant 'q.example.com:authorization', then `headers = { Authorization = "Bearer secret:NAME" }`
    user is left out: its URL contains a user name or password; move `USER:PASSWORD`, in base64, to a header: portcullis secrets set NAME --grant 'u.example.com:authorization', then `headers = { Authorization = "Basic secret:NAME" }`
    "#);
    let around = ImportEnvironment { user_home: None, project: None, is_set: &|_| false };
    let found = of_text(Path::new("/x.json"), text, &around).unwrap();
    for imported in &found.servers {
        let shown = imported.server.shown().written();
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(!imported.notes.concat().contains("hunter2"), "{:?}", imported.notes);
    }
    assert!(found.skipped.iter().all(|(_, why)| !why.contains("hunter2")), "{:?}", found.skipped);
}

#[test]
fn servers_are_found_under_every_key_of_a_file() {
    insta::assert_snapshot!(check("/home/me/x.json", r#"{
        "mcpServers": { "a": { "command": "one" } }, "servers": { "a": { "command": "two" }, "b": { "command": "b" } },
        "mcp": { "allowed": ["a"] }
    }"#), @r#"
    [mcp.a]
    command = "one"
    [mcp.b]
    command = "b"
    a is left out: another part of the file has a server of this name, which takes precedence
    "#);
    insta::assert_snapshot!(check("/home/me/x.code-workspace", r#"{
        "folders": [{ "path": "." }],
        "settings": { "mcp": { "inputs": [{ "id": "k" }], "servers": { "c": { "command": "c", "env": { "K": "${input:k}" } } } } },
    }"#), @r#"
    [mcp.c]
    command = "c"
    env = { "K" = "secret:C_K" }
      K = asked for -> C_K for mcp.c:env
      note: the value of `K` is not in the file; to set the whole value: portcullis secrets set C_K --grant 'mcp.c:env'
    "#);
}

#[test]
fn passwords_are_lifted_whatever_they_are_called_and_what_is_harmless_is_not() {
    insta::assert_snapshot!(check("/home/me/.cursor/mcp.json", r#"{ "mcpServers": {
        "db": { "command": "run", "env": {
            "MYSQL_PASS": "hunter2pw", "DATABASE_URL": "postgres://me:hunter2pw@db/x", "CONN": "Server=db;Password=Str0ngPassw0rd;",
            "GOOGLE_APPLICATION_CREDENTIALS": "/home/me/gcp.json", "TOKEN_FILE": "/home/me/token.json",
            "OAUTH_TOKEN_URL": "https://login.example.com/token", "MAX_TOKENS_TOTAL": "100000000",
            "MY_AUTH": "Basic bWU6aHVudGVyMnB3", "TOKEN": "token hunter2hunter2", "OURS": "secret:GITHUB_TOKEN" } },
        "site": { "url": "https://web.example.com/mcp", "headers": { "Authorization": "Bearer secret:GITHUB_TOKEN" } }
    } }"#), @r#"
    [mcp.db]
    command = "run"
    env = { "MYSQL_PASS" = "secret:DB_MYSQL_PASS", "DATABASE_URL" = "secret:DB_DATABASE_URL", "CONN" = "secret:DB_CONN", "GOOGLE_APPLICATION_CREDENTIALS" = "/home/me/gcp.json", "TOKEN_FILE" = "/home/me/token.json", "OAUTH_TOKEN_URL" = "https://login.example.com/token", "MAX_TOKENS_TOTAL" = "100000000", "MY_AUTH" = "Basic secret:DB_MY_AUTH", "TOKEN" = "token secret:DB_TOKEN", "OURS" = "secret:DB_OURS" }
      MYSQL_PASS = hunter2pw -> DB_MYSQL_PASS for mcp.db:env
      DATABASE_URL = postgres://me:hunter2pw@db/x -> DB_DATABASE_URL for mcp.db:env
      CONN = Server=db;Password=Str0ngPassw0rd; -> DB_CONN for mcp.db:env
      MY_AUTH = bWU6aHVudGVyMnB3 -> DB_MY_AUTH for mcp.db:env
      TOKEN = hunter2hunter2 -> DB_TOKEN for mcp.db:env
      OURS = secret:GITHUB_TOKEN -> DB_OURS for mcp.db:env
      note: `OURS` looks like a reference to the secret store; it is imported as plain text
    [mcp.site]
    url = "https://web.example.com/mcp"
    headers = { "Authorization" = "secret:SITE_AUTHORIZATION" }
      Authorization = asked for -> SITE_AUTHORIZATION for web.example.com:Authorization
      note: `Authorization` looks like a reference to the secret store; it is imported as plain text
      note: the value of `Authorization` is words separated by spaces, which is not registered as a secret: it would be redacted wherever it occurs; if it is a secret, set it yourself: portcullis secrets set SITE_AUTHORIZATION --grant 'web.example.com:Authorization' --weak
    "#);
}

#[test]
fn what_is_no_such_file_is_refused() {
    for text in ["", "[]", "{}", "{\"mcpServers\": 3}", "nonsense"] {
        assert!(check("/x.json", text).starts_with("refused: "), "{text}");
    }
    let odd = r#"{ "mcpServers": { "": { "command": "x" }, "a b": { "command": "x" }, "a-b": { "command": "y" }, "n": 3,
        "l": { "command": [[]] }, "e": { "command": "x", "env": { "A": [] } }, "f": { "command": "x", "args": "a b" },
        "g": { "command": "x", "env": ["A=b"] }, "\u001b[2J": { "command": "x" } } }"#;
    insta::assert_snapshot!(check("/x.json", odd).replace('\u{1b}', "ESC"), @r#"
    [mcp.a-b]
    command = "x"
    [mcp.2J]
    command = "x"
     is left out: its name has no valid characters
    a-b is left out: `a b` would have the same name here, `a-b`
    n is left out: it has neither a command nor a URL, or both
    l is left out: an argument is not a string
    e is left out: `A` is not a string
    f is left out: its arguments are not a list
    g is left out: its `env` is not a table
    "#);
    let more = r#"{ "mcpServers": {
        "made": { "url": "https://m.example.com/mcp", "headersHelper": "/home/me/headers.sh" },
        "cursor": { "url": "https://c.example.com/mcp", "auth": { "CLIENT_ID": "x" } },
        "plain": { "url": "https://p.example.com/mcp", "oauth": false }, "plain": { "url": "https://q.example.com/mcp" }
    } }"#;
    insta::assert_snapshot!(check("/x.json", more), @r#"
    [mcp.made]
    url = "https://m.example.com/mcp"
      note: its `headersHelper` is not imported
    [mcp.cursor]
    url = "https://c.example.com/mcp"
    oauth = { "client_id" = "x" }
      note: it needs a login before the review: `portcullis mcp auth cursor`
    [mcp.plain]
    url = "https://q.example.com/mcp"
    note: key `plain` is given twice at line 4 column 80; the last one wins, as in the application
    "#);
}

#[test]
fn a_secret_is_granted_for_the_host_that_it_is_sent_to() {
    for (url, host) in [
        ("https://bücher.example/mcp", "xn--bcher-kva.example"),
        ("https://A.example.com.:8443/mcp", "a.example.com"),
        ("http://[::1]:80/mcp", "[::1]"),
        ("unix:/run/x.sock:/mcp", "localhost"),
    ] {
        let text = serde_json::json!({ "mcpServers": { "a": {
            "url": url, "headers": { "Authorization": "Bearer abcdefgh54321" },
        } } });
        let told = check("/home/me/mcp.json", &text.to_string());
        assert!(told.contains(&format!(" for {host}:Authorization\n")), "{told}");
    }
}
