//! Definitions that cannot be used: each is left out with the reason, and everything else of its server is there.

use crate::changing_server::{Shop, tool};
use crate::support::{home, http, text};
use crate::upstream::sees;
use portcullis_testkit::process::TestHome;
use portcullis_testkit::wait::until;
use serde_json::{Value, json};

fn with_schema(name: &str, property: Value) -> Value {
    json!({ "name": name, "inputSchema": { "type": "object", "properties": { "a": property } } })
}

/// Waits until so many are left out. Returns what, and why.
async fn left_out(home: &TestHome, count: usize) -> Vec<(String, String)> {
    until("so many are left out", async || {
        let status = home.run(&["mcp", "status", "--json"]).await.json()["servers"][0].clone();
        let all = status["dropped"].as_array().cloned().unwrap_or_default();
        let of = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
        (all.len() == count).then(|| all.iter().map(|one| (of(one, "name"), of(one, "why"))).collect())
    })
    .await
}

#[tokio::test]
async fn a_schema_that_cannot_be_used_costs_its_tool_and_no_other() {
    let mut answers = tool("answers", "Answers");
    answers["outputSchema"] = json!({ "type": "object", "properties": { "a": { "type": "wat" } } });
    let offer = |more: &[Value]| {
        let bad = [
            with_schema("pattern", json!({ "pattern": "(" })),
            with_schema("type", json!({ "type": "wat" })),
            with_schema("ref", json!({ "$ref": "http://127.0.0.1:9/schema.json" })),
            answers.clone(),
            with_schema("good", json!({ "type": "string", "pattern": "^(?=a)\\w+$" })),
        ];
        json!({ "tools": bad.iter().chain(more).collect::<Vec<_>>() })
    };
    let (home, shop) = (home(), Shop::new(&offer(&[])));
    shop.configure(&home, "trust = \"always\"\neffect = \"read\"");
    let hub = home.serve().await;
    let mut client = http(&hub, "2025-11-25").await;
    sees(&mut client, "shop_good").await;
    assert_eq!(text(&client.call("shop_good", json!({ "a": "ab" })).await), "called good");
    let before = left_out(&home, 4).await;
    let names: Vec<&str> = before.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["pattern", "type", "ref", "answers"]);
    for (name, why) in &before {
        let kind = if name == "answers" { "output" } else { "input" };
        assert!(why.starts_with(&format!("its {kind} schema cannot be used: ")), "{name}: {why}");
    }
    // What was seen to be bad is still so when something else is new.
    shop.offers(&offer(&[tool("more", "More")]));
    sees(&mut client, "shop_more").await;
    assert_eq!(left_out(&home, 4).await, before);
}

#[tokio::test]
async fn what_has_to_stay_as_it_is_is_never_changed() {
    let crlf = json!({ "enum": ["\n", "\r\n"], "description": "The end\u{200b}\r of a line" });
    let argument = |name: &str| json!([{ "name": name, "description": "x\u{202e}" }]);
    let shop = Shop::new(&json!({
        "tools": [with_schema("end", crlf), with_schema("value", json!({ "const": "a\u{200b}" })),
            { "name": "key", "inputSchema": { "type": "object", "properties": { "a\u{202e}": {} } } }],
        "prompts": [{ "name": "fine", "arguments": argument("a\tb") }, { "name": "bad", "arguments": argument("a\u{1b}") }],
    }));
    let home = home();
    shop.configure(&home, "trust = \"always\"\neffect = \"read\"");
    let hub = home.serve().await;
    let mut client = http(&hub, "2025-11-25").await;
    sees(&mut client, "shop_end").await;
    let listed = client.result("tools/list", json!({})).await;
    let listed = listed["tools"].as_array().unwrap();
    let end = listed.iter().find(|tool| tool["name"] == "shop_end").unwrap();
    let a = &end["inputSchema"]["properties"]["a"];
    assert_eq!(*a, json!({ "enum": ["\n", "\r\n"], "description": "The end of a line" }));
    assert_eq!(text(&client.call("shop_end", json!({ "a": "\r\n" })).await), "called end");
    let prompts = client.result("prompts/list", json!({})).await;
    let fine = prompts["prompts"].as_array().unwrap().iter().find(|one| one["name"] == "shop_fine").unwrap();
    assert_eq!(fine["arguments"], json!([{ "name": "a\tb", "description": "x" }]));
    let dropped = left_out(&home, 3).await;
    let why = |shown: &str| format!("`{shown}` has a hidden character where none can be removed");
    let expected = [("value", "a\\u{200b}"), ("key", "a\\u{202e}"), ("bad", "a\\u{1b}")];
    assert_eq!(dropped, expected.map(|(name, shown)| (name.to_owned(), why(shown))));
}

