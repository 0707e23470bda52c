//! The attack: one client fills the audit queue with calls that never end, so that other clients starve.

use super::journal::QUEUE_RECORDS_MAX;
use super::*;
use crate::testing::{StoppedClock, StubState, call_by, caller, gate, kind_of};
use futures::poll;
use portcullis_core::{Gate, Limit};

/// How many calls begin before the test waits for the writer.
const AT_ONCE: usize = 100;

struct Flooded {
    gate: Gate,
    world: Arc<StubState>,
    handle: AuditHandle,
    /// The maximum number of open calls of one client.
    most: usize,
    _dir: tempfile::TempDir,
}

fn hub(bounds: QueueBounds) -> Flooded {
    let dir = tempfile::tempdir().unwrap();
    let sink = FileLogSink::new(AuditSettings::in_folder(dir.path()));
    let handle = AuditHandle::bounded(sink, Arc::new(StoppedClock), bounds).unwrap();
    let redactor = Redactor::new(&[]).ok().unwrap();
    let audit = AuditLayer::new(handle.clone(), Arc::new(StoppedClock), redactor, LiveCalls::default());
    let (gate, world) = gate(vec![Box::new(audit)]);
    Flooded { gate, world, handle, most: bounds.client_records_max - 1, _dir: dir }
}

impl Flooded {
    /// Opens as many hanging calls as a client may. Returns them, and the outcome of the next one.
    async fn hang(&self, client: &str) -> (Vec<BoxFuture<'_, Outcome>>, Outcome) {
        let mut hanging = Vec::new();
        loop {
            // Flushes, so that queued records take no room.
            if hanging.len().is_multiple_of(AT_ONCE) || hanging.len() + AT_ONCE > self.most {
                self.handle.flush().await.unwrap();
            }
            let mut one = self.gate.call(call_by(caller(client), "stub_hang"));
            assert!(poll!(&mut one).is_pending());
            if self.world.hanging.lock().take().is_some() {
                hanging.push(one);
                continue;
            }
            // The next one waits for room, and paused time advances until it is refused.
            let hits = Limit::AuditQueue.hits();
            let refused = one.await;
            assert!(Limit::AuditQueue.hits() > hits);
            return (hanging, refused);
        }
    }

    async fn is_let(&self, client: &str) -> bool {
        self.handle.flush().await.unwrap();
        self.gate.call(call_by(caller(client), "stub_read")).await.is_ok()
    }
}

#[tokio::test(start_paused = true)]
async fn leaves_room_for_the_others_and_is_refused_itself() {
    let hub = hub(QueueBounds::default());
    let (hanging, refused) = hub.hang("greedy").await;
    assert_eq!(hanging.len(), hub.most);
    assert_eq!(kind_of(&refused), Some(ErrorKind::Unavailable));
    assert!(hub.world.hanging.lock().is_none(), "what cannot be recorded is not done");
    let event = Event::watch(caller("greedy"), "subscribe", "stub://a", serde_json::Value::Null);
    assert!(hub.gate.record(&event, Ok(())).await.is_err(), "nor is anything watched");
    assert!(hub.is_let("honest").await);
    // When its calls end, it is admitted again.
    drop(hanging);
    assert!(hub.is_let("greedy").await);
}

/// Control: without shares, one client takes the whole queue.
#[tokio::test(start_paused = true)]
async fn shuts_all_others_out_of_a_weak_queue() {
    let weak = QueueBounds { client_records_max: QUEUE_RECORDS_MAX, ..QueueBounds::default() };
    let hub = hub(weak);
    let (hanging, _) = hub.hang("greedy").await;
    assert_eq!(hanging.len(), hub.most);
    assert!(!hub.is_let("honest").await);
}
