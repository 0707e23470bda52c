//! Taking out what must not leave, for those who let things leave and do not know what is secret.

use serde_json::Value;
use std::borrow::Cow;
use tokio::runtime::{Handle, RuntimeFlavor};

/// What is at most this long is scrubbed on the async worker that has it. Even a text made to be costly takes a few
/// milliseconds then; handing it to another thread would cost more than most texts do.
pub const INLINE_SCRUB_BYTES_MAX: usize = 32 * 1024;

/// Scrubs something of about `bytes` bytes. If that is large, the async worker hands its other tasks to another thread first
/// (`block_in_place`), so that no client waits for what another one reads.
pub fn scrub_off_worker<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let on_worker =
        || Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if bytes > INLINE_SCRUB_BYTES_MAX && on_worker() { tokio::task::block_in_place(work) } else { work() }
}

/// Knows what must not leave.
pub trait Scrub: Send + Sync {
    /// Returns the text without secrets; the same text, if there are none.
    fn scrub<'t>(&self, text: &'t str) -> Cow<'t, str>;

    /// Takes secrets out of every text in a value, keys included.
    fn scrub_value(&self, value: &mut Value);

    /// Returns a number that changes when the same text may come out otherwise. What is kept scrubbed is kept with the
    /// number from before it was scrubbed.
    fn generation(&self) -> u64;
}
