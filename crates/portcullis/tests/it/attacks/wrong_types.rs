//! Messages whose parameters are of the wrong type, or unknown.

use super::{Attack, check_all, error, told};

fn request(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":"attack","method":"{method}","params":{params}}}"#)
}

pub(super) fn attacks() -> Vec<Attack> {
    let mut attacks: Vec<Attack> = [
        ("tools/call", "{}", "`name` is missing"),
        ("tools/call", r#"{"name":null}"#, "`name` is missing"),
        ("tools/call", r#"{"name":7}"#, "`name` must be a string"),
        ("tools/call", r#"{"name":["workspace_read"]}"#, "`name` must be a string"),
        ("tools/call", r#"{"name":"\ud800"}"#, "`name` must be a string"),
        ("tools/call", r#"{"name":"workspace_read","arguments":[]}"#, "`arguments` must be an object"),
        ("tools/call", r#"{"name":"workspace_read","arguments":"{}"}"#, "`arguments` must be an object"),
        ("tools/call", r#"{"name":"workspace_read","arguments":7}"#, "`arguments` must be an object"),
        ("tools/call", r#"{"name":"../../bin/sh","arguments":{}}"#, "Unknown tool"),
        ("tools/call", r#"{"name":"workspace_read\u0000","arguments":{}}"#, "Unknown tool"),
        ("tools/call", r#"{"name":"workspace_read","_meta":[]}"#, "`_meta` must be an object"),
        ("tools/list", r#"{"cursor":7}"#, "`cursor` must be a string"),
        ("tools/list", r#"{"cursor":"AAAA"}"#, "list again without it"),
        ("resources/read", "{}", "`uri` is missing"),
        ("resources/read", r#"{"uri":{}}"#, "`uri` must be a string"),
        ("prompts/get", r#"{"name":false}"#, "`name` must be a string"),
        ("completion/complete", r#"{"ref":"greet"}"#, "`ref` must be"),
        ("completion/complete", r#"{"ref":{"type":"ref/else","name":"x"}}"#, "`ref` must be"),
        ("initialize", "{}", "`protocolVersion` is missing"),
        ("initialize", r#"{"protocolVersion":7}"#, "`protocolVersion` must be a string"),
        (
            "initialize",
            r#"{"protocolVersion":"2025-11-25","capabilities":7}"#,
            "`capabilities` must be an object",
        ),
    ]
    .into_iter()
    .map(|(method, params, says)| error(-32602, says, request(method, params)))
    .collect();
    attacks.extend([
        error(-32601, "Method not found", request("tools/destroy", "{}")),
        error(-32601, "Method not found", request("rpc.discover", "{}")),
        error(-32601, "Method not found", request("tools/list\\u0000", "{}")),
        told("invalid_args", "`path`", "workspace_read", "{}"),
        told("invalid_args", "`path`", "workspace_read", r#"{"path":7}"#),
        told("invalid_args", "`path`", "workspace_read", r#"{"path":null}"#),
        told("invalid_args", "`path`", "workspace_read", r#"{"path":["a.md"]}"#),
        told("invalid_args", "`mode`", "workspace_read", r#"{"path":"a.md","mode":"rw"}"#),
        told("invalid_args", "`__proto__`", "workspace_read", r#"{"path":"a.md","__proto__":{}}"#),
        told("invalid_args", "`content`", "workspace_write", r#"{"path":"a.md"}"#),
        told("invalid_args", "`append`", "memory_write", r#"{"content":"x","append":"yes"}"#),
        told("invalid_args", "number", "workspace_read", r#"{"path":1e999}"#),
    ]);
    attacks
}

#[tokio::test]
async fn are_told_what_was_expected() {
    check_all(attacks).await;
}