#[tokio::test]
async fn one_odd_definition_takes_no_list_from_those_who_look_at_all_of_it() {
    let with = |name: &str, key: &str, says: Value| {
        let mut tool = tool(name, "Fine");
        tool[key] = says;
        tool
    };
    let shop = Shop::new(&json!({
        "tools": [
            with("silent", "description", Value::Null),
            with("number", "description", json!(5)),
            with("hints", "annotations", json!({ "readOnlyHint": "yes", "title": null, "mine": null })),
            with("list", "outputSchema", json!({ "type": "array", "items": { "type": "integer" } })),
        ],
        "prompts": [{ "name": "none", "arguments": null }, { "name": "odd", "arguments": {} }],
        "resources": [{ "uri": "x://1" }, { "uri": "x://2", "name": null, "size": "big" }],
        "resourceTemplates": [{ "uriTemplate": "x://{a}/b" }],
        "results": { "list": { "content": [{ "type": "text", "text": "[1]" }], "structuredContent": [1] } },
    }));
    let home = home();
    shop.configure(&home, "trust = \"always\"\neffect = \"read\"");
    let hub = home.serve().await;
    let (mut older, mut newer) = (http(&hub, "2025-11-25").await, http(&hub, "2026-07-28").await);
    sees(&mut older, "shop_list").await;
    let mut tools = Vec::new();
    for client in [&mut older, &mut newer] {
        let listed = client.result("tools/list", json!({})).await;
        let listed = listed["tools"].as_array().unwrap();
        let ours = listed.iter().filter(|tool| tool["name"].as_str().unwrap().starts_with("shop_"));
        tools.push(ours.cloned().collect::<Vec<_>>());
    }
    let schema = json!({ "type": "object" });
    assert_eq!(
        tools[0],
        [
            json!({ "name": "shop_silent", "inputSchema": schema }),
            json!({ "name": "shop_hints", "description": "Fine", "inputSchema": schema, "annotations": { "mine": null } }),
            // Results that are no objects are new in 2026-07-28.
            json!({ "name": "shop_list", "description": "Fine", "inputSchema": schema }),
        ]
    );
    assert_eq!(tools[1][2]["outputSchema"]["type"], "array");
    assert_eq!(older.call("shop_list", json!({})).await.get("structuredContent"), None);
    assert_eq!(newer.call("shop_list", json!({})).await["structuredContent"], json!([1]));

    let prompts = older.result("prompts/list", json!({})).await;
    assert_eq!(prompts["prompts"], json!([{ "name": "shop_none" }]));
    let resources = older.result("resources/list", json!({})).await;
    let expected = json!([{ "uri": "x://1", "name": "x://1" }, { "uri": "x://2", "name": "x://2" }]);
    assert_eq!(resources["resources"], expected);
    let templates = older.result("resources/templates/list", json!({})).await;
    let last = templates["resourceTemplates"].as_array().unwrap().last().unwrap();
    assert_eq!(*last, json!({ "uriTemplate": "x://{a}/b", "name": "x://{a}/b" }));
    let why = [
        ("number", "`description` is not a text"),
        ("`readOnlyHint` of hints", "it is not true or false"),
        ("odd", "`arguments` is not a list"),
        ("`size` of x://2", "it is not a number"),
    ];
    assert_eq!(left_out(&home, 4).await, why.map(|(name, why)| (name.to_owned(), why.to_owned())));
}
