use super::*;
use portcullis_core::{NoPeer, Scope};
use std::task::{Context, Poll, Waker};

fn client(name: &str) -> Client {
    Client { name: name.to_owned(), scope: Scope::everything(), token: None }
}

/// Begins a call of a client.
fn calls(inbox: &Inbox, id: u64, name: &str) -> Arc<Slot> {
    inbox.asks_for(Asker { name: "far", own: None });
    let slot = Arc::new(Slot::default());
    let caller = Listener {
        client: Arc::new(client(name)),
        peer: Arc::new(NoPeer),
        slot: slot.clone(),
        sees_through: None,
    };
    inbox.expect(id, slot.clone(), Some(caller));
    slot
}

fn asks(inbox: &Inbox, id: &str) {
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":"{id}","method":"elicitation/create","params":{{"message":"Who?"}}}}"#
    );
    inbox.receive(line.as_bytes(), None);
}

#[tokio::test(start_paused = true)]
async fn whoever_is_away_with_a_question_keeps_nobody_else_from_being_asked() {
    let (inbox, _hears) = Inbox::new();
    let away = calls(&inbox, 1, "away");
    asks(&inbox, "first");
    assert!(away.is_asking());
    away.goes_away(true);
    let here = calls(&inbox, 2, "here");
    // This may still be a second question to the one who has just gone.
    asks(&inbox, "second");
    assert!(!here.is_asking());
    tokio::time::advance(Duration::from_secs(3)).await;
    asks(&inbox, "third");
    assert!(here.is_asking());
    // Back again, both could be meant.
    here.left_open();
    away.goes_away(false);
    asks(&inbox, "fourth");
    assert!(!here.is_asking());
}

#[test]
fn a_question_goes_on_to_another_call_of_its_client_and_to_nobody_else() {
    let (inbox, _hears) = Inbox::new();
    let (one, other) = (client("one"), client("other"));
    let (first, second) = (calls(&inbox, 1, "one"), calls(&inbox, 2, "one"));
    asks(&inbox, "who");
    let strangers = calls(&inbox, 3, "other");
    let asked = second.left_open().remove(0);
    inbox.forget(2);
    assert!(inbox.hand_on(asked.clone(), &one).is_ok());
    assert!(first.is_asking() && !strangers.is_asking());
    // The server takes it back wherever it is.
    inbox.receive(
        br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"who"}}"#,
        None,
    );
    assert!(asked.void.is_cancelled() && !first.is_asking());
    // One that belongs to a call ends with it, and the last call has nobody to hand it on to.
    assert!(inbox.hand_on(Asked { names_call: true, ..asked.clone() }, &one).is_err());
    inbox.forget(1);
    assert!(inbox.hand_on(asked.clone(), &one).is_err());
    assert!(inbox.hand_on(asked, &other).is_ok() && strangers.is_asking());
}

#[test]
fn progress_that_cannot_be_read_is_a_sign_of_life() {
    let (inbox, _hears) = Inbox::new();
    let slot = calls(&inbox, 1, "one");
    let line = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1,"message":"cut \ud83d"}}"#;
    inbox.receive(line.as_bytes(), None);
    let news = slot.poll_news(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(news, Poll::Ready(crate::slot::News::Alive)));
}

#[tokio::test(start_paused = true)]
async fn what_nobody_needs_is_known_as_such() {
    let (inbox, _hears) = Inbox::new();
    inbox.expect(1, Arc::default(), None);
    for (said, expected) in [
        (r#"{"jsonrpc":"2.0","method":"notifications/unknown"}"#, Receipt::Idle),
        (r#"{"jsonrpc":"2.0","id":99,"result":{}}"#, Receipt::Idle),
        (r#"{"jsonrpc":"2.0","id":"x","result":{}}"#, Receipt::Idle),
        (r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#, Receipt::Idle),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":9}}"#,
            Receipt::Idle,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1}}"#,
            Receipt::Message,
        ),
        (r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#, Receipt::Message),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, Receipt::Message),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, Receipt::Idle),
        ("nothing", Receipt::Noise),
    ] {
        assert_eq!(inbox.receive(said.as_bytes(), None), expected, "{said}");
    }
    // And what is said more often than it could be looked at.
    let log = br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
    let changed = br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    for said in [log.as_slice(), changed] {
        let needed = (0..1_000).filter(|_| inbox.receive(said, None) == Receipt::Message).count();
        assert!((1..=OUTSIDE_PER_SECOND_MAX as usize).contains(&needed), "{needed}");
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_lists_that_cannot_come() {
    let (inbox, _hears) = Inbox::new();
    inbox.receive(br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#, None);
    assert!(!inbox.is_up_to_date());
    inbox.retire();
    let began = Instant::now();
    assert!(!inbox.up_to_date(Duration::from_secs(10)).await);
    assert_eq!(began.elapsed(), Duration::ZERO);
}
