use super::super::test_tools::{all, foreign};
use super::*;
use serde_json::json;

fn joined_topics(tools: &[ToolDef], server: &str) -> String {
    let tools: Vec<&ToolDef> = tools.iter().filter(|tool| tool.server.as_deref() == Some(server)).collect();
    topics(&tools, server, 6).join(", ")
}

#[test]
fn every_server_is_about_something() {
    let tools = all();
    for (server, expected) in [
        ("fetch", "url, internet, extracts, contents, markdown"),
        ("postgres", "sql"),
        ("mail", "send, email, inbox, url, content"),
        ("time", "current, convert"),
        ("slack", "channels, post, message, reply, thread, reaction"),
    ] {
        assert_eq!(joined_topics(&tools, server), expected);
    }
}

#[test]
fn what_says_nothing_is_no_topic() {
    let tool = |name: &str, description: &str| [foreign("box", name, description, json!({}))];
    for (name, description, expected) in [
        // The hash suffix of a renamed tool.
        ("box_weather_c14cddc0", "", "weather"),
        // The server's own name, in any form.
        ("box_boxes", "Boxes the tickets", "tickets"),
        // No topic is better than an empty word; a general word is better than none.
        ("search", "", "search"),
        ("x", "", ""),
        ("x", "查询指定城市的天气预报。", "查询指定城市的天气预报"),
        // Possible parts of secrets.
        ("x", "Uses sk-live-abc/kettle and tok3n for teapots", "teapots"),
    ] {
        assert_eq!(joined_topics(&tool(name, description), "box"), expected, "{name}: {description}");
    }
    let endless = format!("{} zebra", "w".repeat(5_000));
    assert_eq!(joined_topics(&tool("x", &endless), "box"), "zebra");
}
