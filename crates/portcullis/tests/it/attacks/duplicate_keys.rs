//! The same key twice: a guard that reads the first and a tool that reads the last would see two different calls.

use super::{Attack, check_all, error, told};

pub(super) fn attacks() -> Vec<Attack> {
    let (says, twice, alike) = ("duplicate field", "is given twice", "could be taken for");
    let call = |params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":"attack","method":"tools/call","params":{params}}}"#)
    };
    vec![
        error(-32600, says, r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#),
        error(-32600, says, r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"ping"}"#),
        error(-32600, says, r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}"#),
        // The same key in another spelling.
        error(-32600, says, r#"{"jsonrpc":"2.0","id":1,"method":"ping","m\u0065thod":"tools/list"}"#),
        error(
            -32600,
            says,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"workspace_read"},"params":{"name":"workspace_write"}}"#,
        ),
        error(-32602, says, call(r#"{"name":"workspace_read","name":"workspace_write","arguments":{}}"#)),
        error(
            -32602,
            says,
            call(r#"{"name":"workspace_read","n\u0061me":"workspace_write","arguments":{}}"#),
        ),
        error(
            -32602,
            says,
            call(r#"{"name":"workspace_read","arguments":{"path":"a.md"},"arguments":{"path":"../secure"}}"#),
        ),
        error(
            -32602,
            twice,
            call(r#"{"name":"workspace_read","arguments":{},"_meta":{"progressToken":1,"progressToken":2}}"#),
        ),
        // What some readers take for the same.
        error(-32602, alike, call(r#"{"name":"workspace_read","arguments":{},"Name":"workspace_write"}"#)),
        error(-32602, alike, call(r#"{"name":"workspace_read","arguments":{},"argument\u017f":{}}"#)),
        error(
            -32602,
            alike,
            call(r#"{"name":"workspace_read","arguments":{},"name\u0000":"workspace_write"}"#),
        ),
        error(-32602, alike, call(r#"{"name":"workspace_read","arguments":{},"x":1,"X":2}"#)),
        error(-32602, alike, call(r#"{"name":"workspace_read","arguments":{},"_meta":{"ProgressToken":2}}"#)),
        told("invalid_args", twice, "workspace_read", r#"{"path":"a.md","path":"../secure/clients.json"}"#),
        told(
            "invalid_args",
            twice,
            "workspace_read",
            r#"{"path":"a.md","p\u0061th":"../secure/clients.json"}"#,
        ),
        told("invalid_args", twice, "workspace_write", r#"{"path":"a.md","content":{"x":1,"x":2}}"#),
    ]
}

#[tokio::test]
async fn are_refused_at_every_depth() {
    check_all(attacks).await;
}
