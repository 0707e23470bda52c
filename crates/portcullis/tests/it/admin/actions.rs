//! Everything else that is done from the API, each seen from another side.

use super::{Admin, problem};
use crate::support::{home, http, request};
use portcullis_testkit::mcp_client::McpClient;
use portcullis_testkit::raw_http::RawHttpRequest;
use portcullis_testkit::wait::until;
use serde_json::{Value, json};

#[tokio::test]
async fn clients_come_change_and_go() {
    let home = home();
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let made = ann.does("POST", "/clients", json!({ "name": "ci", "effects": ["read"] })).await;
    let token = made["token"].as_str().unwrap().to_owned();
    assert!(token.starts_with("pcl_"), "shown once: {made}");
    let snippets = made["snippets"].as_array().unwrap();
    assert!(snippets.iter().any(|s| s["text"].as_str().unwrap().contains(&token)), "ready to copy");
    let list = || RawHttpRequest::post("/mcp", request(1, "tools/list", json!({})).to_string()).token(&token);
    let has_write = async || list().send(hub.address).await.text().contains("workspace_write");
    assert!(!has_write().await);
    ann.does("PUT", "/clients/ci", json!({ "allow": ["*"], "effects": ["read", "write", "create"] })).await;
    assert!(has_write().await, "from the next request on");
    let taken = ann.send("POST", "/clients", json!({ "name": "ci" })).await;
    assert_eq!(problem(&taken), "conflict");
    assert!(!ann.get("/clients").await.text().contains(&token), "never again");
    ann.does("DELETE", "/clients/ci", json!({})).await;
    assert_eq!(list().send(hub.address).await.status(), 401);
    for bad in [
        json!({ "name": "x y" }),
        json!({ "name": "x", "effects": ["fly"] }),
        json!({ "name": "x", "expires": "soon" }),
    ] {
        assert_eq!(problem(&ann.send("POST", "/clients", bad).await), "invalid");
    }
}

/// What is open when a client's scope is changed goes by the new one, without a new session.
#[tokio::test]
async fn what_is_open_follows_the_scope() {
    const CHANGED: &str = "notifications/tools/list_changed";
    const UPDATED: &str = "notifications/resources/updated";
    let home = home();
    home.write("watched.txt", "before");
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let token = ann.does("POST", "/clients", json!({ "name": "ada" })).await["token"].clone();
    let mut ada = McpClient::http(hub.address, token.as_str().unwrap(), "2025-11-25").await;
    ada.initialize(json!({})).await;
    let mut listener = McpClient::http(hub.address, token.as_str().unwrap(), "2026-07-28").await;
    let mut other = http(&hub, "2025-11-25").await;
    let listed = ada.result("resources/list", json!({})).await;
    let is_watched = |item: &&Value| item["name"] == "watched.txt";
    let uri = listed["resources"].as_array().unwrap().iter().find(is_watched).unwrap()["uri"].clone();
    for session in [&mut ada, &mut other] {
        session.result("resources/subscribe", json!({ "uri": uri })).await;
    }
    listener.listen(json!({ "toolsListChanged": true, "resourceSubscriptions": [uri] })).await;
    home.write("watched.txt", "after");
    for client in [&mut ada, &mut listener, &mut other] {
        client.told(UPDATED).await;
        client.unasked();
    }
    let only = |allow: &str| json!({ "allow": [allow], "effects": ["read"] });
    ann.does("PUT", "/clients/ada", only("memory_*")).await;
    for client in [&mut ada, &mut listener] {
        client.told(CHANGED).await;
        // The first write may have been seen in two steps.
        client.unasked();
    }
    other.unasked();
    home.write("watched.txt", "later");
    other.told(UPDATED).await;
    // What comes next comes after what must not come.
    ann.does("PUT", "/clients/ada", only("memory_read")).await;
    for client in [&mut ada, &mut listener] {
        client.told(CHANGED).await;
        let told = client.unasked();
        assert!(told.iter().all(|message| message["method"] != UPDATED), "{told:?}");
    }
}

