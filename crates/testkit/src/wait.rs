//! Waiting for something to happen, with a bound.

use std::time::Duration;

/// How long anything may take before a test gives up. Far longer than it ever takes: a busy machine is no fault.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait between two looks at a condition that cannot be waited for otherwise.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Waits for `work`, or fails and says what did not happen.
#[expect(clippy::panic, reason = "this is how a test fails")]
pub async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(done) => done,
        Err(_) => panic!("{what}: not within {} s", PATIENCE.as_secs()),
    }
}

/// Waits until a running hub notices what was done by hand to a file of its own. It goes by one look for two milliseconds;
/// who changes such a file as the hub does waits for that by itself.
pub async fn noticed() {
    tokio::time::sleep(LOOK_EVERY).await;
}

/// Looks again and again until `look` returns something.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    within(what, async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    })
    .await
}
