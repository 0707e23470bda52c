//! Deeply nested JSON, to overflow the stack.

use super::{Attack, check_all, error, told};

const DEEP: usize = 10_000;

fn deep(open: &str, close: &str) -> String {
    format!("{}{}", open.repeat(DEEP), close.repeat(DEEP))
}

pub(super) fn attacks() -> Vec<Attack> {
    let lists = deep("[", "]");
    let objects = format!("{}1{}", r#"{"a":"#.repeat(DEEP), "}".repeat(DEEP));
    let request = |method: &str, params: String| {
        format!(r#"{{"jsonrpc":"2.0","id":"attack","method":"{method}","params":{params}}}"#)
    };
    vec![
        error(-32700, "send one JSON object", "[".repeat(DEEP)),
        error(-32700, "send one JSON object", r#"{"a":"#.repeat(DEEP)),
        error(-32600, "send one message per", lists.clone()),
        error(-32600, "`jsonrpc` must be", objects.clone()),
        error(-32600, "`id` must be", format!(r#"{{"jsonrpc":"2.0","id":{lists},"method":"ping"}}"#)),
        error(-32600, "`method` must be", format!(r#"{{"jsonrpc":"2.0","id":1,"method":{lists}}}"#)),
        error(-32602, "`name` must be a string", request("tools/call", format!(r#"{{"name":{lists}}}"#))),
        error(-32602, "`_meta`", request("tools/list", format!(r#"{{"_meta":{objects}}}"#))),
        error(
            -32602,
            "`capabilities`",
            request("initialize", format!(r#"{{"protocolVersion":"2025-11-25","capabilities":{objects}}}"#)),
        ),
        told(
            "invalid_args",
            "nested more than 64 levels deep",
            "workspace_read",
            &format!(r#"{{"path":{lists}}}"#),
        ),
        told("invalid_args", "nested more than 64 levels deep", "workspace_read", &objects),
    ]
}

#[tokio::test]
async fn costs_no_stack() {
    check_all(attacks).await;
}
