//! Programs that ask during calls, and do not name the call.

use crate::stdio_bad::{USUAL, program, starts};
use crate::support::UpstreamFixture;
use portcullis_testkit::wait::{PATIENCE, until};
use portcullis_upstream::ServerSpec;
use serde_json::json;

/// Keeps two calls waiting, asks when the second has come, and answers that one with the third. The first gets the
/// answer. Each call adds its text to the file of starts.
const CALLED: &str = r#"case $line in
    *'"first"'*) first=$id; echo first >> "$1";;
    *'"second"'*) second=$id
      echo '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}}';;
    *'"third"'*) say '"result":{"content":[]}'; id=$second; say '"result":{"content":[]}';;
  esac;;
    *'"id":"q"'*) id=$first
      case $line in *'"accept"'*) text=answered;; *) text=refused;; esac
      say "\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"$text\"}]}""#;

#[tokio::test]
async fn a_question_outlives_the_call_that_it_was_shown_on() {
    let folder = tempfile::tempdir().unwrap();
    let spec = program(&USUAL.replace("CALLED", CALLED), folder.path());
    let world = UpstreamFixture::connected(ServerSpec { timeout: PATIENCE, ..spec }).await;
    let mut client = world.client().await;
    let call = |text: &str| json!({ "name": "up_echo", "arguments": { "text": text } });
    let first = client.begin("tools/call", call("first")).await;
    until("the first call is there", async || {
        starts(folder.path()).contains(&"first".to_owned()).then_some(())
    })
    .await;
    let second = client.begin("tools/call", call("second")).await;
    let shown = client.told("elicitation/create").await;
    let third = client.begin("tools/call", call("third")).await;
    for over in [third, second] {
        client.answer(&over.into()).await;
    }
    // Withdrawn with its call, and asked again on the one that still waits.
    let back = client.told("notifications/cancelled").await;
    assert_eq!(back["params"]["requestId"], shown["id"]);
    let again = client.told("elicitation/create").await;
    assert_ne!(again["id"], shown["id"]);
    assert_eq!(again["params"]["message"], "Server \"up\" asks:\n> Who?");
    client.reply(&again["id"], json!({ "action": "accept", "content": {} })).await;
    let answer = client.answer(&first.into()).await;
    assert_eq!(answer["result"]["content"][0]["text"], "answered", "{answer}");
}
