//! Settings that mean something else here, or nothing.

use super::*;
use portcullis_config::Config;
use std::time::Duration;

#[test]
fn what_is_of_no_use_here_is_left_out_and_the_server_is_not() {
    insta::assert_snapshot!(check("/home/me/.cursor/mcp.json", r#"{ "mcpServers": {
        "site": { "command": "", "args": [], "url": "https://w.example.com/mcp", "env": { "A": ["b"] }, "cwd": "x",
            "headers": { "Content-Type": "application/json", "accept": "text/event-stream", "Mcp-Protocol-Version": "2025-06-18", "X-Team": "red" } },
        "run": { "url": "", "command": "run", "env": {}, "headers": { "Authorization": "Bearer abcdefgh54321" } }
    } }"#), @r#"
    [mcp.site]
    url = "https://w.example.com/mcp"
    headers = { "X-Team" = "red" }
      note: `env` is ignored: it does not apply to a server with a URL
      note: `cwd` is ignored: it does not apply to a server with a URL
      note: the header `Content-Type` is not imported: the hub sets it itself
      note: the header `accept` is not imported: the hub sets it itself
      note: the header `Mcp-Protocol-Version` is not imported: the hub sets it itself
    [mcp.run]
    command = "run"
      note: `headers` is ignored: it does not apply to a server with a command
    "#);
}

#[test]
fn what_a_person_chooses_is_no_secret_unless_something_says_so() {
    insta::assert_snapshot!(check("/home/me/x.json", r#"{
        "inputs": [
            { "type": "pickString", "id": "region", "description": "Where", "options": ["eu", { "label": "America", "value": "us" }] },
            { "type": "promptString", "id": "team" },
            { "type": "promptString", "id": "pin", "password": true }
        ],
        "servers": {
            "a": { "command": "run", "env": { "REGION": "${input:region}", "API_TOKEN": "${input:team}", "P": "${input:pin}",
                "PAIR": "${input:team}:${input:pin}", "DB": "postgres://me:${input:team}@db/x" } },
            "site": { "url": "https://web.example.com/mcp", "headers": { "X-Team": "team-${input:team}", "X-Login": "Bearer ${input:team}" } }
        }
    }"#), @r#"
    [mcp.a]
    command = "run"
    env = { "API_TOKEN" = "secret:A_API_TOKEN", "P" = "secret:A_P", "PAIR" = "secret:A_PAIR", "DB" = "secret:A_DB" }
      API_TOKEN = asked for -> A_API_TOKEN for mcp.a:env
      P = asked for -> A_P for mcp.a:env
      PAIR = asked for -> A_PAIR for mcp.a:env
      DB = asked for -> A_DB for mcp.a:env
      note: `REGION` is prompted for there (Where; one of eu, us) and was skipped; add it to `mcp.a.env`: `REGION = "…"`
      note: the value of `API_TOKEN` is not in the file; to set the whole value: portcullis secrets set A_API_TOKEN --grant 'mcp.a:env'
      note: the value of `P` is not in the file; to set the whole value: portcullis secrets set A_P --grant 'mcp.a:env'
      note: the value of `PAIR` is not in the file; to set the whole value: portcullis secrets set A_PAIR --grant 'mcp.a:env'
      note: the value of `DB` is not in the file; to set the whole value: portcullis secrets set A_DB --grant 'mcp.a:env'
    [mcp.site]
    url = "https://web.example.com/mcp"
    headers = { "X-Login" = "Bearer secret:SITE_X_LOGIN" }
      X-Login = asked for -> SITE_X_LOGIN for web.example.com:X-Login
      note: `X-Team` is prompted for there and was skipped; add it to `mcp.site.headers`: `X-Team = "team-…"`
      note: the value of `X-Login` is not in the file; to set the part after `Bearer`: portcullis secrets set SITE_X_LOGIN --grant 'web.example.com:X-Login'
    "#);
}

#[test]
fn a_time_is_taken_over_only_where_it_makes_no_call_shorter() {
    insta::assert_snapshot!(check("/home/me/x.json", r#"{ "mcpServers": {
        "tools": { "command": "run", "timeout": 5000 },
        "long": { "command": "run", "timeout": 30000 },
        "odd": { "command": "run", "timeout": "1m" },
        "two": { "command": "run", "timeout": { "startup": 10000, "request": 60000 } },
        "short": { "command": "run", "timeout": { "request": 60 } }
    } }"#), @r#"
    [mcp.tools]
    command = "run"
      note: `timeout` is 5000 there, and is not taken over: a call may be silent for 30000 ms here, unless `mcp.tools.timeout_ms` says otherwise
    [mcp.long]
    command = "run"
    timeout_ms = 30000
    [mcp.odd]
    command = "run"
      note: `timeout` is "1m" there, and is not taken over: a call may be silent for 30000 ms here, unless `mcp.odd.timeout_ms` says otherwise
    [mcp.two]
    command = "run"
    timeout_ms = 60000
      note: `timeout.startup` is not imported: it has no equivalent
    [mcp.short]
    command = "run"
      note: `timeout.request` is 60 there, and is not taken over: a call may be silent for 30000 ms here, unless `mcp.short.timeout_ms` says otherwise
    "#);
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("portcullis.toml"), "[mcp.a]\ncommand = 'a'\n").unwrap();
    let config = Config::load(home.path(), &|_| None).unwrap().config;
    assert_eq!(config.mcp[0].timeout, Duration::from_millis(entry::TIMEOUT_MS_USUAL));
}

#[test]
fn a_password_beside_a_variable_is_noticed() {
    insta::assert_snapshot!(check("/home/me/x.json", r#"{ "mcpServers": { "db": { "command": "run", "env": {
        "DATABASE_URL": "postgres://me:hunter2pw99@${DBHOST}/x", "SAFE_URL": "postgres://me:${PW}@${DBHOST}/x"
    } } } }"#), @r#"
    [mcp.db]
    command = "run"
    env = { "DATABASE_URL" = "postgres://me:hunter2pw99@${DBHOST}/x", "SAFE_URL" = "postgres://me:${PW}@${DBHOST}/x" }
      note: `DATABASE_URL` seems to contain a secret next to a variable. It stays in the configuration in plain text: a secret must be the whole value. To move all of it to the secret store: portcullis secrets set NAME --grant 'mcp.db:env', then `DATABASE_URL = "secret:NAME"` in `mcp.db.env`
    "#);
}
