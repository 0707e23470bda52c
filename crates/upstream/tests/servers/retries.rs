//! Backoff between attempts, and the timeout of a call that is retried.

use crate::support::{UpstreamFixture, reads, spec};
use parking_lot::Mutex;
use portcullis_core::Registry;
use portcullis_testkit::misbehaving_server::{MisbehavingReply, MisbehavingServer, events};
use portcullis_upstream::{ServerSpec, StatusKind, Upstream};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::time::Instant;

/// How long a handshake may hang: a probe for the newer era, and `initialize`.
const HANGS_FOR: Duration = Duration::from_secs(65);
/// Enough attempts for the longest backoff.
const LONG: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_slowly_is_tried_less_and_less_often() {
    let tried = Arc::new(Mutex::new(Vec::new()));
    let trying = tried.clone();
    let server = MisbehavingServer::open(move |seen| {
        if seen.asks() == "server/discover" {
            trying.lock().push(Instant::now());
        }
        MisbehavingReply::Hangs(Vec::new())
    });
    let server = server.await.unwrap();
    let upstream = Upstream::start(spec(&server.url()), Registry::default().changes());
    tokio::time::sleep(LONG).await;
    assert_eq!(upstream.status().kind, StatusKind::Failed);
    let tried = tried.lock();
    let pauses: Vec<Duration> =
        tried.windows(2).map(|two| (two[1] - two[0]).saturating_sub(HANGS_FOR)).collect();
    assert!(pauses[0] < Duration::from_secs(1), "{pauses:?}");
    // The longest backoff is a minute, with jitter.
    assert!(pauses.iter().max() > Some(&Duration::from_secs(44)), "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause < Duration::from_secs(80)), "{pauses:?}");
}

/// The first attempt takes most of the timeout before it breaks off. The rest is for the second to begin in, not to
/// end in.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_made_again_and_goes_on_has_all_of_its_time() {
    const TIMEOUT: Duration = Duration::from_secs(4);
    let calls = AtomicUsize::new(0);
    let server = MisbehavingServer::open(move |seen| {
        if seen.asks() != "tools/call" {
            return seen.usual();
        }
        let (says, is_first) = (broadcast::channel(4).0, calls.fetch_add(1, Ordering::Relaxed) == 0);
        let (id, speaks) = (seen.body["id"].clone(), says.clone());
        let event = |message| format!("data: {message}\n\n").into_bytes();
        tokio::spawn(async move {
            if is_first {
                tokio::time::sleep(TIMEOUT * 3 / 4).await;
                return;
            }
            let sign = json!({ "progressToken": id, "progress": 1 });
            tokio::time::sleep(TIMEOUT / 16).await;
            let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": sign });
            let _ = speaks.send(event(progress));
            tokio::time::sleep(TIMEOUT / 2).await;
            let result = json!({ "content": [{ "type": "text", "text": "late" }] });
            let _ = speaks.send(event(json!({ "jsonrpc": "2.0", "id": id, "result": result })));
        });
        MisbehavingReply::Tells { head: events(&[], ""), says }
    });
    let server = server.await.unwrap();
    let world = UpstreamFixture::connected(ServerSpec { timeout: TIMEOUT, ..reads(&server.url()) }).await;
    assert_eq!(world.call("up_echo").await, "late");
}
