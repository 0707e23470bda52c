//! Exponential backoff of connections: bounds of the delay.

pub(crate) use portcullis_core::jittered;
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
