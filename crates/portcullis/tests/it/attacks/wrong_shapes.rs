//! JSON that is no message.

use super::{Attack, check_all, error};

pub(super) fn attacks() -> Vec<Attack> {
    let long_id = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "x".repeat(300));
    let long_method = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#, "x".repeat(300));
    let id = "`id` must be a whole number or a string";
    let version = "`jsonrpc` must be \"2.0\"";
    let neither = "neither a request (`method`) nor a response";
    let params = "`params` must be an object";
    [
        ("true", "expected an object"),
        ("7", "expected an object"),
        (r#""ping""#, "expected an object"),
        ("null", "expected an object"),
        ("[]", "an empty batch"),
        ("{}", version),
        (r#"{"id":1,"method":"ping"}"#, version),
        (r#"{"jsonrpc":2.0,"id":1,"method":"ping"}"#, version),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, version),
        (r#"{"jsonrpc":"2.0"}"#, neither),
        (r#"{"jsonrpc":"2.0","id":1}"#, neither),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#, neither),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, id),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, id),
        (r#"{"jsonrpc":"2.0","id":1e400,"method":"ping"}"#, id),
        (r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#, id),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, id),
        (r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#, id),
        (r#"{"jsonrpc":"2.0","id":"\ud800","method":"ping"}"#, id),
        (&long_id, id),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, "`method` must be a string"),
        (r#"{"jsonrpc":"2.0","id":1,"method":null}"#, "`method` must be a string"),
        (r#"{"jsonrpc":"2.0","id":1,"method":""}"#, "`method` must have 1 to 128 bytes"),
        (&long_method, "`method` must have 1 to 128 bytes"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":7}"#, params),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}"#, params),
        // Batches are of the older revisions.
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, "send one message per"),
    ]
    .into_iter()
    .map(|(frame, says)| error(-32600, says, frame))
    .chain(positional_params().map(|frame| error(-32602, "`params` must be an object", frame)))
    .collect()
}

/// Values by position would be read as names that nobody wrote.
fn positional_params() -> impl Iterator<Item = &'static str> {
    [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["workspace_read",{"path":"a.md"}]}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#,
    ]
    .into_iter()
}

#[tokio::test]
async fn are_invalid_requests() {
    check_all(attacks).await;
}

/// An item of a batch that is no object is no message, even if its items would fit by their position.
#[tokio::test]
async fn a_list_is_no_message_of_a_batch() {
    use serde_json::json;
    let home = crate::support::home();
    let mut client = crate::support::stdio(&home, "2025-03-26");
    client.initialize(json!({})).await;
    client.send(&json!([["2.0", 1, "ping"], 7, { "jsonrpc": "2.0", "id": 2, "method": "ping" }])).await;
    let answers = client.wait("the answers", serde_json::Value::is_array).await;
    let codes: Vec<_> = answers.as_array().unwrap().iter().map(|a| a["error"]["code"].as_i64()).collect();
    assert_eq!(codes, [Some(-32600), Some(-32600), None], "{answers}");
}
