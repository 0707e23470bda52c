//! Logins, as every program writes them.

use super::*;
use portcullis_config::check_server;

#[test]
fn a_client_is_taken_over_by_all_its_names() {
    insta::assert_snapshot!(check("/home/me/x.json", r#"{ "mcpServers": {
        "code": { "url": "https://code.example.com/mcp", "oauth": { "clientId": "mine", "scope": "read write", "callbackPort": 3118, "other": 1, "empty": "" } },
        "cursor": { "url": "https://cursor.example.com/mcp", "auth": { "CLIENT_ID": "mine", "CLIENT_SECRET": "hunter2hunter2", "scopes": ["read", "write"] } },
        "two": { "url": "https://two.example.com/mcp", "oauth": { "client_id": "mine", "client_secret": "{env:SECRET}", "callback_port": "3119" } }
    } }"#), @r#"
    [mcp.code]
    url = "https://code.example.com/mcp"
    oauth = { "client_id" = "mine", "scope" = "read write", "callback_port" = 3118 }
      note: `other` of its OAuth settings is not imported
      note: it needs a login before the review: `portcullis mcp auth code`
    [mcp.cursor]
    url = "https://cursor.example.com/mcp"
    oauth = { "client_id" = "mine", "client_secret" = "secret:CURSOR_CLIENT_SECRET", "scope" = "read write" }
      oauth.client_secret = hunter2hunter2 -> CURSOR_CLIENT_SECRET for cursor.example.com:client_secret
      note: its client secret is granted for cursor.example.com. If its token endpoint is elsewhere, `portcullis mcp auth cursor` shows the grant to add
      note: it needs a login before the review: `portcullis mcp auth cursor`
    [mcp.two]
    url = "https://two.example.com/mcp"
    oauth = { "client_id" = "mine", "client_secret" = "secret:TWO_CLIENT_SECRET", "callback_port" = 3119 }
      oauth.client_secret = asked for -> TWO_CLIENT_SECRET for two.example.com:client_secret
      note: its client secret is granted for two.example.com. If its token endpoint is elsewhere, `portcullis mcp auth two` shows the grant to add
      note: it needs a login before the review: `portcullis mcp auth two`
      note: the value of `oauth.client_secret` is not in the file; to set the whole value: portcullis secrets set TWO_CLIENT_SECRET --grant 'two.example.com:client_secret'
    "#);
}

#[test]
fn what_cannot_be_put_into_a_login_is_told_instead_of_written() {
    insta::assert_snapshot!(check("/home/me/.config/opencode/opencode.jsonc", r#"{ "mcp": {
        "open": { "url": "https://open.example.com/mcp", "oauth": { "clientId": "{env:MY_MCP_CLIENT_ID}", "clientSecret": "{env:MY_MCP_CLIENT_SECRET}", "scope": "tools:read" } },
        "cursor": { "url": "https://cursor.example.com/mcp", "auth": { "CLIENT_ID": "${env:X}", "scopes": ["${Y}"] } },
        "set": { "url": "https://set.example.com/mcp", "oauth": { "clientId": "${UNSET:-mine}", "clientSecret": "short", "callbackPort": 0 } }
    } }"#), @r#"
    [mcp.open]
    url = "https://open.example.com/mcp"
    oauth = { "scope" = "tools:read" }
      note: the `client_id` of its login cannot be imported as written; add it to `mcp.open`: `oauth = { client_id = … }`, with the other settings there
      note: its client secret is not imported, because it needs a `client_id`. To add it: portcullis secrets set NAME --grant 'open.example.com:client_secret', then in `mcp.open`: `oauth = { client_id = "…", client_secret = "secret:NAME" }`
      note: it needs a login before the review: `portcullis mcp auth open`
    [mcp.cursor]
    url = "https://cursor.example.com/mcp"
    oauth = true
      note: the `client_id` of its login cannot be imported as written; add it to `mcp.cursor`: `oauth = { client_id = … }`, with the other settings there
      note: the `scope` of its login cannot be imported as written; add it to `mcp.cursor`: `oauth = { scope = … }`, with the other settings there
      note: it needs a login before the review: `portcullis mcp auth cursor`
    [mcp.set]
    url = "https://set.example.com/mcp"
    oauth = { "client_id" = "mine" }
      note: `UNSET` is not set now; its default was imported
      note: its client secret is too short and is not imported
      note: the `callback_port` of its login cannot be imported as written; add it to `mcp.set`: `oauth = { callback_port = … }`, with the other settings there
      note: it needs a login before the review: `portcullis mcp auth set`
    "#);
}

#[test]
fn the_configuration_takes_a_login_also_under_another_name_of_its_secret() {
    let text = r#"{ "mcpServers": { "a": { "url": "https://a.example.com/mcp", "oauth": {
        "clientId": "mine", "clientSecret": "hunter2hunter2", "scopes": ["b", "c"], "callbackPort": 3118 } } } }"#;
    let around = ImportEnvironment { user_home: None, project: None, is_set: &|_| false };
    let mut found = of_text(Path::new("/x.json"), text, &around).unwrap();
    let ImportedServer { server, secrets, .. } = &mut found.servers[0];
    secrets[0].rename(server, "OTHER".to_owned());
    assert!(server.written().contains("\"client_secret\" = \"secret:OTHER\""), "{}", server.written());
    let home = tempfile::tempdir().unwrap();
    check_server(home.path(), &|_| None, server).unwrap();
}
