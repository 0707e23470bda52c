//! The files of every program, as they write them.

use super::*;

/// Returns what would be written, and what is said besides.
fn check(path: &str, text: &str) -> String {
    let found = match of_text(Path::new(path), text, Some(Path::new("/home/me"))) {
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
        imported.notes.iter().for_each(|note| told.push_str(&format!("  note: {note}\n")));
    }
    for (own, why) in &found.skipped {
        told.push_str(&format!("{own} is left out: {why}\n"));
    }
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
    command = "./db-server"
    cwd = "/home/me/work"
    env = { "URL" = "${DB_URL}", "PASSWORD" = "${PW}" }
    [mcp.api]
    url = "https://api.example.com/mcp"
    headers = { "Authorization" = "secret:API_AUTHORIZATION", "X-Team" = "red" }
      Authorization = Bearer abcdef0123456789 -> API_AUTHORIZATION for api.example.com:Authorization
    odd is left out: `${HOME}/x` stands for something that is put in only in `env` and `headers` here
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
    [mcp.github]
    command = "docker"
    args = ["run", "ghp_a1B2c3D4e5a1B2c3D4e5a1B2c3D4e5a1B2c3"]
    env = { "WHO" = "secret:GITHUB_WHO", "GITHUB_KEY" = "short" }
      WHO = ghp_a1B2c3D4e5a1B2c3D4e5a1B2c3D4e5a1B2c3 -> GITHUB_WHO for mcp.github:env
      note: `GITHUB_KEY` is too short for a secret; it stays in the configuration
      note: argument 2 looks like a token, and stays in the configuration
      note: it is switched off there
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
            "web": { "type": "http", "url": "https://web.example.com/mcp", "headers": { "Authorization": "Bearer ${input:key}" } },
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
      note: the value of `PERPLEXITY_API_KEY` is asked for there; set all of it: portcullis secrets set PERPLEXITY_API_KEY --grant 'mcp.perplexity:env'
    [mcp.web]
    url = "https://web.example.com/mcp"
    headers = { "Authorization" = "secret:WEB_AUTHORIZATION" }
      Authorization = asked for -> WEB_AUTHORIZATION for web.example.com:Authorization
      note: the value of `Authorization` is asked for there; set all of it: portcullis secrets set WEB_AUTHORIZATION --grant 'web.example.com:Authorization'
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
      note: it is switched off there
      note: it has settings for OAuth there, which are not taken over
    far is left out: it reads a file into its settings; put that into the secret store
    inherited is left out: it has neither a command nor a URL, or both
    "#);
    let two = r#"{ "mcp": { "servers": { "git": { "type": "local", "command": ["git-server"], "disabled": true } } } }"#;
    insta::assert_snapshot!(check("/home/me/work/opencode.json", two), @r#"
    [mcp.git]
    command = "git-server"
    cwd = "/home/me/work"
      note: it is switched off there
    "#);
}

#[test]
fn what_is_no_such_file_is_refused() {
    for text in ["", "[]", "{}", "{\"mcpServers\": 3}", "{\"mcpServers\": {\"a\": 1, \"a\": 2}}", "nonsense"]
    {
        assert!(check("/x.json", text).starts_with("refused: "), "{text}");
    }
    let odd = r#"{ "mcpServers": { "": { "command": "x" }, "a b": { "command": "x" }, "a-b": { "command": "y" }, "n": 3,
        "l": { "command": [1] }, "e": { "command": "x", "env": { "A": [] } }, "\u001b[2J": { "command": "x" } } }"#;
    insta::assert_snapshot!(check("/x.json", odd).replace('\u{1b}', "ESC"), @r#"
    [mcp.a-b]
    command = "x"
    [mcp.2J]
    command = "x"
     is left out: its name has no letters that a name may have
    a-b is left out: `a b` would have the same name here, `a-b`
    n is left out: it has neither a command nor a URL, or both
    l is left out: an argument is not text
    e is left out: `A` is not text
    "#);
}
