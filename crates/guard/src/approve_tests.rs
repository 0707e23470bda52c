use super::*;
use crate::authorize::Authorize;
use crate::policy::Policy;
use crate::testing::{Listener, Mood, StoppedClock, call, gate, kind_of, told};
use std::sync::Arc;

/// Calls a tool that destroys, with a client in the given mood. Returns the answer and what the client heard.
async fn check(mood: Option<Mood>, line: &str) -> (String, String, usize) {
    let (gate, world) =
        gate(vec![Box::new(Authorize::new(Policy::default(), Arc::new(StoppedClock))), Box::new(Approve)]);
    let listener = Listener::new(mood);
    let mut call = call(line);
    call.ctx.peer = listener.clone();
    let outcome = gate.call(call).await;
    (told(&outcome), listener.heard(), world.acted())
}

fn says(answer: Value) -> Option<Mood> {
    Some(Mood::Says(answer))
}

#[tokio::test]
async fn only_a_clear_yes_lets_the_call_act() {
    let yes = says(json!({ "action": "accept", "content": { "approve": true } }));
    let (told, heard, acted) = check(yes, r#"stub_erase {"text":"all"}"#).await;
    assert_eq!((told.as_str(), acted), ("ok: did all", 1));
    assert_eq!(
        heard,
        "portcullis_approval? Client `ada` wants to run tool `stub_erase` (effect: destroy) with:\n{\"text\":\"all\"}"
    );
    for no in [
        json!({ "action": "accept", "content": { "approve": false } }),
        json!({ "action": "accept", "content": { "approve": "true" } }),
        json!({ "action": "accept", "content": {} }),
        json!({ "action": "accept" }),
        json!({ "action": "decline", "content": { "approve": true } }),
        json!({ "action": "cancel" }),
        json!({ "approve": true }),
        json!("accept"),
        json!(null),
    ] {
        let (told, _, acted) = check(says(no.clone()), "stub_erase").await;
        assert!(told.starts_with("denied: tool `stub_erase` was not approved\nhint: "), "{no}: {told}");
        assert_eq!(acted, 0, "{no}");
    }
    // Without the layer nobody is asked.
    let (bare, world) = gate(vec![Box::new(Authorize::new(Policy::default(), Arc::new(StoppedClock)))]);
    assert!(bare.call(call("stub_erase")).await.is_ok());
    assert_eq!(world.acted(), 1);
}

#[tokio::test]
async fn what_is_allowed_is_not_asked_about() {
    let (told, heard, _) = check(says(json!(null)), r#"stub_write {"text":"it"}"#).await;
    assert_eq!((told.as_str(), heard.as_str()), ("ok: did it", ""));
}

#[tokio::test]
async fn a_client_that_cannot_ask_learns_what_to_do() {
    let (told, _, acted) = check(None, "stub_send").await;
    assert_eq!(acted, 0);
    insta::assert_snapshot!(told, @"
    needs_approval: tool `stub_send` needs approval by a person
    hint: use a client that offers elicitation, so that the person there can be asked
    hint: or let an administrator add an `allow` rule for `stub_send` to portcullis.toml
    ");
}

#[tokio::test]
async fn a_question_for_the_next_round_passes_as_it_is() {
    let (gate, world) =
        gate(vec![Box::new(Authorize::new(Policy::default(), Arc::new(StoppedClock))), Box::new(Approve)]);
    let mut call = call("stub_send");
    call.ctx.peer = Listener::new(Some(Mood::NextRound));
    let error = gate.call(call).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NeedsInput);
    let input = error.input.unwrap();
    assert_eq!((input.questions[0].key.as_str(), input.state.as_deref()), (QUESTION_KEY, Some("state")));
    assert_eq!(input.questions[0].ask.params["requestedSchema"]["required"], json!(["approve"]));
    assert_eq!(world.acted(), 0);
}

#[tokio::test]
async fn a_call_that_nobody_decided_about_does_not_act() {
    let (gate, world) = gate(vec![Box::new(Approve)]);
    assert_eq!(kind_of(&gate.call(call("stub_read")).await), Some(ErrorKind::Internal));
    assert_eq!(world.acted(), 0);
}

#[test]
fn the_preview_hides_nothing_and_has_a_bound() {
    assert_eq!(preview("{\"to\":\"a\u{202e}b\u{200b}\"}\n"), "{\"to\":\"a\\u{202e}b\\u{200b}\"}\\u{a}");
    let long = preview(&"ä".repeat(PREVIEW_CHARS_MAX + 5));
    assert!(long.ends_with("ää… and 5 characters more"), "{long}");
}
