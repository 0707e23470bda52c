//! Server-sent events.

mod read;

pub use read::{Event, EventReader, EventTooLong};

use crate::frame::append_unbroken;
use bytes::Bytes;

/// Writes one event, whose data is JSON, or has no line break anyway. One `data` line holds it.
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

/// Writes the event that gives a client an id to come back with, and how long to wait before it does.
pub fn priming(id: &str, retry_ms: u64) -> Bytes {
    format!("id: {id}\nretry: {retry_ms}\ndata: \n\n").into()
}

/// A comment that keeps a connection alive through proxies that cut silent ones.
pub const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n\n");
