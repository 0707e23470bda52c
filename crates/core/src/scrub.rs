//! Taking out what must not leave, for those who let things leave and do not know what is secret.

use serde_json::Value;
use std::borrow::Cow;

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
