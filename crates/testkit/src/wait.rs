//! Bounded waiting for conditions.

use std::time::Duration;

/// Timeout of a test's wait. Far longer than needed, because a busy machine is no failure.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Poll interval for conditions without a notification.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Waits for `work`, or fails and says what did not happen.
#[expect(clippy::panic, reason = "this is how a test fails")]
pub async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(done) => done,
        Err(_) => panic!("{what}: not within {} s", PATIENCE.as_secs()),
    }
}

/// Waits until a running hub notices a manual edit of one of its files. The hub trusts a `stat` for two
/// milliseconds; a writer that uses the hub's own code waits for that by itself.
pub async fn noticed() {
    tokio::time::sleep(LOOK_EVERY).await;
}

/// Polls until `look` returns something.
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
