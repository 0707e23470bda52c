//! How soon a server is tried again.

use crate::support::spec;
use portcullis_core::Registry;
use portcullis_testkit::misbehaving::{Does, Misbehaving};
use portcullis_upstream::{StatusKind, Upstream};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// How long a greeting may hang: a question of the newer era, and one of the older.
const HANGS_FOR: Duration = Duration::from_secs(65);
/// Enough for so many attempts that the pause between them is as long as it gets.
const LONG: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_slowly_is_tried_less_and_less_often() {
    let tried = Arc::new(Mutex::new(Vec::new()));
    let trying = tried.clone();
    let server = Misbehaving::open(move |seen| {
        if seen.asks() == "server/discover" {
            trying.lock().unwrap().push(Instant::now());
        }
        Does::Hangs(Vec::new())
    });
    let server = server.await.unwrap();
    let upstream = Upstream::start(spec(&server.url()), Registry::default().changes());
    tokio::time::sleep(LONG).await;
    assert_eq!(upstream.status().kind, StatusKind::Failed);
    let tried = tried.lock().unwrap();
    let pauses: Vec<Duration> =
        tried.windows(2).map(|two| (two[1] - two[0]).saturating_sub(HANGS_FOR)).collect();
    assert!(pauses[0] < Duration::from_secs(1), "{pauses:?}");
    // As long as it gets is a minute, more or less.
    assert!(pauses.iter().max() > Some(&Duration::from_secs(44)), "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause < Duration::from_secs(80)), "{pauses:?}");
}