#[tokio::test]
async fn it_is_known_when_a_client_last_called_also_long_ago() {
    let home = home();
    let mut hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let quiet = ann.does("POST", "/clients", json!({ "name": "quiet" })).await["token"].clone();
    ann.does("POST", "/clients", json!({ "name": "silent" })).await;
    let called = async |admin: &Admin, name: &str| {
        let clients = admin.sees("/clients").await["clients"].as_array().unwrap().clone();
        clients.iter().find(|one| one["name"] == name).map(|one| one["last_call"].clone()).unwrap()
    };
    let list = request(1, "tools/call", json!({ "name": "workspace_list", "arguments": {} })).to_string();
    let reply = RawHttpRequest::post("/mcp", list).token(quiet.as_str().unwrap()).send(hub.address).await;
    assert_eq!(reply.status(), 200, "{}", reply.text());
    let at = called(&ann, "quiet").await;
    assert!(at.is_string(), "{at}");
    // More calls of others than are in memory.
    let mut client = http(&hub, "2025-06-18").await;
    for _ in 0..250 {
        client.call("workspace_list", json!({})).await;
    }
    let recent = ann.sees("/calls").await["calls"].as_array().unwrap().clone();
    assert!(recent.iter().all(|call| call["client"] != "quiet"), "the last calls alone would not tell");
    assert_eq!(called(&ann, "quiet").await, at);
    // The record tells what was before the hub started; to the millisecond.
    hub.process.stop().await;
    let hub = home.serve().await;
    let ann = Admin { address: hub.address, ..ann };
    // Whoever asks first, and about whom, does not decide of whom it is known.
    ann.does("PUT", "/clients/silent", json!({ "allow": ["*"], "effects": ["read"] })).await;
    let again = called(&ann, "quiet").await;
    assert_eq!(again.as_str().unwrap()[..19], at.as_str().unwrap()[..19]);
    assert_eq!(called(&ann, "silent").await, Value::Null);
    // Another one of the same name has not called. When it was made is known to the second.
    until("it is another one", async || {
        ann.does("DELETE", "/clients/quiet", json!({})).await;
        ann.does("POST", "/clients", json!({ "name": "quiet" })).await;
        called(&ann, "quiet").await.is_null().then_some(())
    })
    .await;
}

#[tokio::test]
async fn rules_are_tested_added_moved_and_removed() {
    let home = home();
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let test = json!({ "client": "local", "tool": "workspace_write" });
    assert_eq!(ann.does("POST", "/policy/test", test.clone()).await["decision"], "allow");
    let version = ann.sees("/policy").await["version"].clone();
    let deny = json!({ "decision": "deny", "tools": ["workspace_*"], "days": ["mon-sun"] });
    let after = ann.does("POST", "/policy/rules", json!({ "rule": deny, "version": version })).await;
    let answer = ann.does("POST", "/policy/test", test.clone()).await;
    assert_eq!((&answer["decision"], &answer["rule"]), (&json!("deny"), &json!("policy[0]")), "{answer}");
    // Who looked before somebody else changed it is told so.
    let late = ann.send("POST", "/policy/rules/remove", json!({ "at": 0, "version": version })).await;
    assert_eq!((late.status(), problem(&late)), (409, "changed".to_owned()));
    let ask = json!({ "decision": "ask", "tools": ["workspace_write"] });
    let after = ann
        .does("POST", "/policy/rules", json!({ "rule": ask, "before": 0, "version": after["version"] }))
        .await;
    assert_eq!(ann.does("POST", "/policy/test", test.clone()).await["decision"], "ask");
    let after = ann
        .does("POST", "/policy/rules/move", json!({ "from": 0, "to": 1, "version": after["version"] }))
        .await;
    assert_eq!(after["rules"][0]["decision"], "deny", "{after}");
    let bad = json!({ "rule": { "decision": "perhaps" }, "version": after["version"] });
    assert_eq!(problem(&ann.send("POST", "/policy/rules", bad).await), "invalid");
    let beyond = json!({ "at": 7, "version": after["version"] });
    assert_eq!(problem(&ann.send("POST", "/policy/rules/remove", beyond).await), "not_found");
    let mut after = after;
    for _ in 0..2 {
        after =
            ann.does("POST", "/policy/rules/remove", json!({ "at": 0, "version": after["version"] })).await;
    }
    assert_eq!(after["rules"], json!([]));
    assert_eq!(ann.does("POST", "/policy/test", test).await["decision"], "allow");
}

