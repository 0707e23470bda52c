//! What is not JSON at all.

use super::{Attack, check_all, error};

pub(super) fn attacks() -> Vec<Attack> {
    let frames: [&[u8]; 18] = [
        b"nonsense",
        b"{",
        b"}",
        br#"{"jsonrpc":"2.0","#,
        br#"{"jsonrpc":"2.0","id":1,"method":"ping""#,
        b"{'jsonrpc':'2.0'}",
        br#"{"jsonrpc":"2.0","id":Infinity}"#,
        br#"{"jsonrpc":"2.0","id":01,"method":"ping"}"#,
        br#"{"jsonrpc":"2.0","id":1,"method":"ping",}"#,
        br#"{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}"#,
        br#"{"jsonrpc":"2.0","id":1,"method":"ping"} trailing"#,
        b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\xfe\"}",
        b"\xff\xfe{\0}\0",
        &[0; 1024],
        b"\x1b[2J",
        b"Content-Length: 40",
        b"GET / HTTP/1.1",
    ];
    frames.into_iter().map(|frame| error(-32700, "send one JSON object per message", frame)).collect()
}

#[tokio::test]
async fn is_a_parse_error() {
    check_all(attacks).await;
}
