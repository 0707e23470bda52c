//! A schema of some kilobytes whose definitions each name the next one twice: comparing one value with it would take 2^40
//! steps. No call of anybody waits for it, `mcp status` says why its tool is missing, and the hub ends when it is told to.

use crate::changing_server::{Shop, tool};
use crate::support::{home, http, text};
use crate::upstream::sees;
use portcullis_testkit::process::TestHome;
use portcullis_testkit::wait::until;
use serde_json::{Map, Value, json};

/// How many levels there are.
const LEVELS: usize = 40;

/// An object whose `a` is compared with every level, each of which names the next one twice.
fn doubling(levels: usize, word: &str) -> Value {
    let next = |at: usize| json!({ "$ref": format!("#/$defs/d{at}") });
    let mut defs: Map<_, _> =
        (0..levels).map(|at| (format!("d{at}"), json!({ word: [next(at + 1), next(at + 1)] }))).collect();
    defs.insert(format!("d{levels}"), json!({ "type": "string" }));
    json!({ "type": "object", "properties": { "a": next(0) }, "$defs": defs })
}

fn with_schema(name: &str, schema: Value) -> Value {
    json!({ "name": name, "inputSchema": schema })
}

/// Returns which tools are left out and why, once there are so many.
async fn left_out(home: &TestHome, count: usize) -> Vec<(String, String)> {
    until("so many are left out", async || {
        let status = home.run(&["mcp", "status", "--json"]).await.json()["servers"][0].clone();
        let all = status["dropped"].as_array().cloned().unwrap_or_default();
        let of = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
        (all.len() == count).then(|| all.iter().map(|one| (of(one, "name"), of(one, "why"))).collect())
    })
    .await
}

/// Fails unless exactly these are left out, each for the steps that it takes.
fn only_left_out(left_out: &[(String, String)], expected: &[&str]) -> Result<(), String> {
    let names: Vec<&str> = left_out.iter().map(|(name, _)| name.as_str()).collect();
    if names != expected {
        return Err(format!("{names:?} are left out, and not {expected:?}"));
    }
    let other = left_out.iter().find(|(_, why)| !why.contains("it takes more than 100000 steps"));
    other.map_or(Ok(()), |(name, why)| Err(format!("{name} is left out: {why}")))
}

#[tokio::test]
async fn a_schema_that_doubles_costs_its_tool_and_no_time_of_anybody() {
    let mut answers = tool("answers", "Its results double");
    answers["outputSchema"] = doubling(LEVELS, "allOf");
    // Fine by itself: how much it doubles is up to the arguments.
    let twice = json!({ "properties": { "a": { "$ref": "#" } } });
    let offer = json!({ "tools": [
        with_schema("any", doubling(LEVELS, "anyOf")),
        with_schema("all", doubling(LEVELS, "allOf")),
        with_schema("one", doubling(LEVELS, "oneOf")),
        answers,
        with_schema("few", doubling(4, "anyOf")),
        with_schema("deep", json!({ "type": "object", "anyOf": [twice, twice] })),
        tool("plain", "Plain"),
    ] });
    assert!(offer["tools"][0].to_string().len() < 4_000);
    let (home, shop) = (home(), Shop::new(&offer));
    shop.configure(&home, "trust = \"always\"\neffect = \"read\"");
    let mut hub = home.serve().await;
    let (mut attacked, mut other) = (http(&hub, "2025-11-25").await, http(&hub, "2025-11-25").await);
    sees(&mut attacked, "shop_plain").await;
    let named = left_out(&home, 4).await;
    only_left_out(&named, &["any", "all", "one", "answers"]).unwrap();
    let shown = home.run(&["mcp", "status", "shop"]).await.stdout;
    assert!(shown.contains("its input schema cannot be used: it takes more than 100000 steps"), "{shown}");
    // The weak variant makes a validator of each, which works, and does not ask what using it takes.
    let offered = offer["tools"].as_array().unwrap().iter();
    let flaws =
        offered.filter_map(|tool| Some((tool, jsonschema::validator_for(&tool["inputSchema"]).err()?)));
    let weak: Vec<_> = flaws.map(|(tool, why)| (tool["name"].to_string(), why.to_string())).collect();
    assert!(only_left_out(&weak, &["any", "all", "one", "answers"]).is_err());

    // Those are no names of anything; the others are, with arguments that fit and that do not.
    let refused =
        attacked.request("tools/call", json!({ "name": "shop_any", "arguments": { "a": 1 } })).await;
    assert!(refused["error"].is_object() || refused["result"]["isError"] == true, "{refused}");
    assert_eq!(text(&attacked.call("shop_few", json!({ "a": "x" })).await), "called few");
    let misfit = attacked.call("shop_few", json!({ "a": 1 })).await;
    assert_eq!(misfit["structuredContent"]["code"], "invalid_args", "{misfit}");

    // A call whose arguments double is under way, and another client is answered.
    let nested = (0..60).fold(json!({}), |inner, _| json!({ "a": inner }));
    let (refused, answered) =
        tokio::join!(attacked.call("shop_deep", nested.clone()), other.call("shop_plain", json!({})));
    assert_eq!(text(&answered), "called plain");
    assert!(text(&refused).contains("is too much work: it takes more than 10000000 steps"), "{refused}");
    assert_eq!(shop.calls(), ["few", "plain"]);
    // Nor does one keep the hub from ending.
    attacked.begin("tools/call", json!({ "name": "shop_deep", "arguments": nested })).await;
    hub.process.stop().await;
}
