//! A server goes on logging about a cancelled call, while another client's call is in flight.

use super::*;
use crate::rpc::{CallOwner, PendingRequest};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use portcullis_core::{
    Client, InputRefusal, InputRequestKind, InputResponses, KeyedInputRequest, Peer, Scope,
};
use serde_json::{Map, json};
use std::time::Duration;

/// A client that records log messages.
#[derive(Default)]
struct LogRecorder(Mutex<Vec<Value>>);

impl Peer for LogRecorder {
    fn progress(&self, _: Progress) {}

    fn log(&self, message: LogMessage) {
        self.0.lock().push(message.said["data"].clone());
    }

    fn ask(&self, _: Vec<KeyedInputRequest>) -> BoxFuture<'_, Result<InputResponses, InputRefusal>> {
        Box::pin(async { Err(InputRefusal::Failed(String::new())) })
    }

    fn offers(&self, _: InputRequestKind) -> bool {
        false
    }
}

fn calls(demux: &Demux, id: u64, name: &str, token: u64) -> Arc<LogRecorder> {
    let (recorder, slot) = (Arc::<LogRecorder>::default(), Arc::<PendingRequest>::default());
    let client = Client { name: name.to_owned(), scope: Scope::everything(), token: Some(token) };
    let caller = CallOwner {
        client: Arc::new(client),
        peer: recorder.clone(),
        slot: slot.clone(),
        task_dialect: None,
    };
    demux.pending.expect(id, slot, Some(caller));
    recorder
}

fn logs(demux: &Demux, data: &str) {
    let line = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","data":"{data}"}}}}"#
    );
    demux.receive(line.as_bytes(), None);
}

fn logged(recorder: &LogRecorder) -> Vec<Value> {
    std::mem::take(&mut *recorder.0.lock())
}

#[tokio::test(start_paused = true)]
async fn late_logs_of_a_cancelled_call_reach_nobody_else() {
    let (demux, _notifications) = Demux::new();
    calls(&demux, 1, "ada", 1);
    assert!(demux.pending.forget(1), "cancelled");
    let next = calls(&demux, 2, "bob", 2);
    logs(&demux, "a secret of ada's");
    assert_eq!(logged(&next), Vec::<Value>::new());
    // Without the check, the only client in flight would have got it.
    let weak = demux.pending.only_owner().unwrap();
    weak.peer
        .log(LogMessage { level: LogLevel::Info, said: Map::from_iter([("data".to_owned(), json!("x"))]) });
    assert_eq!(logged(&next), ["x"]);
    // The same name with another token is another client.
    demux.receive(br#"{"jsonrpc":"2.0","id":2,"result":{}}"#, None);
    let namesake = calls(&demux, 3, "ada", 3);
    logs(&demux, "a secret of ada's");
    assert_eq!(logged(&namesake), Vec::<Value>::new());
    // The same client may get it.
    demux.receive(br#"{"jsonrpc":"2.0","id":3,"result":{}}"#, None);
    let same = calls(&demux, 4, "ada", 1);
    logs(&demux, "late");
    assert_eq!(logged(&same), ["late"]);
    demux.receive(br#"{"jsonrpc":"2.0","id":4,"result":{}}"#, None);

    // After the late response, messages are about what is in flight.
    let next = calls(&demux, 5, "bob", 2);
    demux.receive(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None);
    logs(&demux, "bob's own");
    assert_eq!(logged(&next), ["bob's own"]);
    // A server that never responds is waited for only so long.
    calls(&demux, 6, "ada", 1);
    demux.pending.forget(6);
    logs(&demux, "late");
    assert_eq!(logged(&next), Vec::<Value>::new());
    tokio::time::advance(Duration::from_secs(60)).await;
    logs(&demux, "bob's own");
    assert_eq!(logged(&next), ["bob's own"]);
}
