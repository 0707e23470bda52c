use super::super::test_tools::{all, foreign};
use super::*;
use serde_json::json;

fn found_among(tools: &[ToolDef], query: &str) -> Vec<String> {
    let tools: Vec<&ToolDef> = tools.iter().collect();
    rank(&tools, &wanted(query)).into_iter().map(|at| tools[at].name.clone()).collect()
}

#[test]
fn the_best_is_what_a_person_would_choose() {
    let tools = all();
    for (query, best) in [
        ("create an issue", "github_create_issue"),
        ("createIssue", "github_create_issue"),
        ("comment on an issue", "github_add_issue_comment"),
        ("merge PR pull", "github_merge_pull_request"),
        ("create pull requests", "github_create_pull_request"),
        ("what is the weather in Berlin", "weather_get_forecast"),
        ("forecasts", "weather_get_forecast"),
        ("send an email", "mail_sendEmail"),
        ("e-mail", "mail_sendEmail"),
        ("url content", "mail_getURLContent"),
        ("post a message to a channel", "slack_post_message"),
        ("replies", "slack_reply_to_thread"),
        ("emoji", "slack_add_reaction"),
        ("timezone conversion", "time_convert_time"),
        ("run SQL", "postgres_query"),
        ("search the web", "brave_web_search"),
        ("entity", "memory_create_entities"),
        ("thumbnails", "pictures_make_thumbnail"),
        ("environment variables", "pictures_env"),
        ("天气", "w1"),
        ("天气预报", "w1"),
        ("邮件", "w2"),
        ("报", "w1"),
        ("날씨", "w3"),
        ("jira", "open_ticket"),
        ("Jira", "open_ticket"),
    ] {
        assert_eq!(found_among(&tools, query).first().map(String::as_str), Some(best), "{query}");
    }
}

#[test]
fn words_that_nobody_has_find_nothing() {
    let tools = all();
    for query in ["thermostat", "android", "the", "for a", "forty", "withdraw", "", "—", "銀行"] {
        assert_eq!(found_among(&tools, query), [""; 0], "{query}");
    }
    // Next to words that match they count for nothing.
    for query in ["weather for tomorrow", "the weather and the tide"] {
        assert_eq!(found_among(&tools, query), ["weather_get_forecast", "weather_get_alerts"], "{query}");
    }
    assert_eq!(found_among(&tools, "forecast"), ["weather_get_forecast"]);
    assert_eq!(found_among(&tools, "forms"), ["forms_submit_form"]);
}

#[test]
fn what_has_little_to_do_with_it_is_left_out() {
    let found = found_among(&all(), "post a new message to a Slack channel");
    assert_eq!(found[0], "slack_post_message");
    assert!(found.iter().all(|name| name.starts_with("slack_")), "{found:?}");
}

#[test]
fn parameters_are_found_however_deep() {
    let deep = |name: &str, schema| foreign("nested", name, "Does it", schema);
    let tools = [
        deep("in_object", json!({ "properties": { "filter": { "properties": { "invoice_number": {} } } } })),
        deep(
            "in_list",
            json!({ "properties": { "rows": { "items": { "properties": { "mileage": {} } } } } }),
        ),
        deep("in_all", json!({ "allOf": [{ "properties": { "passport": {} } }] })),
        deep(
            "in_any",
            json!({ "properties": { "x": { "anyOf": [{ "oneOf": [{ "properties": { "visa": {} } }] }] } } }),
        ),
        deep(
            "by_name",
            json!({ "properties": { "a": { "$ref": "#/$defs/A" } }, "$defs": { "A": { "properties": { "harvest": {} } } } }),
        ),
        deep("in_values", json!({ "properties": { "mode": { "enum": ["archive", "purge", 1] } } })),
        deep("in_words", json!({ "properties": { "x": { "items": { "description": "Which kettle" } } } })),
    ];
    for (query, name) in [
        ("invoice number", "in_object"),
        ("mileage", "in_list"),
        ("passport", "in_all"),
        ("visa", "in_any"),
        ("harvest", "by_name"),
        ("purge", "in_values"),
        ("kettles", "in_words"),
    ] {
        assert_eq!(found_among(&tools, query), [name], "{query}");
    }
}

#[test]
fn of_an_endless_schema_the_beginning_is_looked_at() {
    let mut schema = json!({ "properties": { "innermost": {} } });
    for _ in 0..100 {
        schema = json!({ "properties": { "x": schema } });
    }
    let wide: serde_json::Map<String, Value> =
        (0..5_000).map(|n| (format!("a{n}"), json!({ "properties": { "hidden": {} } }))).collect();
    let long =
        json!({ "properties": { "x": { "description": format!("first {} last", "word ".repeat(10_000)) } } });
    let tools = [
        foreign("s", "deep", "", schema),
        foreign("s", "wide", "", json!({ "properties": wide })),
        foreign("s", "long", "", long),
    ];
    assert_eq!(found_among(&tools, "innermost"), ["deep"]);
    assert_eq!(found_among(&tools, "first"), ["long"]);
    for query in ["hidden", "last", "a4999"] {
        assert_eq!(found_among(&tools, query), [""; 0], "{query}");
    }
}
