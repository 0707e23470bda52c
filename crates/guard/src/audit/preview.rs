//! The redacted preview of arguments and extra parameters in an audit record.

use crate::extra_params;
use crate::redact::Redactor;
use portcullis_core::json::visible;
use portcullis_core::{Arguments, Call, INLINE_SCRUB_BYTES_MAX};

/// Length of each preview.
pub(crate) const PREVIEW_CHARS_MAX: usize = 200;
/// Bound on the arguments that are redacted for a preview. All must be scanned, because a truncated secret is not
/// recognized. A record is opened before the rate limit, so a preview must be cheap for any input.
const SCRUBBED_BYTES_MAX: usize = INLINE_SCRUB_BYTES_MAX;
/// Replaces arguments that could not be parsed to look for secrets.
const UNREADABLE: &str = "[withheld: not readable]";

/// Returns the start of the arguments, redacted and escaped. Extra parameters get their own preview, so that long arguments
/// do not push them out.
pub(crate) fn of(call: &Call, redactor: &Redactor) -> String {
    let mut shown = beginning(&call.arguments, redactor);
    if let Some(extra) = extra_params::object(call) {
        shown.push_str(extra_params::SEPARATOR);
        match extra {
            Ok(extra) => shown.push_str(&beginning(&Arguments::new(extra), redactor)),
            Err(_) => shown.push_str(UNREADABLE),
        }
    }
    shown
}

/// Returns the start of an event's details.
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
    // A secret may be written in escapes, so the parsed value is scanned.
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
