//! Server-sent events: serialization of events.

mod read;

pub use read::{SseEvent, SseEventTooLong, SseReader};

use crate::frame::append_unbroken;
use bytes::Bytes;

/// Writes one event. The data is JSON or has no line break, so one `data` line holds it.
pub fn event(id: Option<&str>, name: Option<&str>, data: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(data.len() + 64);
    if let Some(id) = id {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(id.as_bytes());
        out.push(b'\n');
    }
    if let Some(name) = name {
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(name.as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"data: ");
    append_unbroken(&mut out, data);
    out.extend_from_slice(b"\n\n");
    out.into()
}

/// Writes the priming event: an event id for resumption, and the retry delay.
pub fn priming(id: &str, retry_ms: u64) -> Bytes {
    format!("id: {id}\nretry: {retry_ms}\ndata: \n\n").into()
}

/// A comment that keeps proxies from closing an idle connection.
pub const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n\n");
