//! Definitions that cannot be used: each is left out with the reason, and everything else of its server is there.

use crate::shop::{Shop, tool};
use crate::support::{home, http, text};
use crate::upstream::sees;
use portcullis_testkit::process::Home;
use portcullis_testkit::wait::until;
use serde_json::{Value, json};

fn with_schema(name: &str, property: Value) -> Value {
    json!({ "name": name, "inputSchema": { "type": "object", "properties": { "a": property } } })
}

/// Waits until so many are left out. Returns what, and why.
async fn left_out(home: &Home, count: usize) -> Vec<(String, String)> {
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
