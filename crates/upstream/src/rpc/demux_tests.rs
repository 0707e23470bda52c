use super::super::unsolicited::PER_SECOND_MAX;
use super::*;
use crate::rpc::elicitation::AskingServer;
use crate::rpc::{CallOwner, PendingRequest, ServerQuestion};
use portcullis_core::{Client, NoPeer, Scope};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Instant;

fn client(name: &str) -> Client {
    Client { name: name.to_owned(), scope: Scope::everything(), token: None }
}

/// Begins a call of a client.
fn calls(demux: &Demux, id: u64, name: &str) -> Arc<PendingRequest> {
    demux.elicitations.set_asker(AskingServer { name: "far", url: None });
    let slot = Arc::new(PendingRequest::default());
    let caller = CallOwner {
        client: Arc::new(client(name)),
        peer: Arc::new(NoPeer),
        slot: slot.clone(),
        task_dialect: None,
    };
    demux.pending.expect(id, slot.clone(), Some(caller));
    slot
}

fn asks(demux: &Demux, id: &str) {
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":"{id}","method":"elicitation/create","params":{{"message":"Who?"}}}}"#
    );
    demux.receive(line.as_bytes(), None);
}

#[tokio::test(start_paused = true)]
async fn whoever_is_away_with_a_question_keeps_nobody_else_from_being_asked() {
    let (demux, _notifications) = Demux::new();
    let away = calls(&demux, 1, "away");
    asks(&demux, "first");
    assert!(away.is_asking());
    away.set_client_away(true);
    let here = calls(&demux, 2, "here");
    // This may be a second question for the client that has just left.
    asks(&demux, "second");
    assert!(!here.is_asking());
    tokio::time::advance(Duration::from_secs(3)).await;
    asks(&demux, "third");
    assert!(here.is_asking());
    // Back again, either client could be meant.
    here.left_open();
    away.set_client_away(false);
    asks(&demux, "fourth");
    assert!(!here.is_asking());
}

#[test]
fn a_question_goes_on_to_another_call_of_its_client_and_to_nobody_else() {
    let (demux, _notifications) = Demux::new();
    let (one, other) = (client("one"), client("other"));
    let (first, second) = (calls(&demux, 1, "one"), calls(&demux, 2, "one"));
    asks(&demux, "who");
    let strangers = calls(&demux, 3, "other");
    let asked = second.left_open().remove(0);
    demux.pending.forget(2);
    assert!(demux.pending.reassign_question(asked.clone(), &one).is_ok());
    assert!(first.is_asking() && !strangers.is_asking());
    // The server cancels it on whichever call it is.
    demux.receive(
        br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"who"}}"#,
        None,
    );
    assert!(asked.withdrawn.is_cancelled() && !first.is_asking());
    // A question that names its call ends with it, and the last call has no other to hand it to.
    assert!(
        demux.pending.reassign_question(ServerQuestion { names_call: true, ..asked.clone() }, &one).is_err()
    );
    demux.pending.forget(1);
    assert!(demux.pending.reassign_question(asked.clone(), &one).is_err());
    assert!(demux.pending.reassign_question(asked, &other).is_ok() && strangers.is_asking());
}

#[test]
fn progress_that_cannot_be_read_is_a_sign_of_life() {
    let (demux, _notifications) = Demux::new();
    let slot = calls(&demux, 1, "one");
    let line = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1,"message":"cut \ud83d"}}"#;
    demux.receive(line.as_bytes(), None);
    let news = slot.poll_news(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(news, Poll::Ready(crate::rpc::RequestEvent::Alive)));
}

#[tokio::test(start_paused = true)]
async fn what_nobody_needs_is_known_as_such() {
    let (demux, _notifications) = Demux::new();
    demux.pending.expect(1, Arc::default(), None);
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
        assert_eq!(demux.receive(said.as_bytes(), None), expected, "{said}");
    }
    // The same for messages over the rate limit.
    let log = br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
    let changed = br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    for said in [log.as_slice(), changed] {
        let needed = (0..1_000).filter(|_| demux.receive(said, None) == Receipt::Message).count();
        assert!((1..=PER_SECOND_MAX as usize).contains(&needed), "{needed}");
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_lists_that_cannot_come() {
    let (demux, _notifications) = Demux::new();
    demux.receive(br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#, None);
    assert!(!demux.lists.is_up_to_date());
    demux.life.retire();
    let began = Instant::now();
    assert!(!demux.lists.up_to_date(Duration::from_secs(10), &demux.life.retired).await);
    assert_eq!(began.elapsed(), Duration::ZERO);
}
