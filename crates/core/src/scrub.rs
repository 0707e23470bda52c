//! The redaction interface, for code that sends text out but does not know the secrets.

use serde_json::Value;
use std::borrow::Cow;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Texts up to this size are redacted on the current async worker. Even an adversarial text takes only a few milliseconds;
/// a switch to another thread would cost more than most texts do.
pub const INLINE_SCRUB_BYTES_MAX: usize = 32 * 1024;

/// Redacts about `bytes` bytes. If that is large, the async worker first hands its other tasks to another thread
/// (`block_in_place`), so that no client waits for another's response.
pub fn scrub_off_worker<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let on_worker =
        || Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if bytes > INLINE_SCRUB_BYTES_MAX && on_worker() { tokio::task::block_in_place(work) } else { work() }
}

/// Redacts secrets.
pub trait Scrub: Send + Sync {
    /// Returns the text with secrets redacted; borrowed if there are none.
    fn scrub<'t>(&self, text: &'t str) -> Cow<'t, str>;

    /// Redacts secrets from every text in a value, keys included.
    fn scrub_value(&self, value: &mut Value);

    /// Returns a number that changes when the result for the same text may change. A cache of redacted text must store the
    /// generation read before the redaction.
    fn generation(&self) -> u64;
}
