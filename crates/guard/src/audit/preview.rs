//! What a record shows of the arguments and of what stands beside them: enough to recognise the call, and nothing that must not
//! leave.

use crate::beside;
use crate::redact::Redactor;
use portcullis_core::json::visible;
use portcullis_core::{Arguments, Call, INLINE_SCRUB_BYTES_MAX};

/// How much is shown of either.
pub(crate) const PREVIEW_CHARS_MAX: usize = 200;
/// How many bytes of arguments are looked through for secrets. All of them must be, because a secret that is cut off
/// is not recognised. A record is opened before the rate limit, so a preview must be cheap whatever a client sends.
const SCRUBBED_BYTES_MAX: usize = INLINE_SCRUB_BYTES_MAX;
/// Stands for what nobody could take apart to look for secrets.
const UNREADABLE: &str = "[withheld: not readable]";

/// Returns the beginning of the arguments, without secrets and with everything in it visible. What stands beside them has a
/// beginning of its own: long arguments do not push it out.
pub(crate) fn of(call: &Call, redactor: &Redactor) -> String {
    let mut shown = beginning(&call.arguments, redactor);
    if let Some(beside) = beside::object(call) {
        shown.push_str(beside::AND_BESIDE);
        match beside {
            Ok(beside) => shown.push_str(&beginning(&Arguments::new(beside), redactor)),
            Err(_) => shown.push_str(UNREADABLE),
        }
    }
    shown
}

/// Returns the beginning of what an event was done with.
pub(crate) fn of_details(details: &serde_json::Value, redactor: &Redactor) -> String {
    shortened(&redactor.scrub(&details.to_string()))
}

fn beginning(arguments: &Arguments, redactor: &Redactor) -> String {
    if let Some(too_long) = arguments.too_long() {
        return format!("[withheld: {} bytes]", too_long.bytes);
    }
    let raw = arguments.raw().get();
    if raw.len() > SCRUBBED_BYTES_MAX {
        return format!("[withheld: {} bytes]", raw.len());
    }
    if !raw.contains("\\u") {
        return shortened(&redactor.scrub(raw));
    }
    // Any character can be written as an escape, and so can those of a secret.
    match arguments.value() {
        Ok(value) => shortened(&redactor.scrub(&value.to_string())),
        Err(_) => UNREADABLE.to_owned(),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(PREVIEW_CHARS_MAX) {
        None => visible(text),
        Some((end, _)) => visible(&text[..end]) + "…",
    }
}
