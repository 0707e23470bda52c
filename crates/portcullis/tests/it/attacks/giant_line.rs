//! One line of a gigabyte.

use super::Victim;
use serde_json::json;

const GIGABYTE: usize = 1 << 30;
const CHUNK: usize = 1 << 20;

/// Streams the line from a generator; neither side ever holds it.
pub(super) async fn send(victim: &mut Victim) {
    let chunk = vec![b'x'; CHUNK];
    for _ in 0..GIGABYTE / CHUNK {
        victim.client.write_part(&chunk).await;
    }
    victim.client.write_part(b"\n").await;
    let answer = victim.client.answer(&json!(null)).await;
    assert_eq!(answer["error"]["code"], -32600);
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("the line has 1073741824 bytes, at most 4194304 are allowed"), "{message}");
    victim.lives().await;
}

#[tokio::test]
async fn is_skipped() {
    let mut victim = Victim::on_stdio().await;
    send(&mut victim).await;
    victim.assert_small("a line of a gigabyte");
}

/// The client of a message that is too long learns which one it was, wherever it wrote the id.
#[tokio::test]
async fn is_answered_by_its_id() {
    let content = format!(r#""id":9}},"id":9,{}"#, "x".repeat(5 << 20));
    let arguments = json!({ "id": 9, "path": "a.md", "content": content });
    let params = json!({ "name": "workspace_write", "arguments": arguments });
    let mut victim = Victim::on_stdio().await;
    for (id, line) in [
        (json!(7), format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#)),
        (
            json!("a\"b"),
            format!(r#"{{"jsonrpc":"2.0","id":"a\"b","method":"tools/call","params":{params}}}"#),
        ),
        (json!(8), format!(r#"{{"method":"tools/call","params":{params},"jsonrpc":"2.0","id":8}}"#)),
        (json!("c"), format!(r#"{{"method":"tools/call","params":{params},"id":"c","jsonrpc":"2.0"}}"#)),
        (json!(null), format!(r#"{{"jsonrpc":"2.0","method":"tools/call","params":{params}}}"#)),
    ] {
        victim.client.write_part(line.as_bytes()).await;
        victim.client.write_part(b"\n").await;
        let answer = victim.client.answer(&id).await;
        assert_eq!(answer["error"]["code"], -32600, "{id}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("at most 4194304 are allowed"));
    }
    victim.lives().await;
}

/// A line that never ends is no reason to stay when the client has gone.
#[tokio::test]
async fn without_an_end_does_not_hold_the_process() {
    let mut victim = Victim::on_stdio().await;
    for _ in 0..8 {
        victim.client.write_part(&vec![b'x'; CHUNK]).await;
    }
    victim.client.hang_up();
    let answer = victim.client.answer(&json!(null)).await;
    assert_eq!(answer["error"]["code"], -32600);
    assert_eq!(victim.client.process().end().await, 0);
}
