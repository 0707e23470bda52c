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
