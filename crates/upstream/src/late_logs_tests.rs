//! A server that goes on logging about a call that its client has cancelled, while another client's call is under way.

use super::*;
use futures::future::BoxFuture;
use portcullis_core::{Answers, AskRefused, Question, Scope};

/// A client that writes down what is logged.
#[derive(Default)]
struct Ear(Mutex<Vec<Value>>);

impl Peer for Ear {
    fn progress(&self, _: Progress) {}

    fn log(&self, message: LogMessage) {
        self.0.lock().unwrap().push(message.said["data"].clone());
    }

    fn ask(&self, _: Vec<Question>) -> BoxFuture<'_, Result<Answers, AskRefused>> {
        Box::pin(async { Err(AskRefused::Failed(String::new())) })
    }

    fn offers(&self, _: AskKind) -> bool {
        false
    }
}

fn calls(inbox: &Inbox, id: u64, name: &str, token: u64) -> Arc<Ear> {
    let (ear, slot) = (Arc::<Ear>::default(), Arc::<Slot>::default());
    let client = Client { name: name.to_owned(), scope: Scope::everything(), token: Some(token) };
    let caller =
        Listener { client: Arc::new(client), peer: ear.clone(), slot: slot.clone(), sees_through: None };
    inbox.expect(id, slot, Some(caller));
    ear
}

fn logs(inbox: &Inbox, data: &str) {
    let line = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","data":"{data}"}}}}"#
    );
    inbox.receive(line.as_bytes(), None);
}

fn heard(ear: &Ear) -> Vec<Value> {
    std::mem::take(&mut *ear.0.lock().unwrap())
}

#[tokio::test(start_paused = true)]
async fn late_logs_of_a_cancelled_call_reach_nobody_else() {
    let (inbox, _hears) = Inbox::new();
    calls(&inbox, 1, "ada", 1);
    assert!(inbox.forget(1), "cancelled");
    let next = calls(&inbox, 2, "bob", 2);
    logs(&inbox, "a secret of ada's");
    assert_eq!(heard(&next), Vec::<Value>::new());
    // The weak variant: whoever waits alone is taken to be meant, and would have heard it.
    let weak = only(&inbox.lock(), |_| true).unwrap();
    weak.peer
        .log(LogMessage { level: LogLevel::Info, said: Map::from_iter([("data".to_owned(), json!("x"))]) });
    assert_eq!(heard(&next), ["x"]);
    // Who has the name of the one who cancelled is somebody else.
    inbox.receive(br#"{"jsonrpc":"2.0","id":2,"result":{}}"#, None);
    let namesake = calls(&inbox, 3, "ada", 3);
    logs(&inbox, "a secret of ada's");
    assert_eq!(heard(&namesake), Vec::<Value>::new());
    // The very same client may hear it.
    inbox.receive(br#"{"jsonrpc":"2.0","id":3,"result":{}}"#, None);
    let same = calls(&inbox, 4, "ada", 1);
    logs(&inbox, "late");
    assert_eq!(heard(&same), ["late"]);
    inbox.receive(br#"{"jsonrpc":"2.0","id":4,"result":{}}"#, None);

    // Once the server has answered after all, what it says is about what is under way.
    let next = calls(&inbox, 5, "bob", 2);
    inbox.receive(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None);
    logs(&inbox, "bob's own");
    assert_eq!(heard(&next), ["bob's own"]);
    // One that never answers is waited for no longer than a while.
    calls(&inbox, 6, "ada", 1);
    inbox.forget(6);
    logs(&inbox, "late");
    assert_eq!(heard(&next), Vec::<Value>::new());
    tokio::time::advance(Duration::from_secs(60)).await;
    logs(&inbox, "bob's own");
    assert_eq!(heard(&next), ["bob's own"]);
}
