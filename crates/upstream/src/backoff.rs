//! Exponential backoff with jitter: bounds of the delay, and the spread.

use std::time::Duration;
use tokio::time::Instant;

/// The delay before the first retry; it doubles with each further one.
pub(crate) const RETRY_FIRST: Duration = Duration::from_millis(250);
pub(crate) const RETRY_MAX: Duration = Duration::from_secs(60);
/// A connection that lasted this long, counted from when it could be used, resets the backoff.
pub(crate) const GOOD_AFTER: Duration = Duration::from_secs(10);

pub(crate) async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// Adds jitter, so that many servers do not come back at the same moment.
pub(crate) fn jittered(pause: Duration) -> Duration {
    let mut random = [0; 2];
    // Without random numbers there is no jitter, which is harmless.
    let _ = getrandom::fill(&mut random);
    pause.mul_f64(0.75 + f64::from(u16::from_le_bytes(random)) / f64::from(u16::MAX) / 2.0)
}