#[tokio::test]
async fn a_tool_is_tried_and_the_record_tells_all_of_it() {
    let home = home();
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let tool = ann.sees("/tools/workspace_write").await;
    assert_eq!((&tool["effect"], &tool["input_schema"]["type"]), (&json!("write"), &json!("object")));
    let tried = ann
        .does(
            "POST",
            "/tools/workspace_write/try",
            json!({ "arguments": { "path": "t.md", "content": "Tried" } }),
        )
        .await;
    assert_eq!(
        (&tried["outcome"], &tried["reply"]["result"]["isError"]),
        (&json!("ok"), &json!(false)),
        "{tried}"
    );
    assert_eq!(std::fs::read_to_string(home.files().join("t.md")).unwrap(), "Tried");
    let wrong = ann.does("POST", "/tools/workspace_read/try", json!({ "arguments": { "pth": 1 } })).await;
    assert_eq!((&wrong["outcome"], &wrong["is_error"]), (&json!("invalid_args"), &json!(true)));
    let mut client = http(&hub, "2025-06-18").await;
    client.call("workspace_list", json!({})).await;

    let found = |query: &'static str| {
        let ann = ann.clone();
        async move { ann.sees(&format!("/audit?{query}")).await["records"].as_array().unwrap().clone() }
    };
    let all = found("").await;
    assert_eq!(all.len(), 6, "three calls, each with its beginning and its end: {all:?}");
    assert!(all.windows(2).all(|pair| pair[0]["seq"].as_u64() > pair[1]["seq"].as_u64()), "newest first");
    for (query, expected) in [
        ("client=admin:*", 4),
        ("tool=workspace_list", 2),
        ("outcome=invalid_args", 1),
        ("text=tRIED", 1),
        ("text=%22content%22%3A%22Tried", 1),
        ("text=nothing+like+this", 0),
        ("since=1h", 6),
        ("until=1h", 0),
        ("client=default&tool=workspace_write", 0),
        ("limit=2", 2),
    ] {
        assert_eq!(found(query).await.len(), expected, "{query}");
    }
    // Page by page it is the same.
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = ann.sees(&format!("/audit?limit=4&cursor={cursor}")).await;
        pages.extend(page["records"].as_array().unwrap().clone());
        match page["cursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(pages, all);
    for record in &all {
        let story = ann.sees(&format!("/audit/{}", record["seq"])).await;
        let phases: Vec<&str> =
            story["records"].as_array().unwrap().iter().map(|r| r["phase"].as_str().unwrap()).collect();
        assert_eq!(phases, ["begin", "end"], "{story}");
        assert_eq!(story["records"][0]["call"], record["call"]);
    }
    assert_eq!(ann.get("/audit/999").await.status(), 404);
    assert_eq!(ann.does("POST", "/audit/verify", json!({})).await["intact"], true);
    let log = home.path().join("workspace/secure/audit/audit.jsonl");
    let text = std::fs::read_to_string(&log).unwrap().replacen("workspace_list", "workspace_xist", 1);
    std::fs::write(&log, text).unwrap();
    assert_eq!(ann.does("POST", "/audit/verify", json!({})).await["intact"], false);
}

#[tokio::test]
async fn servers_come_and_go_switched_off_until_somebody_looks() {
    let home = home();
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let new = json!({ "name": "echo", "command": "/bin/false", "args": ["a b"] });
    ann.does("POST", "/servers", new.clone()).await;
    assert_eq!(problem(&ann.send("POST", "/servers", new).await), "conflict");
    let server = until("the hub knows it", async || {
        let reply = ann.get("/servers/echo").await;
        (reply.status() == 200).then(|| reply.json())
    })
    .await;
    assert_eq!(
        (&server["status"], &server["enabled"], &server["seen"]),
        (&json!("disabled"), &json!(false), &Value::Null)
    );
    let trust = ann.send("PUT", "/servers/echo/trust", json!({ "seen": "x" })).await;
    assert_eq!(problem(&trust), "conflict", "nobody looked");
    let look = ann.send("POST", "/servers/echo/look", json!({})).await;
    assert_eq!(problem(&look), "conflict", "it does not work, and says why: {}", look.text());
    let pasted = json!({ "text": r#"{"mcpServers": {"Git": {"command": "uvx", "args": ["mcp-server-git"], "env": {"API_TOKEN": "very-secret-value-1"}}}}"# });
    let found = ann.does("POST", "/servers/importable", pasted.clone()).await;
    assert_eq!(
        (&found["files"][0]["servers"][0]["name"], &found["written_to"]),
        (&json!("Git"), &Value::Null),
        "{found}"
    );
    let taken = ann.does("POST", "/servers/import", pasted).await;
    assert!(taken["written_to"].is_string(), "{taken}");
    let file = std::fs::read_to_string(home.path().join("portcullis.toml")).unwrap();
    assert!(file.contains("[mcp.Git]") && !file.contains("very-secret-value-1"), "{file}");
    ann.does("DELETE", "/servers/echo", json!({})).await;
    assert!(!std::fs::read_to_string(home.path().join("portcullis.toml")).unwrap().contains("[mcp.echo]"));
    assert_eq!(problem(&ann.send("POST", "/servers/nobody/restart", json!({})).await), "not_found");
}
