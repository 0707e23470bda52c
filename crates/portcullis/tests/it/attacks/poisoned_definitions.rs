//! Tool poisoning: definitions that show one text to a person and another to a model or terminal.
//!
//! The figure: no character that is obeyed or not seen, in anything an agent, a log, a terminal or the API gets; and what is
//! harmless arrives exactly as it was written.

use crate::admin::Admin;
use crate::changing_server::{Shop, done};
use crate::support::{corpus, home, http, shared, unseen};
use portcullis_testkit::process::TestHome;
use portcullis_testkit::wait::until;
use serde_json::{Value, json};

/// Every text and key in a value.
fn texts(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::String(text) => into.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| texts(item, into)),
        Value::Object(members) => members.iter().for_each(|(key, value)| {
            into.push(key.clone());
            texts(value, into);
        }),
        _ => {}
    }
}

/// Returns the definitions of the corpora: those that mean harm, and those that do not.
fn definitions() -> (Vec<Value>, Vec<Value>) {
    let own = |description: &str| json!({ "name": "t", "title": description, "description": description, "inputSchema": { "type": "object", "properties": { "a": { "type": "string", "description": description } } } });
    let mut harmless = vec![own("Family 👨\u{200d}👩\u{200d}👧, العربية"), own("two\nlines")];
    let mut harmful: Vec<Value> =
        ["\u{1b}[31mred", "a\u{202e}b", "x\u{e0041}\u{200b}", "ok\r\n INFO forged"].map(own).to_vec();
    // Some are nested deeper than this reader goes; they are no readable definitions for anybody.
    let lines = shared("tool_definitions.jsonl")
        .map(|path| std::fs::read_to_string(path).unwrap())
        .unwrap_or_default();
    for case in lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let all = if case["label"] == "benign" { &mut harmless } else { &mut harmful };
        all.push(case["tool"].clone());
    }
    for case in corpus("unicode_ansi.jsonl").unwrap_or_default() {
        harmful.push(own(case["text"].as_str().unwrap()));
    }
    // Each under a name of its own, where it has one that could be anybody's.
    for (at, tool) in harmful.iter_mut().chain(&mut harmless).enumerate() {
        let name = tool["name"].as_str().unwrap_or_default();
        if !name.is_empty() {
            tool["name"] = format!("{name}{at}").into();
        }
    }
    (harmful, harmless)
}

async fn everything_printed(home: &TestHome) -> String {
    let mut all = String::new();
    for args in [
        &["mcp", "test", "shop"][..],
        &["mcp", "test", "shop", "--json"],
        &["mcp", "trust", "shop", "--diff"],
        &["mcp", "trust", "shop", "--diff", "--json"],
        &["mcp", "trust", "shop", "--yes"],
        &["mcp", "status", "shop"],
        &["mcp", "list"],
        &["tools", "list"],
        &["tools", "list", "--json"],
    ] {
        let ran = home.run(args).await;
        assert_eq!(ran.code, 0, "{args:?} {ran:?}");
        all.push_str(&ran.stdout);
        all.push_str(&ran.stderr);
    }
    all
}

#[tokio::test]
async fn nothing_hidden_reaches_an_agent_a_log_or_a_terminal_and_nothing_harmless_is_touched() {
    let (harmful, harmless) = definitions();
    let offered: Vec<Value> = harmful.iter().chain(&harmless).cloned().collect();
    let mut said = Vec::new();
    texts(&json!(harmful), &mut said);
    // The weak variant: what comes in is not what may go out.
    let raw = said.iter().filter(|text| unseen(text).is_some()).count();
    assert!(raw >= 3, "{raw}");
    let shop = Shop::new(
        &json!({ "instructions": "Hi\u{1b}[2J\u{202e}", "tools": offered, "prompts": [{ "name": "p\u{202e}", "description": "x\u{1b}[1A" }] }),
    );
    let home = home();
    shop.configure(&home, "");
    let printed = everything_printed(&home).await;
    let found = printed.lines().find(|line| unseen(line).is_some());
    assert_eq!(found, None, "on the terminal");
    assert!(
        printed.contains("👩\u{200d}👩\u{200d}👧") || shared("tool_definitions.jsonl").is_none(),
        "{printed}"
    );
    let mut hub = home.serve().await;
    let mut client = http(&hub, "2025-11-25").await;
    let list = until("the server is listed", async || {
        let list = client.result("tools/list", json!({})).await;
        list.to_string().contains("shop_").then_some(list)
    })
    .await;
    let mut tools = list["tools"].as_array().unwrap().clone();
    let mut cursor = list["nextCursor"].clone();
    while cursor.is_string() {
        let page = client.result("tools/list", json!({ "cursor": cursor })).await;
        tools.extend(page["tools"].as_array().unwrap().clone());
        cursor = page["nextCursor"].clone();
    }
    tools.retain(|tool| tool["name"].as_str().unwrap().starts_with("shop_"));
    let mut clean = 0;
    for tool in &tools {
        let is_harmless =
            harmless.iter().any(|known| tool["name"] == format!("shop_{}", known["name"].as_str().unwrap()));
        let mut seen = Vec::new();
        texts(tool, &mut seen);
        if !is_harmless {
            let found = seen.iter().find(|text| unseen(text).is_some());
            assert_eq!(found, None, "{tool}");
            clean += 1;
        }
    }
    for known in &harmless {
        let name = format!("shop_{}", known["name"].as_str().unwrap());
        let mut tool =
            tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("{name}")).clone();
        tool["name"] = known["name"].clone();
        assert_eq!(tool["description"], known["description"]);
        assert_eq!(tool["inputSchema"], known["inputSchema"]);
        assert_eq!(tool["title"], known["title"]);
    }
    // None of ours was taken by a name that only looks like it.
    let all = client.result("tools/list", json!({})).await;
    assert_eq!(
        all["tools"].as_array().unwrap().iter().filter(|tool| tool["name"] == "workspace_read").count(),
        1
    );
    let ann = Admin::first(&hub).await;
    for path in ["/servers", "/servers/shop", "/tools"] {
        let reply = ann.get(path).await.text();
        assert!(reply.contains("shop") && unseen(&reply).is_none(), "{path}: {:?}", unseen(&reply));
    }
    // It means what it meant.
    let instructions = ann.sees("/servers/shop").await["instructions"].clone();
    assert_eq!(instructions, "Hi\u{1b}[2J\u{202e}");
    let prompts = client.result("prompts/list", json!({})).await;
    assert_eq!(unseen(&prompts.to_string()), None, "{prompts}");
    done(&home, &["mcp", "trust", "shop", "--revoke"]).await;
    hub.process.says("definitions need review").await;
    hub.process.stop().await;
    assert_eq!(hub.process.stderr().lines().find(|line| unseen(line).is_some()), None, "in the log");
    eprintln!(
        "figure: {} definitions offered, {clean} of them harmful and listed clean, {} harmless ones unchanged, {raw} texts held something hidden",
        offered.len(),
        harmless.len()
    );
}
